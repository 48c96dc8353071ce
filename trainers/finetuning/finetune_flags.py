"""The flags of `beambert finetune` and `beambert tune`. This file imports neither Keras nor TensorFlow."""

import argparse

from beambert.common.command_line.flags import (
    Number,
    WholeNumber,
    add_added_tokens_argument,
    add_word_rule_arguments,
    batch_size,
    boolean,
    positive_float,
    positive_int,
    seed,
    sequence_length,
)
from beambert.common.command_line.path_flags import ANY_OUTPUT_DIRECTORY, ANY_PATH, LOCAL_PATH, MODEL_NAME_OR_PATH
from beambert.trainers.config.finetune_config import FinetuneConfig
from beambert.trainers.finetuning.tasks import TASKS, add_task_arguments
from beambert.trainers.training.optimizer_flags import add_optimizer_arguments
from beambert.trainers.training.training_flags import add_training_arguments


def add_task_and_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the task, the output and the model."""
    parser.add_argument(
        "task",
        choices=tuple(TASKS),
        metavar="TASK",
        help=f"Task: {', '.join(TASKS)}. SQuAD is extractive question answering (1.1 and 2.0), SWAG multiple choice, "
        "NER tagging of CoNLL files; csv is classification or regression of your own table",
    )
    group = parser.add_argument_group("input")
    group.add_argument(
        "--data_dir",
        type=ANY_PATH,
        metavar="DIR",
        help="Directory of the task's files, in their published layout; docs/reference/fine-tuning-tasks.md lists them",
    )
    group = parser.add_argument_group("output")
    group.add_argument(
        "--output",
        required=True,
        type=ANY_OUTPUT_DIRECTORY,
        metavar="DIR",
        help="Output directory of the model, the results and the report",
    )
    group = parser.add_argument_group("model")
    group.add_argument(
        "--init_checkpoint",
        type=ANY_PATH,
        metavar="PATH",
        help="Pretrained model: a directory written by `beambert pretrain` or `convert`, a released BERT checkpoint, "
        "zip archive or SavedModel, or a model of Hugging Face or KerasHub",
    )
    group.add_argument(
        "--model",
        type=MODEL_NAME_OR_PATH,
        metavar="NAME|FILE.json",
        help="Model size or bert_config.json for training from random weights, instead of --init_checkpoint; requires "
        "--vocab_file",
    )
    group.add_argument(
        "--vocab_file",
        type=ANY_PATH,
        metavar="FILE",
        help="Vocabulary file (default: vocab.txt of the checkpoint)",
    )
    add_added_tokens_argument(group)
    add_word_rule_arguments(group)
    group.add_argument(
        "--bert_config_file",
        type=ANY_PATH,
        metavar="FILE",
        help="Model configuration of a TF1 checkpoint without bert_config.json in its directory",
    )


def add_shared_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of every fine-tuning run."""
    group = parser.add_argument_group("training")
    group.add_argument(
        "--warmup_proportion",
        type=Number(0.0, 1.0),
        default=FinetuneConfig.warmup_proportion,
        metavar="FRACTION",
        help="Fraction of the training steps with linear learning rate warmup; linear decay to 0 follows (default: "
        "%(default)s)",
    )
    group.add_argument(
        "--seed",
        type=seed,
        default=FinetuneConfig.seed,
        metavar="N",
        help="Random seed of head initialization, example order and dropout (default: %(default)s)",
    )
    group.add_argument(
        "--class_weights",
        metavar="balanced|LABEL=W,...",
        help="Loss weight of each class; balanced weights classes inversely to their frequency (default: 1 for each)",
    )
    group.add_argument(
        "--group_by_length",
        type=boolean,
        metavar="true|false",
        help="Group examples of similar length into batches, which computes less padding; every epoch still has every "
        "example once (default: true, but false for a regression)",
    )
    group = parser.add_argument_group("evaluation")
    group.add_argument(
        "--early_stopping",
        type=positive_int,
        metavar="N",
        help="Early stopping patience: stop after N evaluations without improvement of --best_metric. Evaluates once "
        "per epoch unless --eval_steps is set, and restores the best checkpoint (default: off)",
    )
    group = parser.add_argument_group("data")
    group.add_argument(
        "--max_seq_length",
        type=sequence_length,
        metavar="N",
        help="Maximum sequence length in tokens, including [CLS] and [SEP]; longer texts are truncated (default: 128, "
        "or 384 for squad)",
    )
    for name, split in (("train", "training"), ("eval", "development"), ("predict", "test")):
        group.add_argument(
            f"--max_{name}_samples",
            type=positive_int,
            metavar="N",
            help=f"Use only the first N {split} examples (default: all)",
        )
    group.add_argument(
        "--cache_dir",
        type=LOCAL_PATH,
        metavar="DIR",
        help="Cache directory of encoded examples, shared by runs on the same files (default: features in --output)",
    )
    add_task_arguments(parser)
    add_optimizer_arguments(parser)
    add_training_arguments(parser, best_metric=FinetuneConfig.best_metric)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `finetune`; names and defaults are those of run_classifier.py and run_squad.py."""
    add_task_and_model_arguments(parser)
    group = parser.add_argument_group("task")
    group.add_argument(
        "--do_train", action="store_true", help="Train; without any --do flag, `finetune` trains and evaluates"
    )
    group.add_argument("--do_eval", action="store_true", help="Evaluate on the development set")
    group.add_argument("--do_predict", action="store_true", help="Write predictions for the test set")
    group = parser.add_argument_group("training")
    group.add_argument(
        "--train_batch_size",
        type=batch_size,
        default=FinetuneConfig.train_batch_size,
        metavar="N",
        help="Global training batch size, in examples (default: %(default)s)",
    )
    group.add_argument(
        "--learning_rate",
        type=positive_float,
        default=FinetuneConfig.learning_rate,
        metavar="RATE",
        help="Peak learning rate; the paper uses 5e-5, 3e-5 or 2e-5, and models smaller than base need higher rates "
        "(default: %(default)s)",
    )
    group.add_argument(
        "--num_train_epochs",
        type=positive_float,
        default=FinetuneConfig.num_train_epochs,
        metavar="N",
        help="Number of training epochs (default: %(default)s)",
    )
    group.add_argument(
        "--seeds",
        type=WholeNumber(1, 10_000),
        default=FinetuneConfig.seeds,
        metavar="N",
        help="Number of runs with consecutive seeds from --seed, each in a subdirectory of --output; reports mean, "
        "standard deviation and best (default: %(default)s)",
    )
    add_shared_arguments(parser)
