"""Warn about the text of a corpus, based on `corpus.json`: removed text, invalid records, lost marks, alphabet."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from beambert.common.formatting import counted
from beambert.pipelines.cleaning.residual_markup import HTML_TAGS
from beambert.pipelines.cleaning.rules import SKIPPABLE
from beambert.pipelines.corpus.counts import Loss
from beambert.pipelines.formats.fields import BAD_RECORDS, TRUNCATED
from beambert.tokenizer.lost_marks import is_accent

_MAX_RULES = 3
_MAX_FILES_PRINTED = 5
# Fraction of documents with HTML above which to warn. Wikipedia has 0.05 %, program text 0.6 %.
_HTML_FRACTION = 0.01
# Fraction of letters that lose a mark above which to warn.
_LOST_MARKS_FRACTION = 0.01
# Fraction of running words above which to warn, and of all [UNK] above which the limit is considered their cause.
_EXCLUDED_FRACTION = 0.01
_CAUSE_FRACTION = 0.5


def loss_warnings(counts: Mapping[str, Any], rejected: str) -> list[str]:
    """Return a warning for each input that lost more than half of its text, then for such files of other inputs.

    Args:
        counts: counts of corpus.json.
        rejected: directory with the removed text, such as "data/rejected/".
    """
    lines = []
    named = set()
    for name, size in sorted(counts.get("inputs", {}).items()):
        loss = Loss(size.get("bytes", 0), Counter(size.get("bytes_lost", {})))
        if loss.is_mostly_lost:
            lines.append(f"--input {name}: {_described(loss, rejected)}")
            named.add(name)
    # Files of inputs that already have a warning are not listed.
    files = [file for file in counts.get("files_mostly_rejected", []) if file["input"] not in named]
    for file in files[:_MAX_FILES_PRINTED]:
        lines.append(f"{file['file']}: {_described(Loss(file['kept'], Counter(file['lost'])), rejected)}")
    if len(files) > _MAX_FILES_PRINTED:
        more = len(files) - _MAX_FILES_PRINTED
        lines.append(f"{more:,} more files lost more than half of their text; see files_mostly_rejected in corpus.json")
    return lines


def _described(loss: Loss, rejected: str) -> str:
    """Return the fraction of text removed, the rules that removed most of it, and what to do."""
    total = loss.kept + loss.lost_text.total()
    rules = sorted(loss.lost_text.items(), key=lambda item: (-item[1], item[0]))[:_MAX_RULES]
    by_rule = ", ".join(f"{size / total:.0%} by {rule}" for rule, size in rules if size)
    # Rules such as duplicate and bad records cannot be disabled.
    flags = "; if this is not intended, use --skip_rules or change the threshold" if rules[0][0] in SKIPPABLE else ""
    share = "more than 99%" if loss.kept and loss.share >= 0.995 else f"{loss.share:.0%}"
    return f"cleaning removed {share} of the text: {by_rule}; see {rejected}{flags}"


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
        marks: the counts of `beambert.pipelines.corpus.counts.add_marks`; None for text that keeps its marks.
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
        "become training text; read a field with pages with --html_field instead of --text_field, or files with "
        "--input_format html, and build the corpus again"
    ]


def alphabet_warnings(vocab: Mapping[str, Any], limit: int, unknown: float | None = None) -> list[str]:
    """Return a warning if the alphabet limit causes many "[UNK]" words, else nothing.

    Args:
        vocab: "vocab" of corpus.json.
        limit: the alphabet_limit of the vocabulary.
        unknown: fraction of tokens that are "[UNK]"; None to decide by the training text alone.
    """
    learned_from, alphabet = vocab["learned_from"], vocab["alphabet"]
    if not alphabet or not learned_from or not learned_from["words"]:
        return []
    excluded = alphabet["words_excluded"] / learned_from["words"]
    if excluded <= max(_EXCLUDED_FRACTION, _CAUSE_FRACTION * unknown if unknown is not None else 0.0):
        return []
    return [
        f"{excluded:.1%} of the words are [UNK] because --alphabet_limit {limit} excludes "
        f"{alphabet['characters_excluded']:,} of the {alphabet['characters']:,} characters of the text; learn the "
        f"vocabulary again with --alphabet_limit {alphabet['sufficient_limit']} and a sufficient --vocab_size"
    ]
