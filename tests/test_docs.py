"""What the documents say can be typed."""

import argparse
import ast
import re
import shlex
import subprocess
import sys
from pathlib import Path

from apache_beam.options.pipeline_options import PipelineOptions

import beambert
from tests.conftest import ROOT

DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").glob("*.md")),
]
# Of google-research/bert.
RELEASED_SCRIPTS = {"create_pretraining_data.py", "extract_features.py", "run_classifier.py", "run_squad.py"}


def commands(text: str) -> list[list[str]]:
    """Every `beambert ...` line of the shell blocks, without its comment, as a list of arguments."""
    blocks = re.findall(r"^ *```sh\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE)
    joined = "\n".join(blocks).replace("\\\n", " ")
    return [shlex.split(line, comments=True)[1:] for line in joined.splitlines() if line.startswith("beambert ")]


def parts(argv: list[str]) -> list[tuple[str, list[str]]]:
    """A command and its flags; of `submit ENGINE ... COMMAND ...` both commands."""
    if argv[0] != "submit":
        return [(argv[0], argv[1:])]
    name = " ".join(argv[:2])
    runs = beambert.make_parser(name)[1].RUNS
    split = next(number for number, word in enumerate(argv) if word in runs)
    return [(name, argv[2:split]), (argv[split], argv[split + 1 :])]


def test_the_tour_runs_as_written(tmp_path):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    tour = commands(text[text.index("<!-- tour -->") :].split("With your own text")[0])
    assert [command[0] for command in tour] == ["build", "pretrain", "fill-mask"]
    for command in tour:
        result = subprocess.run(
            [sys.executable, "-m", "beambert", *command], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert result.returncode == 0, result.stderr
    assert (tmp_path / "data" / "dataset.json").is_file()
    assert (tmp_path / "model" / "eval_results.txt").is_file()
    assert "%" in result.stdout


def test_every_flag_in_the_documents_exists(capsys):
    """Parses every command with the command's own parser, stopping before it does anything."""
    seen = 0
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        inline = re.findall(r"`(beambert [a-z-]+ [^`]*--[^`]+)`", text)
        for argv in commands(text) + [shlex.split(line)[1:] for line in inline]:
            for name, own in parts(argv):
                parser, _ = beambert.make_parser(name)
                known = set(parser._option_string_actions) | {"--direct_num_workers", "--runner"}
                flags = {word.split("=")[0] for word in own if word.startswith("--")}
                assert flags <= known, f"{document.name}: {argv}"
            seen += 1
    assert seen >= 8


def test_every_flag_that_a_sentence_names_exists():
    """In the documents and in the warnings; those of ours, which have an underscore, and of Beam's."""
    known = set(
        re.findall(r"""add_argument\(\s*"(--\w+)\"""", "".join(map(Path.read_text, ROOT.glob("deploy/**/*.py"))))
    )
    for name in beambert.COMMANDS:
        known |= set(beambert.make_parser(name)[0]._option_string_actions)
    for options in PipelineOptions.__subclasses__():
        parser = argparse.ArgumentParser(conflict_handler="resolve")
        options._add_argparse_args(parser)
        known |= set(parser._option_string_actions)
    named = {
        (path.name, flag)
        for path in [*DOCUMENTS, *ROOT.glob("deploy/plan/*warnings.py"), *ROOT.glob("pipelines/*/*warnings.py")]
        for flag in re.findall(r"(?<=[` \"(])--[a-z]+(?:_[a-z]+)+(?![\w-])", path.read_text(encoding="utf-8"))
    }
    assert len(named) > 100
    assert {(name, flag) for name, flag in named if flag not in known} == set()


def test_every_command_is_in_the_readme_and_nothing_else_is():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    table = text[text.index("## Commands") : text.index("## Map")]
    assert set(re.findall(r"^\| `beambert ([a-z -]+)`", table, re.MULTILINE)) == set(beambert.COMMANDS)


def test_links_and_folders_in_the_documents_exist():
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        for target in re.findall(r"\]\((?!http)([^)#]+)\)", text):
            assert (document.parent / target).exists(), f"{document.name}: {target}"
        for folder in re.findall(r"^\| `([a-z_/]+/)` \|", text, re.MULTILINE):
            assert Path(ROOT / folder).is_dir(), f"{document.name}: {folder}"


def test_files_that_the_documents_name_exist():
    """Files with their folders or by name alone, folders, and modules, whose last part may be a name in them."""
    folders = ("beambert_common", "benchmarks", "bert_model", "deploy", "pipelines", "tests", "tokenizer", "trainers")
    roots = "|".join(folders)
    names = {path.name for folder in folders for path in (ROOT / folder).rglob("*.py")}
    names |= {"beambert.py", "setup.py", *RELEASED_SCRIPTS}
    missing = set()
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        paths = set(re.findall(rf"(?<![\w./-])(?:{roots}|docs)/[\w./-]*\w", text))
        paths |= {path for path in re.findall(r"(?<![\w./<>*-])\w+\.py\b", text) if path not in names}
        for module in re.findall(rf"(?<![\w./-])(?:{roots})(?:\.(?!ckpt)[a-z]\w*)+(?![\w/])", text):
            path = ROOT / module.replace(".", "/")
            if not (path.parent.is_dir() or path.parent.with_suffix(".py").is_file()):
                paths.add(module)
        missing |= {(document.name, path) for path in paths if not (ROOT / path).exists()}
    assert not missing


def test_the_tokenizer_page_prints_what_it_says(tmp_path, monkeypatch, shared_data):
    """Runs its Python line by line; a comment that starts with a quote or a bracket is the value it must have."""
    release = tmp_path / "uncased_L-12_H-768_A-12"
    release.mkdir()
    (release / "vocab.txt").write_bytes((shared_data / "tokenizer/bert-base-uncased-vocab.txt").read_bytes())
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs/TOKENIZER.md").read_text(encoding="utf-8")
    lines = re.search(r"```python\n(.*?)```", text, re.DOTALL)[1].splitlines()
    names = {"texts": ["Some text.", "More."]}
    seen = 0
    for line in lines:
        code, _, comment = line.partition("  # ")
        if comment.startswith(("[", '"')):
            assert eval(code, names) == ast.literal_eval(comment), line
            seen += 1
        else:
            exec(code, names)
    assert seen == 2
