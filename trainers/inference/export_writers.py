"""Write a model that runs without beambert: a SavedModel that takes raw text, or ONNX and LiteRT with token ids."""

import json
import logging
import shutil
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from beambert.bert_model.checkpoints import hugging_face_config
from beambert.common import file_errors
from beambert.common.formatting import counted
from beambert.common.tokenizer_files import TOKENIZER_CONFIG_FILE_NAME
from beambert.common.word_rules import WordRules
from beambert.trainers.errors import TrainingError
from beambert.trainers.inference.export_record import EXACT, TENSORFLOW_TEXT
from beambert.trainers.inference.model_loading import InferenceModel

MODEL_NAMES = {"onnx": "model.onnx", "litert": "model.tflite"}
VOCABULARY_NAME = "vocab.txt"
LABELS_NAME = "labels.json"
# The newest opset that all common runtimes of recent years support.
ONNX_OPSET = 17


def write_saved_model(
    inference_model: InferenceModel, directory: Path, max_seq_length: int, top_k: int = 5, tokenizer: str = EXACT
) -> dict[str, Any]:
    """Write a SavedModel.

    Args:
        inference_model: the model.
        directory: new directory; its `assets` contain vocab.txt and, for a task with classes, labels.json.
        max_seq_length: maximum sequence length in tokens, as in `served_model`.
        top_k: number of candidates per [MASK], as in `served_model`.
        tokenizer: "exact", or "tensorflow_text" for operations of that package.

    Returns:
        Each signature, a `tf.types.experimental.ConcreteFunction`, by name.

    Raises:
        ImportError: tensorflow_text is not installed.
        TrainingError: the files cannot be written.
        VocabularyError: tensorflow_text does not support the vocabulary.
    """
    import tensorflow as tf

    from beambert.trainers.inference.signatures import served_model

    text_tokenizer = graph_tokenizer(inference_model, tokenizer)
    module, signatures = served_model(inference_model, text_tokenizer, max_seq_length, top_k)
    sources = directory.with_name(f"{directory.name}.assets")
    try:
        sources.mkdir(parents=True, exist_ok=True)
        _write_text_files(inference_model, sources)
        module.vocabulary_file = tf.saved_model.Asset(str(sources / VOCABULARY_NAME))
        if inference_model.labels:
            module.labels_file = tf.saved_model.Asset(str(sources / LABELS_NAME))
        concrete = {name: function.get_concrete_function() for name, function in signatures.items()}
        tf.saved_model.save(module, str(directory), signatures=concrete)
    except (OSError, tf.errors.OpError) as error:
        raise TrainingError(file_errors.write_line(directory, error)) from error
    finally:
        shutil.rmtree(sources, ignore_errors=True)
    return concrete


def write_ids_model(inference_model: InferenceModel, directory: Path, kind: str, quantization: str = "none") -> str:
    """Write a model that takes token ids for another runtime, with vocab.txt and labels.json.

    tokenizer_config.json has the added tokens, and the word rules where vocab.txt does not imply them.

    Args:
        inference_model: the model.
        directory: new directory for model.onnx or model.tflite.
        kind: "onnx" or "litert".
        quantization: "none", or "int8" for weight matrices of 8-bit integers; activations are quantized at inference
            ("dynamic quantization" of onnxruntime, "dynamic range quantization" of LiteRT).

    Returns:
        A line with the inputs and outputs.

    Raises:
        ImportError: the ONNX converter or quantizer is not installed.
    """
    import tensorflow as tf

    from beambert.trainers.inference.signatures import forward_function, ids_function

    signature = ids_function(inference_model, forward_function(inference_model, all_positions=True))
    function = signature.get_concrete_function()
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / MODEL_NAMES[kind]
    if kind == "onnx":
        import tf2onnx

        specs = tf.nest.flatten(function.structured_input_signature)
        converted = tf2onnx.convert.from_function(signature, specs, opset=ONNX_OPSET)
        path.write_bytes(converted[0].SerializeToString())
        if quantization == "int8":
            _quantize_onnx(path)
    else:
        module = tf.Module()
        module.weights = [variable.value for variable in inference_model.model.variables]
        with tempfile.TemporaryDirectory() as folder:
            # Converted from a SavedModel, inputs and outputs keep their names.
            tf.saved_model.save(module, folder, signatures=function)
            converter = tf.lite.TFLiteConverter.from_saved_model(folder)
            if quantization == "int8":
                converter.optimizations = [tf.lite.Optimize.DEFAULT]
            path.write_bytes(converter.convert())
    _write_text_files(inference_model, directory)
    rules, vocabulary = inference_model.word_rules, inference_model.vocabulary
    if vocabulary.added_tokens or rules != WordRules(not vocabulary.has_capitals()):
        # `Tokenizer.load` reads it; without it, the vocabulary implies the rules.
        text = hugging_face_config.tokenizer_config(inference_model.config, rules, vocabulary.added_by_id)
        (directory / TOKENIZER_CONFIG_FILE_NAME).write_text(text, encoding="utf-8")
    return signature_text(MODEL_NAMES[kind], function)


def signature_names(function: Any) -> tuple[list[str], list[str]]:
    """Return the names of the inputs and of the outputs of a signature."""
    import tensorflow as tf

    inputs = [spec.name for spec in tf.nest.flatten(function.structured_input_signature)]
    return inputs, list(function.structured_outputs)


def signature_text(name: str, function: Any) -> str:
    inputs, outputs = signature_names(function)
    return f"{name}: {', '.join(inputs)} -> {', '.join(outputs)}"


def _quantize_onnx(path: Path) -> None:
    """Replace an ONNX model by one whose weight matrices are 8-bit integers, one scale per column."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        quantized = Path(folder) / path.name
        # It recommends a shape inference that changes nothing in a BERT.
        logging.disable(logging.WARNING)
        try:
            quantize_dynamic(path, quantized, weight_type=QuantType.QInt8, per_channel=True)
        finally:
            logging.disable(logging.NOTSET)
        quantized.replace(path)


def _write_text_files(inference_model: InferenceModel, directory: Path) -> None:
    (directory / VOCABULARY_NAME).write_bytes(inference_model.vocabulary.to_bytes())
    if inference_model.labels:
        text = json.dumps(inference_model.labels, ensure_ascii=False) + "\n"
        (directory / LABELS_NAME).write_text(text, encoding="utf-8")


def graph_tokenizer(inference_model: InferenceModel, tokenizer: str) -> Any:
    """Return the module that tokenizes in the graph.

    Raises:
        TrainingError: the vocabulary has added tokens, which it would split.
    """
    if added := inference_model.vocabulary.added_tokens:
        raise TrainingError(
            f"--to savedmodel: the tokenizer in the graph cannot keep {counted(len(added), 'added token')} of "
            f"{inference_model.path} whole, such as {added[0].content!r}; export token ids with --to onnx or --to "
            "litert, and tokenize with `beambert.tokenizer.Tokenizer`"
        )
    if tokenizer == TENSORFLOW_TEXT:
        from beambert.tokenizer.tensorflow_text_tokenizer import TensorFlowTextTokenizer

        return TensorFlowTextTokenizer(inference_model.vocabulary, **asdict(inference_model.word_rules))
    from beambert.tokenizer.in_graph import InGraphTokenizer

    return InGraphTokenizer(inference_model.vocabulary, **asdict(inference_model.word_rules))
