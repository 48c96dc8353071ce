"""Test the old spellings of renamed flags, which the command line accepts for one release but does not show."""

import contextlib
import io
import re

import pytest

from beambert import cli
from tests.conftest import ROOT

# (command, new flag, old flag)
RENAMED = (
    ("build", "--num_partitions", "--num_buckets"),
    ("corpus", "--num_partitions", "--num_buckets"),
    ("plan", "--num_partitions", "--num_buckets"),
    ("pretrain", "--causal_attention", "--left_to_right"),
    ("pretrain", "--activation_checkpointing", "--recompute"),
    ("finetune", "--activation_checkpointing", "--recompute"),
    ("tune", "--activation_checkpointing", "--recompute"),
    ("pretrain", "--on_corrupt_record", "--on_corrupt"),
    ("pretrain", "--on_nonfinite", "--on_not_finite"),
    ("finetune", "--on_nonfinite", "--on_not_finite"),
    ("tune", "--on_nonfinite", "--on_not_finite"),
    ("finetune", "--dev_fraction", "--dev_share"),
    ("tune", "--dev_fraction", "--dev_share"),
)
CASES = pytest.mark.parametrize(("command", "new", "old"), RENAMED)


@CASES
def test_the_old_spelling_is_the_same_flag(command, new, old):
    actions = cli.make_parser(command)[0]._option_string_actions
    assert actions[old] is actions[new]


@CASES
def test_help_and_suggestions_show_the_new_name_only(command, new, old):
    help_text = cli.make_parser(command)[0].format_help()
    assert new in help_text
    assert not re.search(rf"{old}\b", help_text)
    with contextlib.redirect_stderr(io.StringIO()) as err, pytest.raises(SystemExit):
        cli.read_command(command, [f"{old}x", "1"])
    assert not re.search(rf"{old}\b(?!x)", err.getvalue())


def test_documents_use_the_new_names():
    old_names = {old for _, _, old in RENAMED}
    for path in [*ROOT.glob("docs/**/*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]:
        assert not old_names & set(re.findall(r"--[a-z_]+", path.read_text(encoding="utf-8"))), path
