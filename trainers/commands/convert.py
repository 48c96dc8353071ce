"""Define `beambert convert`, which converts models between TF1, Hugging Face and native directories."""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from beambert.bert_model.checkpoints import hugging_face_config, reader, writer
from beambert.bert_model.checkpoints.embedding_rows import POSITION_METHODS, with_positions
from beambert.bert_model.checkpoints.stored_tensors import CheckpointError
from beambert.bert_model.config import BertConfig
from beambert.bert_model.heads import ALL_HEADS, PRETRAINING
from beambert.common.command_line import options
from beambert.common.command_line.options import Flag, SequenceLength
from beambert.common.command_line.path_flags import ANY_OUTPUT_DIRECTORY, ANY_PATH
from beambert.common.formatting import join_first
from beambert.common.word_rules import WordRules
from beambert.pipelines.io.output_directory import lock_destination
from beambert.tokenizer.vocabulary import Vocabulary
from beambert.trainers.checkpoints.vocabulary_check import drop_unused_rows, vocabulary_of, word_rules_of
from beambert.trainers.inference import model_loading
from beambert.trainers.monitoring.training_progress import print_status, warn
from beambert.trainers.options import ModelOptions
from beambert.trainers.training.averaged_checkpoints import averaged, last_checkpoints

DESCRIPTION = """Convert a model between TF1 checkpoints, Hugging Face directories and native directories.

SRC is a directory, a TF1 checkpoint or a zip archive of the released BERT; its format is detected. DST is a new
directory."""
EXAMPLE = """beambert convert run bert-hf --to huggingface
beambert convert uncased_L-12_H-768_A-12.zip bert-base --to native
beambert convert run bert-tf1 --to tf1 --optimizer keep
beambert convert run averaged --to native --average 5
beambert convert bert-base bert-1024 --to native --max_position_embeddings 1024"""
COMMON_FLAGS = ("--to", "--vocab_file", "--task", "--optimizer", "--average", "--max_position_embeddings")
KIND_WORDS = {
    "tf1": "TF1 checkpoint",
    "huggingface": "Hugging Face model",
    "native": "native model",
    "saved_model": "SavedModel",
    "keras_hub": "KerasHub preset",
}


@dataclass(frozen=True, kw_only=True)
class ConvertOptions(ModelOptions):
    """The options of `beambert convert`.

    Attributes:
        source: A model directory, or a checkpoint or zip archive of the released BERT; the format is detected.
        destination: Output directory; must be new or empty.
        to: Output format.
        max_position_embeddings: Number of position embeddings of DST, the maximum sequence length; pretrain DST further
            at this length (default: that of SRC).
        position_init: Initial values of the position embeddings: random keeps those of SRC and draws further ones, tile
            repeats them, interpolate stretches them over all positions (default: random).
        task: Task head of SRC; required if the files do not record it, as for a TF1 checkpoint of a token classifier
            (default: as detected).
        optimizer: Keep or drop the optimizer state and the step counter, in TF1 and native checkpoints.
        average: Average the weights of the last N checkpoints of SRC, the output directory of a training run; the run
            must keep as many (--keep_checkpoint_max).

    Raises:
        CheckpointError: a value is out of range, or flags exclude each other.
    """

    source: Annotated[str, Flag("", type=ANY_PATH, metavar="SRC")]
    destination: Annotated[str, Flag("", type=ANY_OUTPUT_DIRECTORY, metavar="DST")]
    to: Annotated[str, Flag("output", choices=writer.KINDS, required=True)]
    max_position_embeddings: Annotated[SequenceLength | None, Flag("output")] = None
    position_init: Annotated[str | None, Flag("output", choices=POSITION_METHODS)] = None
    task: Annotated[str | None, Flag("task", choices=tuple(ALL_HEADS))] = None
    optimizer: Annotated[Literal["keep", "drop"], Flag("checkpoints")] = "drop"
    average: Annotated[Annotated[int, Meta(ge=2, le=1000)] | None, Flag("checkpoints")] = None

    def __post_init__(self) -> None:
        options.check(self, CheckpointError)
        if self.average is not None and self.optimizer == "keep":
            raise CheckpointError(
                "invalid --average with --optimizer keep: averaged weights have no optimizer state; use --optimizer "
                "drop"
            )
        if self.max_position_embeddings is not None and self.optimizer == "keep":
            raise CheckpointError(
                "--optimizer keep cannot be combined with --max_position_embeddings, which changes the shape of a "
                "weight; omit one of them"
            )
        if self.max_position_embeddings is None and self.position_init is not None:
            raise CheckpointError("--position_init has no effect without --max_position_embeddings; give both")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    options.add_groups(parser, "output", "task", "checkpoints")
    options.add_arguments(parser, ConvertOptions)


def configure(args: argparse.Namespace) -> ConvertOptions:
    """Return the options of parsed flags."""
    return options.from_args(ConvertOptions, args)


def run(config: ConvertOptions) -> int:
    """Convert a model and print a summary.

    Raises:
        CheckpointError, ConfigError, OutputError, VocabularyError: a one-line message.
    """
    destination = Path(config.destination)
    writer.check_destination(destination)
    with lock_destination(f"DST {destination}", destination, "another DST"):
        return _convert(config, destination)


