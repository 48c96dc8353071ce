"""Segment paragraphs into sentences.

sentencex runs on a simplified copy of the text. It decides by the neighbors of a terminator, a list of abbreviations,
and the quotes, brackets and list items around it. The last three cause missed boundaries: an unbalanced quote or
bracket pairs with another one many sentences later, and a list item ends only where the next starts. The copy has the
same length as the text, but only short pairs that contain a terminator. Boundaries of the copy are then mapped to the
text. The copy is read in windows, because the time of sentencex is superlinear in the length.

docs/design/text-processing.md has the figures.
"""

import functools
import itertools
import random
import re
import unicodedata
from collections.abc import Callable, Iterator

import sentencex

from beambert.pipelines.cleaning.rules import fold_whitespace
from beambert.pipelines.segmentation.boundary_repair import boundary_repair

# Longer sentences are split. About 500 WordPiece tokens of English: the longest usual sequences hold most of it, and no
# sentence of the gold text is longer.
MAX_SENTENCE_CHARACTERS = 2_000
_WINDOW_CHARACTERS = 2 * MAX_SENTENCE_CHARACTERS
# A longer text in quotes or brackets is not a single sentence, or the marks do not belong together.
_MAX_PAIR_CHARACTERS = 120

# Languages in whose gold text sentences often start in lower case. In the others, they rarely do.
_LOWER_CASE_BEGINS = frozenset(["en", "fr", "id", "it", "uk"])
# sentencex compiles a regular expression at every terminator of these languages (0.5 to 8 MB/s). They are segmented as
# another language with the same terminators and rules. Their own rules are then applied to possible abbreviations.
_SLOW = {"ca": "uk", "da": "uk", "it": "uk"}
_ABBREVIATION_CHARACTERS = 6

_PAIRS = (
    *('""', "''", "`'", "``", "«»", "»«", "‹›", "“”", "„“", "„”", "‘’", "‚‘", "‛‛", "‟‟"),
    *("「」", "『』", "《》", "〈〉", "【】", "()", "（）", "[]", "{}", "<>"),
)
_MARKS = "".join(sorted({mark for pair in _PAIRS for mark in pair}))
_CLOSING = "\"'`»«›”“’」』》〉】)）]}>"
_CLOSING_AFTER_BLANK = "\"'»›”’」』》〉】)）]}"
# Marks that both open and close a pair, depending on their neighbors.
_SYMMETRIC = "\"'`"
_TERMINATORS = ".!?…。！？։։:።၊။।۔؟"


def _character_class(characters: str) -> str:
    return "".join(map(re.escape, characters))


def _lower_case_class() -> str:
    """Return a character class of the lower-case letters of the Basic Multilingual Plane."""
    codes = [code for code in range(0x10000) if unicodedata.category(chr(code)) == "Ll"]
    starts = [code for code, before in zip(codes, [-1, *codes], strict=False) if code != before + 1]
    ends = [code for code, after in zip(codes, [*codes[1:], -1], strict=True) if code + 1 != after]
    return "".join(f"\\u{start:04x}-\\u{end:04x}" for start, end in zip(starts, ends, strict=True))


def _pair_pattern() -> re.Pattern[str]:
    """Return a pattern that matches a mark, including the text up to its partner if that is near."""
    alternatives = []
    for opening, closing in ((re.escape(pair[0]), re.escape(pair[1])) for pair in _PAIRS):
        inside = f"[^{opening}{closing}]{{1,{_MAX_PAIR_CHARACTERS}}}{closing}"
        if opening in _SYMMETRIC:
            # Only if the class excludes the apostrophe: two ways to match it would cause backtracking.
            apostrophe = r"|(?<=\w)'(?=\w)" if "'" in (opening, closing) else ""
            inside = (
                rf"(?<!\w{opening})(?=\S)(?:[^{opening}{closing}]{apostrophe}){{1,{_MAX_PAIR_CHARACTERS}}}"
                rf"(?<=\S){closing}(?!\w)"
            )
        elif opening in "»‚":
            inside = rf"(?<![^ (]{opening})(?=\S){inside}"
        alternatives.append(f"(?<={opening}){inside}")
    return re.compile(f"[{_character_class(_MARKS)}](?:{'|'.join(alternatives)})?")


