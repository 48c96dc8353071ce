"""Open a model of any kind for inference: `fill-mask`, `features` and `export`.

TensorFlow is imported by `load_model` alone.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bert_model.checkpoints import reader
from bert_model.checkpoints.reader import Checkpoint
from bert_model.checkpoints.variable_names import FEATURE_BASED, PRETRAINING, variables_by_tf1_name
from bert_model.config import BertConfig
from tokenizer.vocabulary import Vocabulary
from trainers.checkpoints.initial_checkpoint import load_weights
from trainers.checkpoints.vocabulary_check import lower_casing_of, vocabulary_of
from trainers.errors import TrainingError
from trainers.finetuning.text_pairs import likely_pairs

POOLER = "bert/pooler/"
MASKED_LM = "cls/predictions/"
NEXT_SENTENCE = "cls/seq_relationship/"
# As long as the released run_squad.py reads; the other tasks are cut where the model was trained to.
SPAN_LENGTH = 384
# Question, context and three special tokens.
LEAST_LENGTH = 8


@dataclasses.dataclass(frozen=True)
class InferenceModel:
    """A model with its weights, vocabulary and tokenizer.

    Attributes:
        path: what was opened, for messages.
        model: a `BertForPretraining` or `BertForTask`.
        task: "pretraining" or the task of a `BertForTask`.
        labels: names of the classes, as many as there are; their numbers where nothing names them; empty for a task
            without classes.
        multi_label: whether a text may have several of them: a sigmoid a label in place of the softmax.
        vocabulary: its tokens.
        do_lower_case: whether text is lower-cased and stripped of accents before WordPiece.
        max_seq_length: longest sequence it was trained on, or can read where that is not known.
        missing: TF1 names of weights that the checkpoint lacks and that are random here.
        layers: those that were asked for, from 0 for the first.
        text_pairs: as of `native.ModelRecord`.
        likely_pairs: as of `text_pairs.likely_pairs`, where that is None.
    """

    path: Path
    model: Any
    task: str
    labels: tuple[str, ...]
    multi_label: bool
    vocabulary: Vocabulary
    do_lower_case: bool
    max_seq_length: int
    missing: tuple[str, ...]
    layers: tuple[int, ...]
    text_pairs: bool | None = None
    likely_pairs: bool | None = None

    @property
    def config(self) -> BertConfig:
        """Return the model's configuration."""
        return self.model.config

    def has(self, prefix: str) -> bool:
        """Return whether the checkpoint gave all weights whose TF1 names start with a prefix."""
        names = [name for name in variables_by_tf1_name(self.model) if name.startswith(prefix)]
        return bool(names) and not set(names).intersection(self.missing)


def check_model(path: Path, vocab_file: str | None = None, bert_config_file: str | None = None, **_: Any) -> None:
    """Refuse a path without a model or its small files, before TensorFlow is imported.

    Args:
        path, vocab_file, bert_config_file: as of `load_model`; its other options need no check.

    Raises:
        CheckpointError, ConfigError, VocabularyError: as of `load_model`.
    """
    config = BertConfig.load(bert_config_file) if bert_config_file else None
    files = reader.find_files(path, config)
    if files is not None:
        vocabulary_of(files, vocab_file)
    elif vocab_file:
        Vocabulary.load(vocab_file)


