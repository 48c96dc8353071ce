"""List published accuracies on minimal pairs, for comparison with those of a model; in percent, as published.

`beambert.trainers.run_report.published_scores` has the published scores of fine-tuning tasks.
"""

from collections.abc import Collection
from typing import NamedTuple

# The 12 phenomena of BLiMP, the fields of its paradigms.
BLIMP_FIELDS = frozenset(
    (
        *("anaphor_agreement", "argument_structure", "binding", "control_raising", "determiner_noun_agreement"),
        *("ellipsis", "filler_gap_dependency", "irregular_forms", "island_effects", "npi_licensing"),
        *("quantifiers", "subject_verb_agreement"),
    )
)
# Number of paradigms of Zorro.
ZORRO_PARADIGMS = 23
# Warstadt et al. 2023, Findings of the BabyLM Challenge: baselines on 10 and 100 million words; means of the published
# scores of 12 fields.
_BABYLM = "BabyLM challenge, derived"
# Masked Language Model Scoring, ACL 2020: pseudo-log-likelihood; people as reported by Warstadt et al. 2020.
_SALAZAR = "Salazar et al. 2020"
# BabyBERTa: Learning More Grammar With Small-Scale Child-Directed Language, CoNLL 2021.
_HUEBNER = "Huebner et al. 2021"


class PublishedAccuracy(NamedTuple):
    """A published accuracy and its source.

    Attributes:
        model: the model and its training data.
        accuracy: accuracy in percent.
        mean_of: what the accuracy is a mean of, "12 fields" or "paradigms".
        source: the publication.
    """

    model: str
    accuracy: float
    mean_of: str
    source: str


BLIMP = (
    PublishedAccuracy("GPT-2, 10M words", 65.1, "12 fields", _BABYLM),
    PublishedAccuracy("GPT-2, 100M words", 74.5, "12 fields", _BABYLM),
    PublishedAccuracy("LTG-BERT, 10M words", 60.6, "12 fields", _BABYLM),
    PublishedAccuracy("LTG-BERT, 100M words", 69.2, "12 fields", _BABYLM),
    PublishedAccuracy("RoBERTa base, 10M words", 69.5, "12 fields", _BABYLM),
    PublishedAccuracy("RoBERTa base, 100M words", 75.1, "12 fields", _BABYLM),
    PublishedAccuracy("BERT base, cased, released", 84.2, "paradigms", _SALAZAR),
    PublishedAccuracy("RoBERTa large, released", 86.5, "paradigms", _SALAZAR),
    PublishedAccuracy("people", 88.6, "paradigms", _SALAZAR),
)
ZORRO = (
    PublishedAccuracy("BabyBERTa, 5M words", 80.3, "paradigms", _HUEBNER),
    PublishedAccuracy("RoBERTa base, released", 82.6, "paradigms", _HUEBNER),
)


def published_accuracies(fields: Collection[str], paradigms: int) -> tuple[str, tuple[PublishedAccuracy, ...]]:
    """Return the name and the published accuracies of a benchmark, recognized by its fields and paradigms.

    Args:
        fields: names of the fields.
        paradigms: number of paradigms.

    Returns:
        The name "BLiMP" or "Zorro" with its accuracies; "" and none for other pairs.
    """
    if set(fields) == BLIMP_FIELDS:
        return "BLiMP", BLIMP
    if paradigms == ZORRO_PARADIGMS and any(name.startswith("agreement_subject_verb") for name in fields):
        return "Zorro", ZORRO
    return "", ()