_MARK = _character_class(_MARKS)
_PAIR = _pair_pattern()
_BLANK_MARKS = {ord(mark): " " for mark in _MARKS}
_ASCII_MARKS = list(filter(str.isascii, _MARKS))
_MARK_OR_TERMINATOR = re.compile(f"[{_MARK}{_TERMINATORS}]")
_HOLDS_TERMINATOR = re.compile(f"[{_TERMINATORS}]")
# Matches a run of terminators once and without backtracking, so that a million exclamation marks take linear time.
# Most terminators precede a capital letter, which the lookahead excludes at once.
_RUN = rf"(?! [A-Z])(?<![.!?…]{{2}})[.!?…]*+[{_MARK}]*+ "
_BEFORE_DIGIT = rf"{_RUN}\d"
_BEFORE_DIGIT_OR_LOWER_CASE = rf"{_RUN}(?:\d|[ {_MARK}–—-]*+(?=[{_lower_case_class()}]))"


def _continuations(terminator: str) -> dict[bool, re.Pattern[str]]:
    """Return the patterns of text that continues after a terminator, by whether sentences may start in lower case."""
    return {
        True: re.compile(f"{terminator}{_BEFORE_DIGIT}"),
        False: re.compile(f"{terminator}{_BEFORE_DIGIT_OR_LOWER_CASE}"),
    }


_CONTINUATION = _continuations("[.!?…]")
# For text without other terminators: a literal is found several times as fast as a class.
_CONTINUATION_AFTER_PERIOD = _continuations(r"\.")
_FULL_WIDTH_DECIMAL_POINT = re.compile(r"．(?<=\d．)(?=\d)")
_DIGIT_AFTER_UNAMBIGUOUS = re.compile(rf"[。！？｡।۔։።။][{_MARK}]* ?\d")
_BULLETS = "•◦▪▫■□●○⁃‣➤➢▶▸►"
_BULLET = re.compile(f"[{_BULLETS}]")
# A list item: a bullet, a number or letter with its closing mark, or both.
_ITEM = re.compile(
    rf"(?<!\S)(?:([{_BULLETS}]) ?)?(?:(\d{{1,3}})|([a-z]))(\.\)|[.)])(?= [^{_lower_case_class()}])"
    rf"|(?<!\S)[{_BULLETS}](?= ?\w)"
)
# ASCII characters at which sentencex ends a sentence in some language, or which close the number of a list item.
_MAY_END = re.compile("[.!?;:)]")
_FIRST_NUMBER = re.compile(r"1(?<=\. 1)\. ")
_FIRST_ITEM = re.compile(r"\)(?<= [1a]\)) |\)(?<= [1a]\.\)) ")
_CLOSINGS = re.compile(f"[{_character_class(_CLOSING)}]+")
_CLOSING_ALONE = re.compile(f" [{_character_class(_CLOSING_AFTER_BLANK)}] ")
_SURROGATE = re.compile("[\ud800-\udfff]")
_ASCII = bytes(range(128))
# The non-ASCII characters of the patterns above, and of those for digits after unambiguous terminators.
_UNUSUAL = re.compile(f"[\ud800-\udfff。！？｡។۔։።။．{_BULLETS}]")
_WORD_AND_PERIOD = re.compile(r"(?<!\S)\W*(\S+)\. ?\Z")


def _mask_pair(match: re.Match[str]) -> str:
    """Return the replacement of a mark or of a pair with its content, of the same length."""
    masked = match[0]
    if len(masked) == 1:
        text, index = match.string, match.start()
        if masked in "\"'’" and text[index - 1 : index].isalnum() and text[index + 1 : index + 2].isalnum():
            # An apostrophe or a Hebrew abbreviation mark. sentencex handles ' and ’ inside a word correctly.
            return "x" if masked == '"' else masked
        return " "
    inside = masked[1:-1]
    if masked[0] == "[" and inside.isdecimal():
        # A reference mark, which is part of the sentence before it.
        return masked
    bracket = masked[0] in "([{（"
    if _MARK_OR_TERMINATOR.search(inside):
        inside = inside.translate(_BLANK_MARKS)
        if _HOLDS_TERMINATOR.search(inside):
            # Asymmetric marks: a mark whose partner is in another window must not pair with a third mark.
            return f"({inside})" if bracket else f"“{inside}”"
    return f"⟨{inside} " if bracket else f" {inside} "


