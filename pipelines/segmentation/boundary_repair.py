"""Recognize boundaries of sentencex that are inside a sentence, by the words around them.

abbreviations.toml has the abbreviations by language. docs/design/text-processing.md describes the rules.
"""

import functools
import re
import tomllib
from pathlib import Path
from typing import NamedTuple

# Longer than any abbreviation.
MAX_ABBREVIATION_CHARACTERS = 40
_CLOSING = "\"'»›”’“」』》〉】)）]}"
_OPENING = "\"'«»“„‘‚¿¡([{-"
_LETTER = r"[^\W\d_]"
_LETTERS_BEFORE = 4
# The end of a number that is no ordinal, or of a word in brackets or quotes.
_MEASURE = re.compile(r".*(?:\d{4}|[,.:]\d+|[%°)\]}»”])")
_PUNCTUATION = re.compile(r"[!-/:-@\[-`{-~’]")
# Bounds the memory.
_MAX_ORDINARY = 1 << 16
# What no sentence starts with. Two commas open a quotation in Dutch newspapers.
_CONTINUATION = re.compile(r"[,;،؛，；、](?!,)|:(?: |$)")
_CONTINUING = ",;،؛，；、:"
_WORD = re.compile(rf"[{re.escape(_OPENING)}]*(\w+)")
_INITIALISM = re.compile(rf"{_LETTER}{{1,3}}(?:[.-]{{1,2}}{_LETTER}{{1,3}})+")
_ORDINAL = re.compile(r"\d{1,3}")
_NUMERAL = re.compile("[IVXLC]+")
_NUMBER = re.compile(r"\d{1,3}|[IVXLC]+")
_MAX_NUMERAL_CHARACTERS = 10
# A Roman numeral that is not an English word or an initial.
_ROMAN_NUMERAL = re.compile(r"[IVXLC]{2,}|[VX]")
# Letters that are also words or Roman numerals.
_LETTERS_AND_WORDS = "Iéèєя"
# "Im Jahr 44 v. Chr." opens a sentence.
_MAX_FRONTED_CHARACTERS = 40
_MAX_FRONTED_WORDS = 5
# Titles such as Dr, Hr or Mgr.
_WITHOUT_VOWEL = re.compile(
    r"[^\W\d_aeiouyáéíóúàèìòùâêîôûäëïöüåæøõãýąęıаеёиоуыэюяіїєαεηιουωάέήίόύώ]{2,3}", re.IGNORECASE
)
# Particles that follow a quotation, which are neither とても, ところが, とにかく and so on, nor はい, でも or だから.
_AFTER_JAPANESE_QUOTATION = re.compile(
    r"と(?!ても|いうか|ころ|にかく|き|うとう|りわけ|りあえず|もに|なり|ある)|って|を"
    r"|(?:は|が|も|に|の|で|や|など|だ|です)(?=[、。と\u30a1-\u30fa\u4e00-\u9fff])"
)
# A short clause that ends in a verb of saying, but not one that introduces the next quotation.
_AFTER_CHINESE_QUOTATION = re.compile(
    r"[^\s，。！？；：、“”「」『』《》]{1,10}?(?:说|說|(?<!知)(?<!难)(?<!難)道|问|問|答|喊|叫|嚷|想)(?:着|著|了)?(?=[，。！；,.]|$)"
)
_AFTER_QUOTATION = {"ja": _AFTER_JAPANESE_QUOTATION, "zh": _AFTER_CHINESE_QUOTATION}
_ARABIC_OR_HEBREW_LETTERS = re.compile(r"[\u0590-\u08ff](?:\.[\u0590-\u08ff])*")
_THAI_OR_LAO_PERIOD = re.compile(r"[\u0e00-\u0eff]\.")


@functools.cache
def _read_abbreviations() -> dict[str, dict[str, str]]:
    return tomllib.loads(Path(__file__).with_name("abbreviations.toml").read_text(encoding="utf-8"))


class _Context(NamedTuple):
    """A boundary, and the words around it.

    Attributes:
        text: the paragraph.
        sentence_start: start of the sentence before the boundary.
        end: the boundary.
        start: the first character after the boundary that is not a space.
        word: the last word before the boundary, without its final period.
    """

    text: str
    sentence_start: int
    end: int
    start: int
    word: str


