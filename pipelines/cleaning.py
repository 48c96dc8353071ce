"""Cleaning rules: plain functions over one paragraph or one document; a rule's name is its switch and its counter.

Paragraph rules take a text and return it cleaned, "" where nothing is to stay of it. Document rules say why a document
is left out, or None. Thresholds follow two published recipes where these speak: C4 (Raffel et al. 2020, section 2.2)
and Gopher's MassiveText (Rae et al. 2021, appendix A.1.1). What they throw away in web pages is no fault in a book, so
rules that would cut prose are off, and the others stand where prose does not reach.
"""

import dataclasses
import html
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from pipelines.ngrams import ngram_keys, word_hashes, word_spans

# Paragraph rules, in their order.
MOJIBAKE = "mojibake"
RESIDUAL_MARKUP = "residual_markup"
EDITORIAL_MARKS = "editorial_marks"
UNICODE_NFC = "unicode_nfc"
CONTROL_CHARACTERS = "control_characters"
WHITESPACE = "whitespace"
BOILERPLATE = "boilerplate"
NO_LETTERS = "no_letters"
END_PUNCTUATION = "end_punctuation"
# Document rules, in their order.
NO_TEXT = "no_text"
TOO_SHORT = "too_short"
SYMBOLS = "symbols"
DIGITS = "digits"
NON_LETTERS = "non_letters"
REPEATED_LINES = "repeated_lines"
REPEATED_NGRAMS = "repeated_ngrams"
# Reasons that are found elsewhere: where equal texts meet, and by other files.
DUPLICATE = "duplicate"
LANGUAGE = "language"
CONTAMINATED = "contaminated"

# What --skip_rules may name. A sentence cannot hold a line end and a document needs text: WHITESPACE and NO_TEXT stay.
SKIPPABLE = (
    RESIDUAL_MARKUP,
    EDITORIAL_MARKS,
    UNICODE_NFC,
    CONTROL_CHARACTERS,
    BOILERPLATE,
    NO_LETTERS,
    TOO_SHORT,
    SYMBOLS,
    DIGITS,
    NON_LETTERS,
    REPEATED_LINES,
    REPEATED_NGRAMS,
)


@dataclasses.dataclass(frozen=True)
class CleaningOptions:
    """Which rules run and where they draw the line; all values are JSON's.

    Attributes:
        skip_rules: names of `SKIPPABLE` rules that do not run, sorted, joined by commas.
        fix_mojibake: repair text that was decoded in a wrong encoding, with ftfy (extra `[clean]`).
        end_punctuation: drop paragraphs that do not end like a sentence (C4's first rule; it drops headings and verse).
        min_sentences: documents with fewer are left out (C4: 5).
        min_words: documents with fewer are left out (Gopher: 50).
        min_characters: documents with fewer are left out.
        max_symbol_ratio: hashes and ellipses for each word (Gopher: 0.1).
        max_digit_ratio: share of digits among the characters that are no whitespace.
        max_non_letter_ratio: share of words without any letter (Gopher: 0.2). These three are judged from 20 words on.
        max_repeated_lines: share of the characters in sentences that the document already had (Gopher: 0.2).
        max_repeated_ngrams: share of the characters in runs of ten words that occur again (Gopher: 0.1).
    """

    skip_rules: str = ""
    fix_mojibake: bool = False
    end_punctuation: bool = False
    min_sentences: int = 1
    min_words: int = 0
    min_characters: int = 0
    max_symbol_ratio: float = 0.2
    max_digit_ratio: float = 0.3
    max_non_letter_ratio: float = 0.4
    max_repeated_lines: float = 0.3
    max_repeated_ngrams: float = 0.5

    def runs(self, rule: str) -> bool:
        """Whether a rule is on."""
        if rule == MOJIBAKE:
            return self.fix_mojibake
        if rule == END_PUNCTUATION:
            return self.end_punctuation
        return rule not in self.skip_rules.split(",")


def fix_mojibake(text: str) -> str:
    """Repairs text that was encoded in UTF-8 and read as something else, such as "schÃ¶n", with ftfy; all else stays.

    Raises:
        ModuleNotFoundError: ftfy is not installed.
    """
    import ftfy

    return text if text.isascii() else ftfy.fix_encoding(text)


