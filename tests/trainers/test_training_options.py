"""Test that each training option is declared once: its flag, its constructor and `run.json` agree."""

import dataclasses
import math

import pytest

from beambert import cli
from beambert.common.command_line.flags import Number, WholeNumber
from beambert.common.command_line.options import options_of
from beambert.common.typed_json import JsonError, convert
from beambert.trainers.errors import TrainingError
from beambert.trainers.finetuning.options import FinetuneOptions
from beambert.trainers.options import LearningRateSchedule, OptimizerOptions
from beambert.trainers.pretraining.options import PretrainOptions
from beambert.trainers.training.run_manifest import RecordedOptions

REQUIRED = {PretrainOptions: {"data": ("d",), "output": "o"}, FinetuneOptions: {"task": "rte", "output": "o"}}


def parse(*flags):
    return cli.read_command("pretrain", ["--data", "d", "--output", "out", *flags])


def configured(*flags):
    return parse(*flags).configure()


def of_class(cls, config):
    return cls(**{field.name: getattr(config, field.name) for field in dataclasses.fields(cls)})


def invalid_values():
    """Return values of wrong types, and values just out of range."""
    for cls in REQUIRED:
        for option in options_of(cls):
            argument_type = option.keywords().get("type")
            if isinstance(argument_type, WholeNumber):
                values = [argument_type.least - 1, argument_type.most + 1, "5", 1.5, True]
            elif isinstance(argument_type, Number):
                values = [-1.0, math.nan, math.inf, "0.5"]
            elif option.keywords().get("choices"):
                values = ["no such value", 1]
            elif option.plain_type in (bool, str):
                values = [3]
            else:
                values = []
            yield from ((cls, option.name, value) for value in values)


@pytest.mark.parametrize(("cls", "name", "value"), invalid_values())
def test_an_invalid_value_is_refused_by_the_constructor_and_in_run_json(cls, name, value):
    with pytest.raises(TrainingError, match=f"invalid (--{name}|TASK) .*: must be "):
        cls(**{**REQUIRED[cls], name: value})
    if value not in (math.inf, -math.inf) and value == value:
        with pytest.raises(JsonError, match=name):
            convert({name: value}, RecordedOptions)


@pytest.mark.parametrize("cls", REQUIRED)
def test_recorded_options_are_valid(cls):
    recorded = cls(**REQUIRED[cls], lr_multiplier=(("bias", 0.5),)).to_json()
    assert recorded["lr_multiplier"] == [["bias", 0.5]]
    converted = convert(recorded, RecordedOptions)
    assert converted == {
        **recorded,
        **{name: converted[name] for name in ("lr_multiplier", "data") if name in recorded},
    }
    names = {option.name for option in options_of(cls)} - {"given_options"}
    assert recorded.keys() == names


@pytest.mark.parametrize(
    "flags",
    [
        [],
        ["--strategy", "tpu"],
        ["--strategy", "tpu", "--tpu_name", "t", "--tpu_zone", "z", "--gcp_project", "p"],
        ["--tpu_name", "t"],
        ["--strategy", "mirrored", "--cpu_devices", "4"],
        ["--strategy", "single", "--coordinator_address", "a:1", "--num_processes", "1", "--process_id", "0"],
        ["--shard_optimizer_state", "--backend", "jax"],
    ],
)
def test_devices_that_go_together(flags):
    configured(*flags)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--strategy", "single", "--tpu_name", "t"], "invalid --tpu_name with --strategy single"),
        (
            ["--strategy", "single", "--coordinator_address", "a:1", "--num_processes", "2", "--process_id", "1"],
            "invalid --strategy single with --num_processes 2: it is the first device of each process",
        ),
        (["--strategy", "tpu", "--tpu_zone", "z"], "invalid --tpu_zone without --tpu_name"),
        (["--gcp_project", "p"], "invalid --gcp_project without --tpu_name"),
        (
            ["--shard_optimizer_state", "--backend", "tensorflow"],
            "invalid --shard_optimizer_state with --backend tensorflow: it requires --backend jax",
        ),
    ],
)
def test_devices_that_contradict_each_other(flags, message):
    with pytest.raises(TrainingError, match=message):
        configured(*flags)


