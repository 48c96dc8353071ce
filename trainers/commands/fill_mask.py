"""Define `beambert fill-mask`, which prints the tokens that a pretrained model predicts for [MASK]."""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np

from beambert.common.command_line import options
from beambert.common.command_line.options import Flag, VocabularySize
from beambert.common.command_line.path_flags import ANY_PATH
from beambert.common.terminal import printable
from beambert.tokenizer.tokenizer import Tokenizer
from beambert.tokenizer.vocabulary import Vocabulary
from beambert.trainers.backends.startup import choose_backend
from beambert.trainers.data.text_encoding import UnknownTokens
from beambert.trainers.errors import TrainingError
from beambert.trainers.inference.model_loading import MASKED_LM, check_model, load_model
from beambert.trainers.monitoring.training_progress import warn
from beambert.trainers.options import InferenceOptions

DESCRIPTION = """Print the most likely tokens for every [MASK] in a text.

The model must have a masked-LM head."""
EXAMPLE = """beambert fill-mask run 'The capital of France is [MASK].'
beambert fill-mask uncased_L-12_H-768_A-12.zip 'Milk comes from [MASK].' --top_k 10"""
COMMON_FLAGS = ()
MASK = "[MASK]"


class Filling(NamedTuple):
    """A candidate for a [MASK]: a token of the vocabulary and its probability, from 0 to 1."""

    token: str
    probability: float


@dataclass(frozen=True, kw_only=True)
class FillMaskOptions(InferenceOptions):
    """The options of `beambert fill-mask`.

    Attributes:
        directory: A pretrained model: the --output of `beambert pretrain`, or any model that `beambert convert` reads.
        texts: A quoted text with one or more [MASK].
        top_k: Number of candidates for each [MASK].
    """

    directory: Annotated[str, Flag("", type=ANY_PATH, metavar="DIR")]
    texts: Annotated[tuple[str, ...], Flag("", nargs="+", metavar="TEXT")]
    top_k: Annotated[VocabularySize, Flag("predictions", metavar="K")] = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    options.add_groups(parser, "predictions", "numerics", "devices")
    options.add_arguments(parser, FillMaskOptions)


def configure(args: argparse.Namespace) -> FillMaskOptions:
    """Return the options of parsed flags."""
    return options.from_args(FillMaskOptions, args)


def run(config: FillMaskOptions) -> int:
    """Print each text with the candidates for each of its masks.

    Raises:
        CheckpointError, ConfigError, TrainingError, VocabularyError: a one-line message.
    """
    texts = list(config.texts)
    options = {**config.model_options, "precision": config.precision}
    answers = fill_masks(Path(config.directory), texts, config.top_k, config.backend, **options)
    for text, masks in zip(config.texts, answers, strict=True):
        print(text)
        for number, fillings in enumerate(masks, start=1):
            if len(masks) > 1:
                print(f"  {MASK} {number}")
            for filling in fillings:
                print(f"  {filling.probability:6.1%}  {printable(filling.token)}")
    return 0


def fill_masks(
    directory: Path,
    texts: list[str],
    top_k: int = 5,
    backend: str = "auto",
    **options: Any,
) -> list[list[list[Filling]]]:
    """Return the most likely tokens for every [MASK].

    Args:
        directory: output directory of `beambert pretrain`, whose last checkpoint is used, or any checkpoint.
        texts: texts with one or more literal [MASK].
        top_k: number of candidates for each mask, at least 1.
        backend: "tensorflow", "jax" or "auto", as for `load_model`.
        **options: vocab_file, word rules, bert_config_file and precision of `load_model`.

    Returns:
        For each text and each of its masks in order, the candidates by descending probability.

    Raises:
        TrainingError: the model has no masked-LM head, or a text has no [MASK] or too many tokens.
        CheckpointError, ConfigError, VocabularyError: the checkpoint is missing, or its files cannot be read.
    """
    for text in texts:
        if MASK not in text:
            raise _without_mask(text)
    choose_backend(backend)
    check_model(directory, **options)
    inference_model = load_model(directory, backend=backend, **options)
    vocabulary = inference_model.vocabulary
    if not 1 <= top_k <= len(vocabulary):
        raise TrainingError(f"invalid --top_k {top_k}: must be from 1 to {len(vocabulary)}, the vocabulary size")
    if not inference_model.has(MASKED_LM):
        raise TrainingError(f"{directory} has no masked-LM head; give a pretrained model")
    tokenizer = inference_model.tokenizer(never_split=[MASK])
    rows = [encode(text, tokenizer, inference_model.max_seq_length) for text in texts]
    unknown = UnknownTokens(tokenizer)
    unknown.add(rows, texts)
    if (line := unknown.warning("the texts")) is not None:
        warn(line)
    from beambert.trainers.inference.forward import TextForward

    masks = [np.flatnonzero(row == vocabulary.mask_id) for row in rows]
    model = inference_model.model
    forward = TextForward(inference_model, lambda features: model(features).masked_lm, inference_model.max_seq_length)
    answers: dict[int, list[list[Filling]]] = {}
    for batch, logits in forward.batches(rows, [np.zeros_like(row) for row in rows], masks):
        for i, of_text in zip(batch, logits, strict=False):  # A batch may be padded.
            answers[i] = _fillings(of_text[: len(masks[i])], vocabulary, top_k)
    return [answers[i] for i in range(len(rows))]


def _without_mask(text: str) -> TrainingError:
    return TrainingError(f"invalid TEXT {text!r}: {MASK} is missing; put {MASK} in place of the token to predict")


def encode(text: str, tokenizer: Tokenizer, max_seq_length: int) -> np.ndarray:
    """Return [CLS], the tokens of a text and [SEP] as ids.

    Args:
        text: text to fill.
        tokenizer: a tokenizer that never splits [MASK].
        max_seq_length: maximum number of tokens, including [CLS] and [SEP].

    Returns:
        int32 [S], S at most max_seq_length.

    Raises:
        TrainingError: the text has no [MASK], or more tokens than max_seq_length.
    """
    vocabulary = tokenizer.vocabulary
    ids = np.array([vocabulary.cls_id, *tokenizer.encode_batch([text])[0], vocabulary.sep_id], np.int32)
    if vocabulary.mask_id not in ids:
        raise _without_mask(text)
    if len(ids) > max_seq_length:
        raise TrainingError(
            f"invalid TEXT {text[:40]!r}...: {len(ids)} tokens with [CLS] and [SEP], but the model's max_seq_length is "
            f"{max_seq_length}; shorten the text"
        )
    return ids


def _fillings(logits: np.ndarray, vocabulary: Vocabulary, top_k: int) -> list[list[Filling]]:
    """Return the best candidates for each mask of a text, from its logits float32 [P, V or more]."""
    # Some models have embedding rows that no token uses.
    logits = logits[:, : len(vocabulary)].astype(np.float64)
    exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
    probabilities = exponentials / exponentials.sum(axis=-1, keepdims=True)  # [P, V]
    best = np.argsort(-probabilities, axis=-1, kind="stable")[:, :top_k]  # [P, K]
    return [
        [Filling(vocabulary.tokens[token], float(of_mask[token])) for token in of_best]
        for of_mask, of_best in zip(probabilities, best, strict=True)
    ]