# Markup is cut out up to this many characters: four times the longest of the Wikipedia texts and books (265). Longer
# ones are two marks of prose that happen to pair, "a < b" and a ">" many pages later, and stay.
_MARKUP_CHARACTERS = 1_000
_COMMENT_CHARACTERS = 10_000

_REFERENCE = re.compile(
    rf"<ref\b[^<>]{{0,{_MARKUP_CHARACTERS}}}/>"
    rf"|<ref\b[^<>]{{0,{_MARKUP_CHARACTERS}}}>[^<>]{{0,{_MARKUP_CHARACTERS}}}</ref\s{{0,10}}>",
    re.IGNORECASE,
)
_ATTRIBUTES = rf"(?:\s[^<>]{{0,{_MARKUP_CHARACTERS}}})?/?>"
_INLINE_TAG = re.compile(
    r"</?(?:abbr|a|bdi|big|b|cite|code|em|font|i|kbd|mark|math|nowiki|s|small|span|strong|sub|sup|tt|u|var)"
    + _ATTRIBUTES,
    re.IGNORECASE,
)
_BLOCK_TAG = re.compile(
    r"</?(?:blockquote|br|center|dd|div|dl|dt|gallery|h[1-6]|hr|imagemap|includeonly|li|noinclude|ol|onlyinclude|p"
    r"|poem|pre|references|ref|source|syntaxhighlight|table|tbody|td|th|timeline|tr|ul)" + _ATTRIBUTES,
    re.IGNORECASE,
)
_BRACE = re.compile(r"([{}])")
# The residue of a template: a parser function's name, a citation's fields (OpenURL), and style declarations.
_PARSER_FUNCTION = re.compile(
    r"#(?:if|ifeq|ifexpr|ifexist|iferror|switch|expr|invoke|tag) ?:|\{\{urlencode:", re.IGNORECASE
)
_CITATION_FIELDS = re.compile(
    rf"""(?:title=")?ctx_ver=[!-~]{{0,{_MARKUP_CHARACTERS}}}|&rft(?:_\w{{1,20}})?[.=][!-~]{{0,{_MARKUP_CHARACTERS}}}"""
)
_PROPERTY = (
    r"\b(?:height|width|margin|padding|font|border|top|left|right|bottom|text-align|vertical-align|background|color"
    r"|float|clear|display|line-height|white-space|position|overflow|list-style)(?:-\w{1,20}){0,2}"
)
_DECLARATIONS = re.compile(
    rf"""(?:\bstyle ?= ?["'])?(?:{_PROPERTY}: ?[^;:"'<>{{}}|]{{1,150}};\ ?)+(?:["'](?=\s*[|>]))?""", re.IGNORECASE
)
_LENGTH = re.compile(
    r"\b(?:height|width|margin|padding|font-size|border|top|left)(?:-\w{1,20})?: ?[\d.]{1,20}(?:em|px);", re.IGNORECASE
)
# Far faster to find than the whole; styles are looked for around it.
_LENGTH_END = re.compile(r"\d(?:em|px);", re.IGNORECASE)
_STYLE_CHARACTERS = 500
# A paragraph of code: short, and no prose beside the code. All such of 20 MB of Wikipedia are at most 887 long.
_CODE_CHARACTERS = 1_000
# Letters beside the code that make a paragraph prose: with a full stop or the like at the end, and without.
_PROSE_LETTERS = 20
_PROSE_LETTERS_UNENDED = 150
_BRACES = re.compile(r"\{\{+|\}\}+|\{\||\|\}")
_MEDIA_LINK = re.compile(
    rf"\[\[(?:file|image|category|datei|bild|kategorie):[^\[\]]{{0,{_MARKUP_CHARACTERS}}}\]\]", re.IGNORECASE
)
_LINK = re.compile(rf"\[\[(?:[^\[\]|]{{0,{_MARKUP_CHARACTERS}}}\|)?([^\[\]|]{{0,{_MARKUP_CHARACTERS}}})\]\]")
_QUOTES = re.compile(r"'{2,}")
# Apostrophes of a mark: italic, bold, both.
_QUOTE_SIZES = (2, 3, 5)
_MOST_HEADING_MARKS = 6
_ENTITY = re.compile(
    r"&(?:nbsp|amp|lt|gt|quot|apos|ndash|mdash|minus|times|thinsp|hellip|#\d{1,7}|#x[0-9a-fA-F]{1,6});"
)
_EMPTY_PARENTHESES = re.compile(r" \((?:\s*+[,;:])?\s*+\)")
_EMPTY_FIRST_ITEM = re.compile(r" \(\s*[,;]\s*")


