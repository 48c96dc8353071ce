"""Test the documents: commands parse; flags, files, links and anchors exist; the README shows what a tutorial runs."""

import argparse
import ast
import importlib
import itertools
import json
import re
import runpy
import shlex
from pathlib import Path

import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from beambert import cli
from benchmarks.small_bert import __main__ as small_bert
from tests.conftest import ROOT
from tests.documented_commands import beambert_commands, commands, parse_problems, parts
from tests.tutorials import blocks, compare

DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
# Scripts of google-research/bert.
RELEASED_SCRIPTS = {"create_pretraining_data.py", "extract_features.py", "run_classifier.py", "run_squad.py"}
PACKAGES = (
    "beambert.tokenizer",
    "beambert.pipelines",
    "beambert.pipelines.transforms",
    "beambert.bert_model",
    "beambert.trainers",
)


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
                parser, _ = cli.make_parser(name)
                flags = {word.split("=")[0] for word in own if re.match(r"--\w", word)}
                unknown = flags - set(parser._option_string_actions) - {"--direct_num_workers", "--runner", "--help"}
                problems += [f"{document.name}: {line}: {flag}" for flag in unknown]
    assert problems == []
    assert seen >= 8


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
    for name in cli.COMMANDS:
        known |= set(cli.make_parser(name)[0]._option_string_actions)
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
    assert {name for name, _ in links} == set(cli.COMMANDS)
    assert all(anchor == name.replace(" ", "-") for name, anchor in links)


def test_front_page_and_table_of_contents_list_every_page():
    folder = ROOT / "docs"
    links = re.findall(r"\]\(([\w/-]+\.md)\)", (folder / "README.md").read_text(encoding="utf-8"))
    pages = {str(page.relative_to(folder)) for page in folder.rglob("*.md")} - {"README.md"}
    pages = {page for page in pages if not page.startswith("_build/")}
    assert pages == set(links)
    entries = re.findall(r"^   ([\w/-]+)$", (folder / "index.rst").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(pages) == sorted(f"{entry}.md" for entry in entries)


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
        "beambert",
        "benchmarks",
        "bert_model",
        "deploy",
        "pipelines",
        "reporting",
        "tests",
        "tokenizer",
        "trainers",
    )
    roots = "|".join(folders)
    names = {path.name for folder in folders for path in (ROOT / folder).rglob("*.py")}
    names |= {"setup.py", *RELEASED_SCRIPTS}
    missing = set()
    for document in DOCUMENTS:
        text = re.sub(r"\]\([^)]*\)", "]", document.read_text(encoding="utf-8").replace(r"\_", "_"))
        # A benchmark that was removed after its measurement.
        text = re.sub(r"`[^`]*`\s+of\s+commit [0-9a-f]{8}", "", text)
        paths = set(re.findall(rf"(?<![\w./-])(?:{roots}|docs)/[\w./-]*\w", text))
        paths |= {path for path in re.findall(r"(?<![\w./<>*-])\w+\.py\b", text) if path not in names}
        for module in re.findall(rf"(?<![\w./-])(?:{roots})(?:\.(?!ckpt)[a-z]\w*)+(?![\w/])", text):
            path = ROOT / module.replace(".", "/")
            if not (path.parent.is_dir() or path.parent.with_suffix(".py").is_file()):
                paths.add(module)
        missing |= {(document.name, path) for path in paths if not (ROOT / path).exists()}
    assert not missing


def test_the_cli_reference_is_current(monkeypatch):
    # Help is wrapped to the width of the terminal.
    monkeypatch.setenv("COLUMNS", "100")
    generator = runpy.run_path(str(ROOT / "docs/generate_cli_reference.py"))
    current = (ROOT / "docs/reference/cli.md").read_text(encoding="utf-8") == generator["page"]()
    assert current, "run python docs/generate_cli_reference.py"
    text = (ROOT / "docs/reference/cli.md").read_text(encoding="utf-8")
    assert re.findall(r"^### beambert (.*)$", text, re.MULTILINE) == list(cli.COMMANDS)


def test_the_api_reference_lists_every_public_name():
    text = (ROOT / "docs/reference/python-api.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\.\. auto\w+:: (\S+)$", text, re.MULTILINE)
    public = [f"{package}.{name}" for package in PACKAGES for name in importlib.import_module(package).__all__]
    assert sorted(listed) == sorted(public)


def test_examples_in_help_parse():
    for name in cli.COMMANDS:
        for line in cli.make_parser(name)[1].EXAMPLE.splitlines():
            words = shlex.split(line)
            assert words[: 1 + len(name.split())] == ["beambert", *name.split()]
            assert not parse_problems(words[1:])


# Flags of other programs, and the prefixes "--do_" and "--max_".
_FOREIGN_FLAGS = {"--do", "--logdir", "--lr_", "--max_", "--na-prob-thresh", "--xla_gpu_deterministic_ops"}


def test_messages_of_training_name_flags_that_exist():
    """Check all strings: help, errors, warnings and findings."""
    parsers = [cli.make_parser(name)[0] for name in itertools.chain(*cli.COMMAND_GROUPS.values())]
    actions = itertools.chain.from_iterable(parser._actions for parser in parsers)
    flags = {flag for action in actions for flag in action.option_strings}
    found = []
    for package in ("adaptation", "bert_model", "reporting", "tokenizer", "trainers"):
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                text = node.value if isinstance(node, ast.Constant) else None
                names = re.findall(r"(?<![\w-])--[a-z][\w-]*", text) if isinstance(text, str) else []
                found += [(path.name, name) for name in names if name not in flags | _FOREIGN_FLAGS]
    assert found == []


def test_the_guide_has_the_recipe_of_bench_quality():
    page = (ROOT / "docs/guides/small-bert.md").read_text(encoding="utf-8")
    recipe = [shlex.split(command.replace("DATA/", ""))[1:] for command in small_bert.RECIPE.values()]
    assert commands(page)[: len(recipe)] == recipe
    model = next(block.text for block in blocks(page) if block.language == "json")
    assert json.loads(model) == json.loads(small_bert.MODEL.read_text(encoding="utf-8"))
