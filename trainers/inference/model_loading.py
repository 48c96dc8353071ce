"""Load a model of any format for inference: `predict`, `fill-mask`, `features` and `export`.

Only `load_model` imports Keras.
"""

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from beambert.bert_model.checkpoints import reader
from beambert.bert_model.checkpoints.reader import Checkpoint, find_files
from beambert.bert_model.checkpoints.variable_names import FEATURE_BASED, PRETRAINING, variables_by_tf1_name
from beambert.bert_model.config import BertConfig
from beambert.common.word_rules import WordRuleFlags, WordRules
from beambert.tokenizer.tokenizer import Tokenizer
from beambert.tokenizer.vocabulary import Vocabulary
from beambert.trainers.backends.startup import ensure_backend
from beambert.trainers.checkpoints.initial_checkpoint import load_weights
from beambert.trainers.checkpoints.vocabulary_check import drop_unused_rows, vocabulary_of, word_rules_of
from beambert.trainers.errors import TrainingError
from beambert.trainers.finetuning.text_pairs import likely_pairs

POOLER = "bert/pooler/"
MASKED_LM = "cls/predictions/"
NEXT_SENTENCE = "cls/seq_relationship/"
# Default of the released run_squad.py, for models without a record of the training.
SPAN_LENGTH = 384
# Minimum length: question, context and three special tokens.
LEAST_LENGTH = 8


@dataclasses.dataclass(frozen=True)
class InferenceModel:
    """A model with its weights, vocabulary and tokenizer.

    Attributes:
        path: path of the model, for messages.
        model: a `BertForPretraining` or `BertForTask`.
        task: "pretraining", or the task of a `BertForTask`.
        labels: names of the classes, or their numbers where they have no names; empty for a task without classes.
        multi_label: whether a text may have several labels, with a sigmoid per label instead of the softmax.
        vocabulary: vocabulary of the model.
        word_rules: rules that split text into words.
        max_seq_length: maximum sequence length of the training; where it is unknown, max_position_embeddings, at most
            384 for spans.
        missing: TF1 names of weights that the checkpoint lacks and that are zero.
        layers: requested layers, counted from 0.
        text_pairs: as in `native.ModelRecord`.
        likely_pairs: as `text_pairs.likely_pairs`, where `text_pairs` is None.
    """

    path: Path
    model: Any
    task: str
    labels: tuple[str, ...]
    multi_label: bool
    vocabulary: Vocabulary
    word_rules: WordRules
    max_seq_length: int
    missing: tuple[str, ...]
    layers: tuple[int, ...]
    text_pairs: bool | None = None
    likely_pairs: bool = False

    @property
    def config(self) -> BertConfig:
        """Return the model's configuration."""
        return self.model.config

    def tokenizer(self, never_split: Sequence[str] = ()) -> Tokenizer:
        """Return the tokenizer of the model.

        Args:
            never_split: tokens that are kept whole, as for `beambert.tokenizer.Tokenizer`.
        """
        return Tokenizer(self.vocabulary, never_split=never_split, **dataclasses.asdict(self.word_rules))

    def has(self, prefix: str) -> bool:
        """Return whether the checkpoint contains all weights whose TF1 names start with a prefix."""
        names = [name for name in variables_by_tf1_name(self.model) if name.startswith(prefix)]
        return bool(names) and not set(names).intersection(self.missing)


def check_model(
    path: Path,
    vocab_file: str | None = None,
    added_tokens: str | None = None,
    bert_config_file: str | None = None,
    *,
    may_lack_rows: bool = False,
    **_: Any,
) -> None:
    """Check, before Keras is imported, that a path contains a model with its configuration and vocabulary.

    Args:
        path, vocab_file, added_tokens, bert_config_file: as for `load_model`; its other options need no check.
        may_lack_rows: as for `vocabulary_of`.

    Raises:
        CheckpointError, ConfigError, VocabularyError: as `load_model`.
    """
    config = BertConfig.load(bert_config_file) if bert_config_file else None
    files = find_files(path, config)
    if files is not None:
        vocabulary_of(files, vocab_file, added_tokens, may_lack_rows=may_lack_rows)
    elif vocab_file:
        Vocabulary.load(vocab_file)


