"""The forward pass of BERT in float64 NumPy, one example at a time, written only from the paper and the TF1 names."""

import math
from typing import NamedTuple

import numpy as np


class Encoded(NamedTuple):
    hidden: np.ndarray  # [S, H]
    pooled: np.ndarray  # [H]
    states: list[np.ndarray]  # layers + 1 of [S, H]
    maps: list[np.ndarray]  # layers of [heads, S, S]


def normalise(x, gamma, beta, epsilon=1e-12):
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + epsilon) * gamma + beta


def gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def gelu_erf(x):
    return 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def relu(x):
    return np.maximum(x, 0)


def softmax(x):
    exponentials = np.exp(x - x.max(-1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True)


def encode(
    weights,
    layers,
    heads,
    input_ids,
    input_mask,
    segment_ids,
    scales=None,
    causal_attention=False,
    activation=gelu,
    epsilon=1e-12,
):
    """Return the outputs of the encoder for one example, whose ids and mask are [S].

    `scales` is a function of the number of a dropout site. It returns the factors of dropout there: [S, H], or
    [heads, S, S] for attention probabilities.
    """
    w = weights
    if scales is None:

        def scales(site):
            return np.ones((heads, 1, 1)) if site % 3 == 1 else 1.0

    length = len(input_ids)
    x = w["bert/embeddings/word_embeddings"][input_ids]
    x = x + w["bert/embeddings/token_type_embeddings"][segment_ids] + w["bert/embeddings/position_embeddings"][:length]
    x = normalise(x, w["bert/embeddings/LayerNorm/gamma"], w["bert/embeddings/LayerNorm/beta"], epsilon) * scales(0)
    masked = np.tile(1 - input_mask, (length, 1))
    if causal_attention:
        masked = np.maximum(masked, np.triu(np.ones((length, length)), 1))
    states, maps = [x], []
    for index in range(layers):
        scope = f"bert/encoder/layer_{index}"
        query, key, value = (
            x @ w[f"{scope}/attention/self/{name}/kernel"] + w[f"{scope}/attention/self/{name}/bias"]
            for name in ("query", "key", "value")
        )
        width = query.shape[1] // heads
        context = np.zeros_like(query)
        maps.append(np.zeros((heads, length, length)))
        for head in range(heads):
            part = slice(head * width, (head + 1) * width)
            scores = query[:, part] @ key[:, part].T / math.sqrt(width) + masked * -10000.0
            maps[-1][head] = softmax(scores)
            context[:, part] = (maps[-1][head] * scales(1 + 3 * index)[head]) @ value[:, part]
        attended = context @ w[f"{scope}/attention/output/dense/kernel"] + w[f"{scope}/attention/output/dense/bias"]
        names = (f"{scope}/attention/output/LayerNorm/gamma", f"{scope}/attention/output/LayerNorm/beta")
        x = normalise(x + attended * scales(2 + 3 * index), w[names[0]], w[names[1]], epsilon)
        inner = activation(x @ w[f"{scope}/intermediate/dense/kernel"] + w[f"{scope}/intermediate/dense/bias"])
        outer = inner @ w[f"{scope}/output/dense/kernel"] + w[f"{scope}/output/dense/bias"]
        names = (f"{scope}/output/LayerNorm/gamma", f"{scope}/output/LayerNorm/beta")
        x = normalise(x + outer * scales(3 + 3 * index), w[names[0]], w[names[1]], epsilon)
        states.append(x)
    pooled = np.tanh(x[0] @ w["bert/pooler/dense/kernel"] + w["bert/pooler/dense/bias"])
    return Encoded(x, pooled, states, maps)


def pretraining(weights, layers, heads, features):
    """Return the logits and losses of a batch."""
    w = weights
    masked_lm, next_sentence = [], []
    lm_total, lm_weight, ns_total = 0.0, 0.0, 0.0
    for row in range(len(features["input_ids"])):
        example = {name: values[row] for name, values in features.items()}
        hidden, pooled, _, _ = encode(
            weights, layers, heads, example["input_ids"], example["input_mask"], example["segment_ids"]
        )
        y = hidden[example["masked_lm_positions"]]
        y = gelu(y @ w["cls/predictions/transform/dense/kernel"] + w["cls/predictions/transform/dense/bias"])
        names = ("cls/predictions/transform/LayerNorm/gamma", "cls/predictions/transform/LayerNorm/beta")
        y = normalise(y, w[names[0]], w[names[1]])
        masked_lm.append(y @ w["bert/embeddings/word_embeddings"].T + w["cls/predictions/output_bias"])
        next_sentence.append(
            pooled @ w["cls/seq_relationship/output_weights"].T + w["cls/seq_relationship/output_bias"]
        )
        for logits, label, weight in zip(
            masked_lm[-1], example["masked_lm_ids"], example["masked_lm_weights"], strict=True
        ):
            lm_total -= weight * math.log(softmax(logits)[label])
            lm_weight += weight
        ns_total -= math.log(softmax(next_sentence[-1])[example["next_sentence_labels"][0]])
    lm_loss = lm_total / (lm_weight + 1e-5)
    ns_loss = ns_total / len(masked_lm)
    return np.array(masked_lm), np.array(next_sentence), lm_loss, ns_loss, lm_loss + ns_loss
