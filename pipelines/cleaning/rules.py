"""Cleaning rules: names, options, and the rules for paragraphs. Counters have the names of the rules.

A paragraph rule returns the cleaned text, or "" to drop the paragraph. Document rules reject whole
documents. Thresholds follow C4 (Raffel et al. 2020, section 2.2) and Gopher's MassiveText (Rae et al. 2021,
appendix A.1.1) where these define them. Text that is boilerplate on web pages may be correct in a book. Rules that
would remove prose are therefore off by default, and the other thresholds are outside the range of prose.
"""

import dataclasses
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Annotated, Literal

import numpy as np

from beambert.common.command_line.options import Flag, check
from beambert.common.typed_json import Count, Fraction
from beambert.pipelines.cleaning.ngrams import count_words, ngram_keys, word_keys, word_spans
from beambert.pipelines.cleaning.personal_data import PERSONAL_DATA_RULES, PLACEHOLDERS
from beambert.pipelines.cleaning.residual_markup import SENTENCE_END, remove_residual_markup, unescape_entities
from beambert.pipelines.errors import SourceError

# Paragraph rules, in order of application.
MOJIBAKE = "mojibake"
RESIDUAL_MARKUP = "residual_markup"
EDITORIAL_MARKS = "editorial_marks"
UNICODE_NFC = "unicode_nfc"
CONTROL_CHARACTERS = "control_characters"
WHITESPACE = "whitespace"
BOILERPLATE = "boilerplate"
NO_LETTERS = "no_letters"
END_PUNCTUATION = "end_punctuation"
# Document rules, in order of application.
NO_TEXT = "no_text"
TOO_SHORT = "too_short"
SYMBOLS = "symbols"
DIGITS = "digits"
NON_LETTERS = "non_letters"
REPEATED_LINES = "repeated_lines"
REPEATED_NGRAMS = "repeated_ngrams"
# Reasons for rejection that other modules determine.
DUPLICATE = "duplicate"
LANGUAGE = "language"
CONTAMINATED = "contaminated"
LOW_QUALITY = "low_quality"

# Values of --skip_rules. WHITESPACE and NO_TEXT always run: the corpus has no line breaks in sentences, no empty text.
_TEXT_RULES = (RESIDUAL_MARKUP, EDITORIAL_MARKS, UNICODE_NFC, CONTROL_CHARACTERS, BOILERPLATE, NO_LETTERS)
PARAGRAPH_RULES = (*_TEXT_RULES, *PERSONAL_DATA_RULES)
DOCUMENT_RULES = (TOO_SHORT, SYMBOLS, DIGITS, NON_LETTERS, REPEATED_LINES, REPEATED_NGRAMS)
SKIPPABLE = (*PARAGRAPH_RULES, *DOCUMENT_RULES)


