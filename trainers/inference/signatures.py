"""The signatures of an exported model, by task, from strings and from ids.

Everything here is traced into a graph of core TensorFlow operations; the batch and the length are free.

Letters in shapes: B texts, S positions, T tokens, M masks, K candidates, C choices, H hidden size, n labels.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from bert_model.checkpoints.variable_names import PRETRAINING, variables_by_tf1_name
from bert_model.heads import cls_embedding, mean_embedding
from tokenizer.in_graph import InGraphTokenizer
from trainers.inference.model_loading import MASKED_LM, POOLER, InferenceModel
from trainers.inference.span_signatures import answer_spans

Features = dict[str, tf.Tensor]
# From features to logits, or to (hidden, pooled) of a pretrained model.
Forward = Callable[[Features], Any]
Signatures = dict[str, Any]
INPUTS = ("input_ids", "input_mask", "segment_ids")
DEFAULT_SIGNATURE = "serving_default"
IDS_SIGNATURE = "ids"


def served_model(opened: InferenceModel, max_seq_length: int, top_k: int) -> tuple[tf.Module, Signatures]:
    """Return the content of a SavedModel: a model with its tokenizer.

    Args:
        opened: the model.
        max_seq_length: tokens of a text, or pair of texts, with [CLS] and [SEP]; the rest is cut, or, of the context of
            a question, read in further windows.
        top_k: candidates for each mask.

    Returns:
        What has the weights and tables, and the functions by the name of their signature. Each takes and returns
        tensors whose first dimension is B.
    """
    module = tf.Module()
    module.tokenizer = InGraphTokenizer(opened.vocabulary, opened.do_lower_case)
    # Variables are saved as what they are, without the layers of Keras around them.
    module.weights = [
        variable.value
        for name, variable in variables_by_tf1_name(opened.model).items()
        if name not in opened.missing or name.startswith(POOLER)
    ]
    reader = _TextReader(module.tokenizer, tf.constant(opened.vocabulary.tokens), max_seq_length)
    forward = forward_function(opened)
    if opened.task == PRETRAINING:
        signatures = _pretraining(reader, forward, opened, top_k)
    else:
        signatures = _SIGNATURES_OF_TASK[opened.task](reader, forward, opened)
    return module, {**signatures, IDS_SIGNATURE: ids_function(opened, forward)}


def forward_function(opened: InferenceModel) -> Forward:
    """Return the model as one function of the graph, from input_ids, input_mask and segment_ids, for all signatures."""
    model = opened.model
    ids = tf.TensorSpec(_ids_shape(opened), tf.int32)

    @tf.function(input_signature=[ids, ids, ids], autograph=False)
    def forward(input_ids: tf.Tensor, input_mask: tf.Tensor, segment_ids: tf.Tensor) -> Any:
        if opened.task == PRETRAINING:
            return model.encoder(input_ids, input_mask, segment_ids, causal_attention=model.causal_attention)
        return model({"input_ids": input_ids, "input_mask": input_mask, "segment_ids": segment_ids})

    return lambda features: forward(*(features[name] for name in INPUTS))


def plain_forward(opened: InferenceModel) -> Forward:
    """Return the model for converters: every position of the last layer is computed, so that no tensor is empty.

    LiteRT returns NaN where the encoder is asked for no position of its last layer (`output_range=0`).
    """
    model = opened.model

    def forward(features: Features) -> Any:
        if opened.task not in ("classification", "regression", "multiple_choice"):
            return forward_function(opened)(features)
        shape = tf.shape(features["input_ids"])
        flat = {name: tf.reshape(features[name], [-1, shape[-1]]) for name in INPUTS}  # [B or B * C, S]
        logits = model.head(model.encoder(**flat, causal_attention=model.causal_attention)[1])  # [B or B * C, n]
        if opened.task == "multiple_choice":
            return tf.reshape(logits, shape[:2])
        return logits[:, 0] if opened.task == "regression" else logits

    return forward


def _ids_shape(opened: InferenceModel) -> list[int | None]:
    return [None, None, None] if opened.task == "multiple_choice" else [None, None]


class _TextReader:
    """Convert strings to model inputs, and ids to strings."""

    def __init__(self, tokenizer: InGraphTokenizer, all_tokens: tf.Tensor, max_seq_length: int) -> None:
        self.tokenizer, self.all_tokens, self.max_seq_length = tokenizer, all_tokens, max_seq_length

    def features(
        self, texts: tf.Tensor, pairs: tf.Tensor | None = None, keep_masks: bool = False
    ) -> dict[str, tf.Tensor]:
        """Return input_ids, input_mask, segment_ids, int32 [B, S], S being the longest text's truncated length."""
        encoded = self.tokenizer.encode(texts, pairs, self.max_seq_length, keep_masks=keep_masks)
        # [CLS] and [SEP] are there even if there is no text at all.
        longest = tf.maximum(tf.reduce_max(tf.reduce_sum(encoded[1], axis=1)), 2)
        return dict(zip(INPUTS, (values[:, :longest] for values in encoded), strict=True))

    def tokens(self, features: dict[str, tf.Tensor]) -> tf.Tensor:
        """Return the tokens of input_ids, string [B, S], "" where there is padding."""
        return tf.where(features["input_mask"] == 1, tf.gather(self.all_tokens, features["input_ids"]), "")