def _letter_for_digit(match: re.Match[str]) -> str:
    """Return the match with its final digit replaced by a capital letter, which can start a sentence."""
    return match[0][:-1] + "A"


def _mend_continuation(match: re.Match[str]) -> str:
    """End the sentence before a digit and continue it before lower case, where sentencex does the opposite.

    A word of five letters or more before a period is not an abbreviation unless sentencex lists it.
    """
    matched, start = match[0], match.start()
    word = match.string[max(0, start - 5) : start]
    after_word = len(word) == 5 and word.isalpha()
    if matched[-1].isdigit():
        return matched[:-1] + "A" if after_word else matched
    terminators = len(matched) - len(matched.lstrip(".!?…"))
    if after_word and matched[:terminators] == ".":
        return matched
    return "," * terminators + matched[terminators:]


def _is_unusual(text: str) -> bool:
    """Return whether a text has characters of `_UNUSUAL`; only its non-ASCII characters are searched."""
    if text.isascii():
        return False
    characters = text.encode("utf-8", "surrogatepass").translate(None, _ASCII)
    return _UNUSUAL.search(characters.decode("utf-8", "surrogatepass")) is not None


def _readable(text: str, language: str, unusual: bool) -> str:
    """Return the simplified copy of the text for sentencex, which has the same length."""
    has_others = "!" in text or "?" in text or "…" in text
    patterns = _CONTINUATION if has_others else _CONTINUATION_AFTER_PERIOD
    text = patterns[language in _LOWER_CASE_BEGINS].sub(_mend_continuation, text)
    # An omission in a quotation acts as a word. Periods between quoted lines of verse do not end a sentence. Dutch
    # newspapers open quotations with two commas.
    if "[" in text:
        text = text.replace("[...]", "Xxxxx")
    if "/" in text:
        text = text.replace(". / ", ", / ")
    text = text.replace(",,", "  ")
    if unusual:
        text = _DIGIT_AFTER_UNAMBIGUOUS.sub(_letter_for_digit, text)
        text = _FULL_WIDTH_DECIMAL_POINT.sub(",", text)
        text = _BULLET.sub(" ", text)
    has_marks = not text.isascii() or any(mark in text for mark in _ASCII_MARKS)
    return _PAIR.sub(_mask_pair, text) if has_marks else text


def _boundary_in_text(text: str, copy: str, boundary: int) -> int:
    """Return the boundary in the text for a boundary in the copy, in which marks around it are spaces.

    It is the first space between the sentences, so that closing marks belong to the first sentence and opening marks to
    the second. Without a space, as in Chinese, it follows the closing marks.
    """
    if text[boundary - 1] == " " and copy[boundary - 2] != " " != copy[boundary]:
        return boundary - 1
    start = end = boundary
    while start and copy[start - 1] == " ":
        start -= 1
    while end < len(copy) and copy[end] == " ":
        end += 1
    blank = text.find(" ", start, end)
    if blank < 0:
        closing = _CLOSINGS.match(text, start, end)
        return closing.end() if closing else start
    alone = _CLOSING_ALONE.match(text, blank, end)
    return alone.end() - 1 if alone else blank


@functools.lru_cache(maxsize=1 << 16)
def _is_abbreviation(word: str, language: str, before_number: bool) -> bool:
    """Return whether sentencex continues the sentence after a word and a period."""
    following = "1" if before_number else "Xx"
    return sentencex.segment(language, f"Xx {word}. {following}")[-1] != following


def _ends_in_abbreviation(text: str, end: int, language: str) -> bool:
    """Return whether text[:end] ends in a short abbreviation."""
    last_word = _WORD_AND_PERIOD.search(text[max(0, end - 2 * _ABBREVIATION_CHARACTERS) : end])
    if not last_word or (len(last_word[1]) > _ABBREVIATION_CHARACTERS and "." not in last_word[1]):
        return False
    return _is_abbreviation(last_word[1], language, text[end : end + 1].isdigit())