def _cut_comments(text: str) -> str:
    """Cut HTML comments of at most `_COMMENT_CHARACTERS` out, in time that grows with the text alone."""
    kept, done, end = [], 0, -1
    start = text.find("<!--")
    while start >= 0:
        if end < start + 4:
            end = text.find("-->", start + 4)
        if end < 0:
            break
        following = start + 4
        if end - start <= _COMMENT_CHARACTERS:
            kept.append(text[done:start])
            done = following = end + 3
        start = text.find("<!--", following)
    return "".join([*kept, text[done:]])


def _cut_templates(text: str) -> str:
    """Cut templates of at most `_MARKUP_CHARACTERS` out, from the inside out; the time is linear in the text."""
    if "{{" not in text or "}}" not in text:
        return text
    kept: list[str] = []
    # Of each brace that is kept: the brace, its index in `kept`, and how many other characters are kept before it.
    braces: list[tuple[str, int, int]] = []
    others = 0
    for part in _BRACE.split(text):
        if part not in ("{", "}"):
            kept.append(part)
            others += len(part)
            continue
        braces.append((part, len(kept), others))
        kept.append(part)
        if part == "}" and len(braces) >= 4:
            (first, start, at), (second, _, at_second), (third, _, at_third), (_, _, at_fourth) = braces[-4:]
            if (
                first + second + third == "{{}"
                and at == at_second
                and at_third == at_fourth
                and at_third - at_second <= _MARKUP_CHARACTERS
            ):
                del kept[start:], braces[-4:]
                others = at
    return "".join(kept)


def _without_quotes(line: str) -> str:
    """Drop pairs of wikitext's bold and italic marks around text that neither begins nor ends in a blank."""
    marks = [match.span() for match in _QUOTES.finditer(line)]
    closing: list[int] = []  # Of each mark the next one after it that closes one of its size, or -1.
    nearest: dict[int, int] = {}
    for place in range(len(marks) - 1, -1, -1):
        start, end = marks[place]
        closing.append(nearest.get(end - start, -1))
        if start and not line[start - 1].isspace():
            nearest[end - start] = place
    closing.reverse()
    kept: list[str] = []
    done = place = 0
    while place < len(marks):
        start, end = marks[place]
        before, following = line[max(0, start - 1) : start], line[end : end + 1]
        opens = end - start in _QUOTE_SIZES and not (before.isalnum() or before == "_")
        if opens and closing[place] >= 0 and not following.isspace():
            place = closing[place]
            kept += [line[done:start], line[end : marks[place][0]]]
            done = marks[place][1]
        place += 1
    return "".join([*kept, line[done:]])


def _without_heading_marks(text: str) -> str:
    """Drop wikitext's equals signs around a heading; a text that does not end in them stays as it is."""
    marks = len(text) - len(text.lstrip("="))
    end = len(text.rstrip("="))
    level = min(marks, len(text) - end, _MOST_HEADING_MARKS)
    content = text[marks : len(text) - level]
    if level < 2 or not content or "\n" in content.strip():
        return text
    # A heading of nothing but blanks is one blank; a blank stays before an equals sign.
    name = content.lstrip()
    name = content[-1] if not name else content[len(content) - len(name) - 1 :] if name[0] == "=" else name
    return "=" * (marks - level) + (name.rstrip() or name)


def _cut_style(match: re.Match[str]) -> str:
    return "" if _LENGTH.search(match.group()) else match.group()


def _cut_styles(text: str) -> str:
    """Cut declarations with a length out, with those beside them."""
    windows: list[list[int]] = []
    for match in _LENGTH_END.finditer(text):
        first, last = max(0, match.end() - _STYLE_CHARACTERS), match.end() + _STYLE_CHARACTERS
        if windows and first <= windows[-1][1]:
            windows[-1][1] = last
        else:
            windows.append([first, last])
    kept, done = [], 0
    for first, last in windows:
        kept += [text[done:first], _DECLARATIONS.sub(_cut_style, text[first:last])]
        done = last
    return "".join([*kept, text[done:]])


def _cut_code(text: str) -> str:
    """Cut the residue of templates and styles out."""
    return _CITATION_FIELDS.sub("", _PARSER_FUNCTION.sub("", _cut_styles(text)))


