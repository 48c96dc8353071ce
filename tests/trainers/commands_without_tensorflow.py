"""Run commands in a process in which TensorFlow and TensorBoard cannot be imported.

stdin: a JSON list of command lines. stdout: for each command line, a JSON line with its exit code, its output, and the
number of forward passes that JAX compiled. A command line ["fill_masks", model, text, ...] calls the function of that
name.
"""

import contextlib
import importlib.machinery
import io
import json
import sys
from pathlib import Path

HIDDEN = ("tensorflow", "tensorboard")


class InstalledPackages(importlib.machinery.PathFinder):
    """A finder of all packages except those in `HIDDEN`."""

    @classmethod
    def find_spec(cls, fullname, path=None, target=None):
        """Return None for a hidden package, as if it were not installed."""
        if fullname.partition(".")[0] in HIDDEN:
            return None
        return super().find_spec(fullname, path, target)


def main() -> int:
    """Run the commands of stdin."""
    places = [finder is importlib.machinery.PathFinder for finder in sys.meta_path]
    sys.meta_path[places.index(True)] = InstalledPackages
    import jax

    from beambert import cli
    from beambert.trainers.commands.fill_mask import fill_masks

    compiled: list[str] = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, _seconds, **details: (
            compiled.append(details.get("fun_name", "")) if event.endswith("backend_compile_duration") else None
        )
    )
    for argv in json.load(sys.stdin):
        compiled.clear()
        printed = io.StringIO()
        if argv[0] == "fill_masks":
            code = 0
            json.dump(fill_masks(Path(argv[1]), argv[2:], top_k=4), printed)
        else:
            with contextlib.redirect_stdout(printed):
                code = cli.main(argv)
        # The compiled function of a forward pass is named `step`.
        result = {"code": code, "printed": printed.getvalue(), "programs": compiled.count("jit(step)")}
        print(json.dumps(result), flush=True)
    assert not set(HIDDEN) & sys.modules.keys()
    return 0


if __name__ == "__main__":
    sys.exit(main())
