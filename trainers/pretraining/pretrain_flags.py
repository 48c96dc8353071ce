"""The options of `beambert pretrain`, and the defaults that depend on the model.

This file imports neither Keras nor TensorFlow.
"""

import argparse

from beambert_common.command_line.flags import (
    accept_old_name,
    batch_size,
    non_negative_int,
    positive_float,
    positive_int,
    seed,
)
from beambert_common.command_line.path_flags import LOCAL_OUTPUT_DIRECTORY, LOCAL_PATH, MODEL_NAME_OR_PATH
from bert_model.config import PRESETS
from trainers.config.pretrain_config import LEAST_WARMUP_STEPS, MOST_WARMUP_STEPS, PretrainConfig
from trainers.pretraining.recipes import add_recipe_argument
from trainers.training.optimizer_flags import add_optimizer_arguments
from trainers.training.training_flags import add_training_arguments

DEFAULT_MODEL = "tiny"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options; names and defaults are those of the released run_pretraining.py where it has them."""
    parser.add_argument(
        "--output",
        required=True,
        type=LOCAL_OUTPUT_DIRECTORY,
        metavar="DIR",
        help="directory for checkpoints, logs and results; if a run of the same data, model and seed lies there, it "
        "resumes from its last checkpoint",
    )
    parser.add_argument(
        "--do_train", action="store_true", help="train; with neither --do_train nor --do_eval, both are done"
    )
    parser.add_argument("--do_eval", action="store_true", help="evaluate the last checkpoint on the validation shards")
    add_recipe_argument(parser)
    _add_data_arguments(parser)
    _add_model_arguments(parser)
    _add_update_arguments(parser)
    add_optimizer_arguments(parser)
    add_training_arguments(parser, best_metric=PretrainConfig.best_metric)


def _add_data_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("data")
    group.add_argument(
        "--data",
        nargs="+",
        required=True,
        type=LOCAL_PATH,
        metavar="DIR",
        help="directory made by `beambert build` or `beambert pretraining-data`; the vocabulary, max_seq_length and "
        "max_predictions_per_seq are read from it. Several, one for each length, are read as --schedule says",
    )
    group.add_argument(
        "--schedule",
        metavar="PHASES",
        help="shares of the updates that read each length of sequences, such as 128x0.9,512x0.1, the paper's; "
        "512x0.1@64 gives a phase its own batch size (default: the one directory of --data all along)",
    )
    group.add_argument(
        "--train_batch_size",
        type=batch_size,
        default=PretrainConfig.train_batch_size,
        metavar="N",
        help="sequences an update, over all devices (default: %(default)s; the paper had 256)",
    )
    group.add_argument(
        "--batch_ramp",
        metavar="SIZES",
        help="smaller batches at first: 32:1000,64:2000 takes 32 sequences up to update 1000, 64 up to update 2000, "
        "and then --train_batch_size (default: none)",
    )
    group.add_argument(
        "--max_eval_steps",
        type=positive_int,
        default=PretrainConfig.max_eval_steps,
        metavar="N",
        help="evaluation stops after so many batches (default: %(default)s)",
    )
    group.add_argument(
        "--verify", action="store_true", help="check every shard against its SHA-256 in dataset.json before training"
    )
    flag = group.add_argument(
        "--on_corrupt_record",
        choices=("stop", "skip"),
        default=PretrainConfig.on_corrupt_record,
        help="at a record that is damaged: stop and name its shard and offset, or leave it out, count it and go on "
        "(default: %(default)s)",
    )
    accept_old_name(group, flag, "--on_corrupt")


def _add_model_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("model")
    group.add_argument(
        "--model",
        type=MODEL_NAME_OR_PATH,
        metavar="NAME|FILE.json",
        help=f"{', '.join(PRESETS)}, one of the 24 compact models such as L-6_H-256, or the path of a bert_config.json "
        f"(default: the model of the run in --output, else that of --init_checkpoint, else {DEFAULT_MODEL}, which any "
        "computer trains; base and large are the published BERT and want an accelerator)",
    )
    group.add_argument(
        "--init_checkpoint",
        type=LOCAL_PATH,
        metavar="PATH",
        help="begin with these weights instead of random ones, for instance to go on with text of another kind; the "
        "optimizer begins anew. A run or converted model, a checkpoint or zip archive of the released BERT, or a "
        "Hugging Face directory; what it lacks keeps random values, and is listed",
    )
    group.add_argument(
        "--no_next_sentence",
        action="store_true",
        help='leave the next-sentence loss out, the paper\'s ablation "No NSP" (section 5.1)',
    )
    flag = group.add_argument(
        "--causal_attention",
        action="store_true",
        help='let a position see only itself and those before it, as in the paper\'s ablation "LTR", though the masked '
        "words alone are predicted, as before",
    )
    accept_old_name(group, flag, "--left_to_right")
    group.add_argument(
        "--seed",
        type=seed,
        default=PretrainConfig.seed,
        metavar="N",
        help="of the random weights, the order of the data and dropout; the same seed on the same machine gives the "
        "same weights (default: %(default)s)",
    )


def _add_update_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("updates")
    group.add_argument(
        "--num_train_steps",
        type=positive_int,
        default=PretrainConfig.num_train_steps,
        metavar="N",
        help="updates in all (default: %(default)s; the paper made 1000000)",
    )
    group.add_argument(
        "--num_warmup_steps",
        type=non_negative_int,
        metavar="N",
        help="updates over which the learning rate climbs to its peak, from where it falls in a line to 0 (default: a "
        f"tenth of num_train_steps, from {LEAST_WARMUP_STEPS} to {MOST_WARMUP_STEPS}, but never more than half)",
    )
    group.add_argument(
        "--learning_rate",
        type=positive_float,
        metavar="RATE",
        help="peak learning rate (default: 1e-4 for base and large, as in the paper; 2e-4 for medium and small, 5e-4 "
        "for mini, 1e-3 for tiny)",
    )
