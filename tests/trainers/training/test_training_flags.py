import argparse

import pytest

from beambert.trainers.config.run_config import RunConfig
from beambert.trainers.errors import TrainingError
from beambert.trainers.optimization.learning_rate_schedule import LearningRateSchedule
from beambert.trainers.optimization.optimizer_options import OptimizerOptions
from beambert.trainers.training.optimizer_flags import add_optimizer_arguments
from beambert.trainers.training.training_flags import add_training_arguments


def parse(*flags):
    parser = argparse.ArgumentParser()
    add_training_arguments(parser, best_metric="eval_loss")
    add_optimizer_arguments(parser)
    return parser.parse_args(flags)


def configured(*flags):
    return RunConfig.from_args(argparse.Namespace(output="out", **vars(parse(*flags))))


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
    assert configured().optimizer_options == OptimizerOptions(
        name="bert_adam",
        weight_decay=0.01,
        beta_1=0.9,
        beta_2=0.999,
        epsilon=1e-6,
        clip_norm=1.0,
        clip="global",
        layerwise_lr_decay=1.0,
        lr_multipliers=(),
    )
    assert configured().learning_rate_schedule == LearningRateSchedule("linear", 1.0, 0.2, 0.0)


def test_an_option_of_another_schedule_is_named():
    with pytest.raises(TrainingError, match=r"invalid --lr_decay_fraction 0.1 with --lr_schedule linear: it requires"):
        configured("--lr_decay_fraction=0.1")


def test_every_flag_of_the_optimizer_arrives():
    flags = (
        "--optimizer=lamb --weight_decay=0 --adam_beta1=0.8 --adam_beta2=0.98 --adam_epsilon=1e-8 --clip_norm=0 "
        "--clip=per_shard --layerwise_lr_decay=0.9 --lr_multiplier=bert/embeddings/=0 --lr_multiplier=^a=b$=2.5 "
        "--lr_decay_power=0.5"
    )
    assert configured(*flags.split()).optimizer_options == OptimizerOptions(
        name="lamb",
        weight_decay=0.0,
        beta_1=0.8,
        beta_2=0.98,
        epsilon=1e-8,
        clip_norm=0.0,
        clip="per_shard",
        layerwise_lr_decay=0.9,
        lr_multipliers=(("bert/embeddings/", 0.0), ("^a=b$", 2.5)),
    )
    assert configured(*flags.split()).learning_rate_schedule == LearningRateSchedule("linear", 0.5)
    wsd = configured("--lr_schedule=wsd", "--lr_decay_fraction=0.1").learning_rate_schedule
    assert wsd == LearningRateSchedule("wsd", decay_fraction=0.1)
    cosine = configured("--lr_schedule=cosine", "--lr_min_fraction=0.1").learning_rate_schedule
    assert cosine == LearningRateSchedule("cosine", min_fraction=0.1)


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
