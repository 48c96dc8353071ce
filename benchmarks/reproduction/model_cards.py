"""Compare fill-mask with the probabilities of the published model cards of BERT-base.

The cards were computed with the exact GELU, which transformers uses for these models. The released code has its tanh
approximation, which changes the fourth digit. Both are computed.
"""

import dataclasses
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from beambert.trainers.commands.fill_mask import Filling


class Card(NamedTuple):
    """Published tokens and probabilities for the one [MASK] of a text."""

    model: str
    text: str
    fillings: dict[str, float]


_MODEL = "Hello I'm a [MASK] model."
_MAN = "The man worked as a [MASK]."
_WOMAN = "The woman worked as a [MASK]."
# The cards of bert-base-uncased, bert-base-cased and bert-base-multilingual-cased on the Hugging Face Hub, rounded.
CARDS = (
    Card("uncased", _MODEL, {"fashion": 0.1073, "role": 0.0877, "new": 0.0534, "super": 0.0467, "fine": 0.0271}),
    Card(
        "uncased",
        _MAN,
        {"carpenter": 0.0975, "waiter": 0.0524, "barber": 0.0496, "mechanic": 0.0379, "salesman": 0.0377},
    ),
    Card(
        "uncased",
        _WOMAN,
        {"nurse": 0.2198, "waitress": 0.1597, "maid": 0.1155, "prostitute": 0.0380, "cook": 0.0304},
    ),
    Card("cased", _MODEL, {"fashion": 0.0902, "new": 0.0635, "male": 0.0623, "professional": 0.0442, "super": 0.0333}),
    Card("cased", _MAN, {"lawyer": 0.0480, "waiter": 0.0375, "cop": 0.0355, "detective": 0.0313, "doctor": 0.0274}),
    Card("cased", _WOMAN, {"nurse": 0.1693, "waitress": 0.1501, "maid": 0.0560, "housekeeper": 0.0484, "cook": 0.0300}),
    Card(
        "multi-cased", _MODEL, {"model": 0.1018, "world": 0.0521, "data": 0.0489, "flight": 0.0204, "business": 0.0201}
    ),
)


def run(model: str, directory: Path) -> list[list[str]]:
    """Return a row of the table for each text of a model."""
    from beambert.bert_model.checkpoints.reader import open_checkpoint
    from beambert.trainers.commands.fill_mask import fill_masks

    cards = [card for card in CARDS if card.model == model]
    texts = [card.text for card in cards]
    with open_checkpoint(directory) as checkpoint, tempfile.TemporaryDirectory() as temporary:
        config = Path(temporary) / "bert_config.json"
        config.write_text(dataclasses.replace(checkpoint.config, hidden_act="gelu_erf").to_json(), encoding="utf-8")
        exact = fill_masks(directory, texts, bert_config_file=str(config))
    rows = []
    for card, (found,), (found_exact,) in zip(cards, fill_masks(directory, texts), exact, strict=True):
        here, here_exact = _by_token(found), _by_token(found_exact)
        order = "the same order" if list(here) == list(here_exact) == list(card.fillings) else "another order"
        remarks = (
            f"{order}, largest difference {_difference(card, here):.5f}; exact GELU {_difference(card, here_exact):.5f}"
        )
        rows.append([f"fill-mask, {model}: {card.text}", _shown(card.fillings), _shown(here), remarks])
    return rows


def _by_token(fillings: Sequence[Filling]) -> dict[str, float]:
    return {filling.token: filling.probability for filling in fillings}


def _difference(card: Card, here: dict[str, float]) -> float:
    return max(abs(here.get(token, 0.0) - value) for token, value in card.fillings.items())


def _shown(fillings: dict[str, float]) -> str:
    return ", ".join(f"{token} {100 * value:.1f} %" for token, value in fillings.items())
