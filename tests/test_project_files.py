"""Test the files at the root that other programs read: CI, pre-commit, citation, changelog."""

import re

import yaml

from tests.conftest import ROOT

SETUP = (ROOT / "setup.py").read_text(encoding="utf-8")
VERSION = re.search(r'version="([\d.]+)"', SETUP)[1]


def read_yaml(name: str) -> dict:
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def test_ci_tests_every_supported_python():
    (job,) = read_yaml(".github/workflows/ci.yml")["jobs"].values()
    supported = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', SETUP)
    assert job["strategy"]["matrix"]["python-version"] == supported == ["3.11", "3.12", "3.13"]
    assert any(step.get("run", "").startswith("make test ") for step in job["steps"])


def test_pre_commit_runs_the_tools_of_the_environment():
    (repository,) = read_yaml(".pre-commit-config.yaml")["repos"]
    assert repository["repo"] == "local"
    check = re.search(r"^check: setup\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)[1]
    for hook in repository["hooks"]:
        tool = hook["entry"].removeprefix(".venv/bin/").split(" --")[0]
        assert f"$(BIN)/{tool}" in check


def test_the_released_version_is_the_same_everywhere():
    citation = read_yaml("CITATION.cff")
    released = re.findall(
        r"^## \[([\d.]+)\] - (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert released[0] == (VERSION, str(citation["date-released"]))
    assert citation["version"] == VERSION