def _best_cut(text: str, start: int) -> int:
    """Return where to split a long sentence: in its second half after punctuation, else at a space, else anywhere."""
    half, end = start + MAX_SENTENCE_CHARACTERS // 2, start + MAX_SENTENCE_CHARACTERS
    for characters in (",;:，；：、،؛–—", " "):
        cut = max(text.rfind(character, half, end) for character in characters) + 1
        if cut:
            return cut
    # Never between a letter and its accent.
    return next((cut for cut in range(end, half, -1) if not unicodedata.combining(text[cut])), end)


def _item_starts(text: str, unusual: bool) -> list[int]:
    """Return the start positions of list items, and 0.

    Every bullet starts an item. A number or letter starts an item if it continues a count in the same style, unless it
    follows a comma or similar. A count starts at the first word of the text, at "1)" or "a)", or at "1." after a
    sentence terminator.
    """
    may_hold_list = (
        _ITEM.match(text)
        or _FIRST_NUMBER.search(text)
        or _FIRST_ITEM.search(text)
        or (unusual and _BULLET.search(text))
    )
    if not may_hold_list:
        return [0]
    starts = {0}
    lists: dict[tuple[str, bool], tuple[int, int]] = {}  # style -> (value, start) of the last item
    for match in _ITEM.finditer(text):
        bullet, number, letter, closing = match.groups()
        start = match.start()
        if bullet or not closing:
            starts.add(start)
            continue
        style = (closing, bool(number))
        value = int(number) if number else ord(letter) - ord("a") + 1
        last, last_start = lists.get(style, (0, 0))
        if last and value == last + 1:
            # After a comma or similar, the list is inside a sentence.
            starts.update(at for at in (last_start, start) if text[max(0, at - 2)] not in ",;:")
            lists[style] = (value, start)
        elif start == 0 or (value == 1 and (closing != "." or text[start - 2] in _TERMINATORS)):
            lists[style] = (value, start)
    return sorted(starts)


def _item_boundaries(text: str, language: str, abbreviations: str, unusual: bool) -> list[int]:
    """Return the ends of the sentences of one list item, or of a text without lists."""
    engine = _SLOW.get(language, language)
    continues = boundary_repair(language, abbreviations).continues
    copy = _readable(text, language, unusual)
    marker = _ITEM.match(text)
    if marker:
        copy = "x" * marker.end() + copy[marker.end() :]
    size = len(text)
    boundaries: list[int] = []
    start = last = 0
    while start < size:
        window = copy[start : start + _WINDOW_CHARACTERS]
        sentences = sentencex.segment(engine, window)
        if start + len(window) < size:
            # The last sentence may continue beyond the window: the next window starts with it.
            sentences.pop()
            if not sentences:
                start = last = _best_cut(text, start)
                boundaries.append(start)
                continue
        for sentence in sentences:
            start += len(sentence)
            if start == size:
                break
            if engine != language and _ends_in_abbreviation(copy, start, language):
                continue
            boundary = _boundary_in_text(text, copy, start)
            if boundary > last and (boundary == size or not continues(text, last, boundary)):
                boundaries.append(boundary)
                last = boundary
    if last < size:
        boundaries.append(size)
    return boundaries


def boundaries(text: str, language: str, abbreviations: str = "") -> list[int]:
    """Return the ends of a paragraph's sentences in ascending order, the last at the end of the text.

    Args:
        text: one paragraph, in which all whitespace is single spaces.
        language: primary subtag of a language code; sentencex treats an unknown one as English.
        abbreviations: more abbreviations, as of `BoundaryRepair`.
    """
    last = len(text) - 1
    is_short = len(text) <= MAX_SENTENCE_CHARACTERS
    if is_short and text.isascii() and text.find(".", 0, last) < 0 and not _MAY_END.search(text, 0, last):
        return [len(text)]
    unusual = _is_unusual(text)
    if unusual:
        text = _SURROGATE.sub("x", text)
    starts = _item_starts(text, unusual)
    if is_short and len(starts) == 1:
        return _item_boundaries(text, language, abbreviations, unusual)
    ends: list[int] = []
    sentence_start = 0
    for start, end in itertools.pairwise([*starts, len(text)]):
        for boundary in _item_boundaries(text[start:end], language, abbreviations, unusual):
            while start + boundary - sentence_start > MAX_SENTENCE_CHARACTERS:
                sentence_start = _best_cut(text, sentence_start)
                ends.append(sentence_start)
            sentence_start = start + boundary
            ends.append(sentence_start)
    return ends