def _function(body: Callable[..., dict[str, tf.Tensor]], **inputs: tuple[list[int | None], tf.DType]) -> Any:
    """Return a signature: a function of tensors of these shapes and dtypes, by name."""
    specs = [tf.TensorSpec(shape, dtype, name) for name, (shape, dtype) in inputs.items()]
    return tf.function(body, input_signature=specs, autograph=False)


def _text_function(body: Callable[..., dict[str, tf.Tensor]], *names: str) -> Any:
    shape: list[int | None] = [None]
    return _function(body, **dict.fromkeys(names, (shape, tf.string)))


def ids_function(opened: InferenceModel, forward: Forward) -> Any:
    """Return the signature of input_ids, input_mask and segment_ids int32 [B, S], or [B, C, S] for multiple choice.

    Its outputs: classification probabilities [B, n]; regression score [B]; token_classification, with
    a BiLSTM or without, probabilities [B, S, n]; multiple_choice probabilities [B, C]; span start_logits and
    end_logits [B, S]; a pretrained model embeddings [B, S, H], cls_embedding and mean_embedding [B, H], and
    pooled_output [B, H] if it has a pooler.
    """

    def answer(input_ids: tf.Tensor, input_mask: tf.Tensor, segment_ids: tf.Tensor) -> dict[str, tf.Tensor]:
        features = {"input_ids": input_ids, "input_mask": input_mask, "segment_ids": segment_ids}
        outputs = forward(features)
        if opened.task == PRETRAINING:
            hidden, pooled = outputs
            return {"embeddings": hidden, **_embeddings(opened, hidden, pooled, input_mask)}
        if opened.task == "span":
            return {"start_logits": outputs[0], "end_logits": outputs[1]}
        if opened.task == "regression":
            return {"score": outputs}
        return {"probabilities": tf.sigmoid(outputs) if opened.multi_label else tf.nn.softmax(outputs)}

    return _function(answer, **dict.fromkeys(INPUTS, (_ids_shape(opened), tf.int32)))


def _embeddings(
    opened: InferenceModel, hidden: tf.Tensor, pooled: tf.Tensor, input_mask: tf.Tensor
) -> dict[str, tf.Tensor]:
    outputs = {"cls_embedding": cls_embedding(hidden), "mean_embedding": mean_embedding(hidden, input_mask)}  # [B, H]
    return {**outputs, "pooled_output": tf.cast(pooled, tf.float32)} if opened.has(POOLER) else outputs


def _pretraining(reader: _TextReader, forward: Forward, opened: InferenceModel, top_k: int) -> Signatures:
    def embed(text: tf.Tensor, text_pair: tf.Tensor | None = None) -> dict[str, tf.Tensor]:
        features = reader.features(text, text_pair)
        hidden, pooled = forward(features)
        return _embeddings(opened, hidden, pooled, features["input_mask"])

    def embed_tokens(text: tf.Tensor) -> dict[str, tf.Tensor]:
        features = reader.features(text)
        hidden, _ = forward(features)
        return {"tokens": reader.tokens(features), "embeddings": hidden}  # [B, S], [B, S, H]

    def fill_mask(text: tf.Tensor) -> dict[str, tf.Tensor]:
        features = reader.features(text, keep_masks=True)
        places = tf.where(features["input_ids"] == opened.vocabulary.mask_id)  # [all masks, 2]
        ragged = tf.RaggedTensor.from_value_rowids(
            tf.cast(places[:, 1], tf.int32), places[:, 0], tf.size(text, tf.int64)
        )
        positions = ragged.to_tensor(-1)  # [B, M]
        hidden = tf.gather(forward(features)[0], tf.maximum(positions, 0), batch_dims=1)  # [B, M, H]
        logits = opened.model.masked_lm(hidden, opened.model.encoder.embeddings.word_embeddings)  # [B, M, V]
        # Some models have rows that no token uses.
        probabilities = tf.nn.softmax(logits[..., : len(opened.vocabulary)])
        best, ids = tf.math.top_k(probabilities, top_k)  # [B, M, K]
        is_mask = positions[:, :, None] >= 0
        return {
            "positions": positions,
            "pieces": tf.where(is_mask, tf.gather(reader.all_tokens, ids), ""),
            "ids": tf.where(is_mask, ids, -1),
            "probabilities": tf.where(is_mask, best, 0.0),
        }

    signatures = {
        DEFAULT_SIGNATURE: _text_function(lambda text: embed(text), "text"),
        "pair": _text_function(embed, "text", "text_pair"),
        "tokens": _text_function(embed_tokens, "text"),
    }
    if opened.has(MASKED_LM):
        signatures["fill_mask"] = _text_function(fill_mask, "text")
    return signatures


