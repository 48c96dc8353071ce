"""Define the flags of `beambert pretrain`.

This file imports neither Keras nor TensorFlow.
"""

import argparse

from beambert.bert_model.config import PRESETS
from beambert.common.command_line.flags import (
    batch_size,
    duration,
    non_negative_int,
    positive_float,
    positive_int,
    seed,
)
from beambert.common.command_line.path_flags import ANY_OUTPUT_DIRECTORY, ANY_PATH, MODEL_NAME_OR_PATH
from beambert.trainers.config.pretrain_config import (
    DEFAULT_TRAIN_STEPS,
    LEAST_WARMUP_STEPS,
    MOST_WARMUP_STEPS,
    PretrainConfig,
)
from beambert.trainers.pretraining.recipes import add_recipe_argument
from beambert.trainers.training.optimizer_flags import add_optimizer_arguments
from beambert.trainers.training.training_flags import add_training_arguments

DEFAULT_MODEL = "tiny"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags; names and defaults are those of the released run_pretraining.py where it has them."""
    parser.add_argument_group("output").add_argument(
        "--output",
        required=True,
        type=ANY_OUTPUT_DIRECTORY,
        metavar="DIR",
        help="Directory for checkpoints, logs and results; a run with the same data, model and seed resumes from its "
        "last checkpoint",
    )
    _add_data_arguments(parser)
    _add_model_arguments(parser)
    _add_step_arguments(parser)
    add_optimizer_arguments(parser)
    add_training_arguments(parser, best_metric=PretrainConfig.best_metric)
    parser.add_argument_group("evaluation").add_argument(
        "--max_eval_steps",
        type=positive_int,
        default=PretrainConfig.max_eval_steps,
        metavar="N",
        help="Maximum number of batches of --eval_batch_size sequences per evaluation (default: %(default)s)",
    )
    _add_input_handling_arguments(parser)


def _add_data_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("data")
    group.add_argument(
        "--data",
        nargs="+",
        required=True,
        type=ANY_PATH,
        metavar="DIR",
        help="Dataset directories from `beambert build` or `beambert pretraining-data`; with several, one per sequence "
        "length, --schedule sets when each is used",
    )
    group.add_argument(
        "--schedule",
        metavar="PHASES",
        help="Phases of training as LENGTHxFRACTION, the fraction of the steps at each sequence length, such as "
        "128x0.9,512x0.1 (the BERT paper's); 512x0.1@64 also sets the batch size of a phase (default: a single phase)",
    )


def _add_model_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("model")
    group.add_argument(
        "--model",
        type=MODEL_NAME_OR_PATH,
        metavar="NAME|FILE.json",
        help=f"Model configuration: {', '.join(PRESETS)}, a compact model such as L-6_H-256, or the path of a "
        "bert_config.json (default: the configuration in --output, else of --init_checkpoint, else "
        f"{DEFAULT_MODEL})",
    )
    group.add_argument(
        "--init_checkpoint",
        type=ANY_PATH,
        metavar="PATH",
        help="Initial weights: a run or converted model, a checkpoint, zip archive or SavedModel of the released BERT, "
        "or a model of Hugging Face or KerasHub (default: random weights)",
    )
    group.add_argument(
        "--no_next_sentence",
        action="store_true",
        help='Train without the next-sentence loss ("No NSP" in the BERT paper, section 5.1)',
    )
    group.add_argument(
        "--causal_attention",
        action="store_true",
        help='Use causal attention, as in "LTR" of the BERT paper (section 5.1); the objective is still masked-LM',
    )


def _add_step_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("training")
    add_recipe_argument(parser, group)
    group.add_argument(
        "--do_train",
        action="store_true",
        help="Train; without --do_train and --do_eval, the command does both",
    )
    group.add_argument(
        "--do_eval", action="store_true", help="Evaluate the last checkpoint on the validation split of --data"
    )
    group.add_argument(
        "--num_train_steps",
        type=positive_int,
        metavar="N",
        help=f"Number of training steps (default: {DEFAULT_TRAIN_STEPS}; the BERT paper's: 1000000)",
    )
    group.add_argument(
        "--max_train_time",
        type=duration,
        metavar="TIME",
        help="Time for the whole command instead of --num_train_steps, such as 2h or 90m; the number of steps is "
        "computed from the speed measured at the start, recorded, and kept when the run resumes (default: none)",
    )
    group.add_argument(
        "--num_warmup_steps",
        type=non_negative_int,
        metavar="N",
        help="Steps of linear learning-rate warm-up, after which --lr_schedule applies (default: num_train_steps / 10, "
        f"from {LEAST_WARMUP_STEPS} to {MOST_WARMUP_STEPS} and at most num_train_steps / 2)",
    )
    group.add_argument(
        "--learning_rate",
        type=positive_float,
        metavar="RATE",
        help="Peak learning rate (default: 1e-4 for base and large, as in the BERT paper; 2e-4 for medium and "
        "small, 5e-4 "
        "for mini, 1e-3 for tiny)",
    )
    group.add_argument(
        "--train_batch_size",
        type=batch_size,
        default=PretrainConfig.train_batch_size,
        metavar="N",
        help="Global training batch size in sequences (default: %(default)s; the BERT paper's: 256)",
    )
    group.add_argument(
        "--batch_ramp",
        metavar="SIZES",
        help="Smaller batch sizes at the start as SIZE:STEP; 32:1000,64:2000 uses 32 sequences until step 1000, 64 "
        "until step 2000, then --train_batch_size (default: none)",
    )
    group.add_argument(
        "--mask_rate_schedule",
        metavar="RATES",
        help="Fractions of tokens to mask as RATE:STEP, for data with dynamic masks; 0.3:10000,0.15 masks 30%% until "
        "step 10000, then 15%%; 0.3-0.15 decreases over all steps (default: the rate of the data)",
    )
    group.add_argument(
        "--seed",
        type=seed,
        default=PretrainConfig.seed,
        metavar="N",
        help="Random seed of the initial weights, the data order and dropout; the same seed on the same machine gives "
        "the same weights (default: %(default)s)",
    )


def _add_input_handling_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("input handling")
    group.add_argument(
        "--verify", action="store_true", help="Verify the SHA-256 of every shard against dataset.json before training"
    )
    group.add_argument(
        "--on_corrupt_record",
        choices=("stop", "skip"),
        default=PretrainConfig.on_corrupt_record,
        help="Action at a corrupt record: stop and name its shard and offset, or skip and count it "
        "(default: %(default)s)",
    )
