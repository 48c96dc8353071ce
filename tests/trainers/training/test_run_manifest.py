import argparse
import dataclasses
import json
import re
from importlib import metadata

import pytest

from beambert.bert_model.config import BertConfig
from beambert.common.command_line.options import options_of
from beambert.trainers.commands.pretrain import add_arguments, configure
from beambert.trainers.errors import TrainingError
from beambert.trainers.finetuning.options import FinetuneOptions
from beambert.trainers.optimization.schedule import plan_stages
from beambert.trainers.options import OnResume
from beambert.trainers.pretraining.options import PretrainOptions
from beambert.trainers.training import run_manifest
from beambert.trainers.training.run_manifest import RunRecord, changes, check_same_run, last_step, load
from tests.conftest import ROOT

CONFIG = BertConfig(vocab_size=30, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
COMMANDS = (PretrainOptions, FinetuneOptions)
SHORT, LONG = "a" * 64, "b" * 64


def record(*flags, data=((SHORT, 128),), **changed):
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    directories = [name for name, _ in data]
    args = parser.parse_args(["--data", *directories, "--output", "o", "--num_train_steps", "100", *flags])
    lengths = [length for _, length in data]
    stages = plan_stages(args.num_train_steps, lengths, args.schedule, args.train_batch_size, args.batch_ramp)
    values = {
        "data_fingerprints": tuple(directories),
        "vocab_sha256": "c" * 64,
        "do_lower_case": True,
        "max_seq_length": max(lengths),
        "stages": tuple(stages),
        "options": configure(args).to_json(),
        "versions": {"python": "3.11.7"},
    }
    return RunRecord(**values | changed)


def refused(tmp_path, step, old, new, config=CONFIG):
    """Return the message with which resuming is refused; None if the run can be resumed."""
    try:
        check_same_run(tmp_path, step, old, new, CONFIG, config)
    except TrainingError as error:
        return str(error)
    return None


def test_a_record_is_read_as_it_was_written(tmp_path):
    assert load(tmp_path) is None
    written = record(
        *("--schedule", "128x0.9,512x0.1@4", "--batch_ramp", "8:10", "--learning_rate", "1e-3"),
        data=((SHORT, 128), (LONG, 512)),
    )
    (tmp_path / "run.json").write_text(written.to_json(), encoding="utf-8")
    assert load(tmp_path) == written
    content = json.loads(written.to_json())
    assert content["stages"][0] == {"data": 0, "batch_size": 8, "first_step": 0, "end_step": 10, "first_example": 0}
    assert content["options"]["data"] == [SHORT, LONG]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"format": "beambert-run", "format_version": 3}', "another --output, with --init_checkpoint"),
        ('{"format": "something", "format_version": 4}', 'has format "something" 4, but .* reads "beambert-run" 4'),
        ('{"format": "beambert-run", "format_version": 4}', "data_fingerprints is missing"),
        ("{", "not valid JSON"),
    ],
)
def test_records_that_cannot_be_read(tmp_path, text, message):
    (tmp_path / "run.json").write_text(text, encoding="utf-8")
    with pytest.raises(TrainingError, match=message):
        load(tmp_path)


def test_the_last_step(tmp_path):
    assert last_step(tmp_path) is None
    (tmp_path / "checkpoints").mkdir()
    assert last_step(tmp_path) is None
    for name in ("model.ckpt-9.index", "model.ckpt-100.index", "model.ckpt-200.data-00000-of-00001"):
        (tmp_path / "checkpoints" / name).touch()
    assert last_step(tmp_path) == 100


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--seed", "7"], r"--seed \(12345 before, 7 now\)"),
        (["--causal_attention"], r"--causal_attention \(False before, True now\)"),
        (["--no_next_sentence"], r"--no_next_sentence \(False before, True now\)"),
        (["--train_batch_size", "8"], r"batch size at step 0 \(32 before, 8 now\).*or --batch_ramp 32:50 to change"),
        (["--batch_ramp", "8:10"], r"batch size at step 0 \(32 before, 8 now\)"),
    ],
)
def test_options_that_make_a_different_run(tmp_path, flags, message):
    old, new = record(), record(*flags)
    with pytest.raises(TrainingError, match=message):
        check_same_run(tmp_path, 50, old, new, CONFIG, CONFIG)
    with pytest.raises(TrainingError, match=message.split(".*")[0]):
        check_same_run(tmp_path, 1, old, new, CONFIG, CONFIG)


def test_every_difference_is_named(tmp_path):
    other = dataclasses.replace(CONFIG, hidden_size=16)
    said = refused(tmp_path, 50, record(), record("--seed", "7", data=((LONG, 128),)), other)
    assert "the data at step 0 (aaaaaaaaaaaa... before, bbbbbbbbbbbb... now), --seed (12345 before" in said
    assert "model hidden_size (8 before, 16 now)" in said


def test_the_batch_size_may_change_from_the_current_step_on(tmp_path):
    """Resume with the flag that the error message suggests."""
    assert refused(tmp_path, 50, record(), record("--batch_ramp", "32:50", "--train_batch_size", "8")) is None
    assert refused(tmp_path, 51, record(), record("--batch_ramp", "32:50", "--train_batch_size", "8"))
    ramped = record("--batch_ramp", "8:10,16:70")
    said = refused(tmp_path, 50, ramped, record())
    assert "--batch_ramp 8:10,16:50 to change" in said
    assert refused(tmp_path, 50, ramped, record("--batch_ramp", "8:10,16:50")) is None