def _classification(reader: _TextReader, forward: Forward, opened: InferenceModel) -> Signatures:
    labels = tf.constant(opened.labels)

    def classify(text: tf.Tensor, text_pair: tf.Tensor | None = None) -> dict[str, tf.Tensor]:
        logits = forward(reader.features(text, text_pair))  # [B, n]
        if opened.multi_label:
            # Each label by itself; the caller chooses, usually those above a half.
            return {"probabilities": tf.sigmoid(logits)}
        return {"probabilities": tf.nn.softmax(logits), "label": tf.gather(labels, tf.argmax(logits, axis=-1))}

    return {
        DEFAULT_SIGNATURE: _text_function(lambda text: classify(text), "text"),
        "pair": _text_function(classify, "text", "text_pair"),
    }


def _regression(reader: _TextReader, forward: Forward, _opened: InferenceModel) -> Signatures:
    def score(text: tf.Tensor, text_pair: tf.Tensor | None = None) -> dict[str, tf.Tensor]:
        return {"score": forward(reader.features(text, text_pair))}  # [B]

    return {
        DEFAULT_SIGNATURE: _text_function(lambda text: score(text), "text"),
        "pair": _text_function(score, "text", "text_pair"),
    }


def _multiple_choice(reader: _TextReader, forward: Forward, _opened: InferenceModel) -> Signatures:
    def choose(text: tf.Tensor, choices: tf.Tensor) -> dict[str, tf.Tensor]:
        batch, count = tf.unstack(tf.shape(choices))
        features = reader.features(tf.repeat(text, count), tf.reshape(choices, [-1]))  # [B * C, S]
        length = tf.shape(features["input_ids"])[1]
        logits = forward(
            {name: tf.reshape(values, [batch, count, length]) for name, values in features.items()}
        )  # [B, C]
        return {"probabilities": tf.nn.softmax(logits), "choice": tf.argmax(logits, axis=-1, output_type=tf.int32)}

    return {
        DEFAULT_SIGNATURE: _function(choose, text=([None], tf.string), choices=([None, None], tf.string)),
    }


def _token_classification(reader: _TextReader, forward: Forward, opened: InferenceModel) -> Signatures:
    labels = tf.constant(opened.labels)

    def label_tokens(text: tf.Tensor) -> dict[str, tf.Tensor]:
        features = reader.features(text)
        _, starts, ends = reader.tokenizer.with_offsets(text)  # [B, (T)]
        # Without [CLS] and [SEP], which have no label.
        count = tf.reduce_sum(features["input_mask"], axis=1, keepdims=True) - 2
        logits = forward(features)[:, 1:-1]  # [B, T, n]
        kept = tf.range(tf.shape(logits)[1]) < count  # [B, T]
        shape = tf.shape(kept, tf.int64)
        return {
            "tokens": tf.where(kept, reader.tokens(features)[:, 1:-1], ""),
            "labels": tf.where(kept, tf.gather(labels, tf.argmax(logits, axis=-1)), ""),
            "probabilities": tf.where(kept[:, :, None], tf.nn.softmax(logits), 0.0),
            # What was cut has no label.
            "start": starts.to_tensor(-1, shape=[None, None])[:, : shape[1]],
            "end": ends.to_tensor(-1, shape=[None, None])[:, : shape[1]],
        }

    return {DEFAULT_SIGNATURE: _text_function(label_tokens, "text")}


def _span(reader: _TextReader, forward: Forward, opened: InferenceModel) -> Signatures:
    def answer(question: tf.Tensor, context: tf.Tensor) -> dict[str, tf.Tensor]:
        return answer_spans(forward, reader.tokenizer, opened.vocabulary, question, context, reader.max_seq_length)

    return {DEFAULT_SIGNATURE: _text_function(answer, "question", "context")}


_SIGNATURES_OF_TASK: dict[str, Callable[[_TextReader, Forward, InferenceModel], Signatures]] = {
    "classification": _classification,
    "regression": _regression,
    "token_classification": _token_classification,
    "token_classification_bilstm": _token_classification,
    "multiple_choice": _multiple_choice,
    "span": _span,
}
