"""Test the rule for output files: existing files and inputs are kept, and a file is complete or absent."""

import contextlib
import io
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beambert import cli
from beambert.pipelines.errors import OutputFileError
from beambert.pipelines.io.output_file import OutputFile, check_output_file, check_stdout


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.txt").write_text("input")
    (tmp_path / "other.txt").write_text("other")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "vocab.txt").write_text("vocabulary")
    (tmp_path / "model" / "bert_model.ckpt.index").write_text("index")
    (tmp_path / "link.txt").symlink_to("in.txt")
    (tmp_path / "hard.txt").hardlink_to(tmp_path / "in.txt")
    (tmp_path / "linked").symlink_to(".")
    return tmp_path


@pytest.mark.parametrize("overwrite", [False, True, None])
@pytest.mark.parametrize(
    "path", ["in.txt", "./in.txt", "model/../in.txt", "link.txt", "hard.txt", "linked/in.txt", "linked/linked/link.txt"]
)
def test_a_file_that_is_read_is_refused_however_it_is_spelt(path, overwrite, folder):
    for place in (path, str(folder / path)):
        with pytest.raises(OutputFileError, match=r"is the same file as --input_file in\.txt.*give another --output"):
            check_output_file("--output", place, [("--input_file", "in.txt")], overwrite=overwrite)


@pytest.mark.parametrize("place", ["model", "model/bert_model.ckpt", "model/bert_model.ckpt.index", "linked/model"])
def test_a_file_of_a_model_is_refused(place, folder):
    with pytest.raises(OutputFileError, match=f"is a file of DIR {place}"):
        check_output_file("--output", "model/vocab.txt", [("DIR", place)], overwrite=True)
    check_output_file("--output", "model/new.txt", [("DIR", place)])
    check_output_file("--output", "other.txt", [("DIR", place)], overwrite=True)


def test_a_file_that_exists_needs_overwrite(folder):
    with pytest.raises(OutputFileError, match=r"--output other\.txt already exists; use --overwrite to replace it"):
        check_output_file("--output", "other.txt", [("--input", "in.txt")])
    with pytest.raises(OutputFileError, match=r"exists; delete it, or give another --output"):
        check_output_file("--output", "other.txt", overwrite=None)
    check_output_file("--output", "other.txt", [("--input", "in.txt")], overwrite=True)
    check_output_file("--output", "new.txt", [("--input", "in.txt")])


def test_directories_and_missing_ones_are_refused(folder):
    for path, says in (
        ("model", "is a directory"),
        ("new/", "is a directory"),
        ("", "is empty"),
        ("no/new.txt", "directory .*no does not exist; create it"),
        ("in.txt/new.txt", "cannot be written: .*in.txt is a file"),
    ):
        with pytest.raises(OutputFileError, match=says):
            check_output_file("--output", path, overwrite=True)
    check_output_file("--output", "no/new.txt", makes_directory=True)
    with pytest.raises(OutputFileError, match="is a file"):
        check_output_file("--output", "in.txt/no/new.txt", makes_directory=True)


def test_urls(folder):
    there = {"gs://bucket/there.txt"}.__contains__
    check_output_file("--output", "gs://bucket/new.txt", [("--input", "gs://bucket/there.txt")], exists=there)
    check_output_file("--output", "gs://bucket/there.txt", overwrite=True, exists=there)
    with pytest.raises(OutputFileError, match="already exists; use --overwrite"):
        check_output_file("--output", "gs://bucket/there.txt", exists=there)
    read = [("--input", "gs://bucket/there.txt")]
    with pytest.raises(OutputFileError, match="is the same file as --input"):
        check_output_file("--output", "gs://bucket/there.txt", read, overwrite=True, exists=there)


def test_streams_are_written_directly(folder, capfd):
    for path in ("/dev/null", "/dev/stdout"):
        check_output_file("--output", path, [("--input", "in.txt")])
        before = os.lstat(path)
        with OutputFile("--output", path) as output, output.path.open("a") as file:
            file.write("seen")
        assert os.lstat(path)[:2] == before[:2]
    assert capfd.readouterr().out == "seen"
    with pytest.raises(OutputFileError, match="is a device or a pipe"):
        check_output_file("--output", "/dev/null", takes_stream=False)


def test_stdin_and_stdout_that_are_the_same_file(folder):
    """Test the streams that a shell opens for `< in.txt >> in.txt`."""
    code = (
        "from beambert.pipelines.io.output_file import *\n"
        "read = [('--input_file', '-')]\n"
        "for check in (lambda: check_stdout([('--input_file', 'in.txt')]), lambda: check_stdout(read),\n"
        "              lambda: check_output_file('--output', 'in.txt', read, overwrite=True)):\n"
        "    try: check()\n"
        "    except OutputFileError as error: print(error, file=__import__('sys').stderr)\n"
    )
    with open("in.txt") as source, open("in.txt", "a") as output:  # noqa: PTH123
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        result = subprocess.run(
            [sys.executable, "-c", code], stdin=source, stdout=output, stderr=subprocess.PIPE, text=True,
            env=environment, check=True,
        )  # fmt: skip
    lines = result.stderr.splitlines()
    assert [line.split(" is the same file as ")[0] for line in lines] == ["stdout", "stdout", "--output in.txt"]
    assert (folder / "in.txt").read_text() == "input"
    with contextlib.redirect_stdout(io.StringIO()):
        check_stdout([("--input_file", "in.txt")])


