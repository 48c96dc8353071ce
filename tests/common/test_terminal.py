"""Test errors on a terminal (one line of at most 400 printable characters), and closed, full and unread streams."""

import io
import os
import subprocess
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beambert import cli
from beambert.common import terminal
from beambert.common.formatting import escape_unprintable, replace_surrogates
from tests.conftest import ROOT

BEAMBERT = f"{sys.executable} -m beambert"
# Decoded file names of Linux, including names with bytes that are not UTF-8.
NAMES = st.binary(max_size=3000).map(os.fsdecode) | st.text(max_size=3000)


def shell(script: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {script}"],
        capture_output=True,
        text=True,
        errors="surrogateescape",
        cwd=ROOT,
        env={**os.environ, "PYTHONUNBUFFERED": "", **variables},
        check=False,
    )


@given(NAMES)
def test_a_line_is_short_and_has_no_control_characters(text):
    line = terminal.line(f"--output {text} cannot be written; free some space")
    assert len(line) <= 400
    assert not [c for c in line if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp")]
    assert line.startswith("--output")
    assert line.endswith("free some space")
    line.encode("utf-8")


@given(st.text(st.characters(categories=("L", "N", "P", "Zs")), min_size=1, max_size=390))
def test_a_short_printable_line_is_shown_as_it_is(text):
    assert terminal.line(f"[{text}]") == f"[{text}]"


@pytest.mark.parametrize(
    "argv",
    [
        ["build", "--output", "o", "--vocab_size", "{}"],
        ["{}"],
        ["corpus", "--{}", "x"],
        ["corpus", "--input", "x", "--output", "{}"],
        ["fill-mask", str(ROOT / "tests/fixtures/hugging_face/pretraining_erf"), "{}"],
    ],
    ids=lambda argv: argv[0] + str(len(argv)),
)
def test_an_error_about_a_long_value_is_short(argv, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for value in ("a" * 80_000, "a b " * 20_000, "/" + "d/" * 40_000, "\x1b[31m" * 20_000, "ä" * 80_000):
        try:
            code = cli.main([word.format(value) for word in argv])
        except SystemExit as stop:
            code = stop.code
        error = capsys.readouterr().err
        assert code in (1, 2)
        assert error.count("\n") == 1
        assert len(error) <= 401
        assert "\x1b" not in error
        assert error.startswith("beambert")


@pytest.mark.parametrize("user", ["user:secret", "secret", "user:se@cret", ":secret"])
def test_an_error_has_no_password_of_a_url(user):
    url = f"https://{user}@host:443/a?b=c@d"
    shown = "https://***@host:443/a?b=c@d"
    assert terminal.line(f"--index {url} failed: {url}") == f"--index {shown} failed: {shown}"


@pytest.mark.parametrize("buffering", ["", "1"])
def test_stdout_on_a_full_disk_is_one_line(buffering):
    result = shell(f"{BEAMBERT} --help > /dev/full", PYTHONUNBUFFERED=buffering)
    assert result.returncode == 1
    assert result.stderr.count("\n") == 1
    assert "stdout cannot be written (no space left on device); redirect it to another file" in result.stderr


@pytest.mark.parametrize("reader", ["true", "head -n 1"])
def test_a_reader_that_closes_the_pipe_ends_the_command_without_an_error(reader):
    result = shell(f"{BEAMBERT} --help | {reader}")
    assert result.stderr == ""
    assert result.returncode in (0, 141)


@pytest.mark.slow
def test_a_command_whose_output_nobody_reads_does_not_say_that_it_succeeded(tmp_path):
    (tmp_path / "text.txt").write_text("A sentence.\n" * 20, encoding="utf-8")
    flags = f"--input {tmp_path}/text.txt --output {tmp_path}/out --vocab_size 20"
    result = shell(f"{BEAMBERT} corpus {flags} 2>&1 | true")
    assert result.returncode == 141
    assert not (tmp_path / "out" / "corpus.json").exists()


@pytest.mark.parametrize("redirection", ["0<&- 1>&- 2>&-", "2>/dev/full"])
def test_closed_streams(redirection):
    assert shell(f"{BEAMBERT} --help {redirection}").returncode == 0
    assert shell(f"{BEAMBERT} frobnicate {redirection}").returncode == 2


def test_characters_that_a_posix_locale_lacks_are_escaped(tmp_path):
    # Python's error handler is surrogateescape there, which does not encode an arrow.
    variables = {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    code = "from beambert.common import terminal; terminal.open_streams(); print('a \u2192 b')"
    (tmp_path / "arrow.py").write_text(code, encoding="utf-8")
    result = shell(f"PYTHONPATH={ROOT} {sys.executable} {tmp_path}/arrow.py", **variables)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == "a \\u2192 b\n"


@pytest.mark.parametrize(
    ("name", "reason"),
    [("$'/no/fr\\xe9d'", "is not valid UTF-8"), ("$'/no/\\xf0\\x9f\\x98\\x80\\nb\\x1b[31mc\\x07'", "does not exist")],
)
def test_names_that_cannot_be_encoded_are_escaped(name, reason):
    result = shell(f"{BEAMBERT} predict {name} text", PYTHONIOENCODING="ascii")
    assert result.returncode in (1, 2)
    assert result.stderr.count("\n") == 1
    assert reason in result.stderr
    assert "\x1b" not in result.stderr
    assert "\x07" not in result.stderr


@pytest.mark.parametrize("columns", [60, 80, 100, 120])
def test_a_warning_on_a_terminal_is_wrapped_between_words_and_indented(monkeypatch, columns):
    text = "5 of 12 validation documents also occur in the training text; build again with --drop_near_duplicates " * 2
    stream = io.StringIO()
    stream.isatty = lambda: True
    monkeypatch.setattr(terminal.shutil, "get_terminal_size", lambda: os.terminal_size((columns, 24)))
    terminal.print_summary_line("warning", text.strip(), stream)
    lines = stream.getvalue().splitlines()
    assert max(map(len, lines)) <= min(columns, 100)
    assert all(line.startswith(" " * 14) and line[14] != " " for line in lines[1:])
    assert " ".join(" ".join(lines).split()) == f"warning {text.strip()}"


def test_a_warning_in_a_file_is_one_line():
    stream = io.StringIO()
    terminal.print_labeled("warning: ", "word " * 100 + "\x1b[2Jend", stream)
    assert stream.getvalue() == f"warning: {'word ' * 100}\\x1b[2Jend\n"


@given(st.text(st.characters()))
def test_every_text_can_be_stored_after_surrogates_are_replaced(text):
    stored = replace_surrogates(text)
    assert stored.encode("utf-8").decode("utf-8") == stored
    assert stored == "".join("?" if "\ud800" <= character <= "\udfff" else character for character in text)


@given(st.text(st.characters()))
def test_every_character_is_printable_after_escaping(text):
    assert escape_unprintable(text).isprintable()


def test_what_is_escaped():
    assert escape_unprintable("a\u200bä\n") == "a\\u200bä\\u000a"
