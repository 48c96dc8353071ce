"""The signatures of an exported model by task, with string or token id inputs.

All functions are traced to a graph with dynamic batch size and length. Its operations are those of core TensorFlow,
except for a tokenizer of tensorflow_text.

Letters in shapes: B texts, S positions, T tokens, M masks, K candidates, C choices, H hidden size, n labels.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from beambert.bert_model.checkpoints.variable_names import PRETRAINING, variables_by_tf1_name
from beambert.bert_model.heads import cls_embedding, mean_embedding
from beambert.tokenizer.in_graph import InGraphTokenizer
from beambert.trainers.inference.model_loading import MASKED_LM, POOLER, InferenceModel
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
    if inference_model.task == PRETRAINING:
        signatures = _pretraining(reader, forward, inference_model, top_k)
    else:
        signatures = _SIGNATURES_OF_TASK[inference_model.task](reader, forward, inference_model)
    return module, {**signatures, IDS_SIGNATURE: ids_function(inference_model, forward)}


def forward_function(inference_model: InferenceModel) -> Forward:
    """Return the model as one graph function of input_ids, input_mask and segment_ids, shared by all signatures."""
    model = inference_model.model
    ids = tf.TensorSpec(_ids_shape(inference_model), tf.int32)

    @tf.function(input_signature=[ids, ids, ids], autograph=False)
    def forward(input_ids: tf.Tensor, input_mask: tf.Tensor, segment_ids: tf.Tensor) -> Any:
        if inference_model.task == PRETRAINING:
            return model.encoder(input_ids, input_mask, segment_ids)
        return model({"input_ids": input_ids, "input_mask": input_mask, "segment_ids": segment_ids})

    return lambda features: forward(*(features[name] for name in INPUTS))


def plain_forward(inference_model: InferenceModel) -> Forward:
    """Return the model for converters, which computes every position of the last layer.

    With `BertEncoder.pooled_output`, the last layer has empty tensors, for which LiteRT returns NaN.
    """
    model = inference_model.model

    def forward(features: Features) -> Any:
        if inference_model.task not in ("classification", "regression", "multiple_choice"):
            return forward_function(inference_model)(features)
        shape = tf.shape(features["input_ids"])
        flat = {name: tf.reshape(features[name], [-1, shape[-1]]) for name in INPUTS}  # [B or B * C, S]
        logits = model.head(model.encoder(**flat)[1])  # [B or B * C, n]
        if inference_model.task == "multiple_choice":
            return tf.reshape(logits, shape[:2])
        return logits[:, 0] if inference_model.task == "regression" else logits

    return forward


def _ids_shape(inference_model: InferenceModel) -> list[int | None]:
    return [None, None, None] if inference_model.task == "multiple_choice" else [None, None]


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

    Outputs by task: classification probabilities [B, n]; regression score [B]; token_classification and
    token_classification_bilstm probabilities [B, S, n]; multiple_choice probabilities [B, C]; span start_logits and
    end_logits [B, S]; pretraining embeddings [B, S, H], cls_embedding and mean_embedding [B, H], and pooled_output
    [B, H] if the model has a pooler.
    """

    def answer(input_ids: tf.Tensor, input_mask: tf.Tensor, segment_ids: tf.Tensor) -> dict[str, tf.Tensor]:
        features = {"input_ids": input_ids, "input_mask": input_mask, "segment_ids": segment_ids}
        outputs = forward(features)
        if inference_model.task == PRETRAINING:
            hidden, pooled = outputs
            return {"embeddings": hidden, **_embeddings(inference_model, hidden, pooled, input_mask)}
        if inference_model.task == "span":
            return {"start_logits": outputs[0], "end_logits": outputs[1]}
        if inference_model.task == "regression":
            return {"score": outputs}
        return {"probabilities": tf.sigmoid(outputs) if inference_model.multi_label else tf.nn.softmax(outputs)}

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


def _classification(reader: _TextReader, forward: Forward, inference_model: InferenceModel) -> Signatures:
    labels = tf.constant(inference_model.labels)

    def classify(text: tf.Tensor, text_pair: tf.Tensor | None = None) -> dict[str, tf.Tensor]:
        logits = forward(reader.features(text, text_pair))  # [B, n]
        if inference_model.multi_label:
            # Independent probabilities; the caller applies a threshold, usually 0.5.
            return {"probabilities": tf.sigmoid(logits)}
        return {"probabilities": tf.nn.softmax(logits), "label": tf.gather(labels, tf.argmax(logits, axis=-1))}

    return {
        DEFAULT_SIGNATURE: _text_function(lambda text: classify(text), "text"),
        "pair": _text_function(classify, "text", "text_pair"),
    }


def _regression(reader: _TextReader, forward: Forward, _inference_model: InferenceModel) -> Signatures:
    def score(text: tf.Tensor, text_pair: tf.Tensor | None = None) -> dict[str, tf.Tensor]:
        return {"score": forward(reader.features(text, text_pair))}  # [B]

    return {
        DEFAULT_SIGNATURE: _text_function(lambda text: score(text), "text"),
        "pair": _text_function(score, "text", "text_pair"),
    }


def _multiple_choice(reader: _TextReader, forward: Forward, _inference_model: InferenceModel) -> Signatures:
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


def _token_classification(reader: _TextReader, forward: Forward, inference_model: InferenceModel) -> Signatures:
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
            "probabilities": tf.where(kept[:, :, None], tf.nn.softmax(logits), 0.0),
            # Truncated tokens have no label.
            "start": starts.to_tensor(-1, shape=[None, None])[:, : shape[1]],
            "end": ends.to_tensor(-1, shape=[None, None])[:, : shape[1]],
        }

    return {DEFAULT_SIGNATURE: _text_function(label_tokens, "text")}


def _span(reader: _TextReader, forward: Forward, inference_model: InferenceModel) -> Signatures:
    def answer(question: tf.Tensor, context: tf.Tensor) -> dict[str, tf.Tensor]:
        return answer_spans(
            forward, reader.tokenizer, inference_model.vocabulary, question, context, reader.max_seq_length
        )

    return {DEFAULT_SIGNATURE: _text_function(answer, "question", "context")}


_SIGNATURES_OF_TASK: dict[str, Callable[[_TextReader, Forward, InferenceModel], Signatures]] = {
    "classification": _classification,
    "regression": _regression,
    "token_classification": _token_classification,
    "token_classification_bilstm": _token_classification,
    "multiple_choice": _multiple_choice,
    "span": _span,
}