def load_model(
    path: Path,
    *,
    task: str | None = None,
    vocab_file: str | None = None,
    added_tokens: str | None = None,
    do_lower_case: bool | None = None,
    strip_accents: str | None = None,
    tokenize_chinese_chars: bool | None = None,
    bert_config_file: str | None = None,
    layers: Sequence[int] = (),
    backend: str = "auto",
    precision: str = "float32",
) -> InferenceModel:
    """Open a checkpoint of any format and build its model, on a backend that is started if necessary.

    Args:
        path: path, as for `checkpoints.open_checkpoint`.
        task: task of the head, where the files do not record it.
        vocab_file: vocabulary file; None for that of the model.
        added_tokens: file of tokens that are kept whole, in addition to those recorded with the model; None for none.
        do_lower_case, strip_accents, tokenize_chinese_chars: values of `WordRuleFlags`; None for the recorded values.
        bert_config_file: configuration of a TF1 checkpoint without bert_config.json.
        layers: required layers, from 0 for the first or -1 for the last; layers above them are not built. Empty: all.
        backend: "tensorflow", "jax" or "auto", as for `beambert.trainers.backends.startup.choose_backend`.
        precision: "float32" or "bfloat16", the dtype of dense layers and their weights. Embeddings, softmax, layer
            normalization and the heads of tasks are float32 in both.

    Returns:
        The model.

    Raises:
        CheckpointError, ConfigError, VocabularyError: there is no model, it cannot be read, or its vocabulary is
            missing or does not match.
        TrainingError: weights of the encoder or of the task's head are missing, or a layer does not exist; the backend
            is not installed, or this process has started the other one.
    """
    ensure_backend(backend)
    from beambert.bert_model.finetuning_models import BertForTask
    from beambert.bert_model.pretraining import BertForPretraining

    flags = WordRuleFlags(
        do_lower_case=do_lower_case, strip_accents=strip_accents, tokenize_chinese_chars=tokenize_chinese_chars
    )
    given_config = BertConfig.load(bert_config_file) if bert_config_file else None
    with reader.open_checkpoint(path, task, given_config) as checkpoint:
        vocabulary = vocabulary_of(checkpoint, vocab_file, added_tokens)
        checkpoint = drop_unused_rows(checkpoint, vocabulary)
        config = checkpoint.config
        wanted = _layers_from_the_first(layers, config.num_hidden_layers)
        # The BiLSTM of the feature-based approach reads the last layers, requested or not.
        if wanted and checkpoint.task != FEATURE_BASED:
            config = dataclasses.replace(config, num_hidden_layers=max(wanted) + 1)
        causal_attention = checkpoint.record is not None and checkpoint.record.causal_attention
        with _weights_for_loading(precision):
            if checkpoint.task == PRETRAINING:
                model = BertForPretraining(config, causal_attention=causal_attention)
            else:
                model = BertForTask(config, checkpoint.task, checkpoint.num_labels, causal_attention=causal_attention)
        missing = load_weights(checkpoint, variables_by_tf1_name(model)).initialized
        _require_whole(checkpoint, missing)
        known = checkpoint.record.max_seq_length if checkpoint.record else None
        limit = config.max_position_embeddings
        return InferenceModel(
            path=path,
            model=model,
            task=checkpoint.task,
            labels=_labels(checkpoint),
            multi_label=checkpoint.multi_label,
            vocabulary=vocabulary,
            word_rules=word_rules_of(checkpoint, vocabulary, flags),
            max_seq_length=known or (min(limit, SPAN_LENGTH) if checkpoint.task == "span" else limit),
            missing=missing,
            layers=wanted,
            text_pairs=checkpoint.record.text_pairs if checkpoint.record else None,
            likely_pairs=likely_pairs(checkpoint),
        )


@contextlib.contextmanager
def _weights_for_loading(precision: str) -> Iterator[None]:
    """Create the weights of the body's layers in a precision, and with zeros."""
    import keras

    from beambert.bert_model.layers import zero_initialization

    policy = keras.config.dtype_policy()
    # Unlike mixed_bfloat16, which casts the weights in every batch.
    keras.config.set_dtype_policy(precision)
    try:
        with zero_initialization():
            yield
    finally:
        keras.config.set_dtype_policy(policy)


def text_length(inference_model: InferenceModel, max_seq_length: int | None) -> int:
    """Return the maximum sequence length for texts, or for windows of a context.

    Args:
        inference_model: the model.
        max_seq_length: requested length; None for that of the model.

    Raises:
        TrainingError: the length exceeds max_position_embeddings, or is too short for a question.
    """
    if max_seq_length is None:
        max_seq_length = inference_model.max_seq_length
    check_max_seq_length(max_seq_length, inference_model.config, LEAST_LENGTH)
    return max_seq_length


def check_max_seq_length(max_seq_length: int, config: BertConfig, least: int) -> None:
    """Check that a model can read sequences of a length.

    Raises:
        TrainingError: the length is less than `least`, or more than max_position_embeddings.
    """
    if not least <= max_seq_length <= config.max_position_embeddings:
        raise TrainingError(
            f"invalid --max_seq_length {max_seq_length}: must be {least} to {config.max_position_embeddings}, the "
            "model's max_position_embeddings"
        )


def _require_whole(checkpoint: Checkpoint, missing: tuple[str, ...]) -> None:
    """Check that a model has its encoder and the head of its task. Raise TrainingError where weights are missing.

    The pretraining heads are optional, and so is the pooler where the head does not use it.
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
            f"{checkpoint.path} is missing {needed[0]}{more}, which its task ({checkpoint.task}) requires: use a "
            "complete model"
        )


def _layers_from_the_first(layers: Sequence[int], count: int) -> tuple[int, ...]:
    for layer in layers:
        if not -count <= layer < count:
            raise TrainingError(
                f"invalid layer {layer} in --layers: must be {-count} to {count - 1} for {count} layers"
            )
    counted = tuple(layer % count for layer in layers)
    if len(set(counted)) < len(counted):
        raise TrainingError(f"--layers {','.join(map(str, layers))} contains a layer of {count} twice: list each once")
    return counted


def _labels(checkpoint: Checkpoint) -> tuple[str, ...]:
    if checkpoint.labels is not None:
        return checkpoint.labels
    return tuple(map(str, range(checkpoint.num_labels or 0)))
