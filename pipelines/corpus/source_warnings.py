"""Warnings about the input of a corpus, from the counts of corpus.json."""

from typing import Any

from pipelines.cleaning.tag_density import HTML_TAGS
from pipelines.sources.structured.fields import BAD_RECORDS

# Wikipedia has 0.05 %, program text 0.6 %.
_MUCH_HTML = 0.01


def source_warnings(counts: dict[str, Any]) -> list[str]:
    """Return the warnings, a line each.

    Args:
        counts: of corpus.json.
    """
    return [*_bad_record_warnings(counts), *_html_warnings(counts)]


def _bad_record_warnings(counts: dict[str, Any]) -> list[str]:
    rejected = counts.get("documents_rejected", {})
    bad_records = {reason: rejected[reason] for reason in BAD_RECORDS if rejected.get(reason)}
    if not bad_records:
        return []
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in bad_records.items())
    return [
        f"{sum(bad_records.values()):,} of {counts['documents_read']:,} record(s) were left out because they are bad "
        f"({reasons}); rejected/*.jsonl names file and line."
    ]


def _html_warnings(counts: dict[str, Any]) -> list[str]:
    documents, tagged = (
        sum(counts.get("documents", {}).values()),
        counts.get("documents_reported", {}).get(HTML_TAGS, 0),
    )
    if not tagged or tagged < _MUCH_HTML * documents:
        return []
    return [
        f"{tagged:,} of {documents:,} documents ({tagged / documents:.0%}) hold HTML: scripts, styles and menus are "
        "trained on as text; extract the text first, such as with trafilatura, and build the corpus again."
    ]