def _holds_code(text: str) -> bool:
    if ("#" in text or "{{urlencode:" in text) and _PARSER_FUNCTION.search(text):
        return True
    return "&rft." in text or any(
        _LENGTH.search(text, max(0, match.end() - 60), match.end()) for match in _LENGTH_END.finditer(text)
    )


def _is_prose(text: str) -> bool:
    """Whether what is left of a paragraph of code is worth keeping: a sentence, or many letters."""
    letters = sum(map(str.isalpha, text))
    return letters >= (_PROSE_LETTERS if _SENTENCE_END.search(text.rstrip()) else _PROSE_LETTERS_UNENDED)


def unescape_entities(text: str) -> str:
    """Replace the entities that `remove_residual_markup` knows by their characters."""
    return _ENTITY.sub(lambda match: html.unescape(match.group()), text)


def remove_residual_markup(text: str) -> str:
    """Takes out what extraction from HTML and wikitext leaves behind; the text that the marks stood around stays.

    Tags, comments, references, templates, links, bold and italic quotes, headings, entities, and parentheses that are
    empty because a template in them is gone: "Albedo (), or" and "Aristotle (; Greek: ...)". Of a template's code or a
    style only the code is cut out; a short paragraph with no prose beside it becomes "".
    """
    code = any(mark in text for mark in ("#", "&rft.", "em;", "px;", "{{urlencode:")) and _holds_code(text)
    short = len(text) <= _CODE_CHARACTERS
    if "<" in text:
        text = _BLOCK_TAG.sub(" ", _INLINE_TAG.sub("", _REFERENCE.sub("", _cut_comments(text))))
    if code:
        # After the tags, whose attributes may hold code.
        text = _cut_code(text)
        if short and not _is_prose(text):
            return ""
    if "{{" in text or "}}" in text or "{|" in text or "|}" in text:
        text = _BRACES.sub(" ", _cut_templates(text))
    if "[[" in text:
        text = _LINK.sub(r"\1", _MEDIA_LINK.sub("", text))
    # With a double backquote it is the quotation marks of tokenised text.
    if "''" in text and "``" not in text:
        text = "\n".join(map(_without_quotes, text.split("\n")))
    if text.startswith("=="):
        text = _without_heading_marks(text)
    if "&" in text:
        text = unescape_entities(text)
    if " (" in text:
        text = _EMPTY_FIRST_ITEM.sub(" (", _EMPTY_PARENTHESES.sub("", text))
    return text


_EDITORIAL = re.compile(
    r"\[ ?\[?(?:edit(?: source)?|update|bearbeiten|quelltext bearbeiten|bearbeiten \| quelltext bearbeiten"
    r"|(?:citation|clarification|verification|page|pages|year|quotation|disambiguation|better source|attribution"
    r"|further explanation|additional citations?) needed|failed verification|not in citation given|original research\?"
    r"|dead link|dubious(?: ?[-–] discuss)?|vague|(?:according to |by )?whom\?|(?:who|when|where|which|why|how)\?"
    r"|note \d{1,3}|nb \d{1,3})\]{1,2}",
    re.IGNORECASE,
)
# Only right behind a word or a sign: `E[0]` is an index and "silicon [100]" a name.
_REFERENCE_MARK = re.compile(r"""(?:(?<=\w\w)|(?<=[.,;:!?)\]"'”’»]))(?:\[\d{1,3}\])+""")


def remove_editorial_marks(text: str) -> str:
    """Takes out `[edit]`, `[citation needed]` and its like, and the marks of references, `[1]`."""
    if "[" not in text:
        return text
    return _REFERENCE_MARK.sub("", _EDITORIAL.sub("", text))


def normalize_nfc(text: str) -> str:
    """Unicode's canonical composition, so that equal letters are equal code points."""
    return text if text.isascii() or unicodedata.is_normalized("NFC", text) else unicodedata.normalize("NFC", text)


# Zero-width joiners (U+200C, U+200D) stay: Persian, Indic scripts and emoji are spelled with them.
_CONTROL = re.compile(
    "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u00ad\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff]"
)


def remove_control_characters(text: str) -> str:
    """Takes out control characters, soft hyphens, zero-width spaces, byte order marks and direction marks."""
    return text if text.isprintable() else _CONTROL.sub("", text)


