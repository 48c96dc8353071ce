"""Pretrain BERT in one file of plain JAX: encoder, heads, losses, optimizer, loop.

    beambert build --input 'texts/*.txt' --output data --vocab_size 8000
    python examples/minimal_pretraining.py --data data --output minimal-bert --steps 5000
    beambert fill-mask minimal-bert "the [MASK] was in the city"

It needs the extras [train], [jax] and [convert].

The file is meant to be read from top to bottom. "Paper" is Devlin et al. 2018 (arXiv:1810.04805); modeling.py,
run_pretraining.py and optimization.py are files of google-research/bert. Model and optimizer are pure functions on a
dictionary of arrays by their names in Hugging Face transformers, where dense weights are [outputs, inputs].

Letters in shapes: B examples, S positions, H hidden size, A heads, D = H / A, P masked positions, V tokens.
"""

import argparse
import functools
import itertools
import json
import math
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import tensorflow as tf
from safetensors.numpy import load_file, save_file

from beambert.tokenizer import Tokenizer
from beambert.trainers.data.tf_dataset import as_tf_dataset

Array = jax.Array
Parameters = dict[str, Array]
Batch = dict[str, Array]

# Layers and hidden size (paper, section 3; the smaller models: Turc et al. 2019).
SIZES = {"tiny": (2, 128), "mini": (4, 256), "small": (4, 512), "medium": (8, 512), "base": (12, 768)}
HEAD_SIZE = 64  # In all published models.
MAX_POSITIONS = 512
DROPOUT = 0.1  # Paper, appendix A.2.
INITIALIZER_RANGE = 0.02
LAYER_NORM_EPSILON = 1e-12

# ---- Parameters --------------------------------------------------------------


def parameter_shapes(layers: int, hidden: int, vocab_size: int) -> dict[str, tuple[int, ...]]:
    """Return the shape of each parameter by name."""

    def dense(name: str, inputs: int, outputs: int) -> dict[str, tuple[int, ...]]:
        return {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}

    def norm(name: str) -> dict[str, tuple[int, ...]]:
        return {f"{name}.LayerNorm.weight": (hidden,), f"{name}.LayerNorm.bias": (hidden,)}

    shapes: dict[str, tuple[int, ...]] = {
        "bert.embeddings.word_embeddings.weight": (vocab_size, hidden),
        "bert.embeddings.token_type_embeddings.weight": (2, hidden),
        "bert.embeddings.position_embeddings.weight": (MAX_POSITIONS, hidden),
        **norm("bert.embeddings"),
    }
    for layer in (f"bert.encoder.layer.{index}" for index in range(layers)):
        for projection in ("query", "key", "value"):
            shapes |= dense(f"{layer}.attention.self.{projection}", hidden, hidden)
        shapes |= dense(f"{layer}.attention.output.dense", hidden, hidden) | norm(f"{layer}.attention.output")
        shapes |= dense(f"{layer}.intermediate.dense", hidden, 4 * hidden)
        shapes |= dense(f"{layer}.output.dense", 4 * hidden, hidden) | norm(f"{layer}.output")
    shapes |= dense("bert.pooler.dense", hidden, hidden)
    shapes |= dense("cls.predictions.transform.dense", hidden, hidden) | norm("cls.predictions.transform")
    # The output matrix of the masked-LM head is that of the word embeddings.
    return shapes | {"cls.predictions.bias": (vocab_size,)} | dense("cls.seq_relationship", hidden, 2)


def initial_parameters(key: Array, layers: int, hidden: int, vocab_size: int) -> Parameters:
    """Return random parameters: weights from a truncated normal distribution (`create_initializer` of modeling.py)."""
    shapes = parameter_shapes(layers, hidden, vocab_size)
    parameters = {}
    for (name, shape), own_key in zip(shapes.items(), jax.random.split(key, len(shapes)), strict=True):
        if name.endswith("LayerNorm.weight"):
            parameters[name] = jnp.ones(shape)
        elif name.endswith("bias"):
            parameters[name] = jnp.zeros(shape)
        else:
            parameters[name] = INITIALIZER_RANGE * jax.random.truncated_normal(own_key, -2, 2, shape)
    return parameters


# ---- Encoder -----------------------------------------------------------------

# The keys of all dropout masks of a step, in the order of their use; None for no dropout.
Keys = Iterator[Array | None]


def dropout_keys(key: Array | None) -> Keys:
    """Yield a key for each dropout, derived from the key of the step."""
    return (None if key is None else jax.random.fold_in(key, site) for site in itertools.count())


