"""Test that no text of a file controls the terminal: every command prints hostile names, texts and tokens on a pty.

What rich writes itself, such as colors and the live line, is allowed.
"""

import json
import logging
import os
import re
import shutil
import sys
import threading
import tty
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from rich.text import Text
from safetensors.numpy import load_file, save_file

from beambert import cli
from beambert.common import terminal
from beambert.common.progress import Progress, TextConsole
from tests import forked
from tests.conftest import ROOT, with_slow
from tests.every_output import command_of

# Title, clear screen, link, 8-bit color, concealed, cursor up, override, isolate, backspace, DEL and carriage return.
HOSTILE = (
    "\x1b]0;title\x07\x1b[2J\x1b]8;;http:x\x1b\\link\x9b31m\x1b[8m\x1b[7A\u202eoverride\u2066isolate\x08\x7f\rspoof"
)
# Where `tests.every_output` has a folder of this name, every path that is printed is hostile.
NAME = f"a{HOSTILE}"
_OF_RICH = re.compile(r"\x1b\[(?:(?!8m)[\d;]*m|\?25[lh]|1A|2K)|\r(?!spoof)")
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")

COMMANDS = {
    "build": lambda folder: command_of("build", folder, folder / "new data"),
    "corpus": lambda folder: command_of("corpus", folder, folder / "new corpus"),
    "pretraining-data": lambda folder: command_of("pretraining-data", folder, folder / "new shards"),
    "vocab": lambda folder: command_of("vocab", folder, folder / "new vocab.txt"),
    "quality train": lambda folder: [
        *["quality", "train", "--good", f"{folder}/good.jsonl", "--bad", f"{folder}/bad.jsonl"],
        *["--output", f"{folder}/model"],
    ],
    "inspect corpus": lambda folder: ["inspect", f"{folder}/corpus"],
    "inspect --stats": lambda folder: ["inspect", f"{folder}/corpus", "--stats"],
    "inspect dataset": lambda folder: ["inspect", f"{folder}/dataset"],
    "pretrain": lambda folder: command_of("pretrain", folder, folder / "new run"),
    "finetune": lambda folder: command_of("finetune", folder, folder / "new finetuned"),
    "tune": lambda folder: command_of("tune", folder, folder / "new runs"),
    "evaluate": lambda folder: [
        *["evaluate", f"{folder}/run", "--pairs", f"{folder}/pairs.tsv", "--output", f"{folder}/new results.json"]
    ],
    "fill-mask": lambda folder: ["fill-mask", f"{folder}/tokens", "a [MASK]"],
    "predict": lambda folder: ["predict", f"{folder}/finetuned", "--input_file", f"{folder}/pairs.txt"],
    "features": lambda folder: command_of("features", folder, folder / "new features"),
    "convert": lambda folder: ["convert", f"{folder}/tokens", f"{folder}/new model", "--to", "native"],
    "extend-vocab": lambda folder: command_of("extend-vocab", folder, folder / "new vocabulary"),
    "export": lambda folder: command_of("export", folder, folder / "new export"),
    "plan": lambda folder: ["plan", "--input", f"{folder}/broken.jsonl"],
    "bad record": lambda folder: ["vocab", "--input", f"{folder}/broken.jsonl", "--output", f"{folder}/v"],
    "bad flag": lambda folder: ["vocab", f"--{NAME}", NAME],
    "demo": lambda folder: ["demo", "--output", f"{folder}/corpus"],
}
SLOW = {"build", "pretrain", "finetune", "tune", "export", "features", "evaluate", "extend-vocab", "pretraining-data"}