def load_model(
    path: Path,
    *,
    task: str | None = None,
    vocab_file: str | None = None,
    do_lower_case: bool | None = None,
    bert_config_file: str | None = None,
    layers: Sequence[int] = (),
) -> InferenceModel:
    """Open a checkpoint of any kind and build its model; TensorFlow must have been started.

    Args:
        path: as of `checkpoints.open_checkpoint`.
        task: which head, where the files do not record it.
        vocab_file: where the model has none, or another is to be used.
        do_lower_case: None for what the files say.
        bert_config_file: of a TF1 checkpoint without one.
        layers: the only ones that are wanted, from 0 for the first or from -1 for the last down; those above all of
            them are not built. None given, all are.

    Raises:
        CheckpointError, ConfigError, VocabularyError: there is no model, it cannot be read, or its vocabulary is
            missing or another's.
        TrainingError: weights of the encoder or of the task's head are missing, or there is no such layer.
    """
    from bert_model.finetuning_models import BertForTask
    from bert_model.pretraining import BertForPretraining

    given_config = BertConfig.load(bert_config_file) if bert_config_file else None
    with reader.open_checkpoint(path, task, given_config) as checkpoint:
        vocabulary = vocabulary_of(checkpoint, vocab_file)
        config = checkpoint.config
        wanted = _layers_from_the_first(layers, config.num_hidden_layers)
        # The BiLSTM of the feature-based route reads the last layers, wanted or not.
        if wanted and checkpoint.task != FEATURE_BASED:
            config = dataclasses.replace(config, num_hidden_layers=max(wanted) + 1)
        causal_attention = checkpoint.record is not None and checkpoint.record.causal_attention
        if checkpoint.task == PRETRAINING:
            model = BertForPretraining(config, causal_attention=causal_attention)
        else:
            model = BertForTask(config, checkpoint.task, checkpoint.num_labels, causal_attention=causal_attention)
        missing = load_weights(checkpoint, variables_by_tf1_name(model)).initialised
        _require_whole(checkpoint, missing)
        known = checkpoint.record.max_seq_length if checkpoint.record else None
        return InferenceModel(
            path=path,
            model=model,
            task=checkpoint.task,
            labels=_labels(checkpoint),
            multi_label=checkpoint.multi_label,
            vocabulary=vocabulary,
            do_lower_case=lower_casing_of(checkpoint, vocabulary) if do_lower_case is None else do_lower_case,
            max_seq_length=known or config.max_position_embeddings,
            missing=missing,
            layers=wanted,
            text_pairs=checkpoint.record.text_pairs if checkpoint.record else None,
            likely_pairs=likely_pairs(checkpoint),
        )


def text_length(opened: InferenceModel, max_seq_length: int | None) -> int:
    """Return the number of tokens that a model reads of a text, or of a window of a context.

    Args:
        opened: the model.
        max_seq_length: as asked for; None for what it was trained with or can read, for answer spans 384 at most.

    Raises:
        TrainingError: the model cannot read as many, or they are too few for a question.
    """
    if max_seq_length is None:
        trained = opened.max_seq_length
        max_seq_length = min(trained, SPAN_LENGTH) if opened.task == "span" else trained
    check_max_seq_length(max_seq_length, opened.config, LEAST_LENGTH)
    return max_seq_length


def check_max_seq_length(max_seq_length: int, config: BertConfig, least: int) -> None:
    """Refuse a length that the model cannot read.

    Raises:
        TrainingError: it is less than `least`, or more than max_position_embeddings.
    """
    if not least <= max_seq_length <= config.max_position_embeddings:
        raise TrainingError(
            f"--max_seq_length is {max_seq_length}; give {least} to {config.max_position_embeddings}, the model's "
            "max_position_embeddings"
        )


def padded(rows: Sequence[np.ndarray], value: int = 0, multiple: int = 1) -> np.ndarray:
    """Return rows of different lengths as a matrix.

    Args:
        rows: int [S_i] each.
        value: what the shorter ones are filled up with.
        multiple: the width is rounded up to one of this.

    Returns:
        int32 [B, S].
    """
    width = max((len(row) for row in rows), default=0)
    matrix = np.full((len(rows), -(-width // multiple) * multiple), value, np.int32)
    for number, row in enumerate(rows):
        matrix[number, : len(row)] = row
    return matrix


def _require_whole(checkpoint: Checkpoint, missing: tuple[str, ...]) -> None:
    """Refuse a model without its encoder or its task's head.

    What is not always needed may be missing: the heads of pretraining, and the pooler where no head stands on it.
    """
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


def _layers_from_the_first(layers: Sequence[int], count: int) -> tuple[int, ...]:
    for layer in layers:
        if not -count <= layer < count:
            raise TrainingError(f"--layers names {layer}, the model has {count} layers; give {-count} to {count - 1}")
    counted = tuple(layer % count for layer in layers)
    if len(set(counted)) < len(counted):
        raise TrainingError(f"--layers names a layer of {count} twice ({','.join(map(str, layers))}); name each once")
    return counted


def _labels(checkpoint: Checkpoint) -> tuple[str, ...]:
    if checkpoint.labels is not None:
        return checkpoint.labels
    return tuple(map(str, range(checkpoint.num_labels or 0)))
