"""Test that the commands and Python blocks of the guide "Read shards" run; the comment after a print is its output."""

import importlib.util
import os
import re
import shlex
import subprocess
import sys

import pytest

from beambert import cli
from tests.conftest import ROOT

GUIDE = (ROOT / "docs" / "guides" / "read-shards.md").read_text(encoding="utf-8")
# (heading, code) of every block.
BLOCKS = [
    (heading, code)
    for heading, text in re.findall(r"^## ([^\n]*)\n(.*?)(?=^## |\Z)", GUIDE, re.DOTALL | re.MULTILINE)
    for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL)
]
# Modules that are not installed with the project's lock file.
OPTIONAL = ("array_record", "datasets", "grain", "mlcroissant", "streaming", "torch")


@pytest.fixture(scope="module")
def folder(built, tmp_path_factory):
    """A folder with the datasets of the guide, built by its commands."""
    folder = tmp_path_factory.mktemp("guide")
    (folder / "corpus").symlink_to(built)
    (commands,) = re.findall(r"```sh\n(.*?)```", GUIDE, re.DOTALL)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for line in commands.splitlines():
            program, *argv = shlex.split(line)
            assert program == "beambert"
            if "array_record" not in argv or importlib.util.find_spec("array_record"):
                assert cli.main([*argv, "--dupe_factor", "1"]) == 0
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(("heading", "code"), BLOCKS, ids=[f"{n} {heading}" for n, (heading, _) in enumerate(BLOCKS)])
def test_block(folder, heading, code):
    modules = set(re.findall(r"^(?:import|from) (\w+)", code, re.MULTILINE))
    if "grain" in modules:
        modules.add("array_record")
    if ".with_format(" in code:
        modules.add("torch")
    missing = [name for name in OPTIONAL if name in modules and not importlib.util.find_spec(name)]
    if missing:
        pytest.skip(f"{missing[0]} is not installed")
    expected = re.findall(r"^ *print\(.*\)  # (.*)$", code, re.MULTILINE)
    assert expected, heading
    (folder / "block.py").write_text(code, encoding="utf-8")
    environment = {**os.environ, "HF_HOME": str(folder / "huggingface"), "HF_HUB_OFFLINE": "1"}
    run = subprocess.run(
        [sys.executable, "block.py"], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == expected


def test_each_reader_has_a_section_with_code():
    headings = {heading for heading, _ in BLOCKS}
    assert headings >= {"tf.data", "PyTorch", "Grain", "Hugging Face datasets", "Croissant", "MosaicML Streaming"}