def test_a_phase_may_be_added_before_it_begins(tmp_path):
    both = record("--schedule", "128x0.9,512x0.1", data=((SHORT, 128), (LONG, 512)))
    assert refused(tmp_path, 90, record(), both) is None
    assert refused(tmp_path, 90, both, record()) is None
    assert "at step 90 (aaaaaaaaaaaa... before, bbbbbbbbbbbb... now)" in refused(tmp_path, 91, record(), both)
    # The order of the --data directories has no effect.
    assert (
        refused(tmp_path, 100, both, record("--schedule", "128x0.9,512x0.1", data=((LONG, 512), (SHORT, 128)))) is None
    )


def test_a_run_may_become_longer_or_shorter(tmp_path):
    both = {"data": ((SHORT, 128), (LONG, 512))}
    old = record("--schedule", "128x0.9,512x0.1", **both)
    longer = record("--schedule", "128x0.9,512x0.1", "--num_train_steps", "200", **both)
    assert refused(tmp_path, 90, old, longer) is None
    # The second phase had begun at step 90, and would now begin at step 180.
    assert "the data at step 90" in refused(tmp_path, 95, old, longer)
    assert refused(tmp_path, 100, record(), record("--num_train_steps", "50")) is None


def test_changed_options_are_listed():
    assert changes(record(), record()) == []
    assert changes(record(), record("--save_checkpoints_steps", "7", "--eval_steps", "3", "--recipe", "tiny-cpu")) == []
    new = record(
        *("--num_train_steps", "200", "--learning_rate", "0.1", "--gradient_accumulation_steps", "2"),
        *("--precision", "bfloat16"),
        versions={"python": "3.12.0"},
    )
    assert changes(record(), new) == [
        "Changed training options: num_train_steps 100 to 200, learning_rate None to 0.1",
        "Results are not bit-identical to an uninterrupted run: precision float32 to bfloat16, "
        "gradient_accumulation_steps 1 to 2, python 3.11.7 to 3.12.0",
    ]


def test_another_backend_is_named_and_its_version_is_not_compared(tmp_path):
    old = record("--backend", "tensorflow", versions={"python": "3.11.7", "tensorflow": "2.20.0"})
    new = record("--backend", "jax", versions={"python": "3.11.7", "jax": "0.9.0"})
    expected = ["Results are not bit-identical to an uninterrupted run: backend tensorflow to jax"]
    assert changes(old, new) == expected


def test_a_sharded_optimizer_state_changes_numerics_only(tmp_path):
    old, sharded = record("--backend", "jax"), record("--shard_optimizer_state", "--backend", "jax")
    assert changes(old, sharded) == [
        "Results are not bit-identical to an uninterrupted run: shard_optimizer_state False to True"
    ]
    assert refused(tmp_path, 50, old, sharded) is None


def test_an_option_that_a_run_does_not_record_has_its_default(tmp_path):
    older = record()
    for name in ("causal_attention", "clip", "xla"):
        del older.options[name]
    assert refused(tmp_path, 50, older, record()) is None
    assert changes(older, record()) == []
    assert "--causal_attention (False before, True now)" in refused(tmp_path, 50, older, record("--causal_attention"))
    assert changes(older, record("--clip", "per_shard")) == ["Changed training options: clip global to per_shard"]


@pytest.mark.parametrize("cls", COMMANDS)
def test_every_option_has_a_rule_and_a_help(cls):
    rules = {option.name: option.annotation(OnResume) for option in options_of(cls)}
    assert None not in rules.values()
    assert all(len(option.description) > 20 for option in options_of(cls) if option.flag and option.name != "task")
    assert rules["seed"] is OnResume.FORBIDDEN
    assert rules["learning_rate"] is OnResume.LATER_STEPS
    assert rules["precision"] is OnResume.NUMERICS
    assert rules["output"] is OnResume.NO_EFFECT


def test_an_option_of_both_commands_has_one_rule():
    rules = [{option.name: option.annotation(OnResume) for option in options_of(cls)} for cls in COMMANDS]
    shared = rules[0].keys() & rules[1].keys()
    assert len(shared) > 40
    assert [name for name in shared if rules[0][name] is not rules[1][name]] == []


@pytest.mark.parametrize(("rule", "cell"), [(OnResume.FORBIDDEN, "no: give"), (OnResume.NUMERICS, "yes; the message")])
def test_the_guide_names_the_flags_of_a_rule(rule, cell):
    guide = (ROOT / "docs/guides/resume.md").read_text(encoding="utf-8")
    (row,) = (line for line in guide.splitlines() if line.startswith("| ") and f"| {cell}" in line)
    named = set(re.findall(r"`--(\w+)`", row.split(" | ")[0]))
    options = {option.name for cls in COMMANDS for option in options_of(cls) if option.annotation(OnResume) is rule}
    # The task is in the name of the command; the row has "number of devices".
    assert named == options - {"task", "cpu_devices"}


def test_tensorflow_is_found_under_the_name_that_it_has_on_a_tpu(monkeypatch):
    installed = {"keras": "3.15.1", "numpy": "2.4.6", "tensorflow-tpu": "2.20.0"}

    def version(package):
        if package not in installed:
            raise metadata.PackageNotFoundError(package)
        return installed[package]

    monkeypatch.setattr(metadata, "version", version)
    assert run_manifest.versions("tensorflow")["tensorflow"] == "2.20.0"
    del installed["tensorflow-tpu"]
    with pytest.raises(metadata.PackageNotFoundError, match=r"tensorflow$"):
        run_manifest.versions("tensorflow")
    installed["jax"] = "0.9.0"
    assert run_manifest.versions("jax").keys() == {"python", "keras", "numpy", "jax"}
