"""`beambert export`: a model as files that answer without beambert."""

import argparse
import json
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from beambert_common import file_errors
from beambert_common.command_line.flags import sequence_length, vocabulary_size
from beambert_common.command_line.path_flags import LOCAL_OUTPUT_DIRECTORY, LOCAL_PATH
from bert_model.checkpoints.variable_names import FEATURE_BASED, PRETRAINING, TASKS
from bert_model.checkpoints.writer import check_destination, new_directory, require_files
from pipelines.io.directory_lock import lock_destination
from trainers.backends.tensorflow.startup import start_tensorflow
from trainers.commands.model_flags import ModelConfig, add_model_arguments
from trainers.errors import TrainingError
from trainers.inference import model_loading
from trainers.inference.model_loading import InferenceModel, load_model
from trainers.monitoring.training_progress import print_status

DESCRIPTION = (
    "Writes a model as a TensorFlow SavedModel that takes text: the tokenizer is part of its graph, and neither "
    "beambert nor tensorflow_text is needed to load it."
)
EXAMPLE = "beambert export run models/bert/1"
COMMON_FLAGS = ()
KINDS = ("savedmodel", "onnx", "litert")
MODEL_NAMES = {"onnx": "model.onnx", "litert": "model.tflite"}
VOCABULARY_NAME = "vocab.txt"
LABELS_NAME = "labels.json"
# The newest that every runtime of the last years reads.
ONNX_OPSET = 17


@dataclass(frozen=True, kw_only=True)
class ExportConfig(ModelConfig):
    """What `beambert export` is configured with; the help of each flag says what it does."""

    source: str
    destination: str
    to: str = "savedmodel"
    task: str | None = None
    max_seq_length: int | None = None
    top_k: int = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "source", type=LOCAL_PATH, metavar="SRC", help="a model of any kind, as `beambert convert` reads them"
    )
    parser.add_argument(
        "destination",
        type=LOCAL_OUTPUT_DIRECTORY,
        metavar="DST",
        help="the directory to be written; must be new or empty",
    )
    parser.add_argument(
        "--to",
        choices=KINDS,
        default=ExportConfig.to,
        help="onnx and litert hold the part of the model behind the tokenizer: they take ids",
    )
    parser.add_argument(
        "--task",
        choices=(PRETRAINING, *TASKS),
        help="which head SRC has; needed where the files do not tell, as a TF1 checkpoint of a token classifier",
    )
    parser.add_argument(
        "--max_seq_length",
        type=sequence_length,
        metavar="N",
        help="pieces that are read of a text; the rest is cut, or for answer spans read in further windows (default: "
        f"what the model was trained with or can read, for answer spans {model_loading.SPAN_LENGTH} at most)",
    )
    parser.add_argument(
        "--top_k",
        type=vocabulary_size,
        default=ExportConfig.top_k,
        metavar="K",
        help="candidates of the signature fill_mask",
    )
    add_model_arguments(parser)


def configure(args: argparse.Namespace) -> ExportConfig:
    """Return what the flags ask for."""
    return ExportConfig.from_args(args)


def run(config: ExportConfig) -> int:
    """Export a model.

    Raises:
        CheckpointError, ConfigError, OutputError, TrainingError, VocabularyError: one line for the user.
    """
    destination = Path(config.destination)
    check_destination(destination)
    with lock_destination(f"DST {destination}", destination, "another DST"):
        return _export(config, destination)


def _export(config: ExportConfig, destination: Path) -> int:
    """Export while the destination is locked."""
    check_destination(destination)
    model_loading.check_model(Path(config.source), **config.model_options)
    start_tensorflow()
    opened = load_model(Path(config.source), task=config.task, **config.model_options)
    if opened.task == FEATURE_BASED and config.to != "savedmodel":
        raise TrainingError(
            f"--to {config.to} has no BiLSTM, which {config.source} ends in (task {opened.task}); give --to savedmodel"
        )
    length = model_loading.text_length(opened, config.max_seq_length)
    if not 1 <= config.top_k <= len(opened.vocabulary):
        raise TrainingError(f"--top_k is {config.top_k}; give 1 to {len(opened.vocabulary)}, the number of pieces")
    with new_directory(destination) as unfinished:
        if config.to == "savedmodel":
            signatures = save(opened, unfinished, length, config.top_k)
            lines = [_signature_text(name, function) for name, function in signatures.items()]
            require_files(unfinished, ["saved_model.pb", "variables/variables.index", f"assets/{VOCABULARY_NAME}"])
        else:
            lines = [save_ids_model(opened, unfinished, config.to)]
            require_files(unfinished, [MODEL_NAMES[config.to], VOCABULARY_NAME])
    print_status(f"Wrote     {destination}: {opened.task}, texts of up to {length} pieces")
    for line in lines:
        print_status(f"          {line}")
    return 0