@dataclasses.dataclass(frozen=True)
class CleaningOptions:
    """The active cleaning rules and their thresholds; the help of the flags has these descriptions.

    Attributes:
        skip_rules: Names of disabled `SKIPPABLE` rules, joined by commas. They are sorted, and blanks are removed.
        min_sentences: Minimum sentences per document; C4 uses 5.
        min_words: Minimum words per document; Gopher uses 50 (default: no minimum).
        min_characters: Minimum characters per document (default: no minimum).
        max_symbol_ratio: Maximum ratio of hashes and ellipses to words; documents above it are rejected.
        max_digit_ratio: Maximum fraction of digits among the characters of a document; documents above it are rejected.
        max_non_letter_ratio: Maximum fraction of words without a letter; documents above it are rejected.
        max_repeated_lines: Maximum fraction of a document's text in repeated sentences; documents above it are
            rejected.
        max_repeated_ngrams: Maximum fraction of a document's text in repeated 10-grams of words; documents above it are
            rejected.
        end_punctuation: Reject paragraphs without terminal punctuation, as C4 does; this also rejects headings and
            verse.
        fix_mojibake: Repair wrongly decoded text, such as schÃ¶n for schön (requires the extra [clean]).
        pii: Personal data (mail addresses, telephone numbers, IP addresses, IBANs, payment cards): report lists the
            documents that have any, mask replaces it by tokens such as [EMAIL], drop rejects the documents (requires
            the extra [clean]; default: off).

    Gopher has 0.1 for max_symbol_ratio and max_repeated_ngrams, 0.2 for max_non_letter_ratio and max_repeated_lines.
    The first three ratios apply to documents of 20 words or more.

    Raises:
        SourceError: a rule is unknown, or a value has the wrong type or is out of range.
    """

    skip_rules: Annotated[
        str,
        Flag(
            "cleaning",
            metavar="NAME,NAME",
            help="Cleaning rules to skip, separated by commas: "
            f"{', '.join((*_TEXT_RULES, *DOCUMENT_RULES))}. With --pii also: {', '.join(PERSONAL_DATA_RULES)} "
            "(default: none)",
        ),
    ] = ""
    min_sentences: Annotated[Count, Flag("cleaning")] = 1
    min_words: Annotated[Count, Flag("cleaning")] = 0
    min_characters: Annotated[Count, Flag("cleaning")] = 0
    max_symbol_ratio: Annotated[Fraction, Flag("cleaning")] = 0.2
    max_digit_ratio: Annotated[Fraction, Flag("cleaning")] = 0.3
    max_non_letter_ratio: Annotated[Fraction, Flag("cleaning")] = 0.4
    max_repeated_lines: Annotated[Fraction, Flag("cleaning")] = 0.3
    max_repeated_ngrams: Annotated[Fraction, Flag("cleaning")] = 0.5
    end_punctuation: Annotated[bool, Flag("cleaning")] = False
    fix_mojibake: Annotated[bool, Flag("cleaning")] = False
    pii: Annotated[Literal["off", "report", "mask", "drop"], Flag("cleaning")] = "off"

    def __post_init__(self) -> None:
        check(self, SourceError)
        skipped = sorted({name.strip() for name in self.skip_rules.split(",") if name.strip()})
        unknown = [name for name in skipped if name not in SKIPPABLE]
        if unknown:
            raise SourceError(
                f"invalid --skip_rules {unknown[0]}: not a rule that can be skipped; choose from {', '.join(SKIPPABLE)}"
            )
        object.__setattr__(self, "skip_rules", ",".join(skipped))

    def runs(self, rule: str) -> bool:
        """Return whether a rule is enabled."""
        if rule == MOJIBAKE:
            return self.fix_mojibake
        if rule == END_PUNCTUATION:
            return self.end_punctuation
        return rule not in self.skip_rules.split(",")

    @property
    def personal_data_rules(self) -> tuple[str, ...]:
        """Return the active rules for personal data, none if `pii` is off."""
        return () if self.pii == "off" else tuple(filter(self.runs, PERSONAL_DATA_RULES))

    @property
    def placeholders(self) -> tuple[str, ...]:
        """Return the tokens that replace personal data, and which a vocabulary must therefore have."""
        return tuple(PLACEHOLDERS[rule] for rule in self.personal_data_rules) if self.pii == "mask" else ()

    @property
    def hidden_rules(self) -> tuple[str, ...]:
        """Return the rules whose personal data no output may have, lists of rejected text included."""
        return () if self.pii == "report" else self.personal_data_rules


def fix_mojibake(text: str) -> str:
    """Repair UTF-8 text that was decoded with another encoding, such as "schÃ¶n", with ftfy.

    Raises:
        ModuleNotFoundError: ftfy is not installed.
    """
    import ftfy

    return text if text.isascii() else ftfy.fix_encoding(text)


