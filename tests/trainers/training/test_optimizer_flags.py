import argparse

import pytest

from trainers.config.run_config import RunConfig
from trainers.errors import TrainingError
from trainers.optimization.learning_rate_schedule import LearningRateSchedule
from trainers.optimization.optimizer_options import OptimizerOptions
from trainers.training.optimizer_flags import add_optimizer_arguments


def parsed(*flags):
    parser = argparse.ArgumentParser()
    add_optimizer_arguments(parser)
    return parser.parse_args(flags)


def config(*flags):
    return RunConfig.from_args(argparse.Namespace(output="out", **vars(parsed(*flags))))


def test_without_flags_it_is_the_released_optimizer():
    assert config().optimizer_options == OptimizerOptions(
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
    assert config().learning_rate_schedule == LearningRateSchedule("linear", 1.0, 0.2, 0.0)


def test_every_flag_arrives():
    flags = (
        "--optimizer=lamb --weight_decay=0 --adam_beta1=0.8 --adam_beta2=0.98 --adam_epsilon=1e-8 --clip_norm=0 "
        "--clip=per_shard --layerwise_lr_decay=0.9 --lr_multiplier=bert/embeddings/=0 --lr_multiplier=^a=b$=2.5 "
        "--lr_decay_power=0.5"
    )
    assert config(*flags.split()).optimizer_options == OptimizerOptions(
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
    assert config(*flags.split()).learning_rate_schedule == LearningRateSchedule("linear", 0.5)
    wsd = config("--lr_schedule=wsd", "--lr_decay_fraction=0.1").learning_rate_schedule
    assert wsd == LearningRateSchedule("wsd", decay_fraction=0.1)
    cosine = config("--lr_schedule=cosine", "--lr_min_fraction=0.1").learning_rate_schedule
    assert cosine == LearningRateSchedule("cosine", min_fraction=0.1)


def test_an_option_of_another_schedule_is_named():
    with pytest.raises(TrainingError, match=r"invalid --lr_decay_fraction 0.1 with --lr_schedule linear: it requires"):
        config("--lr_decay_fraction=0.1")


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--optimizer=adam", "invalid choice: 'adam'"),
        ("--weight_decay=-1", "'-1' is not a number from 0"),
        ("--weight_decay=inf", "'inf' is not a number from 0"),
        ("--adam_beta1=1", "'1' is not a number from 0 to below 1"),
        ("--adam_beta2=nan", "'nan' is not a number from 0 to below 1"),
        ("--adam_epsilon=0", "'0' is not a number above 0"),
        ("--clip_norm=none", "'none' is not a number from 0"),
        ("--clip=local", "invalid choice: 'local'"),
        ("--layerwise_lr_decay=1.1", "'1.1' is not a number above 0 to 1"),
        ("--layerwise_lr_decay=0", "'0' is not a number above 0 to 1"),
        ("--lr_multiplier=bert/embeddings/", "'bert/embeddings/' is not REGEX=FACTOR, such as bert/embeddings/=0.5"),
        ("--lr_multiplier==2", "'=2' is not REGEX=FACTOR"),
        ("--lr_multiplier=(=2", "'(' is not a valid regular expression"),
        ("--lr_multiplier=bias=-2", "'-2' is not a number from 0"),
        ("--lr_decay_power=0", "'0' is not a number above 0"),
        ("--lr_schedule=step", "invalid choice: 'step'"),
        ("--lr_decay_fraction=0", "'0' is not a number above 0 to 1"),
        ("--lr_min_fraction=1.1", "'1.1' is not a number from 0 to 1"),
    ],
)
def test_a_mistake_is_named(flag, message, capsys):
    with pytest.raises(SystemExit):
        parsed(flag)
    assert message in capsys.readouterr().err
