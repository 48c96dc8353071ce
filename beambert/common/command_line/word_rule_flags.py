"""Define the flags of the word rules of a model, which commands on models share."""

import argparse
from dataclasses import dataclass

from beambert.common.command_line.flags import boolean
from beambert.common.command_line.path_flags import ANY_PATH
from beambert.common.word_rules import STRIP_ACCENTS, RecordedRules, WordRules


@dataclass(frozen=True, kw_only=True)
class WordRuleFlags:
    """The values of the flags; None takes the rule that is recorded with the model."""

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


def add_added_tokens_argument(group: argparse._ArgumentGroup) -> None:
    """Add the flag of a file with added tokens."""
    group.add_argument(
        "--added_tokens",
        type=ANY_PATH,
        metavar="FILE",
        help="Tokens that are kept whole where a text contains them, one per line, in addition to those recorded with "
        "the model. The vocabulary must have them; extend-vocab adds those that it lacks",
    )


def add_word_rule_arguments(group: argparse._ArgumentGroup) -> None:
    """Add the flags of `WordRuleFlags`."""
    group.add_argument(
        "--do_lower_case",
        type=boolean,
        metavar="true|false",
        help="Lowercase the text (default: as recorded with the model, else true if the vocabulary has no capitals)",
    )
    group.add_argument(
        "--strip_accents",
        choices=STRIP_ACCENTS,
        help="Strip accents; auto strips them if the text is lowercased (default: as recorded with the model, else "
        "auto)",
    )
    group.add_argument(
        "--tokenize_chinese_chars",
        type=boolean,
        metavar="true|false",
        help="Make each CJK ideograph a word (default: as recorded with the model, else true)",
    )