_EDITORIAL = re.compile(
    r"\[ ?\[?(?:edit(?: source)?|update|bearbeiten|quelltext bearbeiten|bearbeiten \| quelltext bearbeiten"
    r"|(?:citation|clarification|verification|page|pages|year|quotation|disambiguation|better source|attribution"
    r"|further explanation|additional citations?) needed|failed verification|not in citation given|original research\?"
    r"|dead link|dubious(?: ?[-–] discuss)?|vague|(?:according to |by )?whom\?|(?:who|when|where|which|why|how)\?"
    r"|note \d{1,3}|nb \d{1,3})\]{1,2}",
    re.IGNORECASE,
)
# Only directly after a word or punctuation: `E[0]` is an index and "silicon [100]" a name.
_REFERENCE_MARK = re.compile(r"""\[(?:(?<=\w\w\[)|(?<=[.,;:!?)\]"'”’»]\[))\d{1,3}\](?:\[\d{1,3}\])*""")


def remove_editorial_marks(text: str) -> str:
    """Remove `[edit]`, `[citation needed]` and similar marks, and reference marks such as `[1]`."""
    if "[" not in text:
        return text
    return _REFERENCE_MARK.sub("", _EDITORIAL.sub("", text))


def normalize_nfc(text: str) -> str:
    """Apply Unicode normalization form C, so that equal letters have equal code points."""
    return text if text.isascii() or unicodedata.is_normalized("NFC", text) else unicodedata.normalize("NFC", text)


# Zero-width joiners (U+200C, U+200D) are kept: Persian, Indic scripts and emoji use them.
_CONTROL = re.compile(
    "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u00ad\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff]"
)


def remove_control_characters(text: str) -> str:
    """Remove control characters, soft hyphens, zero-width spaces, byte order marks and direction marks."""
    return text if text.isprintable() else _CONTROL.sub("", text)


def _is_tidy(text: str) -> bool:
    """Return whether a text has no control characters, and no whitespace but single spaces within it."""
    return text.isprintable() and "  " not in text and text[:1] != " " != text[-1:]


def fold_whitespace(paragraph: str) -> str:
    """Replace every run of whitespace, including line breaks, by one space, and strip both ends."""
    return paragraph if _is_tidy(paragraph) else " ".join(paragraph.split())


_BOILERPLATE_CHARACTERS = 200
# In lower case: a pattern that ignores case takes twice as long.
_BOILERPLATE = re.compile(
    r"""(?:from\ wikipedia,\ the\ free\ encyclopedia
    |jump\ to\ (?:navigation|search|content).*|skip\ to\ (?:main\ )?content
    |retrieved\ from\ "?https?://\S+
    |this\ (?:[\w\- ]{0,60}\ )?article\ is\ a\ stub\b.*|you\ can\ help\ wikipedia\ by\ expanding\ it
    |(?:copyright\ )?(?:©|\(c\)|&copy;)\ ?\d{4}.{0,80}
    |(?:please\ )?(?:enable|turn\ on)\ (?:java ?script|cookies)\b.*
    |(?:this|our)\ (?:web)?site\ uses\ cookies\b.*|we\ use\ cookies\b.*
    |(?:privacy\ policy|cookie\ policy|terms\ of\ (?:use|service)|terms\ and\ conditions)(?:\ ?[|·•]\ ?.{0,60})?
    |(?:read|see|show|view)\ more|click\ here(?:\ to\ .{0,60})?|sign\ (?:up|in)|log\ in|back\ to\ top
    |share\ (?:this|on\ \w+)|(?:tweet|pin\ it|advertisement|loading)|follow\ us\ on\ .{0,60}
    |subscribe\ to\ our\ (?:newsletter|mailing\ list).{0,60}|leave\ a\ (?:comment|reply)
    |lorem\ ipsum\ dolor\ sit\ amet.*
    )[\s.!:…»>]*""",
    re.VERBOSE,
)
# Boilerplate that follows other text, such as a name.
_NOTICE = re.compile(r"(?:(?:.{0,60} )?all rights reserved|.{0,40}requires java ?script\b.*)[\s.!:…»>]*")


def drop_boilerplate(text: str) -> str:
    """Return "" for a paragraph that consists of web page boilerplate only; else the text."""
    if len(text) > _BOILERPLATE_CHARACTERS:
        return text
    lowered = text.lower()
    has_notice = "all rights reserved" in lowered or "requires java" in lowered
    return "" if _BOILERPLATE.fullmatch(lowered) or (has_notice and _NOTICE.fullmatch(lowered)) else text


