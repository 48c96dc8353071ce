"""Measure a pretraining step on the JAX backend, for accelerators without TensorFlow: sequences/s and MFU.

The model is that of `beambert pretrain` on Keras's JAX backend, with dropout, both losses, clipping and BERT's
optimizer, in one compiled function that donates its arguments. Examples and weights are random.

    PYTHONPATH=. python benchmarks/jax_step.py --model base --batch_size 256
    PYTHONPATH=. python benchmarks/jax_step.py --model base --batch_size 256 --attention_dropout 0

On a GPU, attention without dropout uses cuDNN's fused kernel. Attention with dropout does not, because Keras does not
pass dropout to it. MFU is the model's FLOPs (`bert_model/size.py`) divided by the device's published peak. The second
figure excludes positions that the last layer does not compute.

The script never imports TensorFlow. --help lists the flags.
"""

import argparse
import dataclasses
import functools
import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from benchmarks.random_rows import random_features
from bert_model.checkpoints.variable_names import variable_names, variables_by_tf1_name
from bert_model.config import PRESETS, BertConfig
from bert_model.size import skipped_training_flops_per_token, training_flops_per_token
from trainers.monitoring.throughput import peak_flops
from trainers.optimization.optimizer_options import OptimizerOptions, is_decayed

Arrays = dict[str, Any]
State = tuple[Arrays, Arrays, Arrays]


def random_weights(config: BertConfig) -> dict[str, np.ndarray]:
    """Return weights by TF1 name, equal on every backend: a normal initialization without truncation."""
    generator = np.random.default_rng(0)
    weights = {}
    for name in variable_names(config):
        values = generator.normal(0, config.initializer_range, name.shape)
        if name.tf1.endswith(("beta", "bias")):
            values = np.zeros(name.shape)
        weights[name.tf1] = (np.ones(name.shape) if name.tf1.endswith("gamma") else values).astype(np.float32)
    return weights


def bert_adam(state: State, gradients: Arrays, rate: float) -> State:
    """Update weights and slots after clipping, as in `trainers/optimization/optimizers.py`.

    Args:
        state: weights, m and v, by TF1 name.
        gradients: by TF1 name.
        rate: the learning rate.
    """
    import jax.numpy as jnp

    options = OptimizerOptions()
    norm = jnp.sqrt(sum(jnp.sum(jnp.square(gradient)) for gradient in gradients.values()))
    shortened = jnp.minimum(1.0, options.clip_norm / norm)
    weights, m, v = {}, {}, {}
    for name, gradient in gradients.items():
        clipped = gradient * shortened
        m[name] = options.beta_1 * state[1][name] + (1 - options.beta_1) * clipped
        v[name] = options.beta_2 * state[2][name] + (1 - options.beta_2) * jnp.square(clipped)
        update = m[name] / (jnp.sqrt(v[name]) + options.epsilon)
        if is_decayed(name):
            update += options.weight_decay * state[0][name]
        weights[name] = state[0][name] - rate * update
    return weights, m, v


def make_step(config: BertConfig, precision: str, with_dropout: bool) -> tuple[Callable[..., tuple[State, Any]], State]:
    """Return the compiled step, (state, step number, features) to (state, loss), and the initial state."""
    import jax
    import jax.numpy as jnp
    import keras

    from bert_model.pretraining import BertForPretraining, pretraining_losses
    from bert_model.vocabulary_padding import with_padding

    keras.mixed_precision.set_dtype_policy("float32" if precision == "float32" else "mixed_bfloat16")
    model = BertForPretraining(config, pad_vocabulary=True)
    variables = variables_by_tf1_name(model)
    places = {id(variable): place for place, variable in enumerate(model.trainable_variables)}

    def loss_of(weights: Arrays, features: Mapping[str, Any], seed: Any) -> Any:
        values = [None] * len(places)
        for name, value in weights.items():
            values[places[id(variables[name])]] = value
        logits, _ = model.stateless_call(values, [], features, seed=seed)
        return pretraining_losses(logits, features).total

    # The state is donated, so memory has one copy of it.
    @functools.partial(jax.jit, donate_argnums=0)
    def step(state: State, number: Any, features: Mapping[str, Any]) -> tuple[State, Any]:
        seed = jnp.stack([number, 0]) if with_dropout else None
        loss, gradients = jax.value_and_grad(loss_of)(state[0], features, seed)
        return bert_adam(state, gradients, 1e-4), loss

    first = random_weights(config)
    weights = {name: jnp.asarray(with_padding(name, first[name], v.shape)) for name, v in variables.items()}
    slots = [{name: jnp.zeros_like(value) for name, value in weights.items()} for _ in range(2)]
    return step, (weights, *slots)


