"""Test errors about packages that cannot be imported, which name the package and the extra that installs it."""

import ast
import functools
import importlib.metadata
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from beambert import cli
from beambert.common import imports
from tests.conftest import ROOT

OURS = ("beambert", "tokenizer", "bert_model", "reporting", "pipelines", "trainers", "adaptation", "deploy")
# The base dependencies and their own dependencies, by the names of their folders.
BASE = ("jinja2", "markupsafe", "msgspec", "numpy", "numpy.libs", "rich", "markdown_it", "mdurl", "pygments")


def third_party_modules() -> dict[str, str]:
    """Return every third-party module that beambert's code imports, with a file that imports it."""
    files = [path for name in OURS for path in (ROOT / name).rglob("*.py")]
    modules = {}
    for path in files:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                # `from google.cloud import storage` imports a module too.
                names = [
                    f"{node.module}.{alias.name}" if node.module == "google.cloud" else node.module
                    for alias in node.names
                ]
            modules.update((name, str(path.relative_to(ROOT))) for name in names)
    ignored = {*sys.stdlib_module_names, *OURS}
    return {name: path for name, path in modules.items() if name.split(".")[0] not in ignored}


@functools.cache
def installed_by(extra: str) -> set[str]:
    """Return the names of all distributions that `pip install beambert[extra]` installs.

    They are read from the metadata of the installed distributions.
    """
    seen: set[tuple[str, str]] = set()
    waiting = [("beambert", extra)]
    while waiting:
        name, wanted = waiting.pop()
        if (name, wanted) in seen:
            continue
        seen.add((name, wanted))
        try:
            lines = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        for requirement in map(Requirement, lines):
            if requirement.marker is None or requirement.marker.evaluate({"extra": wanted}):
                waiting += [(canonicalize_name(requirement.name), other) for other in ("", *requirement.extras)]
    return {name for name, _ in seen}


def package_of(module: str) -> str:
    """Return the part of a module's name that only one distribution uses; `google` is shared by many."""
    return ".".join(
        module.split(".")[: 3 if module.startswith("google.cloud.") else 2 if module.startswith("google.") else 1]
    )


@functools.cache
def owners() -> dict[str, set[str]]:
    """Return, by package as of `package_of`, the installed distributions whose lists of files have a file of it."""
    result: dict[str, set[str]] = {}
    for distribution in importlib.metadata.distributions():
        name = canonicalize_name(distribution.name)
        for line in (distribution.read_text("RECORD") or "").splitlines():
            file = line.partition(",")[0]
            if file.endswith((".py", ".so")):
                parts = file.split("/")[:3]
                module = ".".join([*parts[:-1], parts[-1].partition(".")[0]])
                result.setdefault(package_of(module), set()).add(name)
    return result


MODULES = third_party_modules()


def test_every_import_is_of_a_package_that_an_extra_installs():
    assert {"apache_beam", "tensorflow", "numpy", "pyarrow", "tf2onnx", "ftfy", "google.auth"} <= MODULES.keys()
    of_commands = ["", "data", "data,gcp", "train", "jax"]
    for module in sorted(set(MODULES) - {"setuptools"}):
        line = imports.import_failure(ModuleNotFoundError("", name=module), "EXTRA")
        named = re.search(r"beambert\[(.+)\]", line)[1]
        if distributions := owners().get(package_of(module)):
            for extra in of_commands if named == "EXTRA" else [named]:
                if any(distributions & installed_by(each) for each in extra.split(",")):
                    break
            else:
                pytest.fail(f"{MODULES[module]} imports {module}, which no extra of a command installs")


# A training command that imports a package when it runs; only the base dependencies are installed.
PROBE = """
import sys, types
from beambert import cli
module = types.ModuleType("beambert.trainers.probe")
exec("DESCRIPTION = EXAMPLE = 'imports'\\nCOMMON_FLAGS = ()\\ndef run(config): import keras", module.__dict__)
module.add_arguments = module.configure = lambda _: None
sys.modules["beambert.trainers.probe"] = module
cli.COMMANDS["probe"] = ("beambert.trainers.probe", "imports")
sys.exit(cli.main(sys.argv[1:]))
"""


