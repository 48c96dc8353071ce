"""Test that no model reads another file, takes memory or time without bound, or ends a command with a traceback."""

import resource
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from beambert import cli
from beambert.bert_model.checkpoints.reader import open_checkpoint
from tests import forked
from tests.hostile_models import REFUSED, damage_model, replace_pickle, write_model

_CHANGES = [(kind, change) for kind, (_, changes) in REFUSED.items() for change in changes]
_CPU_SECONDS = 10
_MEMORY = 1 << 30


def _convert(folder, model):
    """Convert a model with limited time and memory."""
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_SECONDS, _CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + _MEMORY, used + _MEMORY))
    raise SystemExit(cli.main(["convert", str(model), str(folder / "out"), "--to", "huggingface"]))


@pytest.mark.parametrize("kind", list(REFUSED))
def test_the_unchanged_models_are_read(tmp_path, kind):
    with open_checkpoint(write_model(tmp_path, kind)) as checkpoint:
        assert all(np.isfinite(tensor.read()).all() for tensor in checkpoint.tensors.values())


@pytest.mark.parametrize(("kind", "change"), _CHANGES)
def test_a_hostile_model_is_refused_in_a_line(tmp_path, kind, change):
    model = write_model(tmp_path, kind)
    damage_model(tmp_path, kind, change)
    code = forked.run(tmp_path / "log", _convert, tmp_path, model, timeout=60)
    log = (tmp_path / "log").read_text(encoding="utf-8")
    assert code == 1, (code, log[-500:])
    lines = log.splitlines()
    assert lines[-1].startswith("beambert convert: error: "), log[-500:]
    assert str(tmp_path) in lines[-1]
    assert "not enough memory" not in lines[-1]
    assert not (tmp_path / "out").exists()


def test_a_reader_ends_on_sigterm(tmp_path):
    model = write_model(tmp_path, "pickle")
    # This takes a reader several seconds.
    replace_pickle(model, lambda content: content[:-1] + b"N" * 8_000_000 + content[-1:])
    running = forked.Running("convert", model, tmp_path / "out", "--to", "native")
    running.wait_for((tmp_path / ".out.lock").exists)
    time.sleep(0.5)
    running.kill(signal.SIGTERM)
    assert running.result(timeout=3).returncode == -signal.SIGTERM, running.output()
