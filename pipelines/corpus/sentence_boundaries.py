"""Sentence boundaries: sentencex by language, on a copy of the text without what misleads it.

sentencex decides from a terminator's neighbors, its list of abbreviations, and the quotes, brackets and list items it
finds around it. The last three are where it loses boundaries: an unbalanced quote or bracket pairs with one many
sentences later, and a list item ends where the next begins. So it is given a copy of the text of the same length, in
which only short pairs with a terminator are left. The boundaries in the copy are then looked up in the text. The copy
is read in windows, because the engine's time grows faster than a paragraph.

docs/CORPUS.md, "Sentences", has the figures.
"""

import functools
import itertools
import re
import unicodedata
from collections.abc import Iterator

import sentencex

# A sentence longer than this is cut: about 500 WordPiece tokens of English, so that little of it is left over after the
# longest sequence, and more than any sentence of the gold text.
MAX_SENTENCE_CHARACTERS = 2_000
_WINDOW_CHARACTERS = 2 * MAX_SENTENCE_CHARACTERS
# Longer than this, what stands in quotes or brackets is not one sentence, or the pair is a mistake.
_MAX_PAIR_CHARACTERS = 120

# In the gold text of these languages sentences often begin in lower case; in the others they hardly ever do.
_LOWER_CASE_BEGINS = frozenset(["en", "fr", "id", "it", "uk"])
# sentencex compiles a regular expression at every terminator of these: 0.5 to 8 MB/s. They are read as another
# language, whose terminators and rules are the same, and then asked about the short words that may be abbreviations.
_SLOW = {"ca": "uk", "da": "uk", "it": "uk"}
_ABBREVIATION_CHARACTERS = 6

_PAIRS = (
    *('""', "''", "`'", "``", "«»", "»«", "‹›", "“”", "„“", "„”", "‘’", "‚‘", "‛‛", "‟‟"),
    *("「」", "『』", "《》", "〈〉", "【】", "()", "（）", "[]", "{}", "<>"),
)
_MARKS = "".join(sorted({mark for pair in _PAIRS for mark in pair}))
_CLOSING = "\"'`»«›”“’」』》〉】)）]}>"
_CLOSING_AFTER_BLANK = "\"'»›”’」』》〉】)）]}"
# Used on both sides: which side a mark is shows in its neighbors.
_SYMMETRIC = "\"'`"
_TERMINATORS = ".!?…。！？։։:።၊။।۔؟"


def _character_class(characters: str) -> str:
    return "".join(map(re.escape, characters))


def _lower_case_class() -> str:
    """Return the lower-case letters of the Basic Multilingual Plane as ranges of a character class."""
    codes = [code for code in range(0x10000) if unicodedata.category(chr(code)) == "Ll"]
    starts = [code for code, before in zip(codes, [-1, *codes], strict=False) if code != before + 1]
    ends = [code for code, after in zip(codes, [*codes[1:], -1], strict=True) if code + 1 != after]
    return "".join(f"\\u{start:04x}-\\u{end:04x}" for start, end in zip(starts, ends, strict=True))


def _pair_pattern() -> re.Pattern[str]:
    """Return the pattern of a mark and what follows up to its partner if that is near."""
    alternatives = []
    for opening, closing in ((re.escape(pair[0]), re.escape(pair[1])) for pair in _PAIRS):
        inside = f"[^{opening}{closing}]{{1,{_MAX_PAIR_CHARACTERS}}}{closing}"
        if opening in _SYMMETRIC:
            # Not where the class holds the apostrophe too: two ways to match it are tried for each one in the text.
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
_HOLDS_TERMINATOR = re.compile(f"[{_TERMINATORS}]")
# Found once a run, without looking back: a run of a million exclamation marks takes no longer than other text.
_RUN = rf"[.!?…](?<![.!?…]{{2}})[.!?…]*+[{_MARK}]*+ "
_BEFORE_DIGIT = rf"{_RUN}\d"
_BEFORE_DIGIT_OR_LOWER_CASE = rf"{_RUN}(?:\d|[ {_MARK}–—-]*+(?=[{_lower_case_class()}]))"
_CONTINUATION = {True: re.compile(_BEFORE_DIGIT), False: re.compile(_BEFORE_DIGIT_OR_LOWER_CASE)}
_FULL_WIDTH_DECIMAL_POINT = re.compile(r"．(?<=\d．)(?=\d)")
_DIGIT_AFTER_UNAMBIGUOUS = re.compile(rf"[。！？｡।۔։።။][{_MARK}]* ?\d")
_BULLETS = "•◦▪▫■□●○⁃‣➤➢▶▸►"
_BULLET = re.compile(f"[{_BULLETS}]")
# An item of a list: a bullet, a number or letter with its closing mark, or both.
_ITEM = re.compile(
    rf"(?<!\S)(?:([{_BULLETS}]) ?)?(?:(\d{{1,3}})|([a-z]))(\.\)|[.)])(?= [^{_lower_case_class()}])"
    rf"|(?<!\S)[{_BULLETS}](?= ?\w)"
)
_FIRST_ITEMS = (" 1) ", " 1.) ", " a) ", " a.) ")
_CLOSINGS = re.compile(f"[{_character_class(_CLOSING)}]+")
_CLOSING_ALONE = re.compile(f" [{_character_class(_CLOSING_AFTER_BLANK)}] ")
_SURROGATE = re.compile("[\ud800-\udfff]")
_WORD_AND_PERIOD = re.compile(r"(?<!\S)\W*(\S+)\. ?\Z")