# Much longer than a paragraph of prose.
_UNMODIFIED_WINDOW_CHARACTERS = 1 << 15


@functools.lru_cache
def _primary_subtag(language: str) -> str:
    return language.replace("_", "-").lower().split("-")[0]


def split_sentences(text: str, language: str, abbreviations: str = "") -> list[str]:
    """Segment one paragraph into non-empty sentences with folded whitespace; all other text is preserved.

    A sentence longer than `MAX_SENTENCE_CHARACTERS` is split after punctuation, else at a space,
    else at any character.

    Args:
        text: one paragraph; a sentence never crosses paragraphs.
        language: language code such as "en", "pt-BR" or "zh_Hans"; only the first subtag is used. For a language that
            sentencex does not support, the rules of a related language or of English are used.
        abbreviations: more abbreviations that never end a sentence, one a line, without final periods.
    """
    folded = fold_whitespace(text)
    ends = boundaries(folded, _primary_subtag(language), abbreviations)
    if len(ends) == 1:
        return [folded] if folded else []
    sentences = [folded[start:end].strip(" ") for start, end in itertools.pairwise([0, *ends])]
    return [sentence for sentence in sentences if sentence]


def split_lines(text: str, language: str) -> list[str]:  # noqa: ARG001
    """Return every non-blank line of a paragraph as a sentence, with folded whitespace."""
    return [sentence for sentence in map(fold_whitespace, text.splitlines()) if sentence]


def split_with_sentencex(text: str, language: str) -> list[str]:
    """Segment one paragraph with sentencex alone into non-empty sentences with folded whitespace."""
    folded = map(fold_whitespace, _segment(fold_whitespace(text), language))
    return [sentence for sentence in folded if sentence]


def _segment(text: str, language: str) -> Iterator[str]:
    """Yield the sentences that sentencex finds in a text, reading long texts in windows.

    The time of sentencex is quadratic in the length of a text with unbalanced quotes or brackets.
    """
    start = 0
    while len(text) - start > _UNMODIFIED_WINDOW_CHARACTERS:
        sentences = sentencex.segment(language, text[start : start + _UNMODIFIED_WINDOW_CHARACTERS])
        # The last sentence may continue beyond the window: the next window starts with it.
        complete = sentences[:-1] or sentences
        yield from complete
        start += sum(map(len, complete))
    yield from sentencex.segment(language, text[start:])


# Values of --segmenter.
SEGMENTERS: dict[str, Callable[[str, str], list[str]]] = {
    "rules": split_sentences,
    "lines": split_lines,
    "sentencex": split_with_sentencex,
}


def paragraph_segmenter(
    language: str, segmented: bool, segmenter: str = "rules", abbreviations: str = ""
) -> Callable[[str], list[str]]:
    """Return a function that returns the sentences of a paragraph; if `segmented`, every paragraph already is one.

    `abbreviations` are those of `split_sentences`, which is the segmenter "rules".
    """
    if segmented:
        return lambda paragraph: [sentence] if (sentence := fold_whitespace(paragraph)) else []
    if segmenter == "rules":
        return functools.partial(split_sentences, language=language, abbreviations=abbreviations)
    split = SEGMENTERS[segmenter]
    return lambda paragraph: split(paragraph, language)


def truncate_sentences(sentences: list[str], share: float, document_id: bytes) -> list[str]:
    """Truncate a random fraction of sentences at a random word, so that the model also sees incomplete text.

    The README of google-research/bert recommends it ("Pre-training with BERT": truncate 2 % of the input segments).

    Args:
        sentences: the sentences of one document, with folded whitespace.
        share: fraction of the sentences to truncate, from 0 to 1.
        document_id: document ID, the seed of all random choices.

    Returns:
        As many non-empty sentences. A sentence of one word is truncated at a character.
    """
    if not share:
        return sentences
    generator = random.Random(document_id)  # noqa: S311
    return [_cut_off(sentence, generator) if generator.random() < share else sentence for sentence in sentences]


def _cut_off(sentence: str, generator: random.Random) -> str:
    """Return a sentence truncated after a random word, or after a random character if it has one word."""
    blank = " " if " " in sentence else ""
    units = sentence.split(" ") if blank else list(sentence)
    return blank.join(units[: 1 + int(generator.random() * (len(units) - 1))])
