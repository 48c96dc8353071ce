"""Version and requirements of beambert, and error messages for packages that cannot be imported."""

import ast
import functools
import importlib.metadata
import importlib.util
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

# Requirement that installs a module, where it does not have the module's name.
_INSTALLED_BY = {
    "google": "apache-beam[gcp]",
    "google.cloud.storage": "google-cloud-storage",
    "google.protobuf": "apache-beam",
    "grpc": "apache-beam",
    "packaging": "apache-beam",
}
_REPLACES = "to install a version that beambert supports"
# Error of `from google.cloud import storage` where the module of the namespace package is not installed.
_FROM_NAMESPACE = re.compile(r"cannot import name '(\w+)' from '([\w.]+)' \(unknown location\)")


class Requirement(NamedTuple):
    """A requirement in setup.py.

    Attributes:
        extra: extra of the requirement; "" for a base dependency.
        name: normalized name with extras, such as "apache-beam[gcp]".
    """

    extra: str
    name: str


def version() -> str:
    """Return the version of the installed package, or that of setup.py in a source tree."""
    try:
        return importlib.metadata.version("beambert")
    except importlib.metadata.PackageNotFoundError:
        return str(_setup_arguments().get("version", "of unknown version"))


@functools.cache
def requirements() -> tuple[Requirement, ...]:
    """Return the requirements of beambert, in the order of setup.py."""
    try:
        lines = importlib.metadata.requires("beambert") or []
    except importlib.metadata.PackageNotFoundError:
        arguments = _setup_arguments()
        lines = [*arguments.get("install_requires", [])]
        for extra, names in arguments.get("extras_require", {}).items():
            lines += [f'{name}; extra == "{extra}"' for name in names]
    return tuple(map(_requirement, lines))


def extras_of(module: str) -> list[str] | None:
    """Return the extras that install a module.

    Args:
        module: dotted name, such as "google.cloud.storage".

    Returns:
        The extras in the order of setup.py; empty for a base dependency; None where no requirement installs it.
    """
    name = requirement_name(module)
    extras = list(dict.fromkeys(extra for extra, required in requirements() if required == name))
    if not extras:
        return None
    return [] if "" in extras else extras


def requirement_name(module: str) -> str:
    """Return the normalized name of the requirement that installs a module."""
    parts = module.split(".")
    for length in range(len(parts), 0, -1):
        if (prefix := ".".join(parts[:length])) in _INSTALLED_BY:
            return _INSTALLED_BY[prefix]
    return _normalized(parts[0])


def require_for(path: str) -> None:
    """Check that the package for a path's scheme is installed, without importing it.

    Raises:
        ModuleNotFoundError: the package is not installed.
    """
    module = "google.cloud.storage"
    if path.startswith("gs://") and not is_installed(module):
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)


def is_installed(module: str) -> bool:
    """Return whether a module can be found, without importing it."""
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:
        return False


def import_failure(error: ImportError, preferred: str) -> str | None:
    """Return one line for a package that is missing, incomplete or broken.

    Args:
        error: exception of the import.
        preferred: extras of the command, such as "data,gcp", used where one of them installs the package or the extra
            is unknown.

    Returns:
        The line, or None for a module of beambert, which is an internal error.
    """
    importer = _importer(error)
    match = _FROM_NAMESPACE.match(str(error))
    module = f"{match[2]}.{match[1]}" if match else error.name or importer
    top = module.partition(".")[0]
    if _is_ours(top):
        return None
    if not match and not isinstance(error, ModuleNotFoundError):
        return _broken(error, top, preferred)
    if top in sys.stdlib_module_names:
        return f"module {module} is missing from {sys.executable}; use a complete installation of Python"
    if top not in (module, "google") and _is_regular_package(top):
        return (
            f"package {_with_version(top)} is installed without {module}; {_install(top, preferred, '--upgrade ')} "
            f"{_REPLACES}"
        )
    if extras_of(module) is None and importer and not _is_ours(importer):
        return f"package {top}, which {importer} imports, is not installed; {_install(importer, preferred)}"
    return f"package {_normalized(module if top == 'google' else top)} is not installed; {_install(module, preferred)}"


def _is_ours(package: str) -> bool:
    return package in ("__main__", "beambert")


def _broken(error: ImportError, package: str, preferred: str) -> str:
    root: BaseException = error
    while (cause := root.__cause__ or root.__context__) is not None:
        root = cause
    reason = (str(root).strip().splitlines() or [type(root).__name__])[0]
    line = f"package {_with_version(package)} is installed, but cannot be imported ({reason})"
    if reason.startswith("cannot import name"):
        return f"{line}; {_install(package, preferred, '--upgrade ')} {_REPLACES}"
    name = requirement_name(package).partition("[")[0]
    return f"{line}; reinstall it: pip install --force-reinstall --no-deps {name}"


def _install(module: str, preferred: str, flags: str = "") -> str:
    extras = extras_of(module)
    if extras == []:
        return f"pip install {flags}beambert"
    extra = preferred if extras is None or set(extras) & set(preferred.split(",")) else extras[0]
    return f"pip install {flags}'beambert[{extra}]'"


def _importer(error: BaseException) -> str:
    """Return the package that contains the failed import."""
    name = ""
    trace = error.__traceback__
    while trace is not None:
        module = trace.tb_frame.f_globals.get("__name__") or ""
        if not module.startswith("importlib.") and module != "importlib":
            name = module
        trace = trace.tb_next
    return name.partition(".")[0]


def _is_regular_package(name: str) -> bool:
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return False
    return spec is not None and spec.origin is not None


def _with_version(package: str) -> str:
    try:
        return f"{package} {importlib.metadata.version(requirement_name(package).partition('[')[0])}"
    except importlib.metadata.PackageNotFoundError:
        return package


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _requirement(line: str) -> Requirement:
    name, extras = re.match(r"([\w.-]+)(\[[^\]]*\])?", line).groups()  # type: ignore[union-attr]
    extra = re.search(r"""extra == ["']([^"']+)["']""", line)
    return Requirement(extra[1] if extra else "", _normalized(name) + (extras or ""))


@functools.cache
def _setup_arguments() -> dict[str, Any]:
    """Return the literal arguments of `setup()` in setup.py, with variables of lists resolved."""
    path = Path(__file__).parents[2] / "setup.py"
    if not path.is_file():
        return {}
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names: dict[str, ast.expr] = {}
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            names[statement.targets[0].id] = statement.value

    class ReplaceNames(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            return names.get(node.id, node)

    arguments: dict[str, Any] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "setup":
            for keyword in node.keywords:
                try:
                    arguments[keyword.arg or ""] = ast.literal_eval(ReplaceNames().visit(keyword.value))
                except ValueError:
                    continue
    return arguments if arguments.get("name") == "beambert" else {}