def drop_without_letters(text: str) -> str:
    """Return "" for a paragraph without any letter or digit, such as "* * *"; else the text."""
    # Most paragraphs start with a letter.
    return text if text[:1].isalnum() or any(map(str.isalnum, text)) else ""


def require_end_punctuation(text: str) -> str:
    """Return "" for a paragraph without final sentence punctuation (C4); else the text."""
    return text if SENTENCE_END.search(text) else ""


_BLANKS = re.compile(r"[^\S\n]+")


def fold_blanks(paragraph: str) -> str:
    """Replace every run of whitespace within a line by one space; the later rules look for single spaces."""
    if "  " not in paragraph and paragraph.isprintable():
        return paragraph
    return _BLANKS.sub(" ", paragraph)


# Whitespace is first normalized within lines, since some markup depends on lines, and completely after its removal.
_PARAGRAPH_RULES: tuple[tuple[str, Callable[[str], str]], ...] = (
    (MOJIBAKE, fix_mojibake),
    (WHITESPACE, fold_blanks),
    (RESIDUAL_MARKUP, remove_residual_markup),
    (EDITORIAL_MARKS, remove_editorial_marks),
    (UNICODE_NFC, normalize_nfc),
    (CONTROL_CHARACTERS, remove_control_characters),
    (WHITESPACE, fold_whitespace),
    (BOILERPLATE, drop_boilerplate),
    (NO_LETTERS, drop_without_letters),
    (END_PUNCTUATION, require_end_punctuation),
)


# Rules that change only texts that are not tidy.
_TIDYING = frozenset([WHITESPACE, CONTROL_CHARACTERS])
# Rules that change the encoding or form of a text but remove none of it.
_LOSSLESS = frozenset([MOJIBAKE, UNICODE_NFC, WHITESPACE])


