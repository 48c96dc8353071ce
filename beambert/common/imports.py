"""Import modules when they are first used, large libraries faster, and report packages that cannot be imported."""

import contextlib
import gc
import importlib
import importlib.metadata
import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any

# Extras of setup.py for packages that a command needs only with some of its flags. The extras of the command install
# all others.
_EXTRAS = {
    "array_record": "array-record",
    "fastwarc": "web",
    "ftfy": "clean",
    "google": "gcp",
    "h5py": "convert",
    "ml_dtypes": "convert",
    "onnx": "onnx",
    "onnxruntime": "onnx",
    "phonenumbers": "clean",
    "py3langid": "clean",
    "resiliparse": "web",
    "safetensors": "convert",
    "stdnum": "clean",
    "tensorflow": "train",
    "tensorflow_text": "tensorflow-text",
    "tf2onnx": "onnx",
    "wikiextractor": "wikiextractor",
}


def lazy_exports(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package (PEP 562), which imports a module when one of its names is first used.

    Args:
        package: `__name__` of the package.
        modules: defining module of each exported name.
    """

    def get_attribute(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(modules[name]), name)

    return get_attribute


@contextlib.contextmanager
def uncollected_imports() -> Iterator[None]:
    """Suspend the garbage collector in the body, which should only import.

    The objects of imported modules stay. Searching them for garbage again and again, as their number grows, takes a
    fifth of the time of importing TensorFlow or JAX.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def version() -> str:
    """Return the version of the installed package."""
    try:
        return importlib.metadata.version("beambert")
    except importlib.metadata.PackageNotFoundError:
        return "of unknown version"


def is_installed(module: str) -> bool:
    """Return whether a module can be found, without importing it."""
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:
        return False


def import_failure(error: ImportError, extras: str) -> str | None:
    """Return one line for a package that is missing, incomplete or broken.

    Args:
        error: exception of the import.
        extras: extras of the command, such as "data,gcp".

    Returns:
        The line, or None for a module of beambert, which is an internal error.
    """
    module = error.name or raising_module(error)
    package = module.partition(".")[0]
    if package in ("", "__main__", "beambert"):
        return None
    if package in sys.stdlib_module_names:
        return f"module {module} is missing from {sys.executable}; use a complete installation of Python"
    extra = _EXTRAS.get(package, extras)
    if isinstance(error, ModuleNotFoundError):
        return f"package {module} is not installed; pip install 'beambert[{extra}]'"
    root: BaseException = error
    while (cause := root.__cause__ or root.__context__) is not None:
        root = cause
    reason = (str(root).strip().splitlines() or [type(root).__name__])[0]
    return (
        f"package {package} cannot be imported ({reason}); reinstall it: pip install --upgrade --force-reinstall "
        f"'beambert[{extra}]'"
    )


def raising_module(error: BaseException) -> str:
    """Return the name of the module that raised an exception, or whose import failed."""
    modules = [frame.f_globals.get("__name__") or "" for frame, _ in traceback.walk_tb(error.__traceback__)]
    return next((name for name in reversed(modules) if name.partition(".")[0] != "importlib"), "")
