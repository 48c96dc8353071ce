"""Warn about invalid records, lost marks and HTML in the input, based on the counts of corpus.json."""

from collections.abc import Mapping
from typing import Any

from beambert.common.quantities import counted
from beambert.pipelines.cleaning.residual_markup import HTML_TAGS
from beambert.pipelines.formats.fields import BAD_RECORDS
from beambert.pipelines.formats.wikipedia.dump_pages import TRUNCATED
from beambert.tokenizer.lost_marks import is_accent

# Fraction of documents with HTML above which to warn. Wikipedia has 0.05 %, program text 0.6 %.
_HTML_FRACTION = 0.01
# Fraction of letters that lose a mark above which to warn.
_LOST_MARKS_FRACTION = 0.01


def source_warnings(counts: Mapping[str, Any]) -> list[str]:
    """Return the warnings, one line each.

    Args:
        counts: counts of corpus.json.
    """
    return [
        *_bad_record_warnings(counts),
        *_truncation_warnings(counts),
        *mark_warnings(counts.get("diacritics")),
        *_html_warnings(counts),
    ]


def mark_warnings(marks: Mapping[str, Any] | None) -> list[str]:
    """Return a warning if text loses a mark on more than 1% of its letters, else an empty list.

    Args:
        marks: the counts of `beambert.pipelines.build_corpus.total_marks`; None for text that keeps its marks.
    """
    if not marks or marks["lost"] <= _LOST_MARKS_FRACTION * marks["letters"]:
        return []
    before, after = marks["example"]
    example = f" ({before} -> {after})" if before else ""
    loss = "accents are lost" if is_accent(before) else "vowel or voicing marks are lost and distinct words merge"
    return [
        f"uncased text loses a mark on {marks['lost'] / marks['letters']:.1%} of its letters{example}: {loss}; "
        "use --strip_accents false to keep them, see docs/reference/languages.md"
    ]


def _truncation_warnings(counts: Mapping[str, Any]) -> list[str]:
    breaks = counts.get("documents_rejected", {}).get(TRUNCATED)
    return [f"{counted(breaks, 'break')} in corrupt or truncated dumps; see rejected/*.jsonl"] if breaks else []


def _bad_record_warnings(counts: Mapping[str, Any]) -> list[str]:
    rejected = counts.get("documents_rejected", {})
    bad_records = {reason: rejected[reason] for reason in BAD_RECORDS if rejected.get(reason)}
    if not bad_records:
        return []
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in bad_records.items())
    return [
        f"rejected {sum(bad_records.values()):,} of {counts['documents_read']:,} records as invalid ({reasons}); see "
        "rejected/*.jsonl for file and line"
    ]


def _html_warnings(counts: Mapping[str, Any]) -> list[str]:
    documents, tagged = (
        sum(counts.get("documents", {}).values()),
        counts.get("documents_reported", {}).get(HTML_TAGS, 0),
    )
    if not tagged or tagged < _HTML_FRACTION * documents:
        return []
    return [
        f"{tagged:,} of {documents:,} documents ({tagged / documents:.0%}) contain HTML, so scripts, styles and menus "
        "become training text; extract the text first, for example with trafilatura, and build the corpus again"
    ]
