"""Test `beambert plan --compile`: the features of a step, and the lines and warnings of compiled steps."""

import dataclasses
import json
import re
from pathlib import Path

import pytest

from beambert import cli
from beambert.bert_model.config import BertConfig
from beambert.common.typed_json import decode
from beambert.deploy.plan import command
from beambert.deploy.plan.estimate_lines import as_json, as_text, compilation_lines
from beambert.deploy.plan.plan_warnings import compilation_warnings
from beambert.deploy.plan.tpu_compiler import compiler_process
from beambert.deploy.plan.tpu_compiler.compiler_process import CompiledStep, StepRequest, target_of
from beambert.deploy.plan.tpu_compiler.step_estimate import StepEstimate, estimate_steps, features_of
from beambert.pipelines.instances.options import PretrainingDataOptions
from beambert.trainers.data.pipeline import train_batches
from beambert.trainers.optimization.schedule import Stage
from beambert.trainers.pretraining.options import PretrainOptions
from tests.trainers.pretraining_shards import OPTIONS, write_dataset

# Output of the compiler process for the preset base at 128 positions in bfloat16 on 16 chips of v5e, on 2026-11-23.
RECORDED = json.loads(Path(__file__).with_name("compiled_steps.json").read_text())
BASE = BertConfig.preset("base", 30_522)


def recorded_step(request: StepRequest) -> CompiledStep:
    """Return the recorded results of a step, or of the next larger batch that was recorded."""
    layers = json.loads(request.bert_config)["num_hidden_layers"]
    of_step = {
        each["examples"]: each["result"]
        for each in RECORDED
        if (each["topology"], each["layers"], each["with_cycles"]) == (request.topology, layers, request.cycles)
    }
    examples = min((count for count in of_step if count >= request.examples), default=max(of_step))
    return decode(json.dumps(of_step[examples]).encode(), CompiledStep)


def estimates(per_chip: int, precision: str = "bfloat16") -> list[StepEstimate]:
    training = PretrainOptions(data=(), output="", precision=precision)
    options = [PretrainingDataOptions(max_seq_length=128, max_predictions_per_seq=20)]
    target = target_of("v5litepod-16")
    return estimate_steps(
        target, 1, BASE, training, options, [16 * per_chip], with_time=True, compile_step=recorded_step
    )


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"masking": "dynamic"},
        {"objective": "mlm"},
        {"pack": True, "max_instances_per_row": 2},
        {"pack": True, "max_instances_per_row": 2, "objective": "mlm"},
        {"ragged": True},
        {"feature_names": "model_garden"},
    ],
)
def test_the_features_are_those_of_the_input_pipeline(tmp_path, options):
    options = dataclasses.replace(OPTIONS, **options)
    dataset = write_dataset(tmp_path, options=options)
    stage = Stage(data=0, batch_size=2, first_step=0, end_step=1, first_example=0)
    (batch,) = train_batches(tmp_path, dataset, [stage], 0, seed=1)
    assert features_of(options) == {name: values.shape[1] for name, values in batch.items()}


def test_the_lines_of_base_on_v5e():
    """Compare with docs/benchmarks/tpu-compile.md: its table and time are from other programs of the same compiler."""
    target = target_of("v5litepod-16")
    lines = compilation_lines(estimates(128), target, 1, BASE)
    values = json.loads(as_json({"TPU compiler": lines}, []))["TPU compiler"]
    assert values["examples per device"] == 128
    assert values["required memory"] / 2**30 == pytest.approx(1.23 + 4.46, abs=0.1)
    assert values["available memory"] / 2**30 == 15.75
    assert values["exchanged bytes"] / 2**20 == pytest.approx(420, abs=1)
    assert values["largest batch per device"] == 560
    assert values["step time"] == pytest.approx(0.083, rel=0.05)
    assert values["estimated utilization"] == pytest.approx(0.55, rel=0.05)
    text = as_text({"TPU compiler": lines}, [])
    assert re.search(r"^  examples per device +128 +2,048 sequences / 16 chips$", text, re.MULTILINE)
    assert f"--train_batch_size {16 * values['largest batch per device']};" in text
    assert "ranks programs and does not promise a speed" in text
    assert re.search(r"^  step time +8\d\.\d ms +estimated: cycles at 1.503 GHz$", text, re.MULTILINE)
    assert max(map(len, text.splitlines())) < 160


def test_several_lengths_have_lines_of_their_own():
    (estimate,) = estimates(128)
    longer = estimate._replace(request=dataclasses.replace(estimate.request, features={"input_ids": 512}), cycles=None)
    names = [line.name for line in compilation_lines([estimate, longer], target_of("v5e-16"), 2, BASE)]
    assert "128: required memory" in names
    assert "512: required memory" in names
    assert "512: step time" not in names


def test_a_step_that_fits_has_no_warning():
    assert compilation_warnings(estimates(128), target_of("v5e-16"), 1) == []


def test_a_step_that_does_not_fit_names_the_flags_and_the_largest_batch():
    too_large = min(each["examples"] for each in RECORDED if not each["result"]["fits"])
    (estimate,) = estimates(128)
    request = dataclasses.replace(estimate.request, examples=too_large)
    estimate = estimate._replace(step=recorded_step(request), request=request)
    (warning,) = compilation_warnings([estimate], target_of("v5e-16"), 2)
    assert f"{too_large} examples per chip do not fit into the memory of v5litepod-16" in warning
    for flag in ("--gradient_accumulation_steps", "--activation_checkpointing layer", "--train_batch_size"):
        assert flag in warning
    assert "use --shard_optimizer_state" in warning
    assert f"or use --train_batch_size {estimate.largest * 32}, which fits" in warning
    (line,) = (line for line in compilation_lines([estimate], target_of("v5e-16"), 1, BASE) if "required" in line.name)
    assert line.how.endswith("does not fit")


def test_a_step_too_large_at_any_batch_has_a_warning_without_a_batch_size():
    (estimate,) = estimates(128)
    step = dataclasses.replace(estimate.step, fits=False)
    (warning,) = compilation_warnings([estimate._replace(step=step, largest=0)], target_of("v5e-16"), 1)
    assert warning.endswith("or lower --train_batch_size")


def test_float32_is_a_warning():
    (warning,) = compilation_warnings(estimates(128, "float32"), target_of("v5e-16"), 1)
    assert "--precision bfloat16: use it here and in `beambert pretrain`" in warning


def test_the_command_prints_the_section_and_its_progress(capsys, monkeypatch):
    """Run the command itself, with the recorded results in place of the compiler process."""
    monkeypatch.setattr(compiler_process, "_PACKAGES", ())
    monkeypatch.setattr(command, "compile_step", recorded_step)
    flags = ["--words", "3.3e9", "--vocab_size", "30522", "--train_batch_size", "2048", "--precision", "bfloat16"]
    assert cli.main(["plan", *flags, "--compile", "v5e-16", "--json"]) == 0
    output = capsys.readouterr()
    content = json.loads(output.out)
    assert content["TPU compiler"]["examples per device"] == 128
    # Hours are those of the compiled slice.
    assert content["Training"]["hours"] * 3600 * 0.45 * 16 * 197e12 == pytest.approx(content["Training"]["operations"])
    lines = output.err.splitlines()
    assert lines[0] == "Compiling 128 examples per device for v5e:4x4"
    assert lines[-1].startswith("Estimating cycles of 3 layers for v5e:4x4")
