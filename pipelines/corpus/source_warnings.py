"""Warn about invalid records and HTML in the input, based on the counts of corpus.json."""

from typing import Any

from pipelines.cleaning.tag_density import HTML_TAGS
from pipelines.sources.structured.fields import BAD_RECORDS

# Fraction of documents with HTML above which to warn. Wikipedia has 0.05 %, program text 0.6 %.
_HTML_FRACTION = 0.01


def source_warnings(counts: dict[str, Any]) -> list[str]:
    """Return the warnings, one line each.

    Args:
        counts: counts of corpus.json.
    """
    return [*_bad_record_warnings(counts), *_html_warnings(counts)]


def _bad_record_warnings(counts: dict[str, Any]) -> list[str]:
    rejected = counts.get("documents_rejected", {})
    bad_records = {reason: rejected[reason] for reason in BAD_RECORDS if rejected.get(reason)}
    if not bad_records:
        return []
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in bad_records.items())
    return [
        f"rejected {sum(bad_records.values()):,} of {counts['documents_read']:,} records as invalid ({reasons}); see "
        "rejected/*.jsonl for file and line"
    ]


def _html_warnings(counts: dict[str, Any]) -> list[str]:
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
