"""Test the documents: commands parse; flags, files, links and anchors exist; the README shows what a tutorial runs."""

import argparse
import ast
import contextlib
import io
import itertools
import re
import shlex
from pathlib import Path

import pytest
from apache_beam.options.pipeline_options import PipelineOptions

import beambert
from tests.conftest import ROOT
from tests.tutorials import blocks, compare

DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
# Scripts of google-research/bert.
RELEASED_SCRIPTS = {"create_pretraining_data.py", "extract_features.py", "run_classifier.py", "run_squad.py"}


def beambert_commands(shell: str) -> list[list[str]]:
    """Return the arguments of every `beambert ...` line of a shell script, without comment and redirection."""
    lines = shell.replace("\\\n", " ").splitlines()
    commands = [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("beambert ")]
    return [list(itertools.takewhile(lambda word: word not in (">", "|", "&&"), command)) for command in commands]


def commands(text: str) -> list[list[str]]:
    """Return the `beambert` commands of the shell blocks of a page, except those that start with a flag."""
    shell = "\n".join(block.text for block in blocks(text) if block.language == "sh")
    return [argv for argv in beambert_commands(shell) if not argv[0].startswith("-")]


def parts(argv: list[str]) -> list[tuple[str, list[str]]]:
    """Return a command with its flags; for `submit ENGINE ... COMMAND ...`, return both commands with theirs."""
    if argv[0] != "submit":
        return [(argv[0], argv[1:])]
    name = " ".join(argv[:2])
    runs = beambert.make_parser(name)[1].RUNS
    split = next(number for number, word in enumerate(argv) if word in runs)
    return [(name, argv[2:split]), (argv[split], argv[split + 1 :])]


def test_readme_quickstart_is_that_of_the_first_tutorial():
    """Compare the README's commands, output and Python with the tutorial, which tests/test_tutorials.py runs."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    quickstart = list(blocks(readme[readme.index("## Quickstart") : readme.index("## Features")]))
    tutorial = list(blocks((ROOT / "docs/tutorials/first-bert.md").read_text(encoding="utf-8")))
    commands, output, example, example_output = (block.text for block in quickstart)
    assert [argv[0] for argv in beambert_commands(commands)] == ["build", "pretrain", "fill-mask"]
    shell = "\n".join(block.text for block in tutorial if block.language == "sh")
    assert [argv for argv in beambert_commands(shell) if argv in beambert_commands(commands)] == (
        beambert_commands(commands)
    )
    printed = "\n".join(block.text for block in tutorial if block.language == "text")
    assert compare(output, printed) == ""
    assert compare(example_output, printed) == ""
    assert example in [block.text for block in tutorial if block.language == "python"]


def test_every_command_in_the_documents_parses():
    """Parse every command of a shell block with its own parser; for commands in sentences, check the names of flags."""
    problems = []
    seen = 0
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        for argv in commands(text):
            problems += [f"{document.name}: {problem}" for problem in parse_problems(argv)]
            seen += 1
        for line in re.findall(r"`(beambert [a-z-]+ [^`]*--[^`]+)`", text):
            for name, own in parts(shlex.split(line)[1:]):
                parser, _ = beambert.make_parser(name)
                flags = {word.split("=")[0] for word in own if re.match(r"--\w", word)}
                unknown = flags - set(parser._option_string_actions) - {"--direct_num_workers", "--runner", "--help"}
                problems += [f"{document.name}: {line}: {flag}" for flag in unknown]
    assert problems == []
    assert seen >= 8


def _example_value(placeholder: re.Match) -> str:
    """Return a value for a shell variable or placeholder such as $PROJECT or PROJECT."""
    name = placeholder[0].strip("$").lower().replace("_", "-")
    account = "worker@my-project.iam.gserviceaccount.com"
    return {"region": "us-central1", "worker": account}.get(name, f"my-{name}")


def parse_problems(argv: list[str]) -> list[str]:
    """Return the errors of the command line for a command, without running it."""
    problems = []
    for name, own in parts(argv):
        message = io.StringIO()
        try:
            with contextlib.redirect_stderr(message), contextlib.redirect_stdout(io.StringIO()):
                beambert.read_command(name, [re.sub(r"\$\w+|\b[A-Z]{4,}\b", _example_value, word) for word in own])
        except SystemExit as error:
            if error.code:
                problems.append(message.getvalue().strip())
    return problems


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("build --output data --no_such_flag", "--no_such_flag"),
        ("build --output data --vocab_size many", "--vocab_size"),
        ("pretrain --data data --output model --steps 3", "--steps"),
        ("submit dataflow build --no_such_flag 1", "--no_such_flag"),
    ],
)
def test_wrong_command_is_found(command, message):
    assert message in " ".join(parse_problems(command.split()))


def test_every_flag_that_a_sentence_names_exists():
    """Check flags with an underscore, which are ours or Beam's, in the documents and in the warnings."""
    known = set(
        re.findall(r"""add_argument\(\s*"(--\w+)\"""", "".join(map(Path.read_text, ROOT.glob("deploy/**/*.py"))))
    )
    for name in beambert.COMMANDS:
        known |= set(beambert.make_parser(name)[0]._option_string_actions)
    for options in PipelineOptions.__subclasses__():
        parser = argparse.ArgumentParser(conflict_handler="resolve")
        options._add_argparse_args(parser)
        known |= set(parser._option_string_actions)
    # Flags of `python -m apache_beam.yaml.main`, which has no public parser.
    known |= {"--yaml_pipeline_file", "--jinja_variables"}
    named = {
        (path.name, flag)
        for path in [*DOCUMENTS, *ROOT.glob("deploy/plan/*warnings.py"), *ROOT.glob("pipelines/*/*warnings.py")]
        for flag in re.findall(r"(?<=[` \"(])--[a-z]+(?:_[a-z]+)+(?![\w-])", path.read_text(encoding="utf-8"))
    }
    assert len(named) > 100
    assert {(name, flag) for name, flag in named if flag not in known} == set()


