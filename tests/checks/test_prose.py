"""Test the wording of documents, help, messages and docstrings with the rules of `tests/prose.py`."""

import pytest

from beambert import cli
from tests import prose

# A paraphrase of a standard term, formerly the help of a flag.
PARAPHRASE = "the gradients of all variables, taken as one vector, are shortened to this length; 0 leaves them"


@pytest.mark.parametrize("path", prose.documents(), ids=lambda path: path.relative_to(prose.ROOT).as_posix())
def test_documents(path):
    assert not prose.check_markdown(path)


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_help(name):
    assert not prose.check_help(name)


def test_messages_docstrings_and_comments():
    findings = [finding for path in prose.modules() for finding in prose.check_python(path)]
    assert not findings, "\n".join(map(str, findings))


def test_docstrings_and_comments_of_tests_and_benchmarks():
    findings = [finding for path in prose.test_files() for finding in prose.check_file(path)]
    assert not findings, "\n".join(map(str, findings))


def test_a_paraphrase_in_help_is_found(monkeypatch):
    parser, module = cli.make_parser("pretrain")
    monkeypatch.setattr(cli, "make_parser", lambda _: (parser, module))
    assert not prose.check_help("pretrain")
    (action,) = (action for action in parser._actions if action.dest == "clip_norm")
    action.help = PARAPHRASE
    assert len(prose.check_help("pretrain")) == 3


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("A token is a piece of a word.\n", "'piece'"),
        ("## What lies in `data`\n", "a heading that is a clause"),
        (f"{'word ' * 41}.\n", "a sentence of 41 words"),
        (f"| flag | {'word ' * 16}|\n", "a table cell of 16 words"),
        (f"{'x' * 60} {'y' * 60}\n", "121 columns"),
        ("One sentence of three. " * 4 + f"Word {'word ' * 38}. " * 5 + "\n", "mean sentence length"),
        ("- The run goes on\n  anew.\n", "'goes on'"),
    ],
)
def test_a_fault_in_a_document_is_found(tmp_path, monkeypatch, text, problem):
    monkeypatch.setattr(prose, "ROOT", tmp_path)
    path = tmp_path / "page.md"
    path.write_text(text, encoding="utf-8")
    assert any(problem in finding.problem for finding in prose.check_markdown(path))


def test_a_fault_in_a_message_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(prose, "ROOT", tmp_path)
    path = tmp_path / "module.py"
    path.write_text(
        '"""Holds pieces anew."""\n\nNAME = "piece"\nraise ValueError(f"{NAME} of {NAME} is damaged")  # as told\n',
        encoding="utf-8",
    )
    assert [finding.problem.split(": write")[0] for finding in prose.check_python(path)] == [
        "docstring: 'pieces'",
        "docstring: 'anew'",
        "message: 'damaged'",
        "comment: 'told'",
    ]