def _signature_text(name: str, function: Any) -> str:
    import tensorflow as tf

    inputs = [spec.name for spec in tf.nest.flatten(function.structured_input_signature)]
    return f"{name}: {', '.join(inputs)} -> {', '.join(function.structured_outputs)}"


def save_ids_model(opened: InferenceModel, directory: Path, kind: str) -> str:
    """Write the part of a model that reads ids for another runtime, with vocab.txt and labels.json.

    Args:
        opened: the model.
        directory: new directory, which will contain model.onnx or model.tflite.
        kind: "onnx" or "litert".

    Returns:
        A line about its inputs and outputs.

    Raises:
        ImportError: the converter to ONNX is not installed.
    """
    import tensorflow as tf

    from trainers.inference.signatures import ids_function, plain_forward

    function = ids_function(opened, plain_forward(opened)).get_concrete_function()
    if kind == "onnx":
        import tf2onnx

        specs = tf.nest.flatten(function.structured_input_signature)
        converted = tf2onnx.convert.from_function(ids_function(opened, plain_forward(opened)), specs, opset=ONNX_OPSET)
        content = converted[0].SerializeToString()
    else:
        module = tf.Module()
        module.weights = [variable.value for variable in opened.model.variables]
        with tempfile.TemporaryDirectory() as folder:
            # From a SavedModel the inputs and outputs keep their names.
            tf.saved_model.save(module, folder, signatures=function)
            content = tf.lite.TFLiteConverter.from_saved_model(folder).convert()
    directory.mkdir(parents=True, exist_ok=True)
    (directory / MODEL_NAMES[kind]).write_bytes(content)
    _write_text_files(opened, directory)
    return _signature_text(MODEL_NAMES[kind], function)


def _write_text_files(opened: InferenceModel, directory: Path) -> None:
    (directory / VOCABULARY_NAME).write_bytes(opened.vocabulary.to_bytes())
    if opened.labels:
        text = json.dumps(opened.labels, ensure_ascii=False) + "\n"
        (directory / LABELS_NAME).write_text(text, encoding="utf-8")


def save(opened: InferenceModel, directory: Path, max_seq_length: int, top_k: int = 5) -> dict[str, Any]:
    """Write a SavedModel.

    Args:
        opened: the model.
        directory: new directory; its `assets` contain vocab.txt and, for a task with classes, labels.json.
        max_seq_length: see `served_model`.
        top_k: see `served_model`.

    Returns:
        The signatures by name, each a `tf.types.experimental.ConcreteFunction`.

    Raises:
        TrainingError: the files cannot be written.
    """
    import tensorflow as tf

    from trainers.inference.signatures import served_model

    module, signatures = served_model(opened, max_seq_length, top_k)
    sources = directory.with_name(f"{directory.name}.assets")
    try:
        sources.mkdir(parents=True, exist_ok=True)
        _write_text_files(opened, sources)
        module.vocabulary_file = tf.saved_model.Asset(str(sources / VOCABULARY_NAME))
        if opened.labels:
            module.labels_file = tf.saved_model.Asset(str(sources / LABELS_NAME))
        concrete = {name: function.get_concrete_function() for name, function in signatures.items()}
        tf.saved_model.save(module, str(directory), signatures=concrete)
    except (OSError, tf.errors.OpError) as error:
        raise TrainingError(file_errors.write_line(directory, error)) from error
    finally:
        shutil.rmtree(sources, ignore_errors=True)
    return concrete