def test_every_command_is_in_the_readme_and_nothing_else_is():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    table = text[text.index("## Commands") : text.index("## Documentation")]
    links = re.findall(r"\[`([a-z -]+)`\]\(docs/reference/cli\.md#beambert-([a-z-]+)\)", table)
    assert {name for name, _ in links} == set(beambert.COMMANDS)
    assert all(anchor == name.replace(" ", "-") for name, anchor in links)


def test_front_page_lists_every_page():
    folder = ROOT / "docs"
    links = re.findall(r"\]\(([\w/-]+\.md)\)", (folder / "README.md").read_text(encoding="utf-8"))
    pages = {str(page.relative_to(folder)) for page in folder.rglob("*.md")} - {"README.md"}
    pages = {page for page in pages if not page.startswith("_build/")}
    assert pages == set(links)


def anchors(text: str) -> set[str]:
    """Return the anchors of the headings of a page, as GitHub makes them."""
    without_code = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.*)$", without_code, re.MULTILINE)
    texts = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower() for heading in headings]
    return {re.sub(r"[^\w -]", "", text).replace(" ", "-") for text in texts}


def test_links_anchors_and_folders_in_the_documents_exist():
    missing = []
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        for target, anchor in re.findall(r"\]\((?!http|\.\./\.\./actions)([^)#\s]*)(?:#([^)\s]+))?\)", text):
            path = document.parent / target if target else document
            if not path.exists():
                missing.append((document.name, target))
            elif anchor and anchor not in anchors(path.read_text(encoding="utf-8")):
                missing.append((document.name, f"{target}#{anchor}"))
        # On other pages such folders are in an output directory.
        if document.name in ("CONTRIBUTING.md", "architecture.md"):
            folders = re.findall(r"^\| `([a-z_/]+/)` \|", text, re.MULTILINE)
            missing += [(document.name, folder) for folder in folders if not (ROOT / folder).is_dir()]
    assert missing == []


def test_images_of_the_readme_exist_and_need_nothing_from_outside():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    images = re.findall(r'(?:src|srcset)="([^"]+)"', text)
    assert len(images) == 2
    for image in images:
        source = (ROOT / image).read_text(encoding="utf-8")
        assert set(re.findall(r"https?://[^\s\"<]+", source)) == {"http://www.w3.org/2000/svg"}


def test_python_blocks_of_the_documents_are_python():
    for document in DOCUMENTS:
        for block in blocks(document.read_text(encoding="utf-8")):
            # CONTRIBUTING.md may show signatures, which do not parse.
            if block.language == "python" and document.name != "CONTRIBUTING.md":
                ast.parse(block.text, f"{document.name}:{block.line}")


def test_files_that_the_documents_name_exist():
    """Check files with or without their folders, folders, and modules, whose last part may be a name in the module."""
    folders = (
        "adaptation",
        "beambert_common",
        "benchmarks",
        "bert_model",
        "deploy",
        "pipelines",
        "tests",
        "tokenizer",
        "trainers",
    )
    roots = "|".join(folders)
    names = {path.name for folder in folders for path in (ROOT / folder).rglob("*.py")}
    names |= {"beambert.py", "setup.py", *RELEASED_SCRIPTS}
    missing = set()
    for document in DOCUMENTS:
        text = re.sub(r"\]\([^)]*\)", "]", document.read_text(encoding="utf-8").replace(r"\_", "_"))
        paths = set(re.findall(rf"(?<![\w./-])(?:{roots}|docs)/[\w./-]*\w", text))
        paths |= {path for path in re.findall(r"(?<![\w./<>*-])\w+\.py\b", text) if path not in names}
        for module in re.findall(rf"(?<![\w./-])(?:{roots})(?:\.(?!ckpt)[a-z]\w*)+(?![\w/])", text):
            path = ROOT / module.replace(".", "/")
            if not (path.parent.is_dir() or path.parent.with_suffix(".py").is_file()):
                paths.add(module)
        missing |= {(document.name, path) for path in paths if not (ROOT / path).exists()}
    assert not missing


def test_the_tokenizer_page_shows_the_actual_values(tmp_path, monkeypatch, shared_data):
    """Run its Python line by line; a comment that starts with a quote or a bracket is the expected value."""
    release = tmp_path / "uncased_L-12_H-768_A-12"
    release.mkdir()
    (release / "vocab.txt").write_bytes((shared_data / "tokenizer/bert-base-uncased-vocab.txt").read_bytes())
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs/guides/tokenize-text.md").read_text(encoding="utf-8")
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
