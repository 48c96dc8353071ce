"""Test that the page of environment variables lists every variable that the project reads or sets."""

import re

from tests.conftest import ROOT

# Marks the processes of a case of tests/chaos.
_INTERNAL = {"BEAMBERT_CHAOS_PROCESS"}
_OURS = re.compile(r"\bBEAMBERT_[A-Z]+(?:_[A-Z]+)*\b")
_READ = re.compile(r"os\.environ(?:\.get\(|\.setdefault\(|\[)\"([A-Z_]+)\"|\"([A-Z_]+)\" (?:not )?in os\.environ")
_FOLDERS = ("adaptation", "beambert", "bert_model", "deploy", "pipelines", "reporting", "tokenizer", "trainers")


def test_the_page_lists_every_variable():
    page = (ROOT / "docs/reference/environment-variables.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `([A-Z_]+)", page, re.MULTILINE))
    modules = [path for folder in _FOLDERS for path in (ROOT / folder).rglob("*.py")]
    sources = [path.read_text(encoding="utf-8") for path in modules]
    others = [path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py")]
    others += [(ROOT / name).read_text(encoding="utf-8") for name in ("Makefile", ".github/workflows/ci.yml")]
    names = {name for text in [*sources, *others] for name in _OURS.findall(text)} - _INTERNAL
    names |= {name for text in sources for match in _READ.findall(text) for name in match if name}
    assert names >= {"BEAMBERT_CACHE", "TF_CONFIG"}
    assert sorted(names - listed) == []
    assert sorted(name for name in listed - names if name.startswith("BEAMBERT_")) == []
