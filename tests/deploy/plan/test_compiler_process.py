"""Test the TPU compiler of `beambert plan --compile`: its process, and the slices that it compiles for, by name."""

import json
import sys

import pytest

from beambert import cli
from beambert.bert_model.config import BertConfig
from beambert.common.imports import is_installed
from beambert.deploy.plan.tpu_compiler import compiler_process
from beambert.deploy.plan.tpu_compiler.compiler_process import (
    ENVIRONMENT,
    CompiledStep,
    StepRequest,
    compile_step,
    target_of,
)
from beambert.pipelines.errors import SubmitError
from beambert.trainers.pretraining.options import PretrainOptions

REQUEST = StepRequest(
    topology="v6e:4x4",
    bert_config=BertConfig.preset("tiny", 30_522).to_json(),
    training=PretrainOptions(data=(), output="", precision="bfloat16"),
    features={"input_ids": 128},
    examples=16,
)
# Output of the process for the preset tiny at 128 positions on 2026-11-23.
RECORDED = (
    '{"compiler": "JAX 0.10.2, libtpu 0.0.42.1", "fits": true, "required_bytes": 280328960, '
    '"available_bytes": 33554432000, "state_bytes": 53309976, "collectives": 2, "collective_bytes": 17770020, '
    '"cycles": null}'
)


def run(code: str) -> CompiledStep:
    """Compile with a Python program in place of the compiler."""
    return compile_step(REQUEST, (sys.executable, "-c", code))


def test_the_results_are_read():
    result = run(f"import sys; sys.stdin.read(); print({RECORDED!r})")
    assert result == CompiledStep(
        compiler="JAX 0.10.2, libtpu 0.0.42.1",
        fits=True,
        required_bytes=280_328_960,
        available_bytes=33_554_432_000,
        state_bytes=53_309_976,
        collectives=2,
        collective_bytes=17_770_020,
    )


def test_the_request_and_the_environment_arrive(tmp_path):
    path = tmp_path / "seen.json"
    run(
        "import json, os, pathlib, sys; from beambert.deploy.plan.tpu_compiler.compiler_process import StepRequest; "
        "from beambert.common.typed_json import decode; text = sys.stdin.buffer.read(); decode(text, StepRequest); "
        f"pathlib.Path({str(path)!r}).write_text(json.dumps([json.loads(text), dict(os.environ)])); print({RECORDED!r})"
    )
    request, environment = json.loads(path.read_text())
    assert (request["examples"], request["training"]["precision"]) == (16, "bfloat16")
    assert environment.items() >= ENVIRONMENT.items()


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import os; os.abort()", r"^the TPU compiler crashed with SIGABRT \(no message\); change --compile, "),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "was killed, probably by a lack of memory"),
        ("raise SystemExit('noise\\nINTERNAL: a bug')", r"^the TPU compiler failed \(INTERNAL: a bug\); change --comp"),
        ("print('{}')", "the TPU compiler failed"),
        (
            "import os; os.write(2, b'F1123 09:00:00.1    1 a.cc:1] Check failed: x\\n*** stack ***\\n  @ 0x1\\n'); "
            "os.abort()",
            r"crashed with SIGABRT \(a.cc:1\] Check failed: x\)",
        ),
    ],
)
def test_a_failure_is_one_line(code, message):
    with pytest.raises(SubmitError, match=message) as caught:
        run(code)
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(is_installed("libtpu"), reason="the TPU compiler is installed")
def test_an_absent_compiler_names_the_package(capsys):
    assert cli.main(["plan", "--words", "1e9", "--compile", "v6e-16"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "libtpu" in line
    assert "pip install 'beambert[tpu]'" in line


def test_a_batch_that_cannot_be_divided_is_one_line(capsys, monkeypatch):
    # The check of the batch comes after that of the packages.
    monkeypatch.setattr(compiler_process, "_PACKAGES", ())
    flags = ["--words", "1e9", "--compile", "v6e-16", "--train_batch_size", "100"]
    assert cli.main(["plan", *flags]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "invalid batch size 100: must be a multiple of 16" in line


# Slices

# Type, chips, JAX devices, and the compiler's name of the topology.
TARGETS = [
    ("v5litepod-16", 16, 16, "v5e:4x4"),
    ("v5e-8", 8, 8, "v5e:2x4"),
    ("v5e-1", 1, 1, "v5e:1x1"),
    ("v5p-16", 8, 8, "v5p:2x2x2"),
    ("v6e-256", 256, 256, "v6e:16x16"),
    ("tpu7x-16", 8, 16, "tpu7x:2x2x2"),
    ("v7x-8", 4, 8, "tpu7x:2x2x1"),
]


@pytest.mark.parametrize(("name", "chips", "devices", "topology"), TARGETS)
def test_devices_and_topology(name, chips, devices, topology):
    target = target_of(name)
    assert (target.chips, target.devices, target.topology) == (chips, devices, topology)
    assert target.device == ("chip" if devices == chips else "TensorCore")


@pytest.mark.parametrize(
    ("name", "gigahertz", "is_assumed"),
    [("v5e-4", 1.503, False), ("v5p-8", 1.751, False), ("v6e-4", 1.751, True), ("tpu7x-8", 2.2, True)],
)
def test_the_clock_follows_from_peak_and_matrix_units(name, gigahertz, is_assumed):
    """Compare with values calculated by hand.

    They are 197 / (4 x 128^2 x 2), 459 / (8 x 128^2 x 2), 918 / (4 x 256^2 x 2) and 1153.5 / (4 x 256^2 x 2).
    """
    target = target_of(name)
    assert target.clock == pytest.approx(gigahertz * 1e9, rel=1e-3)
    assert target.is_assumed == is_assumed


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("v6e", "unknown --compile v6e: use one of"),
        ("v6e-12", "--compile v6e-12 does not exist: use one of v6e-4, v6e-8, v6e-16"),
        ("v5e-7", "--compile v5litepod-7 does not exist"),
        ("v4-8", "--compile v4-8: steps for v4 cannot be compiled without a TPU; use a type of v5litepod, v5p, v6e, "),
        ("", "unknown --compile"),
    ],
)
def test_a_type_without_a_compiler_is_one_line(name, message):
    with pytest.raises(SubmitError, match=f"^{message}"):
        target_of(name)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--compile", "v6e-16", "--accelerator", "h100"], "--accelerator h100 is not --compile v6e-16: drop"),
        (["--no_step_time"], "invalid --no_step_time without --compile"),
        (["--max_predictions_per_seq", "20", "--schedule", "128x0.9,512x0.1"], "drop --max_predictions_per_seq"),
        (["--max_predictions_per_seq", "129"], "129: must be at most --max_seq_length 128"),
    ],
)
def test_contradicting_flags_are_one_line(capsys, flags, message):
    assert cli.main(["plan", "--words", "1e9", *flags]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert message in error
