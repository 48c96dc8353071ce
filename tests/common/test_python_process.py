"""Test that no Python process of a command imports modules from the current directory."""

import ast
import os
import re
import subprocess
import sys

import pytest
from apache_beam.transforms.environments import python_sdk_dependencies

from beambert.common import process
from beambert.deploy import source_copy
from beambert.deploy.dataflow import workers
from beambert.deploy.tpu import job
from beambert.pipelines.runner.beam_flags import pipeline_options
from tests.checks.test_layers import imports
from tests.conftest import ROOT

PROGRAM = "from setuptools import setup\nsetup(name='beambert', version='1', py_modules=[])\n"


@pytest.fixture
def hostile(tmp_path, monkeypatch):
    """A current directory with modules that leave a trace when they are imported."""
    folder, trace = tmp_path / "hostile", tmp_path / "trace"
    folder.mkdir()
    program = (
        f"import os\nos.write(os.open({str(trace)!r}, os.O_CREAT | os.O_WRONLY), __file__.encode())\nos._exit(7)\n"
    )
    for name in ("msgspec", "setuptools", "json", "beambert", "grpc"):
        (folder / f"{name}.py").write_text(program)
    for name in ("pip", "deploy"):
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(program)
    monkeypatch.chdir(folder)
    yield folder
    assert not trace.exists(), f"{trace.read_text()} was imported"


def test_only_one_module_starts_python():
    """The others use its functions; on a TPU VM, the current directory is that of the program."""
    starts = set()
    for module in imports():
        path = ROOT / "beambert" / module.replace(".", "/")
        tree = ast.parse(path.with_suffix(".py").read_text(encoding="utf-8"))
        # An f-string has the path for a message.
        printed = {id(node) for text in ast.walk(tree) if isinstance(text, ast.JoinedStr) for node in ast.walk(text)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr.endswith("executable") and id(node) not in printed:
                starts.add(module)
            if isinstance(node, ast.List | ast.Tuple) and node.elts:
                words = [getattr(word, "value", None) for word in node.elts[:2]]
                if re.fullmatch(r"python[\d.]*", str(words[0])) and words[1] not in ("-P", "-I"):
                    starts.add(module)
    assert starts == {"common.process", "deploy.tpu.worker"}


def test_containers_start_python_without_the_current_directory():
    files = [path for path in (ROOT / "deploy").rglob("*") if path.suffix == ".yaml" or "Dockerfile" in path.name]
    flags = [flag for path in files for flag in re.findall(r"\bpython\W+([Pm])\b", path.read_text(encoding="utf-8"))]
    assert flags == ["P"] * 2


@pytest.mark.parametrize("form", ["console script", "module"])
def test_the_commands_of_the_demo(hostile, tmp_path, form):
    """They find beambert where the demo found it, installed or not. An output of others ends the first of them."""
    (tmp_path / "out/data").mkdir(parents=True)
    (tmp_path / "out/data/mine").touch()
    script = "import sys; from beambert import cli; sys.argv[0] = 'beambert'; sys.exit(cli.main())"
    command, path, directory = {
        "console script": (["-P", "-c", script], str(ROOT), hostile),
        # Python itself imports from the current directory here, which is that of the source.
        "module": (["-m", "beambert"], None, ROOT),
    }[form]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, *command, "demo", "--output", str(tmp_path / "out")],
        cwd=directory,
        env={**environment, **({"PYTHONPATH": path} if path else {})},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert re.match(r"beambert build: error: .*\bmine\b", line)


def test_builds_of_packages(hostile, tmp_path, monkeypatch):
    source, output = tmp_path / "source", tmp_path / "built"
    for folder in (source, output, output / "wheel"):
        folder.mkdir()
    (source / "setup.py").write_text(PROGRAM)
    for module in (job, workers, source_copy):
        monkeypatch.setattr(module, "SOURCE", source)
    assert job.build_wheel(output / "wheel").name == "beambert-1-py3-none-any.whl"
    assert workers.make_source_package(None, output).name == "beambert-1.tar.gz"


@pytest.mark.parametrize("runner", ["FlinkRunner", "PrismRunner", "DataflowRunner"])
def test_beam_does_not_list_the_installed_packages(hostile, tmp_path, runner):
    """It would start pip in the current directory, and send URLs of private indexes with their passwords."""
    flags = ["--flink_master", "a:1", "--project", "p", "--region", "r", "--temp_location", "gs://b/t"]
    options = pipeline_options(["--runner", runner, *flags])
    assert [artifact.type_payload for artifact in python_sdk_dependencies(options, str(tmp_path))] == []


def test_a_process_imports_what_its_parent_imports(hostile, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(tmp_path / "added"), *sys.path])
    command = process.python_command("-c", "import sys, json, msgspec; print(json.dumps(sys.path))")
    done = subprocess.run(command, env=process.python_environment(), capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f'["{tmp_path / "added"}", ')
    assert str(hostile) not in done.stdout
