"""Define `beambert export`, which writes a model that runs without beambert."""

import argparse
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

from beambert.bert_model.checkpoints.native import MODEL_CARD_FILE_NAME
from beambert.bert_model.checkpoints.variable_names import FEATURE_BASED, PRETRAINING, TASKS
from beambert.bert_model.checkpoints.writer import check_destination, new_directory, require_files
from beambert.common import file_errors
from beambert.common.command_line import options
from beambert.common.command_line.options import Flag, SequenceLength, VocabularySize
from beambert.common.command_line.path_flags import ANY_OUTPUT_DIRECTORY, ANY_PATH
from beambert.pipelines.io.output_directory import lock_destination
from beambert.tokenizer.differences import TokenizerDifferences, find_differences
from beambert.trainers.backends.tensorflow.startup import start_tensorflow
from beambert.trainers.errors import TrainingError
from beambert.trainers.inference import model_loading
from beambert.trainers.inference.export_record import (
    EXACT,
    RECORD_NAME,
    TENSORFLOW_TEXT,
    TOKENIZERS,
    difference_lines,
    write_export_record,
)
from beambert.trainers.inference.export_writers import (
    LABELS_NAME,
    MODEL_NAMES,
    VOCABULARY_NAME,
    signature_names,
    signature_text,
    write_ids_model,
    write_saved_model,
)
from beambert.trainers.inference.model_loading import InferenceModel, load_model
from beambert.trainers.monitoring.training_progress import print_status
from beambert.trainers.options import ModelOptions

DESCRIPTION = """Export a model for serving, by default as a TensorFlow SavedModel that takes raw text.

The tokenizer is part of the SavedModel graph, which by default needs neither beambert nor tensorflow_text. With --to
onnx or --to litert, the exported model takes token ids."""
EXAMPLE = """beambert export reviews-model served-model
beambert export reviews-model fast-model --tokenizer tensorflow_text
beambert export reviews-model onnx-model --to onnx --max_seq_length 128"""
COMMON_FLAGS = ("--to", "--tokenizer", "--quantization", "--max_seq_length", "--top_k")


@dataclass(frozen=True, kw_only=True)
class ExportOptions(ModelOptions):
    """The options of `beambert export`.

    Attributes:
        source: A model in any format that `beambert convert` reads.
        destination: Output directory; must be new or empty.
        to: Output format; savedmodel takes raw text, onnx and litert take token ids.
        tokenizer: Tokenizer in the SavedModel graph. exact has the ids of the training. tensorflow_text is faster and
            has other ids for some characters, which are counted; serving needs its operations.
        quantization: Quantization of onnx and litert: int8 stores the weight matrices as 8-bit integers, in a quarter
            of the size, with small changes of the outputs.
        task: Task head of SRC; required if the files do not record it, as for a TF1 checkpoint of a token classifier.
        max_seq_length: Maximum sequence length in tokens; longer texts are truncated, or split into windows for
            question answering (default: the training length, else the model's limit, for question answering at most
            384).
        top_k: Number of candidates per [MASK] in the fill_mask signature.

    Raises:
        TrainingError: a value is out of range, or flags exclude each other.
    """

    source: Annotated[str, Flag("", type=ANY_PATH, metavar="SRC")]
    destination: Annotated[str, Flag("", type=ANY_OUTPUT_DIRECTORY, metavar="DST")]
    to: Annotated[Literal["savedmodel", "onnx", "litert"], Flag("export")] = "savedmodel"
    tokenizer: Annotated[str, Flag("export", choices=TOKENIZERS)] = EXACT
    quantization: Annotated[Literal["none", "int8"], Flag("export")] = "none"
    task: Annotated[str | None, Flag("task", choices=(PRETRAINING, *TASKS))] = None
    max_seq_length: Annotated[SequenceLength | None, Flag("export")] = None
    top_k: Annotated[VocabularySize, Flag("export", metavar="K")] = 5

    def __post_init__(self) -> None:
        options.check(self, TrainingError)
        if self.quantization != "none" and self.to == "savedmodel":
            raise TrainingError(f"--quantization {self.quantization} requires --to onnx or --to litert")
        if self.tokenizer != EXACT and self.to != "savedmodel":
            raise TrainingError(
                f"--tokenizer {self.tokenizer} requires --to savedmodel; a model of --to {self.to} takes token ids"
            )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    options.add_groups(parser, "export", "task")
    options.add_arguments(parser, ExportOptions)


def configure(args: argparse.Namespace) -> ExportOptions:
    """Return the options of parsed flags."""
    return options.from_args(ExportOptions, args)


def run(config: ExportOptions) -> int:
    """Export a model and print a summary.

    Raises:
        CheckpointError, ConfigError, OutputError, TrainingError, VocabularyError: a one-line message.
    """
    destination = Path(config.destination)
    check_destination(destination)
    with lock_destination(f"DST {destination}", destination, "another DST"):
        return _export(config, destination)


def _export(config: ExportOptions, destination: Path) -> int:
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
            signatures = write_saved_model(inference_model, work_directory, length, config.top_k, config.tokenizer)
            lines = [signature_text(name, function) for name, function in signatures.items()]
            differences = _differences(inference_model) if config.tokenizer == TENSORFLOW_TEXT else None
            if differences is not None:
                lines += [f"tokenizer tensorflow_text: {line}" for line in difference_lines(differences)]
            names = {name: signature_names(function) for name, function in signatures.items()}
            with file_errors.writing(destination):
                write_export_record(work_directory, inference_model, length, names, differences)
            variables = ["variables/variables.index", "variables/variables.data-00000-of-00001"]
            assets = [f"assets/{name}" for name in text_files]
            require_files(work_directory, ["saved_model.pb", *variables, *assets, RECORD_NAME, MODEL_CARD_FILE_NAME])
        else:
            lines = [write_ids_model(inference_model, work_directory, config.to, config.quantization)]
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
    from beambert.tokenizer.tensorflow_text_tokenizer import TensorFlowTextTokenizer

    print_status("Comparing the tokenizer of tensorflow_text on all Unicode code points")
    rules = inference_model.word_rules
    return find_differences(
        inference_model.vocabulary,
        rules,
        lambda vocabulary: TensorFlowTextTokenizer(vocabulary, **asdict(rules)).encode_batch,
    )
