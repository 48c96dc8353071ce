"""The options of `beambert finetune` and `beambert tune`. This file imports neither Keras nor TensorFlow."""

import argparse

from beambert_common.command_line.flags import (
    WholeNumber,
    batch_size,
    boolean,
    number,
    positive_float,
    positive_int,
    seed,
    sequence_length,
)
from beambert_common.command_line.path_flags import LOCAL_OUTPUT_DIRECTORY, LOCAL_PATH, MODEL_NAME_OR_PATH
from trainers.config.finetune_config import FinetuneConfig
from trainers.finetuning.tasks.task_names import TASKS, add_task_arguments
from trainers.training.optimizer_flags import add_optimizer_arguments
from trainers.training.training_flags import add_training_arguments


def add_task_and_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the task and the model."""
    parser.add_argument(
        "task",
        choices=tuple(TASKS),
        metavar="TASK",
        help=f"one of {', '.join(TASKS)}. squad: answers in texts, with and without unanswerable questions; swag: any "
        "multiple choice; ner: any entities in CoNLL columns; csv: any table of texts and labels",
    )
    parser.add_argument(
        "--data_dir",
        type=LOCAL_PATH,
        metavar="DIR",
        help="directory with the task's files, named and laid out as they are published; docs/FINETUNING.md lists them",
    )
    parser.add_argument(
        "--output",
        required=True,
        type=LOCAL_OUTPUT_DIRECTORY,
        metavar="DIR",
        help="directory for the model and all results",
    )
    group = parser.add_argument_group("model")
    group.add_argument(
        "--init_checkpoint",
        type=LOCAL_PATH,
        metavar="PATH",
        help="the pretrained model: a directory of `beambert pretrain` or `convert`, a checkpoint or zip archive of "
        "the released BERT, or a Hugging Face directory",
    )
    group.add_argument(
        "--model",
        type=MODEL_NAME_OR_PATH,
        metavar="NAME|FILE.json",
        help="without --init_checkpoint: begin with random weights of a model of this shape, to see what pretraining "
        "is worth; needs --vocab_file",
    )
    group.add_argument(
        "--vocab_file", type=LOCAL_PATH, metavar="FILE", help="the vocabulary, where the checkpoint has no vocab.txt"
    )
    group.add_argument(
        "--do_lower_case",
        type=boolean,
        metavar="true|false",
        help="whether text is lower-cased (default: what the checkpoint says, else whether its vocabulary lacks "
        "capitals)",
    )
    group.add_argument(
        "--bert_config_file",
        type=LOCAL_PATH,
        metavar="FILE",
        help="the checkpoint's bert_config.json, where a TF1 checkpoint has none beside it",
    )


def add_shared_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags that every fine-tuning run has."""
    group = parser.add_argument_group("course of training")
    group.add_argument(
        "--warmup_proportion",
        type=number(0.0, 1.0),
        default=FinetuneConfig.warmup_proportion,
        metavar="SHARE",
        help="share of the updates over which the learning rate climbs to its peak, from where it falls in a line to 0 "
        "(default: %(default)s)",
    )
    group.add_argument(
        "--seed",
        type=seed,
        default=FinetuneConfig.seed,
        metavar="N",
        help="of the head's random weights, the order of the examples and dropout (default: %(default)s)",
    )
    group.add_argument(
        "--early_stopping",
        type=positive_int,
        metavar="N",
        help="end after N evaluations in a row without a better --best_metric; evaluates every epoch unless "
        "--eval_steps says otherwise, and the best checkpoint becomes the model (default: off)",
    )
    group = parser.add_argument_group("examples")
    group.add_argument(
        "--max_seq_length",
        type=sequence_length,
        metavar="N",
        help="pieces of a row, [CLS] and [SEP] among them; longer texts are cut and counted (default: 128, 384 for "
        "squad)",
    )
    for name, split in (("train", "training"), ("eval", "development"), ("predict", "test")):
        group.add_argument(
            f"--max_{name}_samples",
            type=positive_int,
            metavar="N",
            help=f"use only the first N {split} examples (default: all)",
        )
    group.add_argument(
        "--class_weights",
        metavar="balanced|LABEL=W,...",
        help="how much an example counts in the loss by its label; balanced: inversely to how often the label occurs "
        "(default: 1 for each)",
    )
    group.add_argument(
        "--cache_dir",
        type=LOCAL_PATH,
        metavar="DIR",
        help="where encoded examples are kept, to be read again by the next run on the same files (default: features "
        "in --output)",
    )
    add_task_arguments(parser)
    add_optimizer_arguments(parser)
    add_training_arguments(parser, best_metric=FinetuneConfig.best_metric)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `finetune`; names and defaults are those of run_classifier.py and run_squad.py."""
    parser.usage = (
        "%(prog)s TASK --data_dir DIR --init_checkpoint PATH --output DIR\n"
        "         [--do_train] [--do_eval] [--do_predict] [OPTION ...]"
    )
    add_task_and_model_arguments(parser)
    parser.add_argument(
        "--do_train", action="store_true", help="train; with none of the three, training and evaluation are done"
    )
    parser.add_argument("--do_eval", action="store_true", help="score the model on the development examples")
    parser.add_argument("--do_predict", action="store_true", help="write the model's answers for the test examples")
    group = parser.add_argument_group("updates")
    group.add_argument(
        "--train_batch_size",
        type=batch_size,
        default=FinetuneConfig.train_batch_size,
        metavar="N",
        help="examples an update, over all devices (default: %(default)s)",
    )
    group.add_argument(
        "--learning_rate",
        type=positive_float,
        default=FinetuneConfig.learning_rate,
        metavar="RATE",
        help="peak learning rate; the paper tried 5e-5, 3e-5 and 2e-5. Models smaller than base want more "
        "(default: %(default)s)",
    )
    group.add_argument(
        "--num_train_epochs",
        type=positive_float,
        default=FinetuneConfig.num_train_epochs,
        metavar="N",
        help="times that every example is seen (default: %(default)s)",
    )
    group.add_argument(
        "--seeds",
        type=WholeNumber(1, 10_000),
        default=FinetuneConfig.seeds,
        metavar="N",
        help="train N times, with --seed and the N - 1 seeds after it, each in a directory of its own in --output, and "
        "report mean, deviation and best (default: %(default)s)",
    )
    add_shared_arguments(parser)
