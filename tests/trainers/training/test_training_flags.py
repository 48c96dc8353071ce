import argparse

import pytest

from trainers.config.run_config import RunConfig
from trainers.errors import TrainingError
from trainers.training.training_flags import add_training_arguments


def parse(*flags):
    parser = argparse.ArgumentParser()
    add_training_arguments(parser, best_metric="eval_loss")
    return parser.parse_args(flags)


def configured(*flags):
    return RunConfig.from_args(argparse.Namespace(output="out", **vars(parse(*flags))))


def test_the_old_name_of_a_single_device_is_accepted():
    assert parse("--strategy", "one").strategy == "single"
    assert parse("--strategy=single").strategy == "single"
    with_help = argparse.ArgumentParser()
    add_training_arguments(with_help, best_metric=None)
    assert "{auto,single,mirrored,multi_worker,tpu}" in with_help.format_help()


def test_defaults_are_those_of_the_released_optimizer():
    """`optimization.py` of google-research/bert; it has no decay by layer."""
    config = configured()
    assert (config.optimizer, config.lr_schedule, config.lr_decay_power) == ("bert_adam", "linear", 1)
    assert (config.weight_decay, config.adam_beta1, config.adam_beta2) == (0.01, 0.9, 0.999)
    assert (config.adam_epsilon, config.clip_norm, config.clip, config.layerwise_lr_decay) == (1e-6, 1, "global", 1)


def test_another_command_has_its_own_metric():
    assert parse().best_metric == "eval_loss"
    assert parse("--best_metric", "eval_accuracy").best_metric == "eval_accuracy"


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
        ["--strategy", "all"],
        ["--cpu_devices", "0"],
        ["--precision", "float16"],
        ["--gradient_accumulation_steps", "0"],
        ["--keep_checkpoint_max", "0"],
        ["--keep_checkpoint_every_n_hours", "0"],
        ["--eval_steps", "-1"],
        ["--deterministic_ops", "perhaps"],
        ["--activation_checkpointing", "all"],
        ["--peak_tflops", "-3"],
    ],
)
def test_bad_values_are_refused_by_the_parser(flags, capsys):
    with pytest.raises(SystemExit):
        parse(*flags)
    assert flags[0] in capsys.readouterr().err
