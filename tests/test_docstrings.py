"""The first line of a docstring is one sentence, and that of a function starts with an imperative verb."""

import ast
from collections.abc import Iterator

import pytest

from tests.conftest import ROOT

# Packages without a finding.
CHECKED = """
beambert_common bert_model tokenizer
pipelines/cleaning pipelines/corpus pipelines/instances pipelines/io pipelines/reporting pipelines/sources
trainers/checkpoints trainers/data trainers/finetuning trainers/inference trainers/metrics trainers/monitoring
trainers/optimization trainers/run_report
"""
# Packages still to do, and beside them beambert.py and the modules directly in pipelines/ and trainers/.
TO_DO = """
deploy pipelines/commands pipelines/examples pipelines/runner
trainers/backends trainers/commands trainers/config trainers/pretraining trainers/training
"""
# A docstring that starts with another verb is right: add the verb.
VERBS = """
Add Answer Append Apply Assign Build Call Check Choose Clean Close Compare Compose Compute Count Cut Decode Decompose
Decorate Deduplicate Delete Do Draw Drop Embed Encode End Evaluate Exclude Expand Fetch Fill Find Fine-tune Fit Flush
Give Group Handle Hold Join Keep Learn Let Load Lock Look Make Merge Mix Name Narrow Open Pack Parse Plan Plot Predict
Print Put Raise Read Record Refuse Release Remove Rename Repair Repeat Replace Report Restore Return Run Scale Score
Serialize Set Show Spare Spell Split Spread Train Undo Unpack Wait Write Yield
"""


def findings(source: str) -> Iterator[str]:
    """Yield each docstring of a module that breaks the rule, by line and first line."""
    verbs = set(VERBS.split())
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            continue
        lines = (ast.get_docstring(node) or "").splitlines()
        if not lines:
            continue
        name = getattr(node, "name", "the module")
        if len(lines) > 1 and lines[1]:
            yield f"{name}: the first line is no sentence: {lines[0]}"
        elif isinstance(node, ast.FunctionDef) and lines[0].split()[0].rstrip(".,:;") not in verbs:
            yield f"{name}: the first word is no imperative verb of VERBS: {lines[0]}"


@pytest.mark.parametrize("package", CHECKED.split())
def test_docstrings_start_with_an_imperative_sentence(package):
    paths = sorted((ROOT / package).rglob("*.py"))
    assert paths
    wrong = [f"{path.relative_to(ROOT)}: {text}" for path in paths for text in findings(path.read_text("utf-8"))]
    assert not wrong, "\n".join(wrong)


def test_every_package_is_checked_or_to_do():
    listed = {ROOT / package for package in (CHECKED + TO_DO).split()}
    roots = [ROOT / name for name in ("beambert_common", "bert_model", "deploy", "pipelines", "tokenizer", "trainers")]
    folders = [root for root in roots if root in listed]
    folders += [path.parent for root in roots if root not in listed for path in root.glob("*/__init__.py")]
    assert listed == set(folders)


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ('def f():\n    """Return the size."""', 0),
        ('class C:\n    """The size of a model."""', 0),
        ('def f():\n    """Returns the size."""', 1),
        ('def f():\n    """The size of a model."""', 1),
        ('class C:\n    def f(self):\n        """Whether it is large."""', 1),
        ('def f():\n    """Return the size, and when\n    there is none, 0."""', 1),
        ('"""A module about sizes and\nshapes."""', 1),
    ],
)
def test_findings(source, count):
    assert len(list(findings(source))) == count