def fold_whitespace(paragraph: str) -> str:
    """Every run of whitespace, line ends of any kind included, becomes one blank; none is left at the ends."""
    if paragraph.isprintable() and "  " not in paragraph:
        return paragraph.strip()
    return " ".join(paragraph.split())


_BOILERPLATE_CHARACTERS = 200
_BOILERPLATE = re.compile(
    r"""(?:from\ wikipedia,\ the\ free\ encyclopedia
    |jump\ to\ (?:navigation|search|content).*|skip\ to\ (?:main\ )?content
    |retrieved\ from\ "?https?://\S+
    |this\ (?:[\w\- ]{0,60}\ )?article\ is\ a\ stub\b.*|you\ can\ help\ wikipedia\ by\ expanding\ it
    |(?:copyright\ )?(?:©|\(c\)|&copy;)\ ?\d{4}.{0,80}|(?:.{0,60}\ )?all\ rights\ reserved
    |(?:please\ )?(?:enable|turn\ on)\ (?:java ?script|cookies)\b.*|.{0,40}requires\ java ?script\b.*
    |(?:this|our)\ (?:web)?site\ uses\ cookies\b.*|we\ use\ cookies\b.*
    |(?:privacy\ policy|cookie\ policy|terms\ of\ (?:use|service)|terms\ and\ conditions)(?:\ ?[|·•]\ ?.{0,60})?
    |(?:read|see|show|view)\ more|click\ here(?:\ to\ .{0,60})?|sign\ (?:up|in)|log\ in|back\ to\ top
    |share\ (?:this|on\ \w+)|(?:tweet|pin\ it|advertisement|loading)|follow\ us\ on\ .{0,60}
    |subscribe\ to\ our\ (?:newsletter|mailing\ list).{0,60}|leave\ a\ (?:comment|reply)
    |lorem\ ipsum\ dolor\ sit\ amet.*
    )[\s.!:…»>]*""",
    re.IGNORECASE | re.VERBOSE,
)


def drop_boilerplate(text: str) -> str:
    """ "" for a paragraph that is nothing but what web pages say of themselves; else the text."""
    return "" if len(text) <= _BOILERPLATE_CHARACTERS and _BOILERPLATE.fullmatch(text) else text


def drop_without_letters(text: str) -> str:
    """ "" for a paragraph without any letter or digit, such as "* * *"; else the text."""
    # Most paragraphs show a letter at once.
    return text if text[:1].isalnum() or any(map(str.isalnum, text)) else ""


_SENTENCE_END = re.compile(r"""[.!?…。!?।։۔]["'”’»›)\]]*$""")


def require_end_punctuation(text: str) -> str:
    """ "" for a paragraph that does not end in a full stop, a question or exclamation mark, quotes closed (C4)."""
    return text if _SENTENCE_END.search(text) else ""


_PARAGRAPH_RULES: tuple[tuple[str, Callable[[str], str]], ...] = (
    (MOJIBAKE, fix_mojibake),
    (RESIDUAL_MARKUP, remove_residual_markup),
    (EDITORIAL_MARKS, remove_editorial_marks),
    (UNICODE_NFC, normalize_nfc),
    (CONTROL_CHARACTERS, remove_control_characters),
    (WHITESPACE, fold_whitespace),
    (BOILERPLATE, drop_boilerplate),
    (NO_LETTERS, drop_without_letters),
    (END_PUNCTUATION, require_end_punctuation),
)


# Rules that write the same text in another way.
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
    """Applies the paragraph rules.

    Args:
        paragraphs: the text of one document.
        options: which rules run.
        counts: is added to: for each rule the paragraphs that it changed or dropped.
        dropped: is added to: (rule, text before it) for each paragraph that a rule emptied.
        lost: is added to: for each rule the bytes of text (UTF-8) that it took out.

    Returns:
        The paragraphs that still hold text, whitespace folded.
    """
    rules = [(name, rule) for name, rule in _PARAGRAPH_RULES if options.runs(name)]
    kept = []
    for paragraph in paragraphs:
        text = paragraph
        for name, rule in rules:
            changed = rule(text)
            if changed != text:
                counts[name] += 1
                if lost is not None and name not in _LOSSLESS:
                    # An entity is longer than its character, which is not lost.
                    plain = unescape_entities(text) if name == RESIDUAL_MARKUP and "&" in text else text
                    lost[name] += max(0, utf8_bytes(plain) - utf8_bytes(changed))
                if not changed:
                    # Empty lines are no loss.
                    if dropped is not None and name != WHITESPACE:
                        dropped.append((name, text))
                    text = changed
                    break
                text = changed
        if text:
            kept.append(text)
    return kept


