"""Opens a model of any kind to be asked, for `fill-mask`, `features` and `export`."""

import argparse
import dataclasses
from pathlib import Path
from typing import Any

from bert_model import checkpoints
from bert_model.checkpoints import Checkpoint
from bert_model.config import BertConfig
from bert_model.names import PRETRAINING, variables_by_tf1_name
from tokenizer.vocabulary import Vocabulary
from trainers import run_record
from trainers.errors import TrainingError

POOLER = "bert/pooler/"
MASKED_LM = "cls/predictions/"
NEXT_SENTENCE = "cls/seq_relationship/"


@dataclasses.dataclass(frozen=True)
class InferenceModel:
    """A model with its weights, and what text becomes before it.

    Attributes:
        path: what was opened, for messages.
        model: a `BertForPretraining` or `BertForTask`.
        task: "pretraining" or the task of a `BertForTask`.
        labels: names of the classes, as many as there are; their numbers where nothing names them; empty for a task
            without classes.
        vocabulary: its pieces.
        do_lower_case: whether text is lower-cased and stripped of accents before WordPiece.
        max_seq_length: longest sequence it was trained on, or can read where that is not known.
        missing: TF1 names of weights that the checkpoint lacks and that are random here.
    """

    path: Path
    model: Any
    task: str
    labels: tuple[str, ...]
    vocabulary: Vocabulary
    do_lower_case: bool
    max_seq_length: int
    missing: tuple[str, ...]

    @property
    def config(self) -> BertConfig:
        """Shape of the model."""
        return self.model.config

    def has(self, prefix: str) -> bool:
        """Whether the model has weights whose TF1 names start so, and the checkpoint gave all of them."""
        names = [name for name in variables_by_tf1_name(self.model) if name.startswith(prefix)]
        return bool(names) and not set(names).intersection(self.missing)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what `load_model` may have to be told."""
    parser.add_argument("--vocab_file", metavar="FILE", help="the vocabulary, where the model has no vocab.txt")
    parser.add_argument(
        "--do_lower_case",
        type=boolean,
        metavar="true|false",
        help="whether text is lower-cased (default: what the model says, else whether its vocabulary lacks capitals)",
    )
    parser.add_argument(
        "--bert_config_file",
        metavar="FILE",
        help="the model's bert_config.json, where a TF1 checkpoint has none beside it",
    )


def load_model(
    path: Path,
    *,
    task: str | None = None,
    vocab_file: str | None = None,
    do_lower_case: bool | None = None,
    bert_config_file: str | None = None,
    num_layers: int | None = None,
) -> InferenceModel:
    """Opens a checkpoint of any kind and builds its model; TensorFlow must have been started.

    Args:
        path: as of `checkpoints.open_checkpoint`.
        task: which head, where the files do not tell.
        vocab_file: where the model has none, or another is to be used.
        do_lower_case: None for what the files say.
        bert_config_file: of a TF1 checkpoint without one.
        num_layers: build no more than the first so many layers; None for all.

    Raises:
        CheckpointError, ConfigError, VocabularyError: there is no model, it cannot be read, or its vocabulary is
            missing or another's.
        TrainingError: weights of the encoder or of the task's head are missing.
    """
    from bert_model.pretraining import BertForPretraining
    from bert_model.tasks import BertForTask

    given = BertConfig.load(bert_config_file) if bert_config_file else None
    with checkpoints.open_checkpoint(path, task, given) as checkpoint:
        vocabulary = vocabulary_of(checkpoint, vocab_file)
        config = checkpoint.config
        if num_layers is not None:
            config = dataclasses.replace(config, num_hidden_layers=min(num_layers, config.num_hidden_layers))
        if checkpoint.task == PRETRAINING:
            model = BertForPretraining(config)
        else:
            model = BertForTask(config, checkpoint.task, checkpoint.num_labels)
        variables = variables_by_tf1_name(model)
        missing = tuple(name for name in variables if name not in checkpoint.tensors)
        _require_whole(checkpoint, missing)
        for name, variable in variables.items():
            if name in checkpoint.tensors:
                variable.assign(checkpoint.tensors[name].read())
        return InferenceModel(
            path=path,
            model=model,
            task=checkpoint.task,
            labels=_labels(checkpoint),
            vocabulary=vocabulary,
            do_lower_case=_lower_case(checkpoint, vocabulary, do_lower_case),
            max_seq_length=_max_seq_length(checkpoint),
            missing=missing,
        )


def vocabulary_of(checkpoint: Checkpoint, given: str | None) -> Vocabulary:
    """The vocabulary of a checkpoint, or the one given for it.

    Raises:
        VocabularyError: it cannot be read.
        TrainingError: there is none, or it is not the model's.
    """
    path = Path(given) if given else checkpoint.vocab_file
    if path is None:
        raise TrainingError(f"{checkpoint.path} has no vocab.txt; give the model's with --vocab_file")
    vocabulary = Vocabulary.load(path)
    rows = checkpoint.config.vocab_size
    # Some models at Hugging Face have rows that no piece uses, to round their number up.
    if len(vocabulary) > rows or (len(vocabulary) < rows and checkpoint.kind != "huggingface"):
        raise TrainingError(
            f"{path} has {len(vocabulary)} pieces, the model has vocab_size {rows}; give the model's own vocabulary "
            "with --vocab_file"
        )
    return vocabulary


def boolean(text: str) -> bool:
    """The value of a flag that is given as true or false, for argparse."""
    if text.lower() not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
    return text.lower() == "true"


def check_max_seq_length(max_seq_length: int, config: BertConfig, least: int) -> None:
    """Refuses a length that the model cannot read.

    Raises:
        TrainingError: it is less than `least`, or more than max_position_embeddings.
    """
    if not least <= max_seq_length <= config.max_position_embeddings:
        raise TrainingError(
            f"--max_seq_length is {max_seq_length}; give {least} to {config.max_position_embeddings}, the model's "
            "max_position_embeddings"
        )


def _require_whole(checkpoint: Checkpoint, missing: tuple[str, ...]) -> None:
    """Refuses a model without its encoder or its task's head; a pooler or heads of pretraining may be missing."""
    needed = [
        name
        for name in missing
        if not name.startswith((POOLER, MASKED_LM, NEXT_SENTENCE))
        or (name.startswith(POOLER) and checkpoint.task in ("classification", "regression", "multiple_choice"))
    ]
    if needed:
        more = f" and {len(needed) - 1} more" if len(needed) > 1 else ""
        raise TrainingError(
            f"{checkpoint.path} lacks {needed[0]}{more}, without which its task ({checkpoint.task}) cannot be done; "
            "give a whole model"
        )


def _labels(checkpoint: Checkpoint) -> tuple[str, ...]:
    if checkpoint.labels is not None:
        return checkpoint.labels
    return tuple(map(str, range(checkpoint.num_labels or 0)))


def _lower_case(checkpoint: Checkpoint, vocabulary: Vocabulary, given: bool | None) -> bool:
    for known in (given, checkpoint.do_lower_case):
        if known is not None:
            return known
    record = _run(checkpoint)
    return record.do_lower_case if record else not vocabulary.has_capitals()


def _max_seq_length(checkpoint: Checkpoint) -> int:
    known = checkpoint.record.max_seq_length if checkpoint.record else None
    if known is None:
        record = _run(checkpoint)
        known = record.max_seq_length if record else checkpoint.config.max_position_embeddings
    return known


def _run(checkpoint: Checkpoint) -> run_record.RunRecord | None:
    """The record of a run that is not finished yet, whose directory has no model.json."""
    return run_record.load(checkpoint.path) if checkpoint.path.is_dir() else None