def utf8_bytes(text: str) -> int:
    """Return the length of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def clean_paragraphs(
    paragraphs: Sequence[str],
    options: CleaningOptions,
    counts: Counter[str],
    dropped: list[tuple[str, str]] | None = None,
    lost: Counter[str] | None = None,
) -> list[str]:
    """Apply the paragraph rules.

    Args:
        paragraphs: the paragraphs of one document.
        options: the active rules.
        counts: incremented by the number of paragraphs that each rule changed or dropped.
        dropped: extended by (rule, text before the rule) for each dropped paragraph.
        lost: incremented by the bytes of text (UTF-8) that each rule removed.

    Returns:
        The remaining paragraphs, with folded whitespace.
    """
    rules = [(name, rule, name in _TIDYING) for name, rule in _PARAGRAPH_RULES if options.runs(name)]
    kept = []
    for paragraph in paragraphs:
        text = paragraph
        is_folded = False
        is_tidy = _is_tidy(text)
        for name, rule, tidies in rules:
            if is_tidy and tidies:
                continue
            changed = rule(text)
            if changed != text:
                # Whitespace is folded twice, and a paragraph counts once.
                counts[name] += not (is_folded and name == WHITESPACE)
                is_folded = is_folded or name == WHITESPACE
                if lost is not None and name not in _LOSSLESS:
                    # The difference in length between an entity and its character is not a loss.
                    plain = unescape_entities(text) if name == RESIDUAL_MARKUP and "&" in text else text
                    lost[name] += max(0, utf8_bytes(plain) - utf8_bytes(changed))
                if not changed:
                    # Blank paragraphs are not reported.
                    if dropped is not None and name != WHITESPACE:
                        dropped.append((name, text))
                    text = changed
                    break
                text = changed
                is_tidy = False
        if text:
            kept.append(text)
    return kept


# Ratios of shorter texts are meaningless: "Wait ..." is half symbols.
_MIN_WORDS = 20


def rejection_reason(sentences: Sequence[str], options: CleaningOptions) -> str | None:
    """Return the rule that rejects a document, or None.

    The rules `DUPLICATE`, `LANGUAGE`, `CONTAMINATED` and `LOW_QUALITY` are applied elsewhere.
    """
    if not sentences:
        return NO_TEXT
    text = "\n".join(sentences)
    data = text.encode("utf-8")
    spans = word_spans(data)
    words = len(spans[0])
    tests: tuple[tuple[str, Callable[[], bool]], ...] = (
        (TOO_SHORT, lambda: _is_too_short(sentences, words, text, options)),
        (SYMBOLS, lambda: words >= _MIN_WORDS and symbol_ratio(text, words) > options.max_symbol_ratio),
        (DIGITS, lambda: words >= _MIN_WORDS and digit_ratio(data) > options.max_digit_ratio),
        (NON_LETTERS, lambda: words >= _MIN_WORDS and non_letter_ratio(data, words) > options.max_non_letter_ratio),
        (REPEATED_LINES, lambda: repeated_line_ratio(sentences) > options.max_repeated_lines),
        (REPEATED_NGRAMS, lambda: repeated_ngram_ratio(data, spans) > options.max_repeated_ngrams),
    )
    return next((name for name, fails in tests if options.runs(name) and fails()), None)


def _is_too_short(sentences: Sequence[str], words: int, text: str, options: CleaningOptions) -> bool:
    return len(sentences) < options.min_sentences or words < options.min_words or len(text) < options.min_characters


def symbol_ratio(text: str, words: int) -> float:
    """Return the number of hash signs and ellipses (three dots or one character) per word.

    Args:
        text: a text.
        words: number of its words.
    """
    return (text.count("#") + text.count("...") + text.count("…")) / words if words else 0.0


_LETTERS = bytes(range(ord("A"), ord("Z") + 1)) + bytes(range(ord("a"), ord("z") + 1)) + bytes(range(128, 256))
_NO_LETTERS = bytes(byte for byte in range(33, 256) if byte not in _LETTERS)


def digit_ratio(data: bytes) -> float:
    """Return the fraction of ASCII digits among the bytes of a UTF-8 text, whitespace excluded."""
    values = np.frombuffer(data, np.uint8)
    # A smaller value wraps around to more than 200. The five characters from tab on are whitespace too.
    size = len(data) - int(np.count_nonzero((values == ord(" ")) | (values - ord("\t") < 5)))
    return 1 - (size - int(np.count_nonzero(values - ord("0") < 10))) / size if size else 0.0


def non_letter_ratio(data: bytes, words: int) -> float:
    """Return the fraction of words without a letter; non-ASCII characters count as letters.

    Args:
        data: a text in UTF-8.
        words: number of its words.
    """
    return 1 - count_words(data.translate(None, _NO_LETTERS)) / words if words else 0.0


def repeated_line_ratio(sentences: Sequence[str]) -> float:
    """Return the fraction of characters in sentences that repeat an earlier sentence of the document.

    Characters are counted instead of sentences: in a play, every speaker's name is a repeated sentence.
    """
    total = sum(map(len, sentences))
    return 1 - sum(map(len, set(sentences))) / total if total else 0.0


_NGRAM = 10
_MIN_WORDS_FOR_NGRAMS = 100


def repeated_ngram_ratio(data: bytes, spans: tuple[np.ndarray, np.ndarray]) -> float:
    """Return the fraction of word bytes in 10-grams that occur more than once; 0 for fewer than 100 words.

    Args:
        data: a text in UTF-8.
        spans: starts and lengths of its words, from `word_spans`.
    """
    starts, lengths = spans
    if len(starts) < _MIN_WORDS_FOR_NGRAMS:
        return 0.0
    keys = ngram_keys(word_keys(data, starts, lengths), _NGRAM)
    ordered = np.sort(keys)
    twice = ordered[1:][ordered[1:] == ordered[:-1]]
    if not len(twice):
        return 0.0
    repeated = np.isin(keys, twice)  # [W - 9]
    inside = np.convolve(repeated, np.ones(_NGRAM, np.int64)) > 0  # [W]
    return float(lengths[inside].sum() / lengths.sum())