@pytest.fixture
def run(tmp_path):
    """Run beambert where only the base dependencies and given fake packages are installed."""
    site = tmp_path / "site"
    site.mkdir()
    here = Path(pytest.__file__).parent.parent
    for name in BASE:
        if (here / name).exists():
            (site / name).symlink_to(here / name)

    def run(*argv: str, keras: str | None = None) -> str:
        if keras is not None:
            (site / "keras").mkdir()
            (site / "keras" / "__init__.py").write_text(keras)
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{site}"}
        command = [sys.executable, "-S", "-c", PROBE, *argv]
        result = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert result.returncode == 1, result.stderr
        (line,) = result.stderr.splitlines()
        return line

    return run


def test_a_missing_package_is_named_with_its_extra(run, tmp_path):
    (tmp_path / "t.txt").write_text("Some text. And more of it.\n")
    build = ("build", "--input", "t.txt", "--output", "o")
    # The error names the package that the command imports first, which is not fixed.
    line = r"beambert build: error: package [\w.-]+ is not installed; pip install 'beambert\[data\]'"
    assert re.fullmatch(line, run(*build))
    assert run("probe") == "beambert probe: error: package keras is not installed; pip install 'beambert[train]'"
    flags = ("--project=my-project", "--region=us-central1", "--temp_location=gs://bkt/t")
    cloud = ("build", "--input", "gs://bkt/t", "--output", "gs://bkt/o")
    assert run("submit", "dataflow", *flags, *cloud).endswith("pip install 'beambert[data,gcp]'")


def test_a_package_that_another_one_lacks_is_named(run):
    expected = "package namex_of_keras is not installed; pip install 'beambert[train]'"
    assert run("probe", keras="import namex_of_keras") == f"beambert probe: error: {expected}"


def test_a_package_that_is_broken_is_not_called_missing(run):
    reason = "libkeras.so.1: cannot open shared object file: No such file or directory"
    code = f"""
try:
    raise ImportError({reason!r})
except ImportError as error:
    raise ImportError("a long\\nstory") from error
"""
    expected = f"package keras cannot be imported ({reason}); reinstall it: pip install --upgrade --force-reinstall"
    assert run("probe", keras=code) == f"beambert probe: error: {expected} 'beambert[train]'"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import keras.nothing", "package keras.nothing is not installed; pip install 'beambert[train]'"),
        ("from keras import nothing", "package keras cannot be imported (cannot import name 'nothing' from partially"),
    ],
)
def test_a_package_of_another_version_is_named_with_its_extra(run, code, expected):
    assert expected in run("probe", keras=code)


def error_of(code: str) -> ImportError:
    with pytest.raises(ImportError) as caught:
        exec(code, {"__name__": "beambert.deploy.somewhere"})
    return caught.value


@pytest.mark.parametrize(
    "code",
    [
        "from beambert.pipelines import nothing_like_this",
        "import beambert.trainers.nothing",
        "raise ImportError('fault')",
    ],
)
def test_a_fault_of_ours_keeps_its_traceback(code):
    assert imports.import_failure(error_of(code), "data") is None


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("google.auth", "package google.auth is not installed; pip install 'beambert[gcp]'"),
        (
            "tensorflow_text",
            "package tensorflow_text is not installed; pip install 'beambert[tensorflow-text]'",
        ),
        ("_bz2", f"module _bz2 is missing from {sys.executable}; use a complete installation of Python"),
    ],
)
def test_each_package_has_its_extra(name, line):
    error = error_of(f"raise ModuleNotFoundError('No module named {name}', name={name!r})")
    assert imports.import_failure(error, "train") == line


def test_a_bucket_without_its_client_library_is_an_error_before_beam_starts(monkeypatch, capsys):
    find_spec = importlib.util.find_spec
    missing = "google.cloud.storage"
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *more: None if name == missing else find_spec(name, *more)
    )
    assert cli.main(["build", "--input", "gs://bkt/x", "--output", "o"]) == 1
    expected = "--input gs://bkt/x requires package google-cloud-storage; run pip install 'beambert[gcp]'"
    assert capsys.readouterr().err == f"beambert build: error: {expected}\n"
