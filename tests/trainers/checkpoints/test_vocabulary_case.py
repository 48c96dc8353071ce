"""Every command decides in the same way whether a vocabulary is cased."""

import dataclasses

import pytest

from tokenizer.tokenizer import Tokenizer
from tokenizer.vocabulary import SPECIAL_TOKENS, Vocabulary
from trainers.checkpoints.vocabulary_check import lower_casing_of
from trainers.config.finetune_config import FinetuneConfig


@dataclasses.dataclass
class _Silent:
    """A checkpoint that does not say whether its text is lower-cased."""

    do_lower_case: bool | None = None


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
    assert Tokenizer.load(tmp_path).do_lower_case == (not cased)
    assert lower_casing_of(_Silent(), vocabulary) == (not cased)
    # One that says so is believed.
    assert lower_casing_of(_Silent(do_lower_case=cased), vocabulary) == cased


def test_fine_tuning_from_a_file_alone_judges_the_same(tmp_path):
    from trainers.finetuning.prepare import _vocabulary

    (tmp_path / "vocab.txt").write_bytes(Vocabulary((*SPECIAL_TOKENS, "a", "[URL]")).to_bytes())
    config = FinetuneConfig(task="mrpc", output="out", vocab_file=str(tmp_path / "vocab.txt"))
    assert _vocabulary(config, None)[1]
