"""Test the slices of `beambert plan --compile`: devices and topologies by name, and the names that are rejected."""

import pytest

import beambert
from deploy.plan.tpu_compiler.compiler_target import target_of
from pipelines.errors import SubmitError

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
        (["--max_predictions_per_seq", "129"], "invalid --max_predictions_per_seq 129: must be from 1 to 128"),
    ],
)
def test_contradicting_flags_are_one_line(capsys, flags, message):
    assert beambert.main(["plan", "--words", "1e9", *flags]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert message in error
