"""`beambert convert`: a model between TF1, Hugging Face and beambert's own directories."""

import argparse
from dataclasses import dataclass
from pathlib import Path

from beambert_common.command_line.path_flags import LOCAL_OUTPUT_DIRECTORY, LOCAL_PATH
from bert_model.checkpoints import hugging_face_config, reader, writer
from bert_model.checkpoints.variable_names import PRETRAINING, TASKS
from bert_model.config import BertConfig
from pipelines.io.directory_lock import lock_destination
from trainers.backends.tensorflow.startup import start_tensorflow
from trainers.checkpoints.initial_checkpoint import listed
from trainers.checkpoints.vocabulary_check import lower_casing_of, vocabulary_of
from trainers.commands.model_flags import ModelConfig, add_model_arguments
from trainers.inference import model_loading
from trainers.monitoring.training_progress import print_status, warn

DESCRIPTION = (
    "Converts a BERT between the released code's checkpoints (TensorFlow 1), Hugging Face's transformers and what "
    "beambert pretrain writes. SRC may also be one of Google's zip archives, as it was downloaded."
)
EXAMPLE = "beambert convert run run-hf --to huggingface"
COMMON_FLAGS = ()
_KIND_WORDS = {"tf1": "TF1 checkpoint", "huggingface": "Hugging Face model", "native": "native model"}
_CASES = {True: "lower-cased", False: "cased"}


@dataclass(frozen=True, kw_only=True)
class ConvertConfig(ModelConfig):
    """What `beambert convert` is configured with; the help of each flag says what it does."""

    source: str
    destination: str
    to: str
    task: str | None = None
    optimizer: str = "drop"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "source",
        type=LOCAL_PATH,
        metavar="SRC",
        help="a directory, the path of a TF1 checkpoint, or a zip archive; its kind is seen",
    )
    parser.add_argument(
        "destination",
        type=LOCAL_OUTPUT_DIRECTORY,
        metavar="DST",
        help="the directory to be written; must be new or empty",
    )
    parser.add_argument("--to", choices=writer.KINDS, required=True, help="the kind to write")
    parser.add_argument(
        "--task",
        choices=(PRETRAINING, *TASKS),
        help="which head SRC has; needed where the files do not tell, as a TF1 checkpoint of a token classifier, which "
        "looks like one of texts (default: what the files tell)",
    )
    parser.add_argument(
        "--optimizer",
        choices=("keep", "drop"),
        default=ConvertConfig.optimizer,
        help="Adam's state and the step counter, in TF1 and native checkpoints",
    )
    add_model_arguments(parser)


def configure(args: argparse.Namespace) -> ConvertConfig:
    """Return what the flags ask for."""
    return ConvertConfig.from_args(args)


def run(config: ConvertConfig) -> int:
    """Convert, and print what was read and written.

    Raises:
        CheckpointError, ConfigError, OutputError, VocabularyError: one line for the user.
    """
    destination = Path(config.destination)
    writer.check_destination(destination)
    with lock_destination(f"DST {destination}", destination, "another DST"):
        return _convert(config, destination)


def _convert(config: ConvertConfig, destination: Path) -> int:
    """Convert while the destination is locked."""
    writer.check_destination(destination)
    keep = config.optimizer == "keep"
    bert_config = BertConfig.load(config.bert_config_file) if config.bert_config_file else None
    model_loading.check_model(Path(config.source), **config.model_options)
    start_tensorflow()
    with reader.open_checkpoint(Path(config.source), config.task, bert_config) as checkpoint:
        vocabulary = vocabulary_of(checkpoint, config.vocab_file)
        do_lower_case = config.do_lower_case
        if do_lower_case is None:
            do_lower_case = lower_casing_of(checkpoint, vocabulary)
        _print_source(checkpoint)
        if config.do_lower_case is None and checkpoint.do_lower_case is None:
            print_status(f"Note      {_CASES[do_lower_case]}, as its vocabulary shows; --do_lower_case overrides")
        left_out = writer.write(
            checkpoint, destination, config.to, vocabulary.to_bytes(), do_lower_case, keep_optimizer=keep
        )
        _print_output(checkpoint, destination, config.to, left_out, keep)
    return 0


def _print_source(checkpoint: reader.Checkpoint) -> None:
    config = checkpoint.config
    classes = f" of {checkpoint.num_labels} labels" if checkpoint.num_labels else ""
    print_status(
        f"Found     {_KIND_WORDS[checkpoint.kind]} {checkpoint.path}: {checkpoint.task}{classes}, "
        f"{config.num_hidden_layers} layers of {config.hidden_size}, {config.vocab_size} pieces, "
        f"{len(checkpoint.tensors)} tensors with {checkpoint.parameters:,} parameters"
    )
    step = writer.steps(checkpoint)
    if checkpoint.optimizer:
        print_status(f"          {len(checkpoint.optimizer)} variables of the optimizer, step {step}")
    if checkpoint.missing:
        print_status(f"Missing   {len(checkpoint.missing)}: {listed(checkpoint.missing)}")
    if checkpoint.ignored:
        print_status(f"Ignored   {len(checkpoint.ignored)}: {listed(checkpoint.ignored)}")


def _print_output(checkpoint: reader.Checkpoint, destination: Path, kind: str, left_out: list[str], keep: bool) -> None:
    optimizer = len(checkpoint.optimizer)
    kept = f" and {optimizer} variables of the optimizer" if keep and optimizer else ""
    print_status(
        f"Wrote     {_KIND_WORDS[kind]} {destination}: {len(checkpoint.tensors) - len(left_out)} tensors{kept}"
    )
    if left_out:
        name = hugging_face_config.architecture(checkpoint.task, checkpoint.tensors)
        print_status(f"Left out  {listed(left_out)}: {name} has no place for them")
    if optimizer and not keep:
        print_status(
            f"Left out  {optimizer} variables of the optimizer (--optimizer keep writes them, to tf1 or native)"
        )
    if kind == "tf1" and checkpoint.config.hidden_act != "gelu":
        print_status("Note      the released code knows only the tanh form of GELU, this model has the erf form")
    if kind != "native" and checkpoint.record and checkpoint.record.causal_attention:
        warn(
            f"the model attends from left to right, which a {_KIND_WORDS[kind]} cannot say: whoever reads it will let "
            "every position see all others, and get other outputs"
        )
    if kind == "tf1" and checkpoint.labels:
        print_status(f"Note      TF1 has no place for the labels: {listed(checkpoint.labels)}")
    if kind == "tf1" and checkpoint.multi_label:
        warn("TF1 cannot say that a text may have several labels: whoever reads it will take the most probable alone")
