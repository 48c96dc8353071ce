"""Import large libraries faster."""

import contextlib
import gc
from collections.abc import Iterator


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