# Of fewer words, a share says nothing: "Wait ..." is half symbols.
_LEAST_WORDS = 20


def rejection_reason(sentences: Sequence[str], options: CleaningOptions) -> str | None:
    """Why a document is left out of the corpus, or None.

    `DUPLICATE` is found later, where equal texts meet; `LANGUAGE` and `CONTAMINATED` have files of their own.
    """
    if not sentences:
        return NO_TEXT
    text = "\n".join(sentences)
    data = text.encode("utf-8")
    spans = word_spans(data)
    words = len(spans[0])
    tests: tuple[tuple[str, Callable[[], bool]], ...] = (
        (TOO_SHORT, lambda: _is_too_short(sentences, words, text, options)),
        (SYMBOLS, lambda: words >= _LEAST_WORDS and symbol_ratio(text) > options.max_symbol_ratio),
        (DIGITS, lambda: words >= _LEAST_WORDS and digit_ratio(data) > options.max_digit_ratio),
        (NON_LETTERS, lambda: words >= _LEAST_WORDS and non_letter_ratio(data, words) > options.max_non_letter_ratio),
        (REPEATED_LINES, lambda: repeated_line_ratio(sentences) > options.max_repeated_lines),
        (REPEATED_NGRAMS, lambda: repeated_ngram_ratio(data, spans) > options.max_repeated_ngrams),
    )
    return next((name for name, fails in tests if options.runs(name) and fails()), None)


def _is_too_short(sentences: Sequence[str], words: int, text: str, options: CleaningOptions) -> bool:
    return len(sentences) < options.min_sentences or words < options.min_words or len(text) < options.min_characters


def symbol_ratio(text: str) -> float:
    """Hashes and ellipses, of three dots or of one character, for each word."""
    symbols = text.count("#") + text.count("...") + text.count("…")
    return symbols / len(text.split()) if symbols else 0.0


_DIGITS = b"0123456789"
_BLANKS = b" \t\r\n\x0b\x0c"
_LETTERS = bytes(range(ord("A"), ord("Z") + 1)) + bytes(range(ord("a"), ord("z") + 1)) + bytes(range(128, 256))
_NO_LETTERS = bytes(byte for byte in range(33, 256) if byte not in _LETTERS)


def digit_ratio(data: bytes) -> float:
    """Share of ASCII digits among the bytes of a text in UTF-8 that are no whitespace."""
    data = data.translate(None, _BLANKS)
    return 1 - len(data.translate(None, _DIGITS)) / len(data) if data else 0.0


def non_letter_ratio(data: bytes, words: int) -> float:
    """Share of the so many words of a text in UTF-8 that hold no letter; characters beyond ASCII count as letters."""
    return 1 - len(word_spans(data.translate(None, _NO_LETTERS))[0]) / words if words else 0.0


def repeated_line_ratio(sentences: Sequence[str]) -> float:
    """Share of the characters that stand in sentences the document already had, however often they come again.

    Of the characters, not of the sentences, as in a play every speaker's name is a sentence that comes again.
    """
    total = sum(map(len, sentences))
    return 1 - sum(map(len, set(sentences))) / total if total else 0.0


_NGRAM = 10
_LEAST_WORDS_OF_NGRAMS = 100


def repeated_ngram_ratio(data: bytes, spans: tuple[np.ndarray, np.ndarray]) -> float:
    """Share of the bytes of words that lie in runs of ten words that occur more than once; 0 for less than 100 words.

    Args:
        data: a text in UTF-8.
        spans: its words, as `word_spans` returns them.
    """
    starts, lengths = spans
    if len(starts) < _LEAST_WORDS_OF_NGRAMS:
        return 0.0
    keys = ngram_keys(word_hashes(data, starts, lengths), _NGRAM)
    ordered = np.sort(keys)
    twice = ordered[1:][ordered[1:] == ordered[:-1]]
    if not len(twice):
        return 0.0
    repeated = np.isin(keys, twice)  # [W - 9]
    inside = np.convolve(repeated, np.ones(_NGRAM, np.int64)) > 0  # [W]
    return float(lengths[inside].sum() / lengths.sum())
