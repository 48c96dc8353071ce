"""Import modules when they are first used, and large libraries faster."""

import contextlib
import gc
import importlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any


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
