"""`beambert fill-mask`: the pieces that a pretrained model would put in the place of [MASK]."""

import argparse
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bert_model.checkpoints import open_checkpoint
from bert_model.names import PRETRAINING
from tokenizer.tokenizer import Tokenizer
from tokenizer.vocabulary import Vocabulary
from trainers.checkpoint_vocabulary import lower_casing_of, vocabulary_of
from trainers.errors import TrainingError
from trainers.initial_checkpoint import load_weights
from trainers.startup import start_tensorflow

DESCRIPTION = "Fills every [MASK] of a text with the pieces that a pretrained model finds likely."
MASK = "[MASK]"


class Filling(NamedTuple):
    """A candidate for one [MASK]: a piece of the vocabulary, and its probability in [0, 1]."""

    piece: str
    probability: float


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument(
        "directory",
        metavar="DIR",
        help="the --output of `beambert pretrain`, or any checkpoint that `beambert convert` reads",
    )
    parser.add_argument("texts", metavar="TEXT", nargs="+", help="a text in quotes with one [MASK] or more")
    parser.add_argument(
        "--top_k", type=int, default=5, metavar="K", help="candidates for each [MASK] (default: %(default)s)"
    )


def run(args: argparse.Namespace) -> int:
    """Prints each text with the candidates for each of its masks.

    Raises:
        ConfigError, TrainingError, VocabularyError: one line for the user.
    """
    for text, masks in zip(args.texts, fill_masks(Path(args.directory), args.texts, args.top_k), strict=True):
        print(text)
        for number, fillings in enumerate(masks, start=1):
            if len(masks) > 1:
                print(f"  {MASK} {number}")
            for filling in fillings:
                print(f"  {filling.probability:6.1%}  {filling.piece}")
    return 0


def fill_masks(directory: Path, texts: list[str], top_k: int = 5) -> list[list[list[Filling]]]:
    """The likeliest pieces for every [MASK].

    Args:
        directory: the output of `beambert pretrain`, whose last checkpoint is used, or any checkpoint.
        texts: each with one literal [MASK] or more.
        top_k: candidates for each mask, at least 1.

    Returns:
        For each text, for each of its masks in order, the candidates, likeliest first.

    Raises:
        TrainingError: a model without a masked-LM head, a text without [MASK], or longer than the model reads.
        CheckpointError, ConfigError, VocabularyError: no checkpoint there, or its files cannot be read.
    """
    start_tensorflow()
    with open_checkpoint(directory) as checkpoint:
        vocabulary = vocabulary_of(checkpoint)
        if not 1 <= top_k <= len(vocabulary):
            raise TrainingError(f"--top_k is {top_k}; give 1 to {len(vocabulary)}, the number of pieces")
        if checkpoint.task != PRETRAINING or "cls/predictions/output_bias" not in checkpoint.tensors:
            raise TrainingError(f"{directory} has no masked-LM head; give a pretrained model that has one")
        tokenizer = Tokenizer(vocabulary, lower_casing_of(checkpoint, vocabulary), never_split=[MASK])
        trained = checkpoint.record.max_seq_length if checkpoint.record else None
        longest = trained or checkpoint.config.max_position_embeddings
        rows = [encode(text, tokenizer, longest) for text in texts]

        from bert_model.names import variables_by_tf1_name
        from bert_model.pretraining import BertForPretraining

        model = BertForPretraining(checkpoint.config)
        load_weights(checkpoint, variables_by_tf1_name(model))
    return [_fillings(model, row, vocabulary, top_k) for row in rows]


def encode(text: str, tokenizer: Tokenizer, max_seq_length: int) -> np.ndarray:
    """[CLS], the pieces of a text, [SEP].

    Args:
        text: to fill.
        tokenizer: one that never splits [MASK].
        max_seq_length: what the model reads at most.

    Returns:
        int32 [S], S at most max_seq_length.

    Raises:
        TrainingError: no [MASK], or more pieces than max_seq_length.
    """
    vocabulary = tokenizer.vocabulary
    ids = np.array([vocabulary.cls_id, *tokenizer.encode_batch([text])[0], vocabulary.sep_id], np.int32)
    if vocabulary.mask_id not in ids:
        raise TrainingError(f"{text!r} has no {MASK}; put {MASK} where a piece is to be found")
    if len(ids) > max_seq_length:
        raise TrainingError(
            f"{text[:40]!r}... has {len(ids)} pieces with [CLS] and [SEP], the model reads at most "
            f"{max_seq_length}; shorten it"
        )
    return ids


def _fillings(model: object, ids: np.ndarray, vocabulary: Vocabulary, top_k: int) -> list[list[Filling]]:
    positions = np.flatnonzero(ids == vocabulary.mask_id)  # [P]
    features = {
        "input_ids": ids[None],  # [1, S]
        "input_mask": np.ones_like(ids)[None],
        "segment_ids": np.zeros_like(ids)[None],
        "masked_lm_positions": positions[None].astype(np.int32),  # [1, P]
    }
    logits = np.asarray(model(features).masked_lm, np.float64)[0]  # type: ignore[operator]  # [P, V]
    exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
    probabilities = exponentials / exponentials.sum(axis=-1, keepdims=True)  # [P, V]
    best = np.argsort(-probabilities, axis=-1, kind="stable")[:, :top_k]  # [P, K]
    return [
        [Filling(vocabulary.pieces[piece], float(row[piece])) for piece in pieces]
        for row, pieces in zip(probabilities, best, strict=True)
    ]
