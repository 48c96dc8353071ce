"""Compute logits of all models under JAX with a dropout seed per example.

`python seeded_outputs.py FILE.npz` saves them. Each model has logits of the whole batch, of its halves, of the batch
sharded over four devices, without dropout, and of the next step. Outputs and gradients of dropout are saved too.
"""

import os
import sys

os.environ.update(KERAS_BACKEND="jax", JAX_PLATFORMS="cpu")

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from bert_model.dropout import dropout
from bert_model.finetuning_models import BertForTask
from bert_model.jax_dropout import example_seeds
from bert_model.parameters import layer_norm
from bert_model.pretraining import BertForPretraining
from tests.bert_model.small_models import CONFIG, encoder_inputs, packed_inputs, randomise

BATCH = 8
SHALLOW = dataclasses.replace(CONFIG, num_hidden_layers=2)
# One task for each path through the model.
TASKS = ("classification", "token_classification", "token_classification_bilstm", "multiple_choice")


def every_model():
    """Yield triples of name, model and features."""
    positions = {"masked_lm_positions": np.array([[1, 3, 5]] * BATCH)}
    row = {
        name: np.repeat(values, BATCH, axis=0) for name, values in packed_inputs([5, 6, 4], row_length=16)[0].items()
    }
    for name, features in (("pairs", encoder_inputs((BATCH, 16))), ("packed", row)):
        model = BertForPretraining(SHALLOW, pad_vocabulary=True)
        randomise(model)
        yield name, model, {**features, **positions}
    for task in TASKS:
        model = BertForTask(SHALLOW, task, None if task == "multiple_choice" else 4)
        randomise(model)
        features = encoder_inputs((BATCH, 16))
        if task == "multiple_choice":
            # Two equal choices, which differ only in their dropout masks.
            features = {name: np.repeat(values[:, None], 2, axis=1) for name, values in features.items()}
        yield task, model, features


def main():
    jax.config.update("jax_num_cpu_devices", 4)
    jax.config.update("jax_disable_most_optimizations", True)  # Compilation takes most of the time.
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("data",))
    by_example = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
    outputs = {}
    for name, model, features in every_model():
        run = jax.jit(lambda features, seed, model=model: jax.tree.leaves(model(features, seed=seed)))
        seeds = example_seeds(3, 20, 0, BATCH)
        halves = [
            run({key: values[half] for key, values in features.items()}, example_seeds(3, 20, half.start, BATCH // 2))
            for half in (slice(0, BATCH // 2), slice(BATCH // 2, BATCH))
        ]
        by_case = {
            "whole": run(features, seeds),
            "halves": [np.concatenate(pair) for pair in zip(*halves, strict=True)],
            "sharded": run(jax.device_put(features, by_example), jax.device_put(seeds, by_example)),
            "undropped": run(features, None),
            "next_step": run(features, example_seeds(3, 21, 0, BATCH)),
        }
        for case, logits in by_case.items():
            outputs |= {f"{case}/{name}/{index}": np.asarray(values) for index, values in enumerate(logits)}
    check_gradient_of_normalization()
    outputs |= dropout_and_gradient("float32") | dropout_and_gradient("bfloat16")
    np.savez(sys.argv[1], **outputs)


def dropout_and_gradient(dtype):
    """Return outputs and gradient of dropout with rate 1/4 for inputs and upstream gradients of 3, as float32."""
    threes, seeds = jnp.full((BATCH, 40, 50), 3, dtype), example_seeds(3, 20, 0, BATCH)
    outputs, backward = jax.vjp(lambda inputs: dropout(inputs, 0.25, seeds), threes)
    (gradient,) = backward(threes)
    assert outputs.dtype == gradient.dtype == threes.dtype
    return {f"dropout/{dtype}": outputs.astype(np.float32), f"gradient/{dtype}": gradient.astype(np.float32)}


def check_gradient_of_normalization():
    """Check that bfloat16 inputs of a float32 normalization, as in the masked-LM head, have bfloat16 gradients."""
    inputs = jnp.ones((2, SHALLOW.hidden_size), jnp.bfloat16)
    outputs, backward = jax.vjp(layer_norm(SHALLOW), inputs)
    assert outputs.dtype == jnp.float32
    assert backward(outputs)[0].dtype == jnp.bfloat16


if __name__ == "__main__":
    main()
