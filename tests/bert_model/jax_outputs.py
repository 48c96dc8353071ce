"""Program: compute outputs of the models under JAX on two devices, and save them.

Arguments: a directory, which gets the files every.npz, seeded.npz and fused.npz. The program fails if TensorFlow was
imported.
"""

import os

os.environ.update(KERAS_BACKEND="jax", JAX_PLATFORMS="cpu")

import dataclasses
import functools
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import keras
import numpy as np

from beambert.bert_model.config import BertConfig
from beambert.bert_model.encoder import BertEncoder
from beambert.bert_model.finetuning_models import BertForTask
from beambert.bert_model.layers import LayerNormalization
from beambert.bert_model.ops import dropout
from beambert.bert_model.ops import jax as jax_ops
from beambert.bert_model.ops.jax import flash_attention
from beambert.bert_model.ops.jax.dropout import example_seeds
from beambert.bert_model.pretraining import BertForPretraining
from tests.bert_model.every_output import every_output
from tests.bert_model.small_models import CONFIG, encoder_inputs, randomise

FUSED_CONFIG = BertConfig(
    vocab_size=50,
    hidden_size=64,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=80,
    max_position_embeddings=64,
)


def outputs_and_gradients(fused: bool) -> dict[str, np.ndarray]:
    jax_ops.has_attention_kernel = lambda: fused
    encoder = BertEncoder(FUSED_CONFIG)
    generator = np.random.default_rng(0)
    for variable in encoder.trainable_variables:
        variable.assign(generator.normal(0, 0.3, variable.shape))
    inputs = encoder_inputs((3, 64), FUSED_CONFIG)
    seeds = example_seeds(5, 7, 0, 3)

    def loss(weights):
        (hidden, pooled), _ = encoder.stateless_call(weights, [], **inputs, seed=seeds)
        return jnp.sum(jnp.sin(hidden)) + jnp.sum(pooled.astype(jnp.float32)), hidden

    weights = [variable.value for variable in encoder.trainable_variables]
    uses_kernel = "pallas_call" in str(jax.make_jaxpr(loss)(weights))
    assert uses_kernel == fused
    gradients, hidden = jax.jit(jax.grad(loss, has_aux=True))(weights)
    return {"hidden": hidden, **{f"gradient_{index}": values for index, values in enumerate(gradients)}}


def fused_outputs() -> dict[str, np.ndarray]:
    """Return the results without the kernel, "<name>/False", and with it, "<name>/True"; change the dtype policy."""
    keras.config.set_dtype_policy("mixed_bfloat16")
    flash_attention.attention = functools.partial(flash_attention.attention, interpret=True)
    return {
        f"{name}/{fused}": values for fused in (False, True) for name, values in outputs_and_gradients(fused).items()
    }


BATCH = 8
SHALLOW = dataclasses.replace(CONFIG, num_hidden_layers=2)
# One task for each path through the model, besides that of pretraining, which has the pooled output.
TASKS = ("token_classification", "token_classification_bilstm", "multiple_choice")


def every_model():
    """Yield triples of name, model and features."""
    model = BertForPretraining(SHALLOW, pad_vocabulary=True)
    randomise(model)
    yield "pairs", model, {**encoder_inputs((BATCH, 16)), "masked_lm_positions": np.array([[1, 3, 5]] * BATCH)}
    for task in TASKS:
        model = BertForTask(SHALLOW, task, None if task == "multiple_choice" else 4)
        randomise(model)
        features = encoder_inputs((BATCH, 16))
        if task == "multiple_choice":
            # Two equal choices, which differ only in their dropout masks.
            features = {name: np.repeat(values[:, None], 2, axis=1) for name, values in features.items()}
        yield task, model, features


def seeded_outputs():
    """Return outputs of models with a dropout seed per example, as arrays by name.

    Each model has logits of the whole batch, of the batch with its halves exchanged, of the batch sharded over the
    devices, without dropout, and of the next step. Outputs and gradients of dropout are returned too.
    """
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("data",))
    by_example = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
    outputs = {}
    half = BATCH // 2
    for name, model, features in every_model():
        run = jax.jit(lambda features, seed, model=model: jax.tree.leaves(model(features, seed=seed)))
        seeds = example_seeds(3, 20, 0, BATCH)
        exchanged = run(
            {key: np.roll(values, half, axis=0) for key, values in features.items()},
            np.concatenate([example_seeds(3, 20, half, half), example_seeds(3, 20, 0, half)]),
        )
        by_case = {
            "whole": run(features, seeds),
            "exchanged": [np.roll(values, half, axis=0) for values in exchanged],
            "sharded": run(jax.device_put(features, by_example), jax.device_put(seeds, by_example)),
            "undropped": run(features, None),
            "next_step": run(features, example_seeds(3, 21, 0, BATCH)),
        }
        for case, logits in by_case.items():
            outputs |= {f"{case}/{name}/{index}": np.asarray(values) for index, values in enumerate(logits)}
    check_gradient_of_normalization()
    return outputs | dropout_and_gradient("float32") | dropout_and_gradient("bfloat16")


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
    outputs, backward = jax.vjp(LayerNormalization(SHALLOW), inputs)
    assert outputs.dtype == jnp.float32
    assert backward(outputs)[0].dtype == jnp.bfloat16


if __name__ == "__main__":
    directory = Path(sys.argv[1])
    jax.config.update("jax_num_cpu_devices", 2)
    jax.config.update("jax_disable_most_optimizations", True)  # Compilation takes most of the time.
    np.savez(directory / "every.npz", **every_output())
    np.savez(directory / "seeded.npz", **seeded_outputs())
    np.savez(directory / "fused.npz", **fused_outputs())
    if "tensorflow" in sys.modules:
        sys.exit("tensorflow was imported")
