"""A stand-in for pip and uv on the machine of `tpu_stand_in.py`.

It installs the wheel and treats the packages of the lock as installed. The available packages are those of the Python
that runs the tests.
"""

import json
import os
import re
import sys
import zipfile
from pathlib import Path

STATE = Path(os.environ["TPU_STAND_IN"])


def main() -> int:
    tool, *words = sys.argv[1:]
    with (STATE / "installs.jsonl").open("a") as calls:
        calls.write(json.dumps([tool, *words]) + "\n")
    if tool == "pip":
        assert words[0] == "install"
        requirements(words)
        program = Path(words[words.index("--target") + 1]) / "bin" / "uv"
        program.parent.mkdir(parents=True, exist_ok=True)
        return write_program(program, f'#!/bin/sh\nexec {sys.executable} -I {Path(__file__).resolve()} uv "$@"\n')
    if words[0] == "venv":
        environment = Path(words[-1])
        (environment / "bin").mkdir(parents=True, exist_ok=True)
        python = environment / "bin" / "python"
        python.unlink(missing_ok=True)
        python.symlink_to(sys.executable)
        return 0
    assert words[:2] == ["pip", "install"]
    if "-r" in words:
        requirements(words)
        return 0
    assert "--no-deps" in words
    environment = Path(words[words.index("--python") + 1]).parent.parent
    packages = environment / f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
    with zipfile.ZipFile(words[-1]) as wheel:
        wheel.extractall(packages)
    code = f"import sys\nsys.path.insert(0, {str(packages)!r})\nfrom beambert import cli\nsys.exit(cli.main())\n"
    stub = STATE / "command.py"
    return write_program(
        environment / "bin" / "beambert", f"#!{sys.executable}\n{stub.read_text() if stub.exists() else code}"
    )


def requirements(words: list[str]) -> None:
    assert "--require-hashes" in words
    text = Path(words[words.index("-r") + 1]).read_text()
    pinned = re.findall(r"^[a-z0-9-]+==", text, re.MULTILINE)
    assert pinned
    assert text.count("--hash=sha256:") >= len(pinned)


def write_program(path: Path, text: str) -> int:
    path.write_text(text)
    path.chmod(0o755)
    return 0


if __name__ == "__main__":
    sys.exit(main())
