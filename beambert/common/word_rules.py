"""The rules that split text into words before WordPiece, with the option names of Hugging Face's `BertTokenizer`."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Protocol

# Values of --strip_accents. None is the released rule: accents are stripped if text is lower-cased.
STRIP_ACCENTS = {"auto": None, "true": True, "false": False}
# Released values of the rules, with which records omit them.
_RELEASED = {"strip_accents": None, "tokenize_chinese_chars": True}
_CASES = {True: "uncased", False: "cased", None: "casing not recorded"}


class HasWordRules(Protocol):
    """A record or a configuration with a field for each rule."""

    @property
    def do_lower_case(self) -> bool: ...

    @property
    def strip_accents(self) -> bool | None: ...

    @property
    def tokenize_chinese_chars(self) -> bool: ...


@dataclasses.dataclass(frozen=True)
class RecordedRules:
    """The rules that the files of a model record.

    Attributes:
        do_lower_case: As in `WordRules`; None where no file records it.
        strip_accents, tokenize_chinese_chars: As in `WordRules`.
    """

    do_lower_case: bool | None = None
    strip_accents: bool | None = None
    tokenize_chinese_chars: bool = True

    @property
    def summary(self) -> str:
        """Return the letter case and the rules other than the released ones, such as "uncased, accents kept"."""
        words = [_CASES[self.do_lower_case]]
        if self.strip_accents is not None:
            words.append("accents stripped" if self.strip_accents else "accents kept")
        if not self.tokenize_chinese_chars:
            words.append("ideographs not separated")
        return ", ".join(words)


@dataclasses.dataclass(frozen=True)
class WordRules(RecordedRules):
    """The rules of `tokenizer.normalization.split_words`. The defaults are those of the released uncased models.

    Attributes:
        do_lower_case: Whether to lower-case text.
        strip_accents: Whether to decompose text (NFD) and strip the marks of category Mn. None: if do_lower_case, as
            the released models do. A value equal to do_lower_case becomes None, so that the same rules are equal.
        tokenize_chinese_chars: Whether each CJK ideograph is a word. False for text that is already segmented into
            words by spaces.
    """

    do_lower_case: bool = True

    def __post_init__(self) -> None:
        if self.strip_accents == self.do_lower_case:
            object.__setattr__(self, "strip_accents", None)

    @property
    def strips_accents(self) -> bool:
        """Return whether accents are stripped."""
        return self.do_lower_case if self.strip_accents is None else self.strip_accents

    @property
    def flags(self) -> str:
        """Return the flags of the rules, without those that have the released value, for messages."""
        values = without_released_rules(dataclasses.asdict(self))
        return " ".join(f"--{name} {str(value).lower()}" for name, value in values.items())

    @classmethod
    def of(cls, record: HasWordRules) -> "WordRules":
        """Return the rules of a record."""
        return cls(record.do_lower_case, record.strip_accents, record.tokenize_chinese_chars)


@dataclasses.dataclass(frozen=True, kw_only=True)
class WordRuleFlags:
    """The values of the flags of the rules; None takes the rule that is recorded with the model."""

    do_lower_case: bool | None = None
    strip_accents: str | None = None
    tokenize_chinese_chars: bool | None = None

    def rules(self, recorded: RecordedRules, vocabulary_is_cased: bool) -> WordRules:
        """Return the rules of the flags, else as recorded.

        Args:
            recorded: The rules that the files of the model record.
            vocabulary_is_cased: Whether a token has capitals, which decides if the letter case is not recorded.
        """
        lower = recorded.do_lower_case if self.do_lower_case is None else self.do_lower_case
        strip, chinese = self.strip_accents, self.tokenize_chinese_chars
        return WordRules(
            not vocabulary_is_cased if lower is None else lower,
            recorded.strip_accents if strip is None else STRIP_ACCENTS[strip],
            recorded.tokenize_chinese_chars if chinese is None else chinese,
        )


def rules_of(options: Mapping[str, Any]) -> WordRules:
    """Return the rules in recorded options; released values are not recorded."""
    names = [field.name for field in dataclasses.fields(WordRules)]
    return WordRules(**{name: options[name] for name in names if name in options})


def without_released_rules(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a record without the rules that have their released value.

    Args:
        record: The fields, at the top level of which the rules are.
    """
    return {name: value for name, value in record.items() if name not in _RELEASED or value != _RELEASED[name]}
