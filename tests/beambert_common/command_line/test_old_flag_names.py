"""Test the old spellings of renamed flags, which the command line accepts for one release but does not show."""

import contextlib
import io
import re
from pathlib import Path

import pytest

import beambert

# (command, new flag, old flag, values of the flag, a wrong value); a switch has no values.
RENAMED = (
    ("build", "--num_partitions", "--num_buckets", ("3", "7"), "0"),
    ("corpus", "--num_partitions", "--num_buckets", ("3", "7"), "two"),
    ("plan", "--num_partitions", "--num_buckets", ("3", "7"), "0"),
    ("pretrain", "--causal_attention", "--left_to_right", (), ""),
    ("pretrain", "--activation_checkpointing", "--recompute", ("layer", "attention"), "all"),
    ("finetune", "--activation_checkpointing", "--recompute", ("layer", "attention"), "all"),
    ("tune", "--activation_checkpointing", "--recompute", ("layer", "attention"), "all"),
    ("pretrain", "--on_corrupt_record", "--on_corrupt", ("skip", "stop"), "ignore"),
    ("pretrain", "--on_nonfinite", "--on_not_finite", ("skip", "stop"), "ignore"),
    ("finetune", "--on_nonfinite", "--on_not_finite", ("skip", "stop"), "ignore"),
    ("tune", "--on_nonfinite", "--on_not_finite", ("skip", "stop"), "ignore"),
    ("finetune", "--dev_fraction", "--dev_share", ("0.1", "0.2"), "1.5"),
    ("tune", "--dev_fraction", "--dev_share", ("0.1", "0.2"), "1.5"),
)
CASES = pytest.mark.parametrize(("command", "new", "old", "values", "wrong"), RENAMED)
WITH_VALUES = pytest.mark.parametrize(CASES.args[0], [case for case in RENAMED if case[3]])
ROOT = Path(beambert.__file__).parent


def value_of(command: str, argv: list[str], new: str) -> object:
    parser = beambert.make_parser(command)[0]
    for action in parser._actions:
        action.required = False
    args, rest = parser.parse_known_args(argv)
    assert not rest
    assert not {case[2].removeprefix("--") for case in RENAMED} & vars(args).keys()
    return getattr(args, new.removeprefix("--"))


@CASES
def test_the_old_spelling_means_the_same(command, new, old, values, wrong):
    if not values:
        assert value_of(command, [old], new) is value_of(command, [new], new) is True
        return
    first, last = values
    for argv in ([f"{old}={first}"], [old, first]):
        assert value_of(command, argv, new) == value_of(command, [new, first], new)
    # The last of several flags counts, in either spelling.
    assert value_of(command, [old, first, new, last], new) == value_of(command, [new, last], new)
    assert value_of(command, [new, first, old, last], new) == value_of(command, [new, last], new)


@WITH_VALUES
def test_the_old_spelling_is_checked_as_the_new_one(command, new, old, values, wrong, capsys):
    messages = []
    for flag in (new, old):
        with pytest.raises(SystemExit):
            value_of(command, [flag, wrong], new)
        messages.append(capsys.readouterr().err)
    assert messages[0] == messages[1]
    assert new in messages[0]


@CASES
def test_help_and_suggestions_show_the_new_name_only(command, new, old, values, wrong, capsys):
    help_text = beambert.make_parser(command)[0].format_help()
    assert new in help_text
    assert not re.search(rf"{old}\b", help_text)
    with contextlib.redirect_stderr(io.StringIO()) as err, pytest.raises(SystemExit):
        beambert.read_command(command, [f"{old}x", "1"])
    assert not re.search(rf"{old}\b(?!x)", err.getvalue())


def test_documents_use_the_new_names():
    old_names = {old for _, _, old, _, _ in RENAMED}
    for path in [*ROOT.glob("docs/**/*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]:
        assert not old_names & set(re.findall(r"--[a-z_]+", path.read_text(encoding="utf-8"))), path