class BoundaryRepair:
    """The rules of a language for boundaries that are inside a sentence.

    Args:
        language: primary subtag of a language code. A language without abbreviations has those of all languages.
        own: more abbreviations that never end a sentence, one a line, without final periods.
    """

    def __init__(self, language: str, own: str = "") -> None:
        tables = _read_abbreviations()
        table = tables.get(language, {})

        def words(*names: str) -> frozenset[str]:
            return frozenset(word for name in names for word in table.get(name, "").split())

        self._titles = words("titles") | frozenset(tables["und"]["titles"].split())
        self._others = words("cldr", "others")
        self._eras = words("eras")
        self._starters = words("starters")
        self._determiners = words("determiners")
        self._counted = words("counted")
        # By their last word.
        self._own: dict[str, tuple[str, ...]] = {}
        for abbreviation in own.splitlines():
            last = abbreviation.rpartition(" ")[2]
            self._own[last] = (*self._own.get(last, ()), abbreviation)
        self._after_quotation = _AFTER_QUOTATION.get(language)
        self._last_letters = frozenset(
            word[-_LETTERS_BEFORE:] for words in (self._titles, self._others, self._eras, self._own) for word in words
        )
        self._is_ordinary_boundary = functools.lru_cache(_MAX_ORDINARY)(self._is_ordinary)

    def continues(self, text: str, sentence_start: int, end: int) -> bool:
        """Return whether the sentence before a boundary of sentencex continues after it.

        Args:
            text: one paragraph, in which all whitespace is single spaces.
            sentence_start: start of the sentence.
            end: a boundary inside the text: the end of a sentence, before the space if there is one.
        """
        around = text[end - 1 - _LETTERS_BEFORE : end + 2]
        if "A" <= around[-1:] <= "Z":
            # All these capitals are the same to the rules, and so are cached once.
            around = around[:-1] + "A"
        if self._is_ordinary_boundary(around):
            return False
        start = end + 1 if text[end] == " " else end
        if start == len(text):
            return False
        last, following = text[end - 1], text[start]
        if not following.isalnum() and _CONTINUATION.match(text, start):
            return True
        if last in _CLOSING:
            return self._continues_after_quotation(text, end, start)
        if last != ".":
            is_quotation = self._after_quotation is _AFTER_JAPANESE_QUOTATION and (
                last in "！？!?" or text[end - 2 : end - 1] in ("」", "』")
            )
            return is_quotation and _AFTER_JAPANESE_QUOTATION.match(text, start) is not None
        if text[end - 2 : end - 1] in (".", ""):
            return False
        return self._continues_after_period(_Context(text, sentence_start, end, start, _last_word(text, end)))

    def _is_ordinary(self, around: str) -> bool:
        """Return whether no rule applies to a boundary, by the four characters before its mark and the two after it.

        This is so for most boundaries, so that only the others take time.
        """
        if len(around) != _LETTERS_BEFORE + 3:
            return False
        before, mark = around[:_LETTERS_BEFORE], around[_LETTERS_BEFORE]
        is_spaced = around[-2] == " "
        following = around[-1] if is_spaced else around[-2]
        if following in _CONTINUING:
            return False
        if self._after_quotation:
            return mark not in _CLOSING and mark not in ".!?！？" and before[-1] not in "」』"
        if not is_spaced or (following.islower() and mark in _CLOSING):
            return False
        if mark != ".":
            return True
        word = before.rpartition(" ")[2]
        if _MEASURE.fullmatch(word) or (word.isdecimal() and following.isupper() and not self._determiners):
            return True
        return not (
            len(word) < 2
            or _PUNCTUATION.search(word)
            or word in self._last_letters
            or _begin_in_lower_case(word) in self._last_letters
            or _NUMBER.fullmatch(word)
            or (word.istitle() and _WITHOUT_VOWEL.fullmatch(word))
            or _THAI_OR_LAO_PERIOD.match(around, _LETTERS_BEFORE - 1)
        )

    def _continues_after_quotation(self, text: str, end: int, start: int) -> bool:
        """Return whether a sentence continues after a closing quote or bracket."""
        if self._after_quotation:
            return self._after_quotation.match(text, start) is not None
        following = text[start]
        # A letter without case that follows directly, as a Korean particle does.
        return following.islower() or (start == end and following.isalpha() and not following.isupper())

    def _continues_after_period(self, context: _Context) -> bool:
        text, sentence_start, end, start, word = context
        following = text[start]
        if start == end and (following == "-" or len(word.rpartition(".")[2]) == 1):
            return text[start + 1 : start + 2].isalnum() if following == "-" else following.isalpha()
        if _THAI_OR_LAO_PERIOD.match(text, end - 2):
            return True
        # A Roman numeral alone is the label or the ordinal of what follows.
        if end - sentence_start <= _MAX_NUMERAL_CHARACTERS and _NUMERAL.fullmatch(
            text[sentence_start : end - 1].lstrip()
        ):
            return True
        if _is_listed(word, self._titles) or (self._own and self._is_own(text, end, word)):
            return True
        next_word = _WORD.match(text, start)
        if not next_word:
            return False
        if next_word[1][0].isupper():
            return self._continues_with_capital(context, next_word[1])
        return self._continues_in_lower_case(context, next_word[1])

    def _is_own(self, text: str, end: int, word: str) -> bool:
        """Return whether text[:end] ends in an abbreviation of the user and a period; `word` is its last word."""
        for last in {word, _begin_in_lower_case(word)}:
            for abbreviation in self._own.get(last, ()):
                start = end - 1 - len(abbreviation)
                written = text[max(0, start) : end - 1]
                is_word = start <= 0 or not text[start - 1].isalnum()
                if is_word and abbreviation in (written, _begin_in_lower_case(written)):
                    return True
        return False

    def _continues_in_lower_case(self, context: _Context, next_word: str) -> bool:
        """Return whether a sentence continues with a word that has no capital, or with a number."""
        word = context.word
        is_known = _is_letter(word) or _is_listed(word, self._others) or word in self._eras
        if next_word[0].islower():
            # A number before a bracket may end a sentence before a list item such as "(ii)".
            is_ordinal = context.text[context.start].islower() and _ORDINAL.fullmatch(word) is not None
            return is_known or is_ordinal or _INITIALISM.fullmatch(word) is not None
        if next_word[0].isdigit():
            return is_known and not word.isupper()
        return _ARABIC_OR_HEBREW_LETTERS.fullmatch(word) is not None

    def _continues_with_capital(self, context: _Context, next_word: str) -> bool:
        """Return whether a sentence continues with a capitalized word."""
        text, sentence_start, end, _, word = context
        is_listed = _is_listed(word, self._others)
        if is_listed and _ROMAN_NUMERAL.fullmatch(next_word):
            return True
        is_title = word.istitle() and _WITHOUT_VOWEL.fullmatch(word) is not None
        if not self._starters:
            # sentencex has words that start English sentences. Languages without abbreviations have no other rule.
            return is_title and not self._others
        if next_word in self._starters:
            return False
        if word in self._eras:
            # Bounded, so that the time is linear in the length of a text of many joined sentences.
            words = text[sentence_start:end].split() if end - sentence_start <= _MAX_FRONTED_CHARACTERS else []
            return 0 < len(words) <= _MAX_FRONTED_WORDS and words[0] in self._starters
        if is_listed or is_title or (_is_letter(word) and word not in _LETTERS_AND_WORDS):
            return True
        if not self._determiners or not _NUMBER.fullmatch(word):
            return False
        if next_word in self._counted:
            return True
        before = text[max(0, end - MAX_ABBREVIATION_CHARACTERS) : end].split()[-2:-1]
        return bool(before) and not self._determiners.isdisjoint((before[0], before[0].lower()))


@functools.lru_cache(maxsize=64)
def boundary_repair(language: str, own: str = "") -> BoundaryRepair:
    """Return the rules of a language, as `BoundaryRepair`, which are made once."""
    return BoundaryRepair(language, own)


def _last_word(text: str, end: int) -> str:
    """Return the last word of text[:end] without its final period, opening marks and an elided article."""
    first = max(0, end - MAX_ABBREVIATION_CHARACTERS)
    word = text[max(text.rfind(" ", first, end - 1) + 1, first) : end - 1].lstrip(_OPENING)
    if "'" in word or "’" in word:
        after_article = word.replace("’", "'").rpartition("'")[2]
        return after_article if len(after_article) > 1 else word
    return word


def _begin_in_lower_case(word: str) -> str:
    return word[:1].lower() + word[1:]


def _is_listed(word: str, words: frozenset[str]) -> bool:
    """Return whether a word is listed, as it is or in lower case at the start of a sentence."""
    return word in words or _begin_in_lower_case(word) in words


def _is_letter(word: str) -> bool:
    """Return whether a word is a single letter that has upper and lower case, such as an initial."""
    return len(word) == 1 and word.lower() != word.upper()
