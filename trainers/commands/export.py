"""Define `beambert export`, which writes a model that runs without beambert."""

import argparse
import json
import logging
import shutil
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from beambert_common import file_errors
from beambert_common.command_line.flags import sequence_length, vocabulary_size
from beambert_common.command_line.path_flags import ANY_OUTPUT_DIRECTORY, ANY_PATH
from beambert_common.hugging_face_rules import TOKENIZER_CONFIG_FILE_NAME
from beambert_common.word_rules import WordRules
from bert_model.checkpoints import hugging_face_config
from bert_model.checkpoints.native import MODEL_CARD_FILE_NAME
from bert_model.checkpoints.variable_names import FEATURE_BASED, PRETRAINING, TASKS
from bert_model.checkpoints.writer import check_destination, new_directory, require_files
from pipelines.io.directory_lock import lock_destination
from tokenizer.differences import TokenizerDifferences, find_differences
from trainers.backends.tensorflow.startup import start_tensorflow
from trainers.commands.model_flags import ModelConfig, add_model_arguments
from trainers.errors import TrainingError
from trainers.inference import model_loading
from trainers.inference.export_record import (
    EXACT,
    RECORD_NAME,
    TENSORFLOW_TEXT,
    TOKENIZERS,
    difference_lines,
    write_export_record,
)
from trainers.inference.model_loading import InferenceModel, load_model
from trainers.monitoring.training_progress import print_status

DESCRIPTION = """Export a model for serving, by default as a TensorFlow SavedModel that takes raw text.

The tokenizer is part of the SavedModel graph, which by default needs neither beambert nor tensorflow_text. With --to
onnx or --to litert, the exported model takes token ids."""
EXAMPLE = """beambert export reviews-model served-model
beambert export reviews-model fast-model --tokenizer tensorflow_text
beambert export reviews-model onnx-model --to onnx --max_seq_length 128"""
COMMON_FLAGS = ("--to", "--tokenizer", "--quantization", "--max_seq_length", "--top_k")
KINDS = ("savedmodel", "onnx", "litert")
QUANTIZATIONS = ("none", "int8")
MODEL_NAMES = {"onnx": "model.onnx", "litert": "model.tflite"}
VOCABULARY_NAME = "vocab.txt"
LABELS_NAME = "labels.json"
# The newest opset that all common runtimes of recent years support.
ONNX_OPSET = 17


@dataclass(frozen=True, kw_only=True)
class ExportConfig(ModelConfig):
    """The configuration of `beambert export`; the help of each flag describes it."""

    source: str
    destination: str
    to: str = "savedmodel"
    tokenizer: str = EXACT
    quantization: str = "none"
    task: str | None = None
    max_seq_length: int | None = None
    top_k: int = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument(
        "source", type=ANY_PATH, metavar="SRC", help="A model in any format that `beambert convert` reads"
    )
    parser.add_argument(
        "destination",
        type=ANY_OUTPUT_DIRECTORY,
        metavar="DST",
        help="Output directory; must be new or empty",
    )
    group = parser.add_argument_group("export")
    group.add_argument(
        "--to",
        choices=KINDS,
        default=ExportConfig.to,
        help="Output format; savedmodel takes raw text, onnx and litert take token ids",
    )
    group.add_argument(
        "--tokenizer",
        choices=TOKENIZERS,
        default=ExportConfig.tokenizer,
        help="Tokenizer in the SavedModel graph. exact has the ids of the training. tensorflow_text is faster and has "
        "other ids for some characters, which are counted; serving needs its operations (default: %(default)s)",
    )
    group.add_argument(
        "--quantization",
        choices=QUANTIZATIONS,
        default=ExportConfig.quantization,
        help="Quantization of onnx and litert: int8 stores the weight matrices as 8-bit integers, in a quarter of the "
        "size, with small changes of the outputs (default: %(default)s)",
    )
    parser.add_argument_group("task").add_argument(
        "--task",
        choices=(PRETRAINING, *TASKS),
        help="Task head of SRC; required if the files do not record it, as for a TF1 checkpoint of a token classifier",
    )
    group.add_argument(
        "--max_seq_length",
        type=sequence_length,
        metavar="N",
        help="Maximum sequence length in tokens; longer texts are truncated, or split into windows for question "
        "answering (default: the training length, else the model's limit; at most "
        f"{model_loading.SPAN_LENGTH} for question answering)",
    )
    group.add_argument(
        "--top_k",
        type=vocabulary_size,
        default=ExportConfig.top_k,
        metavar="K",
        help="Number of candidates per [MASK] in the fill_mask signature",
    )
    add_model_arguments(parser)


def configure(args: argparse.Namespace) -> ExportConfig:
    """Return the configuration of parsed flags."""
    return ExportConfig.from_args(args)


def run(config: ExportConfig) -> int:
    """Export a model and print a summary.

    Raises:
        CheckpointError, ConfigError, OutputError, TrainingError, VocabularyError: a one-line message.
    """
    destination = Path(config.destination)
    if config.quantization != "none" and config.to == "savedmodel":
        raise TrainingError(f"--quantization {config.quantization} requires --to onnx or --to litert")
    if config.tokenizer != EXACT and config.to != "savedmodel":
        raise TrainingError(
            f"--tokenizer {config.tokenizer} requires --to savedmodel; a model of --to {config.to} takes token ids"
        )
    check_destination(destination)
    with lock_destination(f"DST {destination}", destination, "another DST"):
        return _export(config, destination)