def write(path, content, meanwhile=lambda: None):
    with OutputFile("--output", path) as output:
        output.path.write_text(content)
        meanwhile()


def interrupt():
    raise KeyboardInterrupt


def test_a_file_is_complete_or_absent(folder):
    write("new.txt", "whole", lambda: (folder / "new.txt").exists() and interrupt())
    assert (folder / "new.txt").read_text() == "whole"
    with pytest.raises(KeyboardInterrupt):
        write("never.txt", "half", interrupt)
    assert not [path for path in folder.iterdir() if path.name.startswith((".", "never"))]


def test_a_file_that_appears_meanwhile_stays(folder):
    with pytest.raises(OutputFileError, match=r"was created by another process.*the result is in (.*)$") as error:
        write("late.txt", "ours", lambda: (folder / "late.txt").write_text("theirs"))
    assert (folder / "late.txt").read_text() == "theirs"
    assert (folder / str(error.value).rsplit(" ", 1)[1]).read_text() == "ours"


def test_a_directory_that_vanishes_meanwhile_is_named(folder):
    (folder / "gone").mkdir()
    with pytest.raises(OutputFileError, match=r"--output gone/new\.txt: .*gone was removed while the command ran"):
        write("gone/new.txt", "ours", lambda: shutil.rmtree("gone"))


def test_overwriting_keeps_the_link_and_the_mode(folder):
    (folder / "other.txt").chmod(0o640)
    (folder / "to-other.txt").symlink_to("other.txt")
    with OutputFile("--output", "to-other.txt", overwrite=True) as output:
        output.path.write_text("new")
    assert (folder / "to-other.txt").is_symlink()
    assert (folder / "other.txt").read_text() == "new"
    assert (folder / "other.txt").stat().st_mode & 0o777 == 0o640


@given(
    st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=60), st.binary()
)
def test_any_name_and_any_content(tmp_path_factory, name, content):
    folder = tmp_path_factory.mktemp("names")
    path = folder / name
    if path.parent != folder or len(os.fsencode(name)) > 255 or name in (".", ".."):
        return
    with OutputFile("--output", path) as output:
        output.path.write_bytes(content)
    assert path.read_bytes() == content
    assert list(folder.iterdir()) == [path]
    with pytest.raises(OutputFileError, match="exists"):
        check_output_file("--output", str(path))


def test_every_flag_for_an_output_file_has_overwrite():
    outputs = {}
    for command in cli.COMMANDS:
        actions = cli.make_parser(command)[0]._option_string_actions
        for flag, action in actions.items():
            if flag.startswith("--output") and action.metavar == "FILE":
                outputs[command, flag] = "--overwrite" in actions
    assert outputs == {
        ("vocab", "--output"): True,
        ("quality train", "--output"): True,
        ("predict", "--output_file"): True,
        ("features", "--output_file"): True,
        ("evaluate", "--output"): True,
    }


ROOT = Path(__file__).parents[3]
WRITE = """
import pathlib, signal, sys, time
from beambert.pipelines.io.output_file import OutputFile

for number in (signal.SIGTERM, signal.SIGHUP):
    # A shell may leave them ignored.
    signal.signal(number, signal.SIG_DFL)
with OutputFile("--output_file", sys.argv[1]) as output:
    output.path.write_text("half of it")
    print("writing", flush=True)
    if sys.argv[2] == "wait":
        time.sleep(60)
print(*(signal.getsignal(number) == signal.SIG_DFL for number in (signal.SIGTERM, signal.SIGHUP)))
"""


def start_writing(path, mode):
    command = [sys.executable, "-c", WRITE, str(path), mode]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_nothing_temporary(number, tmp_path):
    with start_writing(tmp_path / "out.tsv", "wait") as process:
        assert process.stdout.readline() == "writing\n"
        assert len(list(tmp_path.iterdir())) == 1
        process.send_signal(number)
        assert process.wait(30) == 128 + number
    assert list(tmp_path.iterdir()) == []


def test_the_signals_have_their_effect_again_afterwards(tmp_path):
    with start_writing(tmp_path / "out.tsv", "go on") as process:
        assert process.communicate(timeout=30)[0] == "writing\nTrue True\n"
    assert (tmp_path / "out.tsv").read_text(encoding="utf-8") == "half of it"