@pytest.mark.parametrize(
    "flags",
    [
        ["--cpu_devices", "0"],
        ["--gradient_accumulation_steps", "0"],
        ["--keep_checkpoint_max", "0"],
        ["--keep_checkpoint_every_n_hours", "0"],
        ["--eval_steps", "-1"],
        ["--peak_tflops", "-3"],
    ],
)
def test_bad_values_are_refused_by_the_parser(flags, capsys):
    with pytest.raises(SystemExit):
        parse(*flags)
    assert flags[0] in capsys.readouterr().err


def test_without_flags_it_is_the_released_optimizer():
    assert of_class(OptimizerOptions, configured()) == OptimizerOptions(
        optimizer="bert_adam",
        weight_decay=0.01,
        adam_beta1=0.9,
        adam_beta2=0.999,
        adam_epsilon=1e-6,
        clip_norm=1.0,
        clip="global",
        layerwise_lr_decay=1.0,
        lr_multiplier=(),
    )
    assert of_class(LearningRateSchedule, configured()) == LearningRateSchedule(
        lr_schedule="linear", lr_decay_power=1.0, lr_decay_fraction=0.2, lr_min_fraction=0.0
    )


def test_an_option_of_another_schedule_is_named():
    with pytest.raises(TrainingError, match=r"invalid --lr_decay_fraction 0.1 with --lr_schedule linear: it requires"):
        configured("--lr_decay_fraction=0.1")


def test_every_flag_of_the_optimizer_arrives():
    flags = (
        "--optimizer=lamb --weight_decay=0 --adam_beta1=0.8 --adam_beta2=0.98 --adam_epsilon=1e-8 --clip_norm=0 "
        "--clip=per_shard --layerwise_lr_decay=0.9 --lr_multiplier=bert/embeddings/=0 --lr_multiplier=^a=b$=2.5 "
        "--lr_decay_power=0.5"
    )
    config = configured(*flags.split())
    assert of_class(OptimizerOptions, config) == OptimizerOptions(
        optimizer="lamb",
        weight_decay=0.0,
        adam_beta1=0.8,
        adam_beta2=0.98,
        adam_epsilon=1e-8,
        clip_norm=0.0,
        clip="per_shard",
        layerwise_lr_decay=0.9,
        lr_multiplier=(("bert/embeddings/", 0.0), ("^a=b$", 2.5)),
    )
    assert config.lr_decay_power == 0.5
    wsd = configured("--lr_schedule=wsd", "--lr_decay_fraction=0.1")
    assert (wsd.lr_schedule, wsd.lr_decay_fraction) == ("wsd", 0.1)
    cosine = configured("--lr_schedule=cosine", "--lr_min_fraction=0.1")
    assert (cosine.lr_schedule, cosine.lr_min_fraction) == ("cosine", 0.1)


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--weight_decay=-1", "'-1' is not a number from 0"),
        ("--adam_beta1=1", "'1' is not a number from 0 to below 1"),
        ("--adam_beta2=nan", "'nan' is not a number from 0 to below 1"),
        ("--adam_epsilon=0", "'0' is not a number above 0"),
        ("--clip_norm=none", "'none' is not a number from 0"),
        ("--layerwise_lr_decay=1.1", "'1.1' is not a number above 0 to 1"),
        ("--lr_multiplier=bert/embeddings/", "'bert/embeddings/' is not REGEX=FACTOR, such as bert/embeddings/=0.5"),
        ("--lr_multiplier==2", "'=2' is not REGEX=FACTOR"),
        ("--lr_multiplier=(=2", "'(' is not a valid regular expression"),
        ("--lr_multiplier=bias=-2", "'-2' is not a number from 0"),
        ("--lr_decay_power=0", "'0' is not a number above 0"),
        ("--lr_decay_fraction=0", "'0' is not a number above 0 to 1"),
        ("--lr_min_fraction=1.1", "'1.1' is not a number from 0 to 1"),
    ],
)
def test_a_mistake_in_a_flag_of_the_optimizer_is_named(flag, message, capsys):
    with pytest.raises(SystemExit):
        parse(flag)
    assert message in capsys.readouterr().err