def _export(config: ExportConfig, destination: Path) -> int:
    """Export while DST is locked."""
    check_destination(destination)
    model_loading.check_model(Path(config.source), **config.model_options)
    start_tensorflow()
    if config.tokenizer == TENSORFLOW_TEXT:
        _import_tensorflow_text()
    inference_model = load_model(Path(config.source), task=config.task, **config.model_options)
    if inference_model.task == FEATURE_BASED and config.to != "savedmodel":
        raise TrainingError(
            f"--to {config.to} does not support the BiLSTM head of {config.source} (task {inference_model.task}); give "
            "--to savedmodel"
        )
    length = model_loading.text_length(inference_model, config.max_seq_length)
    if not 1 <= config.top_k <= len(inference_model.vocabulary):
        raise TrainingError(
            f"invalid --top_k {config.top_k}: must be from 1 to {len(inference_model.vocabulary)}, the vocabulary size"
        )
    text_files = [VOCABULARY_NAME, *([LABELS_NAME] if inference_model.labels else [])]
    with new_directory(destination) as work_directory:
        if config.to == "savedmodel":
            signatures = save(inference_model, work_directory, length, config.top_k, config.tokenizer)
            lines = [_signature_text(name, function) for name, function in signatures.items()]
            differences = _differences(inference_model) if config.tokenizer == TENSORFLOW_TEXT else None
            if differences is not None:
                lines += [f"tokenizer tensorflow_text: {line}" for line in difference_lines(differences)]
            names = {name: _signature_names(function) for name, function in signatures.items()}
            with file_errors.writing(destination):
                write_export_record(work_directory, inference_model, length, names, differences)
            variables = ["variables/variables.index", "variables/variables.data-00000-of-00001"]
            assets = [f"assets/{name}" for name in text_files]
            require_files(work_directory, ["saved_model.pb", *variables, *assets, RECORD_NAME, MODEL_CARD_FILE_NAME])
        else:
            lines = [save_ids_model(inference_model, work_directory, config.to, config.quantization)]
            require_files(work_directory, [MODEL_NAMES[config.to], *text_files])
    print_status(f"Wrote     {destination}: {inference_model.task}, max_seq_length {length}")
    for line in lines:
        print_status(f"          {line}")
    return 0


def _import_tensorflow_text() -> None:
    """Import tensorflow_text before the model is read.

    Raises:
        ImportError: the package is not installed.
        TrainingError: it was built for another version of TensorFlow.
    """
    import tensorflow as tf

    try:
        import tensorflow_text  # noqa: F401
    except tf.errors.OpError as error:
        raise TrainingError(
            f"--tokenizer tensorflow_text: tensorflow-text cannot be loaded with TensorFlow {tf.__version__} "
            f"({str(error).splitlines()[0]}); install the tensorflow-text of the same minor version"
        ) from error


def _differences(inference_model: InferenceModel) -> TokenizerDifferences:
    """Return the differences between the tokenizer of tensorflow_text and that of the training."""
    from tokenizer.tensorflow_text_tokenizer import TensorFlowTextTokenizer

    print_status("Comparing the tokenizer of tensorflow_text on all Unicode code points")
    rules = inference_model.word_rules
    return find_differences(
        inference_model.vocabulary,
        rules,
        lambda vocabulary: TensorFlowTextTokenizer(vocabulary, **asdict(rules)).encode_batch,
    )


def _signature_names(function: Any) -> tuple[list[str], list[str]]:
    """Return the names of the inputs and of the outputs of a signature."""
    import tensorflow as tf

    inputs = [spec.name for spec in tf.nest.flatten(function.structured_input_signature)]
    return inputs, list(function.structured_outputs)


def _signature_text(name: str, function: Any) -> str:
    inputs, outputs = _signature_names(function)
    return f"{name}: {', '.join(inputs)} -> {', '.join(outputs)}"


def save_ids_model(inference_model: InferenceModel, directory: Path, kind: str, quantization: str = "none") -> str:
    """Write a model that takes token ids for another runtime, with vocab.txt and labels.json.

    tokenizer_config.json has the word rules where vocab.txt does not imply them.

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

    from trainers.inference.signatures import ids_function, plain_forward

    function = ids_function(inference_model, plain_forward(inference_model)).get_concrete_function()
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / MODEL_NAMES[kind]
    if kind == "onnx":
        import tf2onnx

        specs = tf.nest.flatten(function.structured_input_signature)
        converted = tf2onnx.convert.from_function(
            ids_function(inference_model, plain_forward(inference_model)), specs, opset=ONNX_OPSET
        )
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
    rules = inference_model.word_rules
    if rules != WordRules(not inference_model.vocabulary.has_capitals()):
        # `Tokenizer.load` reads it; without it, the vocabulary implies the rules.
        text = hugging_face_config.tokenizer_config(inference_model.config, rules)
        (directory / TOKENIZER_CONFIG_FILE_NAME).write_text(text, encoding="utf-8")
    return _signature_text(MODEL_NAMES[kind], function)


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


def save(
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

    from trainers.inference.signatures import served_model

    text_tokenizer = _text_tokenizer(inference_model, tokenizer)
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


def _text_tokenizer(inference_model: InferenceModel, tokenizer: str) -> Any:
    """Return the module that tokenizes in the graph."""
    if tokenizer == TENSORFLOW_TEXT:
        from tokenizer.tensorflow_text_tokenizer import TensorFlowTextTokenizer

        return TensorFlowTextTokenizer(inference_model.vocabulary, **asdict(inference_model.word_rules))
    from tokenizer.in_graph import InGraphTokenizer

    return InGraphTokenizer(inference_model.vocabulary, **asdict(inference_model.word_rules))