def _convert(config: ConvertOptions, destination: Path) -> int:
    """Convert while DST is locked."""
    writer.check_destination(destination)
    keep = config.optimizer == "keep"
    bert_config = BertConfig.load(config.bert_config_file) if config.bert_config_file else None
    model_loading.check_model(Path(config.source), **config.model_options)
    saved = last_checkpoints(Path(config.source), config.average) if config.average else []
    with reader.open_checkpoint(Path(config.source), config.task, bert_config) as checkpoint:
        vocabulary = vocabulary_of(checkpoint, config.vocab_file, config.added_tokens)
        word_rules = word_rules_of(checkpoint, vocabulary, config)
        print_source(checkpoint)
        if config.do_lower_case is None and checkpoint.word_rules.do_lower_case is None:
            print_status(f"Note      {word_rules.summary}, inferred from the vocabulary; --do_lower_case overrides it")
        if saved:
            checkpoint = averaged(checkpoint, saved)
            print_status(f"Averaged  {len(saved)} checkpoints, of steps {', '.join(str(each.step) for each in saved)}")
        checkpoint = drop_unused_rows(checkpoint, vocabulary, print_status)
        if config.max_position_embeddings is not None:
            checkpoint = _resized(checkpoint, config.max_position_embeddings, config.position_init)
        left_out = writer.write(
            checkpoint,
            destination,
            config.to,
            vocabulary_content(vocabulary, config.to),
            word_rules,
            keep_optimizer=keep,
            added_tokens=vocabulary.added_by_id,
        )
        _print_output(checkpoint, destination, config.to, left_out, keep)
        if config.to == "tf1" and word_rules != WordRules(word_rules.do_lower_case):
            warn(
                f"a TF1 checkpoint does not record the word rules ({word_rules.summary}); give {word_rules.flags} to "
                "every command that reads it"
            )
    return 0


def _resized(checkpoint: reader.Checkpoint, count: int, method: str | None) -> reader.Checkpoint:
    """Return a checkpoint with another number of position embeddings, and print the change."""
    former = checkpoint.config.max_position_embeddings
    method = method or POSITION_METHODS[0]
    how = {"tile": "tiled", "interpolate": "interpolated", "random": "further ones random"}[method]
    if count < former and method != "interpolate":
        how = f"the first {count:,} ones kept"
    if count != former:
        print_status(f"Positions {former:,} -> {count:,}, {how}")
    return with_positions(checkpoint, count, method)


def vocabulary_content(vocabulary: Vocabulary, kind: str) -> bytes:
    """Return the content of `vocab.txt` in a format; that of Hugging Face is without the last added tokens."""
    return (vocabulary.wordpieces if kind == "huggingface" else vocabulary).to_bytes()


def print_source(checkpoint: reader.Checkpoint) -> None:
    """Print the format, task, shape and optimizer state of a checkpoint, and its missing and ignored tensors."""
    config = checkpoint.config
    classes = f" with {checkpoint.num_labels} labels" if checkpoint.num_labels else ""
    print_status(
        f"Found     {KIND_WORDS[checkpoint.kind]} {checkpoint.path}: {checkpoint.head.name}{classes}, "
        f"{config.num_hidden_layers} layers, hidden size {config.hidden_size}, vocabulary size {config.vocab_size}, "
        f"{len(checkpoint.tensors)} tensors with {checkpoint.parameters:,} parameters"
    )
    step = writer.steps(checkpoint)
    if checkpoint.optimizer:
        print_status(f"          {len(checkpoint.optimizer)} optimizer variables, step {step}")
    if checkpoint.missing:
        print_status(f"Missing   {len(checkpoint.missing)}: {join_first(checkpoint.missing)}")
    if checkpoint.record and not checkpoint.record.next_sentence and checkpoint.head is PRETRAINING:
        print_status("Note      next-sentence prediction was not trained; its head has random weights and is left out")
    if checkpoint.ignored:
        print_status(f"Ignored   {len(checkpoint.ignored)}: {join_first(checkpoint.ignored)}")


def _print_output(checkpoint: reader.Checkpoint, destination: Path, kind: str, left_out: list[str], keep: bool) -> None:
    optimizer = len(checkpoint.optimizer)
    kept = f" and {optimizer} optimizer variables" if keep and optimizer else ""
    print_status(f"Wrote     {KIND_WORDS[kind]} {destination}: {len(checkpoint.tensors) - len(left_out)} tensors{kept}")
    if left_out:
        name = hugging_face_config.architecture(checkpoint.head, checkpoint.tensors)
        print_status(f"Left out  {join_first(left_out)}: {name} has no such weights")
    if optimizer and not keep:
        print_status(f"Left out  {optimizer} optimizer variables; --optimizer keep writes them (tf1 and native)")
    if kind == "tf1" and checkpoint.config.hidden_act != "gelu":
        print_status(
            "Note      this model uses the erf form of GELU; the released code has only the tanh approximation"
        )
    if kind != "native" and checkpoint.record and checkpoint.record.causal_attention:
        warn(
            f"the model uses causal attention, which a {KIND_WORDS[kind]} cannot record; other software will use "
            "bidirectional attention and compute different outputs"
        )
    if kind == "tf1" and checkpoint.labels:
        print_status(f"Note      a TF1 checkpoint does not record the labels: {join_first(checkpoint.labels)}")
    if kind == "tf1" and checkpoint.head.several_labels:
        warn("a TF1 checkpoint cannot record that the task is multi-label; other software will predict a single label")