def dropout(inputs: Array, keys: Keys) -> Array:
    """Set elements to 0 with probability 0.1 and scale the others (`dropout` of modeling.py)."""
    key = next(keys)
    if key is None:
        return inputs
    return jnp.where(jax.random.bernoulli(key, 1 - DROPOUT, inputs.shape), inputs / (1 - DROPOUT), 0)


def dense(parameters: Parameters, name: str, inputs: Array) -> Array:
    """Apply a dense layer: [..., inputs] to [..., outputs]."""
    return inputs @ parameters[f"{name}.weight"].T + parameters[f"{name}.bias"]


def layer_norm(parameters: Parameters, name: str, inputs: Array) -> Array:
    """Normalize the vector of each position (`layer_norm` of modeling.py): [..., H] to [..., H]."""
    mean = inputs.mean(axis=-1, keepdims=True)  # [..., 1]
    variance = jnp.square(inputs - mean).mean(axis=-1, keepdims=True)  # [..., 1]
    normalized = (inputs - mean) / jnp.sqrt(variance + LAYER_NORM_EPSILON)
    return normalized * parameters[f"{name}.LayerNorm.weight"] + parameters[f"{name}.LayerNorm.bias"]


def gelu(inputs: Array) -> Array:
    """Apply GELU in its tanh form (`gelu` of modeling.py)."""
    return 0.5 * inputs * (1 + jnp.tanh(math.sqrt(2 / math.pi) * (inputs + 0.044715 * inputs**3)))


def embed(parameters: Parameters, batch: Batch, keys: Keys) -> Array:
    """Return the sum of word, segment and position embeddings (paper, figure 2), normalized: [B, S, H]."""
    words = parameters["bert.embeddings.word_embeddings.weight"][batch["input_ids"]]  # [B, S, H]
    segments = parameters["bert.embeddings.token_type_embeddings.weight"][batch["segment_ids"]]  # [B, S, H]
    positions = parameters["bert.embeddings.position_embeddings.weight"][: words.shape[1]]  # [S, H]
    return dropout(layer_norm(parameters, "bert.embeddings", words + segments + positions), keys)


def self_attention(parameters: Parameters, name: str, hidden: Array, input_mask: Array, keys: Keys) -> Array:
    """Return multi-head self-attention (`attention_layer` of modeling.py): [B, S, H] to [B, S, H]."""
    batch, length, size = hidden.shape

    def project(projection: str) -> Array:
        projected = dense(parameters, f"{name}.self.{projection}", hidden)  # [B, S, H]
        return projected.reshape(batch, length, size // HEAD_SIZE, HEAD_SIZE).transpose(0, 2, 1, 3)  # [B, A, S, D]

    query, key, value = project("query"), project("key"), project("value")
    scores = query @ key.transpose(0, 1, 3, 2) / math.sqrt(HEAD_SIZE)  # [B, A, S, S]
    # No position attends to padding.
    scores += -10000.0 * (1 - input_mask[:, None, None, :])  # + [B, 1, 1, S]
    probabilities = dropout(jax.nn.softmax(scores, axis=-1), keys)
    context = (probabilities @ value).transpose(0, 2, 1, 3).reshape(batch, length, size)  # [B, S, H]
    return dense(parameters, f"{name}.output.dense", context)


def transformer_layer(parameters: Parameters, name: str, hidden: Array, input_mask: Array, keys: Keys) -> Array:
    """Apply attention and feed-forward, each with a residual (`transformer_model` of modeling.py): [B, S, H]."""
    attended = dropout(self_attention(parameters, f"{name}.attention", hidden, input_mask, keys), keys)
    hidden = layer_norm(parameters, f"{name}.attention.output", hidden + attended)
    intermediate = gelu(dense(parameters, f"{name}.intermediate.dense", hidden))  # [B, S, 4 H]
    output = dropout(dense(parameters, f"{name}.output.dense", intermediate), keys)
    return layer_norm(parameters, f"{name}.output", hidden + output)


def encode(parameters: Parameters, batch: Batch, keys: Keys) -> Array:
    """Return the hidden states of the last layer (paper, section 3): [B, S, H]."""
    hidden = embed(parameters, batch, keys)
    input_mask = batch["input_mask"].astype(jnp.float32)  # [B, S], 1 for tokens, 0 for padding
    for index in range(sum(name.endswith("self.query.weight") for name in parameters)):
        hidden = transformer_layer(parameters, f"bert.encoder.layer.{index}", hidden, input_mask, keys)
    return hidden


# ---- Losses ------------------------------------------------------------------


def cross_entropy(logits: Array, labels: Array) -> Array:
    """Return -log softmax(logits)[label]: [..., classes] and [...] to [...]."""
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], axis=-1)[..., 0]


