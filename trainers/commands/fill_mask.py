"""`beambert fill-mask`: the tokens that a pretrained model predicts for [MASK]."""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from beambert_common.command_line.flags import vocabulary_size
from beambert_common.command_line.path_flags import LOCAL_PATH
from tokenizer.tokenizer import Tokenizer
from tokenizer.vocabulary import Vocabulary
from trainers.backends.tensorflow.startup import start_tensorflow
from trainers.commands.model_flags import ModelConfig, add_model_arguments
from trainers.errors import TrainingError
from trainers.inference.model_loading import MASKED_LM, check_model, load_model, padded
from trainers.inference.tokenization import batches_by_length

DESCRIPTION = "Fills every [MASK] of a text with the pieces that a pretrained model finds likely."
EXAMPLE = 'beambert fill-mask run "Paris is the [MASK] of France."'
COMMON_FLAGS = ()
MASK = "[MASK]"
BATCH_SIZE = 32


class Filling(NamedTuple):
    """A candidate for one [MASK]: a token of the vocabulary, and its probability in [0, 1]."""

    piece: str
    probability: float


@dataclass(frozen=True, kw_only=True)
class FillMaskConfig(ModelConfig):
    """What `beambert fill-mask` is configured with; the help of each flag says what it does."""

    directory: str
    texts: tuple[str, ...]
    top_k: int = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "directory",
        type=LOCAL_PATH,
        metavar="DIR",
        help="the --output of `beambert pretrain`, or any checkpoint that `beambert convert` reads",
    )
    parser.add_argument("texts", metavar="TEXT", nargs="+", help="a text in quotes with one [MASK] or more")
    parser.add_argument(
        "--top_k",
        type=vocabulary_size,
        default=5,
        metavar="K",
        help="candidates for each [MASK] (default: %(default)s)",
    )
    add_model_arguments(parser)


def configure(args: argparse.Namespace) -> FillMaskConfig:
    """Return what the flags ask for."""
    return FillMaskConfig.from_args(args)


def run(config: FillMaskConfig) -> int:
    """Print each text with the candidates for each of its masks.

    Raises:
        ConfigError, TrainingError, VocabularyError: one line for the user.
    """
    answers = fill_masks(Path(config.directory), list(config.texts), config.top_k, **config.model_options)
    for text, masks in zip(config.texts, answers, strict=True):
        print(text)
        for number, fillings in enumerate(masks, start=1):
            if len(masks) > 1:
                print(f"  {MASK} {number}")
            for filling in fillings:
                print(f"  {filling.probability:6.1%}  {filling.piece}")
    return 0


def fill_masks(
    directory: Path,
    texts: list[str],
    top_k: int = 5,
    **options: Any,
) -> list[list[list[Filling]]]:
    """Return the most likely tokens for every [MASK].

    Args:
        directory: an output directory of `beambert pretrain`, whose last checkpoint is used, or any checkpoint.
        texts: texts with one literal [MASK] or more.
        top_k: number of candidates for each mask, at least 1.
        **options: vocab_file, do_lower_case, bert_config_file of `model_loading.load_model`.

    Returns:
        For each text, for each of its masks in order, the candidates by descending probability.

    Raises:
        TrainingError: a model without a masked-LM head, a text without [MASK], or longer than the model reads.
        CheckpointError, ConfigError, VocabularyError: the checkpoint is missing, or its files cannot be read.
    """
    for text in texts:
        if MASK not in text:
            raise _without_mask(text)
    check_model(directory, **options)
    start_tensorflow()
    opened = load_model(directory, **options)
    vocabulary = opened.vocabulary
    if not 1 <= top_k <= len(vocabulary):
        raise TrainingError(f"--top_k is {top_k}; give 1 to {len(vocabulary)}, the number of pieces")
    if not opened.has(MASKED_LM):
        raise TrainingError(f"{directory} has no masked-LM head; give a pretrained model that has one")
    tokenizer = Tokenizer(vocabulary, opened.do_lower_case, never_split=[MASK])
    rows = [encode(text, tokenizer, opened.max_seq_length) for text in texts]
    answers: dict[int, list[list[Filling]]] = {}
    for batch in batches_by_length([len(row) for row in rows], BATCH_SIZE):
        answers.update(zip(batch, _fillings(opened.model, [rows[i] for i in batch], vocabulary, top_k), strict=True))
    return [answers[i] for i in range(len(rows))]


def _without_mask(text: str) -> TrainingError:
    return TrainingError(f"{text!r} has no {MASK}; put {MASK} in place of the token to predict")


def encode(text: str, tokenizer: Tokenizer, max_seq_length: int) -> np.ndarray:
    """Return [CLS], the tokens of a text and [SEP] as ids.

    Args:
        text: to fill.
        tokenizer: one that never splits [MASK].
        max_seq_length: maximum number of tokens.

    Returns:
        int32 [S], S at most max_seq_length.

    Raises:
        TrainingError: no [MASK], or more tokens than max_seq_length.
    """
    vocabulary = tokenizer.vocabulary
    ids = np.array([vocabulary.cls_id, *tokenizer.encode_batch([text])[0], vocabulary.sep_id], np.int32)
    if vocabulary.mask_id not in ids:
        raise _without_mask(text)
    if len(ids) > max_seq_length:
        raise TrainingError(
            f"{text[:40]!r}... has {len(ids)} pieces with [CLS] and [SEP], the model reads at most "
            f"{max_seq_length}; shorten it"
        )
    return ids


def _fillings(model: Any, rows: list[np.ndarray], vocabulary: Vocabulary, top_k: int) -> list[list[list[Filling]]]:
    input_ids = padded(rows, vocabulary.pad_id)  # [B, S]
    masks = [np.flatnonzero(row == vocabulary.mask_id) for row in rows]
    features = {
        "input_ids": input_ids,
        "input_mask": padded([np.ones_like(row) for row in rows]),
        "segment_ids": np.zeros_like(input_ids),
        "masked_lm_positions": padded(masks),  # [B, P]; what pads it is computed and not looked at
    }
    logits = np.asarray(model(features).masked_lm, np.float64)  # [B, P, V]
    # Some models have rows that no token uses.
    logits = logits[..., : len(vocabulary)]
    exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
    probabilities = exponentials / exponentials.sum(axis=-1, keepdims=True)  # [B, P, V]
    best = np.argsort(-probabilities, axis=-1, kind="stable")[..., :top_k]  # [B, P, K]
    return [
        [
            [Filling(vocabulary.tokens[piece], float(probabilities[row, mask, piece])) for piece in best[row, mask]]
            for mask in range(len(positions))
        ]
        for row, positions in enumerate(masks)
    ]