def _mask_pair(match: re.Match[str]) -> str:
    masked = match[0]
    if len(masked) == 1:
        text, place = match.string, match.start()
        if masked in "\"'’" and text[place - 1 : place].isalnum() and text[place + 1 : place + 2].isalnum():
            # An apostrophe; a Hebrew abbreviation's sign. sentencex takes ' and ’ inside a word for what they are.
            return "x" if masked == '"' else masked
        return " "
    inside = masked[1:-1]
    if masked[0] == "[" and inside.isdecimal():
        # A reference, which belongs to the sentence before it.
        return masked
    bracket = masked[0] in "([{（"
    inside = inside.translate(_BLANK_MARKS)
    if _HOLDS_TERMINATOR.search(inside):
        # As marks of two shapes: one whose partner lies in another window must not pair with a third.
        return f"({inside})" if bracket else f"“{inside}”"
    return f"⟨{inside} " if bracket else f" {inside} "


def _letter_for_digit(match: re.Match[str]) -> str:
    return match[0][:-1] + "A"


def _mend_continuation(match: re.Match[str]) -> str:
    """End the sentence before a digit, and continue it before lower case, where sentencex does not.

    No abbreviation before either has five letters and is unknown to sentencex.
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


def _readable(text: str, language: str) -> str:
    """Return the copy of the text that sentencex reads: as long as the text, without what misleads it."""
    text = _CONTINUATION[language in _LOWER_CASE_BEGINS].sub(_mend_continuation, text)
    # Words left out of a quotation stand for words; full stops between lines of verse do not end a line of prose;
    # Dutch newspapers open quotations with two commas.
    text = text.replace("[...]", "Xxxxx").replace(". / ", ", / ").replace(",,", "  ")
    if not text.isascii():
        text = _DIGIT_AFTER_UNAMBIGUOUS.sub(_letter_for_digit, text)
        text = _FULL_WIDTH_DECIMAL_POINT.sub(",", text)
        text = _BULLET.sub(" ", text)
    return _PAIR.sub(_mask_pair, text)


def _place(text: str, copy: str, boundary: int) -> int:
    """Return where a boundary of the copy is in the text, where marks beside it are blanks.

    At the first blank between the sentences: closing marks before it stay with the first, opening marks go with
    the second. Where there is none, as in Chinese, after the closing marks.
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
    following = "1" if before_number else "Xx"
    return sentencex.segment(language, f"Xx {word}. {following}")[-1] != following


def _ends_in_abbreviation(text: str, end: int, language: str) -> bool:
    last_word = _WORD_AND_PERIOD.search(text[max(0, end - 2 * _ABBREVIATION_CHARACTERS) : end])
    if not last_word or (len(last_word[1]) > _ABBREVIATION_CHARACTERS and "." not in last_word[1]):
        return False
    return _is_abbreviation(last_word[1], language, text[end : end + 1].isdigit())


def _best_cut(text: str, start: int) -> int:
    """Return where to cut a long sentence: in its second half after punctuation, or at a blank, or anywhere."""
    half, end = start + MAX_SENTENCE_CHARACTERS // 2, start + MAX_SENTENCE_CHARACTERS
    for characters in (",;:，；：、،؛–—", " "):
        cut = max(text.rfind(character, half, end) for character in characters) + 1
        if cut:
            return cut
    # Not between a letter and its accent.
    return next((cut for cut in range(end, half, -1) if not unicodedata.combining(text[cut])), end)


def _item_starts(text: str) -> list[int]:
    """Return where the items of lists begin, and 0.

    Every bullet begins one. A number or letter begins one where it continues counting in the same style, unless it is
    after a comma or the like. Counting starts at the text's first word, at "1)" or "a)", or at "1." after a full stop.
    """
    may_hold_list = (
        _ITEM.match(text)
        or ". 1. " in text
        or (")" in text and any(map(text.__contains__, _FIRST_ITEMS)))
        or (not text.isascii() and _BULLET.search(text))
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
            # After a comma or the like it is a list inside a sentence.
            starts.update(at for at in (last_start, start) if text[max(0, at - 2)] not in ",;:")
            lists[style] = (value, start)
        elif start == 0 or (value == 1 and (closing != "." or text[start - 2] in _TERMINATORS)):
            lists[style] = (value, start)
    return sorted(starts)


def _item_boundaries(text: str, language: str) -> Iterator[int]:
    engine = _SLOW.get(language, language)
    copy = _readable(text, language)
    marker = _ITEM.match(text)
    if marker:
        copy = "x" * marker.end() + copy[marker.end() :]
    start = last = 0
    while start < len(text):
        window = copy[start : start + _WINDOW_CHARACTERS]
        pieces = sentencex.segment(engine, window)
        if start + len(window) < len(text):
            # The window cuts the last sentence in two: the next one begins with it.
            pieces.pop()
            if not pieces:
                start = _best_cut(text, start)
                yield start
                last = start
                continue
        for piece in pieces:
            start += len(piece)
            if engine != language and start < len(text) and _ends_in_abbreviation(copy, start, language):
                continue
            place = len(text) if start == len(text) else _place(text, copy, start)
            if place > last:
                yield place
                last = place


def boundaries(text: str, language: str) -> Iterator[int]:
    """Yield the ends of a paragraph's sentences in ascending order, the last at the end of the text.

    Args:
        text: one paragraph whose only whitespace is single blanks.
        language: primary subtag of a language code; sentencex takes an unknown one for English.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        text = _SURROGATE.sub("x", text)
    starts = [*_item_starts(text), len(text)]
    begun = 0
    for start, end in itertools.pairwise(starts):
        for boundary in _item_boundaries(text[start:end], language):
            while start + boundary - begun > MAX_SENTENCE_CHARACTERS:
                begun = _best_cut(text, begun)
                yield begun
            begun = start + boundary
            yield begun