def masked_lm_loss(parameters: Parameters, hidden: Array, batch: Batch) -> Array:
    """Return the mean over the masked tokens (paper, section 3.1, task 1; `get_masked_lm_output`)."""
    masked = jnp.take_along_axis(hidden, batch["masked_lm_positions"][:, :, None], axis=1)  # [B, P, H]
    transformed = gelu(dense(parameters, "cls.predictions.transform.dense", masked))
    transformed = layer_norm(parameters, "cls.predictions.transform", transformed)  # [B, P, H]
    word_embeddings = parameters["bert.embeddings.word_embeddings.weight"]  # [V, H]
    logits = transformed @ word_embeddings.T + parameters["cls.predictions.bias"]  # [B, P, V]
    # An example with fewer than P masked tokens has predictions of weight 0.
    weights = batch["masked_lm_weights"]  # [B, P]
    return (weights * cross_entropy(logits, batch["masked_lm_ids"])).sum() / (weights.sum() + 1e-5)


def next_sentence_loss(parameters: Parameters, hidden: Array, batch: Batch) -> Array:
    """Return the mean over the pairs (paper, section 3.1, task 2; `get_next_sentence_output`)."""
    pooled = jnp.tanh(dense(parameters, "bert.pooler.dense", hidden[:, 0]))  # [B, H], of [CLS]
    logits = dense(parameters, "cls.seq_relationship", pooled)  # [B, 2]
    return cross_entropy(logits, batch["next_sentence_labels"][:, 0]).mean()  # 0: B follows A, 1: B is random


def pretraining_loss(parameters: Parameters, batch: Batch, key: Array | None) -> tuple[Array, dict[str, Array]]:
    """Return the sum of both losses (paper, appendix A.2), and each of them; `key` is that of the dropout."""
    hidden = encode(parameters, batch, dropout_keys(key))
    losses = {"masked_lm_loss": masked_lm_loss(parameters, hidden, batch)}
    if "next_sentence_labels" in batch:  # Missing with --objective mlm.
        losses["next_sentence_loss"] = next_sentence_loss(parameters, hidden, batch)
    return sum(losses.values(), jnp.zeros(())), losses


# ---- Optimizer ---------------------------------------------------------------

BETA_1, BETA_2, EPSILON, WEIGHT_DECAY, CLIP_NORM = 0.9, 0.999, 1e-6, 0.01, 1.0
NOT_DECAYED = re.compile("LayerNorm|bias")


def learning_rate_at(step: Array, peak: float, steps: int, warmup_steps: int) -> Array:
    """Return the rate: linear warm-up from 0, then linear decay to 0 (`create_optimizer` of optimization.py)."""
    return jnp.where(step < warmup_steps, peak * step / max(warmup_steps, 1), peak * (1 - step / steps))


def clip_by_global_norm(gradients: Parameters) -> Parameters:
    """Scale all gradients by one factor, so that their common norm is at most 1 (`create_optimizer`)."""
    norm = jnp.sqrt(sum(jnp.square(gradient).sum() for gradient in gradients.values()))
    return {name: gradient * CLIP_NORM / jnp.maximum(norm, CLIP_NORM) for name, gradient in gradients.items()}


def adam_step(
    parameters: Parameters, first: Parameters, second: Parameters, gradients: Parameters, rate: Array
) -> tuple[Parameters, Parameters, Parameters]:
    """Return new parameters and moment estimates (`AdamWeightDecayOptimizer` of optimization.py).

    This is Adam with decoupled weight decay, but without Adam's bias correction, and with epsilon outside of the root.
    """
    first = {name: BETA_1 * first[name] + (1 - BETA_1) * gradient for name, gradient in gradients.items()}
    second = {name: BETA_2 * second[name] + (1 - BETA_2) * gradient**2 for name, gradient in gradients.items()}
    updated = {}
    for name, value in parameters.items():
        update = first[name] / (jnp.sqrt(second[name]) + EPSILON)
        if not NOT_DECAYED.search(name):
            update += WEIGHT_DECAY * value
        updated[name] = value - rate * update
    return updated, first, second


# ---- Loop --------------------------------------------------------------------