@pytest.fixture(scope="module")
def hostile(outputs, tmp_path_factory) -> Path:
    """Outputs of every kind in a folder with a hostile name; text and tokens of some are hostile too."""
    folder = tmp_path_factory.mktemp("escapes") / NAME
    shutil.copytree(outputs, folder)
    for shard in (folder / "corpus").rglob("*.parquet"):
        _prepend_to_text(shard)
    (folder / "pairs.txt").write_text(f"{HOSTILE.replace(chr(13), '')} ||| It rained.\n", encoding="utf-8")
    (folder / "pairs.tsv").write_text(
        "Good\tBad\tparadigm\nIt rose\tIt rise\t\x1b[2J\u202eoverride\n", encoding="utf-8"
    )
    (folder / "broken.jsonl").write_text(f'{{"text": {HOSTILE}', encoding="utf-8", newline="")
    for name in ("good", "bad"):
        texts = [{"text": f"{HOSTILE} {name} text {number}"} for number in range(30)]
        (folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(text)}\n" for text in texts))
    _write_model_with_hostile_tokens(folder / "tokens")
    return folder


def _prepend_to_text(shard: Path) -> None:
    table = pyarrow.parquet.read_table(shard)
    for name in ("title", "source"):
        column = pyarrow.array([HOSTILE] * len(table), table.schema.field(name).type)
        table = table.set_column(table.schema.get_field_index(name), table.schema.field(name), column)
    pyarrow.parquet.write_table(table, shard)


def _write_model_with_hostile_tokens(folder: Path) -> None:
    shutil.copytree(ROOT / "tests" / "fixtures" / "hugging_face" / "pretraining_erf", folder)
    tokens = (folder / "vocab.txt").read_text(encoding="utf-8").split("\n")
    named = [token if token[:1] in ("[", "") else f"{HOSTILE}{number}" for number, token in enumerate(tokens)]
    (folder / "vocab.txt").write_text("\n".join(named), encoding="utf-8", newline="")
    tensors = load_file(folder / "model.safetensors")
    save_file({**tensors, f"unknown.{HOSTILE}": np.zeros(3, np.float32)}, folder / "model.safetensors")


def on_a_terminal(function, *arguments: object) -> str:
    """Return what a function, in a process of its own, writes to the terminal that is its stdout and stderr."""
    controller, terminal_fd = os.openpty()
    tty.setraw(terminal_fd)
    content = bytearray()

    def read() -> None:
        try:
            while data := os.read(controller, 1 << 16):
                content.extend(data)
        except OSError:  # The last process has closed the terminal.
            pass

    reader = threading.Thread(target=read)
    reader.start()
    try:
        forked.run(Path(os.ttyname(terminal_fd)), function, *arguments)
    finally:
        os.close(terminal_fd)
        reader.join()
        os.close(controller)
    return content.decode()


def controls(text: str) -> list[str]:
    """Return the control characters that are not those of rich."""
    return _CONTROL.findall(_OF_RICH.sub("", text))


def run_command(argv: list[str]) -> int:
    os.environ.update(TERM="xterm-256color", COLUMNS="300")
    sys.argv = ["beambert", *argv]
    return cli.main(argv)


@pytest.mark.parametrize("name", with_slow(COMMANDS, SLOW))
def test_a_command_prints_hostile_text_escaped(hostile, name):
    shown = on_a_terminal(run_command, COMMANDS[name](hostile))
    assert "override" in shown
    assert controls(shown) == []


def test_every_command_is_here():
    tested = {name.partition(" ")[0] for name in COMMANDS}
    assert {name.partition(" ")[0] for name in cli.COMMANDS if not name.startswith("submit")} <= tested


def print_in_every_way() -> None:
    os.environ.update(TERM="xterm-256color", COLUMNS="300")
    terminal.open_streams()
    print(HOSTILE, "stdout")
    print(HOSTILE, "stderr", file=sys.stderr)
    logging.basicConfig(force=True)
    logging.getLogger("beambert").warning("%s logged", HOSTILE)
    TextConsole().print(Text(f"{HOSTILE} by rich"))
    with Progress(2, stdout=True) as progress:
        progress.show(1, [f"{HOSTILE} live"])
        print(HOSTILE, "during the live line")
        progress.finish(f"{HOSTILE} finished")
    raise ValueError(f"{HOSTILE} raised")


def test_every_way_of_printing_is_filtered():
    shown = on_a_terminal(print_in_every_way)
    for word in ("stdout", "stderr", "logged", "rich", "live", "during the live line", "finished", "raised"):
        assert word in shown
    assert controls(shown) == []
    assert "\x1b]" not in shown
