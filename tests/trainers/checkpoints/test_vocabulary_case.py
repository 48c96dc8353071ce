"""Test that every command decides in the same way whether a vocabulary is cased."""

import dataclasses

import pytest

from beambert.common.word_rules import RecordedRules, WordRuleFlags, WordRules
from beambert.tokenizer.tokenizer import Tokenizer
from beambert.tokenizer.vocabulary import SPECIAL_TOKENS, Vocabulary
from beambert.trainers.checkpoints.vocabulary_check import word_rules_of
from beambert.trainers.finetuning.options import FinetuneOptions


@dataclasses.dataclass
class _Silent:
    """A checkpoint that does not record whether its text is lowercased."""

    word_rules: RecordedRules = dataclasses.field(default_factory=RecordedRules)


@pytest.mark.parametrize(
    ("tokens", "cased"),
    [
        (("a", "[URL]", "[unused0]"), False),
        (("a", "[Unused7]", "##b"), False),
        (("a", "[URL]", "URL"), True),
        (("a", "##B"), True),
        (("[", "]", "A"), True),
    ],
)
def test_a_token_in_brackets_makes_no_vocabulary_cased(tokens, cased, tmp_path):
    vocabulary = Vocabulary((*SPECIAL_TOKENS, *tokens))
    (tmp_path / "vocab.txt").write_bytes(vocabulary.to_bytes())
    assert vocabulary.has_capitals() == cased
    assert Tokenizer.load(tmp_path).rules.do_lower_case == (not cased)
    assert word_rules_of(_Silent(), vocabulary, WordRuleFlags()).do_lower_case == (not cased)
    # A recorded value takes precedence.
    assert word_rules_of(_Silent(RecordedRules(cased)), vocabulary, WordRuleFlags()).do_lower_case == cased


def test_fine_tuning_with_only_a_vocabulary_file_decides_the_same(tmp_path):
    from beambert.trainers.finetuning.plan import _vocabulary

    (tmp_path / "vocab.txt").write_bytes(Vocabulary((*SPECIAL_TOKENS, "a", "[URL]")).to_bytes())
    config = FinetuneOptions(task="mrpc", output="out", vocab_file=str(tmp_path / "vocab.txt"))
    assert _vocabulary(config, None)[1] == WordRules()