def train(
    parameters: Parameters,
    batches: Iterator[dict[str, np.ndarray]],
    steps: int,
    peak_rate: float,
    warmup_steps: int,
    key: Array | None,
) -> tuple[Parameters, list[dict[str, float]]]:
    """Train, and return the final parameters and the losses of every step; without a key, there is no dropout."""

    @functools.partial(jax.jit, donate_argnums=0)
    def train_step(state: tuple[Parameters, Parameters, Parameters], batch: Batch, step: Array) -> tuple:
        step_key = None if key is None else jax.random.fold_in(key, step)
        gradients, losses = jax.grad(pretraining_loss, has_aux=True)(state[0], batch, step_key)
        rate = learning_rate_at(step, peak_rate, steps, warmup_steps)
        return adam_step(*state, clip_by_global_norm(gradients), rate), losses

    first, second = jax.tree.map(jnp.zeros_like, parameters), jax.tree.map(jnp.zeros_like, parameters)
    # A copy, because a step reuses the memory of its arguments.
    state = (jax.tree.map(jnp.copy, parameters), first, second)
    history = []
    for step, batch in zip(range(steps), batches, strict=False):
        state, losses = train_step(state, batch, step)
        history.append(losses)
        if (step + 1) % 100 == 0 or step + 1 == steps:
            means = jax.tree.map(lambda *values: float(np.mean(values)), *history[-100:])
            print(f"step {step + 1}:", ", ".join(f"{name} {value:.3f}" for name, value in means.items()), flush=True)
    return state[0], [{name: float(value) for name, value in losses.items()} for losses in history]


def read_batches(data: Path, batch_size: int, seed: int) -> Iterator[dict[str, np.ndarray]]:
    """Yield the batches of `beambert pretrain` with the same seed: int32 [B, S], [B, P] and [B, 1] by feature name."""
    tf.config.set_visible_devices([], "GPU")  # JAX needs the memory of the GPU.
    dataset = as_tf_dataset(data, batch_size=batch_size, shuffle=True, seed=seed, epochs=None)
    if "sequence_ids" in dataset.element_spec:
        raise SystemExit(f"{data} has packed rows, which need an attention mask of their own; build it without --pack")
    return dataset.as_numpy_iterator()


def save(output: Path, parameters: Parameters, tokenizer: Tokenizer, vocab_file: Path) -> None:
    """Write a model that Hugging Face transformers and `beambert` read."""
    output.mkdir(parents=True, exist_ok=True)
    save_file({name: np.asarray(value) for name, value in parameters.items()}, output / "model.safetensors")
    vocab_size, hidden = parameters["bert.embeddings.word_embeddings.weight"].shape
    config = {
        "architectures": ["BertForPreTraining"],
        "model_type": "bert",
        "vocab_size": vocab_size,
        "hidden_size": hidden,
        "num_hidden_layers": sum(name.endswith("self.query.weight") for name in parameters),
        "num_attention_heads": hidden // HEAD_SIZE,
        "intermediate_size": 4 * hidden,
        "max_position_embeddings": MAX_POSITIONS,
        "hidden_act": "gelu_new",  # The tanh form.
        "layer_norm_eps": LAYER_NORM_EPSILON,
    }
    (output / "config.json").write_text(json.dumps(config, indent=2))
    (output / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": tokenizer.rules.do_lower_case}))
    shutil.copyfile(vocab_file, output / "vocab.txt")


def load(directory: Path) -> Parameters:
    """Return the parameters that `save` wrote, or those of another `BertForPreTraining` in safetensors."""
    return {name: jnp.asarray(value) for name, value in load_file(directory / "model.safetensors").items()}


def main(argv: list[str] | None = None) -> None:
    """Train a model from random weights."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="dataset of beambert build, in TFRecord")
    parser.add_argument("--output", type=Path, required=True, help="directory of the model")
    parser.add_argument("--size", choices=SIZES, default="tiny", help="layers and hidden size")
    parser.add_argument("--steps", type=int, default=2000, help="training steps, a tenth of them warm-up")
    parser.add_argument("--batch_size", type=int, default=32, help="examples per step")
    parser.add_argument("--learning_rate", type=float, default=1e-3, help="peak learning rate")
    parser.add_argument("--seed", type=int, default=12345, help="seed of weights, order and dropout")
    args = parser.parse_args(argv)
    tokenizer = Tokenizer.load(args.data)
    weights_key, key = jax.random.split(jax.random.key(args.seed))
    parameters = initial_parameters(weights_key, *SIZES[args.size], len(tokenizer.vocabulary.tokens))
    batches = read_batches(args.data, args.batch_size, args.seed)
    parameters, _ = train(parameters, batches, args.steps, args.learning_rate, args.steps // 10, key)
    save(args.output, parameters, tokenizer, args.data / "vocab.txt")


if __name__ == "__main__":
    main()