def parse(arguments: list[str]) -> argparse.Namespace:
    """Parse the flags."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=list(PRESETS), default="base")
    parser.add_argument("--vocab_size", type=int, default=30_522)
    parser.add_argument("--batch_size", type=int, default=256)
    parser.add_argument("--max_seq_length", type=int, default=128)
    parser.add_argument("--max_predictions_per_seq", type=int, default=20)
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="bfloat16")
    parser.add_argument("--dropout", type=float, default=0.1, help="dropout of hidden states (default: %(default)s)")
    parser.add_argument(
        "--attention_dropout", type=float, help="dropout of attention probabilities (default: --dropout)"
    )
    parser.add_argument("--steps", type=int, default=50, help="timed steps (default: %(default)s)")
    parser.add_argument(
        "--warm_up_steps", type=int, default=5, help="steps before the timed ones (default: %(default)s)"
    )
    parser.add_argument(
        "--peak_tflops", type=float, help="peak TFLOP/s of the device (default: its published figure, where known)"
    )
    return parser.parse_args(arguments)


def main() -> None:
    """Measure the step and print the results."""
    options = parse(sys.argv[1:])
    os.environ["KERAS_BACKEND"] = "jax"
    import jax

    config = dataclasses.replace(
        BertConfig.preset(options.model, vocab_size=options.vocab_size),
        hidden_dropout_prob=options.dropout,
        attention_probs_dropout_prob=(
            options.dropout if options.attention_dropout is None else options.attention_dropout
        ),
    )
    length, predictions, batch_size = options.max_seq_length, options.max_predictions_per_seq, options.batch_size
    with_dropout = config.hidden_dropout_prob > 0 or config.attention_probs_dropout_prob > 0
    step, state = make_step(config, options.precision, with_dropout)
    features = jax.device_put(random_features(config.vocab_size, batch_size, length, predictions))
    losses = []
    begin = start = time.perf_counter()
    for number in range(options.warm_up_steps + options.steps):
        if number == options.warm_up_steps:
            jax.block_until_ready(state)
            start = time.perf_counter()
        state, loss = step(state, np.int32(number), features)
        losses.append(loss)
    jax.block_until_ready(state)
    end = time.perf_counter()
    if "tensorflow" in sys.modules:
        sys.exit("tensorflow was imported")

    device = jax.devices()[0]
    rate = batch_size * options.steps / (end - start)
    a_token = training_flops_per_token(config, length, predictions)
    made = a_token - skipped_training_flops_per_token(config, length, predictions)
    print(f"{device.device_kind}, JAX {jax.__version__}, BERT {options.model}, {options.precision}")
    print(f"batch {batch_size} x {length}, {predictions} predictions, {options.vocab_size:,} tokens, ", end="")
    print(f"dropout {config.hidden_dropout_prob:g}, attention dropout {config.attention_probs_dropout_prob:g}")
    print(f"start and first {options.warm_up_steps} steps {start - begin:.1f} s")
    print(f"loss {float(losses[0]):.6f} at first, {float(losses[-1]):.6f} after {len(losses) - 1} steps")
    print(f"{rate:.1f} sequences/s, {1000 * batch_size / rate:.1f} ms per step")
    peak = options.peak_tflops * 1e12 if options.peak_tflops else peak_flops(device.device_kind, options.precision)
    share = f"; MFU {rate * length * a_token / peak:.1%}, {rate * length * made / peak:.1%}" if peak else ""
    print(f"{rate * length * a_token / 1e12:.3f} TFLOP/s, {rate * length * made / 1e12:.3f} of them computed{share}")
    if not peak:
        print("unknown MFU: the peak of this device is not listed; give --peak_tflops")


if __name__ == "__main__":
    main()
