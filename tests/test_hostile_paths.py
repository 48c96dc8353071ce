"""Test impossible paths and endless files: every command reports one line that names the flag, without delay."""

import os
import socket
from pathlib import Path

import pytest

from beambert import cli
from beambert.common.command_line.path_flags import path_type
from tests.cpu_time import seconds

NAMES = [name for name in cli.COMMANDS if not name.startswith("submit")]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory) -> dict[str, tuple[str, str]]:
    """Hostile values of a path flag by kind: (path, part of the message)."""
    folder = tmp_path_factory.mktemp("hostile")
    os.mkfifo(folder / "pipe.json")
    (folder / "with_pipe").mkdir()
    os.mkfifo(folder / "with_pipe" / "config.json")
    server = socket.socket(socket.AF_UNIX)
    before = Path.cwd()
    os.chdir(folder)  # The name of a socket must be short.
    server.bind("socket.json")
    os.chdir(before)
    return {
        "pipe": (f"{folder}/pipe.json", "is a named pipe (FIFO), not a file"),
        "socket": (f"{folder}/socket.json", "is a socket, not a file"),
        "device": ("/dev/zero", "is a device, not a file"),
        "link to a device": (_link(folder), "is a device, not a file"),
        "directory with a pipe": (f"{folder}/with_pipe", "contains config.json, a named pipe (FIFO)"),
        "long name": (f"{folder}/{'n' * 300}.json", "has a name of 305 bytes, more than 255"),
        "long path": (f"{folder}/{'d/' * 3000}a.json", "more than 4,095 bytes"),
        "not UTF-8": (os.fsdecode(b"/tmp/\xff.json"), "is not valid UTF-8; rename the file or directory"),
        "NUL": (f"{folder}/a\0.json", "contains a NUL character"),
    }


def _link(folder: Path) -> str:
    (folder / "link.json").symlink_to("/dev/zero")
    return f"{folder}/link.json"


def _path_flags(name: str) -> list[str]:
    parser, _ = cli.make_parser(name)
    # Output files are excluded: each command checks whether it can write to a pipe.
    return [
        action.option_strings[-1]
        for action in parser._actions
        if (path := path_type(action)) and action.option_strings and path.output != "file"
    ]


@pytest.mark.parametrize(
    "kind", ["pipe", "socket", "device", "link to a device", "long name", "long path", "not UTF-8"]
)
def test_every_path_flag_refuses_special_files_and_impossible_paths(hostile, kind, capsys):
    path, words = hostile[kind]
    checked = 0
    for name in NAMES:
        for flag in _path_flags(name):
            if kind in ("device", "link to a device") and flag == "--model" and not path.endswith(".json"):
                continue
            with pytest.raises(SystemExit) as stop:
                cli.read_command(name, [flag, path])
            error = capsys.readouterr().err
            assert stop.value.code == 2
            assert error.count("\n") == 1
            assert f"error: {flag} " in error
            assert words in error
            assert len(error) <= 400
            checked += 1
    assert checked > 40


@pytest.mark.parametrize("kind", ["directory with a pipe", "NUL"])
def test_directories_with_pipes_and_names_with_nul_are_refused(hostile, kind, capsys):
    path, words = hostile[kind]
    with pytest.raises(SystemExit):
        cli.read_command("predict", ["--data_dir", path] if "--data_dir" in _path_flags("predict") else [path, "a"])
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


def test_a_command_that_is_given_a_pipe_does_not_wait(hostile, tmp_path, capsys):
    def run() -> None:
        with pytest.raises(SystemExit):
            cli.main(["build", "--input", hostile["pipe"][0], "--output", str(tmp_path / "out")])

    assert seconds(run, 60) < 60
    assert Path(hostile["pipe"][0]).is_fifo()
    assert not (tmp_path / "out").exists()
    assert "--input" in capsys.readouterr().err


def test_a_pattern_that_matches_a_name_that_is_not_utf8_is_refused(tmp_path, capsys):
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.txt")).write_text("A text.\n", encoding="utf-8")
    argv = ["corpus", "--input", f"{tmp_path}/*.txt", "--output", str(tmp_path / "out"), "--vocab_size", "60"]
    assert cli.main(argv) == 1
    error = capsys.readouterr().err
    assert "is not valid UTF-8; rename the file" in error.replace("a name that ", "")
    assert error.count("\n") == 1


def test_text_that_is_not_utf8_as_an_argument_is_refused(capsys):
    with pytest.raises(SystemExit):
        cli.read_command("corpus", ["--text_field", os.fsdecode(b"\xff")])
    assert "--text_field \\udcff is not valid UTF-8; use UTF-8" in capsys.readouterr().err


def test_a_long_pattern_and_dev_null_are_accepted():
    command = cli.read_command("corpus", ["--input", f"{{{'a,' * 200}}}*", "--output", "out"])
    assert len(command.path_arguments) == 2
    command = cli.read_command("corpus", ["--input", "/dev/null", "--output", "out"])
    assert ("--input", "/dev/null") in command.path_arguments


def test_an_output_file_may_be_a_pipe(hostile):
    argv = ["--input_file", "a", "--init_checkpoint", "b", "--output_file", hostile["pipe"][0]]
    assert cli.read_command("features", argv).configure().output_file == hostile["pipe"][0]


SPECIAL = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n"


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--compare_vocab", "{0}"], "--compare_vocab {0} is a directory; give the vocab.txt in it"),
        (["--vocab_file", "{0}"], "--vocab_file {0} is a directory; give the vocab.txt in it"),
        (["--vocab_file", "{0}/vocab.txt"], "{0}/vocab.txt contains special tokens only"),
        (["--compare_vocab", "{0}/vocab.txt"], "{0}/vocab.txt contains special tokens only"),
    ],
)
def test_directories_and_vocabularies_without_text_are_refused(tmp_path, capsys, argv, message):
    (tmp_path / "a.txt").write_text("A text of words.\n", encoding="utf-8")
    (tmp_path / "vocab.txt").write_text(SPECIAL + "[unused0]\n", encoding="utf-8")
    flags = [word.format(tmp_path) for word in argv]
    command = ["corpus", "--input", f"{tmp_path}/a.txt", "--output", str(tmp_path / "out"), *flags]
    assert cli.main(command) == 1
    error = capsys.readouterr().err
    assert message.format(tmp_path) in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()
