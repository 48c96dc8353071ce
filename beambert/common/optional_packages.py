"""Version of beambert, and error messages for packages that cannot be imported."""

import importlib.metadata
import importlib.util
import re
import sys

# Extras of setup.py for packages that a command needs only with some of its flags. The extras of the command install
# all others.
_EXTRAS = {
    "array_record": "array-record",
    "ftfy": "clean",
    "google": "gcp",
    "h5py": "convert",
    "ml_dtypes": "convert",
    "onnx": "onnx",
    "onnxruntime": "onnx",
    "py3langid": "clean",
    "safetensors": "convert",
    "tensorflow": "train",
    "tensorflow_text": "tensorflow-text",
    "tf2onnx": "onnx",
    "wikiextractor": "wikiextractor",
}
# Error of `from google.cloud import storage` where the module of the namespace package is not installed.
_FROM_NAMESPACE = re.compile(r"cannot import name '(\w+)' from '([\w.]+)' \(unknown location\)")


def version() -> str:
    """Return the version of the installed package."""
    try:
        return importlib.metadata.version("beambert")
    except importlib.metadata.PackageNotFoundError:
        return "of unknown version"


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


def import_failure(error: ImportError, extras: str) -> str | None:
    """Return one line for a package that is missing, incomplete or broken.

    Args:
        error: exception of the import.
        extras: extras of the command, such as "data,gcp".

    Returns:
        The line, or None for a module of beambert, which is an internal error.
    """
    match = _FROM_NAMESPACE.match(str(error))
    module = f"{match[2]}.{match[1]}" if match else error.name or _importer(error)
    package = module.partition(".")[0]
    if package in ("", "__main__", "beambert"):
        return None
    if package in sys.stdlib_module_names:
        return f"module {module} is missing from {sys.executable}; use a complete installation of Python"
    extra = _EXTRAS.get(package, extras)
    if match or isinstance(error, ModuleNotFoundError):
        # A package without one of its modules is of another version.
        flag = "--upgrade " if module != package != "google" else ""
        return f"package {module} is not installed; pip install {flag}'beambert[{extra}]'"
    root: BaseException = error
    while (cause := root.__cause__ or root.__context__) is not None:
        root = cause
    reason = (str(root).strip().splitlines() or [type(root).__name__])[0]
    return (
        f"package {package} cannot be imported ({reason}); reinstall it: pip install --upgrade --force-reinstall "
        f"'beambert[{extra}]'"
    )


def _importer(error: ImportError) -> str:
    """Return the module that contains the failed import."""
    name = ""
    trace = error.__traceback__
    while trace is not None:
        module = trace.tb_frame.f_globals.get("__name__") or ""
        if module.partition(".")[0] != "importlib":
            name = module
        trace = trace.tb_next
    return name
