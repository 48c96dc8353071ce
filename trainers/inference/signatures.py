"""The signatures of an exported model by its head, with string or token id inputs.

All functions are traced to a graph with dynamic batch size and length. Its operations are those of core TensorFlow,
except for a tokenizer of tensorflow_text.

Letters in shapes: B texts, S positions, T tokens, M masks, K candidates, C choices, H hidden size, n labels.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from beambert.bert_model.head_layers import cls_embedding, mean_embedding
from beambert.bert_model.heads import PRETRAINING
from beambert.bert_model.heads.head import FinetuningHead, Inputs
from beambert.bert_model.variable_names import MASKED_LM, POOLER, variables_by_tf1_name
from beambert.tokenizer.in_graph import InGraphTokenizer
from beambert.trainers.inference.model_loading import InferenceModel
from beambert.trainers.inference.span_signatures import answer_spans

if TYPE_CHECKING:
    from beambert.tokenizer.tensorflow_text_tokenizer import TensorFlowTextTokenizer

Features = dict[str, tf.Tensor]
# Function from features to logits, or to (hidden, pooled) for a pretrained model.
Forward = Callable[[Features], Any]
Signatures = dict[str, Any]
INPUTS = ("input_ids", "input_mask", "segment_ids")
DEFAULT_SIGNATURE = "serving_default"
IDS_SIGNATURE = "ids"


def served_model(
    inference_model: InferenceModel,
    tokenizer: "InGraphTokenizer | TensorFlowTextTokenizer",
    max_seq_length: int,
    top_k: int,
) -> tuple[tf.Module, Signatures]:
    """Return the content of a SavedModel: a model with its tokenizer.

    Args:
        inference_model: the model.
        tokenizer: tokenizer of the model's vocabulary.
        max_seq_length: maximum tokens of a text or pair, including [CLS] and [SEP]. Longer texts are truncated; longer
            contexts of questions are read in windows.
        top_k: number of candidates for each mask.

    Returns:
        The module with weights and tables, and the functions by signature name. Inputs and outputs have the batch
        dimension B first.
    """
    module = tf.Module()
    module.tokenizer = tokenizer
    # The variables are saved without their Keras layers.
    module.weights = [
        variable.value
        for name, variable in variables_by_tf1_name(inference_model.model).items()
        if name not in inference_model.missing or name.startswith(POOLER)
    ]
    reader = _TextReader(module.tokenizer, tf.constant(inference_model.vocabulary.tokens), max_seq_length)
    forward = forward_function(inference_model)
    head = inference_model.head
    if isinstance(head, FinetuningHead):
        signatures = _SIGNATURES[head.inputs](reader, forward, inference_model, head)
    else:
        signatures = _pretraining(reader, forward, inference_model, top_k)
    return module, {**signatures, IDS_SIGNATURE: ids_function(inference_model, forward)}


def forward_function(inference_model: InferenceModel, *, all_positions: bool = False) -> Forward:
    """Return the model as one graph function of input_ids, input_mask and segment_ids, shared by all signatures.

    Args:
        inference_model: the model.
        all_positions: whether the last layer computes every position, as converters require: otherwise it may have
            empty tensors, for which LiteRT returns NaN.
    """
    model = inference_model.model
    ids = tf.TensorSpec(_ids_shape(inference_model), tf.int32)

    @tf.function(input_signature=[ids, ids, ids], autograph=False)
    def forward(input_ids: tf.Tensor, input_mask: tf.Tensor, segment_ids: tf.Tensor) -> Any:
        if inference_model.head is PRETRAINING:
            return model.encoder(input_ids, input_mask, segment_ids)
        features = {"input_ids": input_ids, "input_mask": input_mask, "segment_ids": segment_ids}
        return model(features, all_positions=all_positions)

    return lambda features: forward(*(features[name] for name in INPUTS))


def _ids_shape(inference_model: InferenceModel) -> list[int | None]:
    head = inference_model.head
    has_choices = isinstance(head, FinetuningHead) and head.inputs is Inputs.CHOICES
    return [None, None, None] if has_choices else [None, None]


class _TextReader:
    """Converts strings to model inputs, and token ids to strings."""

    def __init__(
        self, tokenizer: "InGraphTokenizer | TensorFlowTextTokenizer", all_tokens: tf.Tensor, max_seq_length: int
    ) -> None:
        self.tokenizer, self.all_tokens, self.max_seq_length = tokenizer, all_tokens, max_seq_length

    def features(
        self, texts: tf.Tensor, pairs: tf.Tensor | None = None, keep_masks: bool = False
    ) -> dict[str, tf.Tensor]:
        """Return input_ids, input_mask, segment_ids, int32 [B, S], where S is the longest truncated length."""
        encoded = self.tokenizer.encode(texts, pairs, self.max_seq_length, keep_masks=keep_masks)
        # An empty batch still has the width of [CLS] and [SEP].
        longest = tf.maximum(tf.reduce_max(tf.reduce_sum(encoded[1], axis=1)), 2)
        return dict(zip(INPUTS, (values[:, :longest] for values in encoded), strict=True))

    def tokens(self, features: dict[str, tf.Tensor]) -> tf.Tensor:
        """Return the tokens of input_ids, string [B, S], "" for padding."""
        return tf.where(features["input_mask"] == 1, tf.gather(self.all_tokens, features["input_ids"]), "")


def _function(body: Callable[..., dict[str, tf.Tensor]], **inputs: tuple[list[int | None], tf.DType]) -> Any:
    """Return a signature with named inputs of the given shapes and dtypes."""
    specs = [tf.TensorSpec(shape, dtype, name) for name, (shape, dtype) in inputs.items()]
    return tf.function(body, input_signature=specs, autograph=False)


def _text_function(body: Callable[..., dict[str, tf.Tensor]], *names: str) -> Any:
    shape: list[int | None] = [None]
    return _function(body, **dict.fromkeys(names, (shape, tf.string)))


def ids_function(inference_model: InferenceModel, forward: Forward) -> Any:
    """Return the signature with inputs input_ids, input_mask, segment_ids int32 [B, S], or [B, C, S] for choices.

    The outputs are those of the head. A pretrained model has embeddings [B, S, H], cls_embedding and mean_embedding
    [B, H], and pooled_output [B, H] if it has a pooler.
    """

    def answer(input_ids: tf.Tensor, input_mask: tf.Tensor, segment_ids: tf.Tensor) -> dict[str, tf.Tensor]:
        features = {"input_ids": input_ids, "input_mask": input_mask, "segment_ids": segment_ids}
        outputs = forward(features)
        if isinstance(inference_model.head, FinetuningHead):
            return inference_model.head.outputs(outputs)
        hidden, pooled = outputs
        return {"embeddings": hidden, **_embeddings(inference_model, hidden, pooled, input_mask)}

    return _function(answer, **dict.fromkeys(INPUTS, (_ids_shape(inference_model), tf.int32)))


def _embeddings(
    inference_model: InferenceModel, hidden: tf.Tensor, pooled: tf.Tensor, input_mask: tf.Tensor
) -> dict[str, tf.Tensor]:
    outputs = {"cls_embedding": cls_embedding(hidden), "mean_embedding": mean_embedding(hidden, input_mask)}  # [B, H]
    return {**outputs, "pooled_output": tf.cast(pooled, tf.float32)} if inference_model.has(POOLER) else outputs


def _pretraining(reader: _TextReader, forward: Forward, inference_model: InferenceModel, top_k: int) -> Signatures:
    def embed(text: tf.Tensor, text_pair: tf.Tensor | None = None) -> dict[str, tf.Tensor]:
        features = reader.features(text, text_pair)
        hidden, pooled = forward(features)
        return _embeddings(inference_model, hidden, pooled, features["input_mask"])

    def embed_tokens(text: tf.Tensor) -> dict[str, tf.Tensor]:
        features = reader.features(text)
        hidden, _ = forward(features)
        return {"tokens": reader.tokens(features), "embeddings": hidden}  # [B, S], [B, S, H]

    def fill_mask(text: tf.Tensor) -> dict[str, tf.Tensor]:
        features = reader.features(text, keep_masks=True)
        places = tf.where(features["input_ids"] == inference_model.vocabulary.mask_id)  # [all masks, 2]
        ragged = tf.RaggedTensor.from_value_rowids(
            tf.cast(places[:, 1], tf.int32), places[:, 0], tf.size(text, tf.int64)
        )
        positions = ragged.to_tensor(-1)  # [B, M]
        hidden = tf.gather(forward(features)[0], tf.maximum(positions, 0), batch_dims=1)  # [B, M, H]
        logits = inference_model.model.masked_lm(
            hidden, inference_model.model.encoder.embeddings.word_embeddings
        )  # [B, M, V]
        # Some models have embedding rows without a token.
        probabilities = tf.nn.softmax(logits[..., : len(inference_model.vocabulary)])
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
    if inference_model.has(MASKED_LM):
        signatures["fill_mask"] = _text_function(fill_mask, "text")
    return signatures


def _text(reader: _TextReader, forward: Forward, inference_model: InferenceModel, head: FinetuningHead) -> Signatures:
    labels = tf.constant(inference_model.labels)

    def predict(text: tf.Tensor, text_pair: tf.Tensor | None = None) -> dict[str, tf.Tensor]:
        logits = forward(reader.features(text, text_pair))
        outputs = head.outputs(logits)
        if head.has_classes and not head.several_labels:
            outputs["label"] = tf.gather(labels, tf.argmax(logits, axis=-1))
        return outputs

    return {
        DEFAULT_SIGNATURE: _text_function(lambda text: predict(text), "text"),
        "pair": _text_function(predict, "text", "text_pair"),
    }


def _choices(
    reader: _TextReader, forward: Forward, _inference_model: InferenceModel, head: FinetuningHead
) -> Signatures:
    def choose(text: tf.Tensor, choices: tf.Tensor) -> dict[str, tf.Tensor]:
        batch, count = tf.unstack(tf.shape(choices))
        features = reader.features(tf.repeat(text, count), tf.reshape(choices, [-1]))  # [B * C, S]
        length = tf.shape(features["input_ids"])[1]
        logits = forward({name: tf.reshape(values, [batch, count, length]) for name, values in features.items()})
        return {**head.outputs(logits), "choice": tf.argmax(logits, axis=-1, output_type=tf.int32)}

    return {
        DEFAULT_SIGNATURE: _function(choose, text=([None], tf.string), choices=([None, None], tf.string)),
    }


def _words(reader: _TextReader, forward: Forward, inference_model: InferenceModel, head: FinetuningHead) -> Signatures:
    labels = tf.constant(inference_model.labels)

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
            **{name: tf.where(kept[:, :, None], values, 0.0) for name, values in head.outputs(logits).items()},
            # Truncated tokens have no label.
            "start": starts.to_tensor(-1, shape=[None, None])[:, : shape[1]],
            "end": ends.to_tensor(-1, shape=[None, None])[:, : shape[1]],
        }

    return {DEFAULT_SIGNATURE: _text_function(label_tokens, "text")}


def _question(
    reader: _TextReader, forward: Forward, inference_model: InferenceModel, _head: FinetuningHead
) -> Signatures:
    def answer(question: tf.Tensor, context: tf.Tensor) -> dict[str, tf.Tensor]:
        return answer_spans(
            forward, reader.tokenizer, inference_model.vocabulary, question, context, reader.max_seq_length
        )

    return {DEFAULT_SIGNATURE: _text_function(answer, "question", "context")}


_SIGNATURES: dict[Inputs, Callable[[_TextReader, Forward, InferenceModel, FinetuningHead], Signatures]] = {
    Inputs.TEXT: _text,
    Inputs.CHOICES: _choices,
    Inputs.QUESTION: _question,
    Inputs.WORDS: _words,
}
