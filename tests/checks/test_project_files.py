"""Test the files at the root that other programs read: CI, pre-commit, citation, changelog."""

import re

import yaml

from beambert.common import imports
from tests.conftest import ROOT

SETUP = (ROOT / "setup.py").read_text(encoding="utf-8")
VERSION = re.search(r'version="([\d.]+)"', SETUP)[1]


def read_yaml(name: str) -> dict:
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def test_ci_tests_every_supported_python():
    (job,) = read_yaml(".github/workflows/ci.yml")["jobs"].values()
    supported = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', SETUP)
    assert job["strategy"]["matrix"]["python-version"] == supported == ["3.11", "3.12", "3.13"]
    commands = [step.get("run", "") for step in job["steps"]]
    assert [command.split()[:2] for command in commands if command] == [["make", "test"], ["make", "test-all"]]


def test_actions_and_packages_of_images_have_digests():
    (job,) = read_yaml(".github/workflows/ci.yml")["jobs"].values()
    actions = [step["uses"] for step in job["steps"] if "uses" in step]
    assert len(actions) == 3
    assert [action for action in actions if not re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40}", action)] == []
    images = ROOT / "deploy/images"
    for path in images.glob("*Dockerfile"):
        for command in re.findall(r"pip (?:install|wheel) (.*)", path.read_text(encoding="utf-8")):
            # Wheels of the image, or the source of this project.
            local = re.search(r"--no-deps .*(/wheels/\*\.whl| \.$)", command)
            assert local or "--require-hashes" in command, command
    pins = (images / "build.txt").read_text(encoding="utf-8").splitlines()[1:]
    assert all(re.fullmatch(r"[a-z]+==[\d.]+ --hash=sha256:[0-9a-f]{64}", pin) for pin in pins)


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


def test_every_package_is_installed_and_in_the_images():
    """Compare the packages of the repository with setup.py and the Dockerfiles."""
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert packages >= {"beambert", "tokenizer", "bert_model", "reporting", "pipelines", "trainers", "deploy"}
    assert {path.name for path in (ROOT / "beambert").iterdir() if path.is_symlink()} == packages - {"beambert"}
    for image in ("Dockerfile", "tpu.Dockerfile"):
        text = (ROOT / "deploy/images" / image).read_text(encoding="utf-8")
        assert set(re.findall(r"^COPY (\w+) \1$", text, re.MULTILINE)) == packages
    assert imports.version()
