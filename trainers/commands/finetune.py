"""Define `beambert finetune TASK`, which trains a pretrained BERT on a task, evaluates it and writes predictions.

TensorFlow is imported after the flags and the files are checked, so that errors return at once.
"""

import argparse

from beambert.common.command_line import options
from beambert.trainers.finetuning.options import FinetuneOptions
from beambert.trainers.finetuning.tasks import TASKS

DESCRIPTION = """Fine-tune a pretrained BERT on a task: GLUE, SQuAD, NER, SWAG or your own table.

The files of a task are read in the format in which they are published. The command trains, evaluates on the dev split
and, with --do_predict, writes predictions for the test split. Run the same command again to resume an interrupted
run."""
EXAMPLE = """beambert finetune mrpc --data_dir MRPC --init_checkpoint uncased_L-12_H-768_A-12.zip --output mrpc-model
beambert finetune csv --data_dir reviews --init_checkpoint run --output reviews-model
beambert finetune squad --train_file train-v1.1.json --predict_file dev-v1.1.json --init_checkpoint run --output qa"""
COMMON_FLAGS = (
    "--data_dir",
    "--init_checkpoint",
    "--output",
    "--num_train_epochs",
    "--learning_rate",
    "--train_batch_size",
    "--max_seq_length",
    "--do_predict",
)
# Groups of flags in the order of the help.
GROUPS = (
    *("input", "output", "model", "task", "training", "predictions", "evaluation", "data"),
    *("task: xnli", "task: squad", "task: ner", "task: csv", "optimizer", "devices", "numerics", "checkpoints"),
)
# What the help says about the task.
TASK = {
    "choices": tuple(TASKS),
    "help": f"Task: {', '.join(TASKS)}. SQuAD is extractive question answering (1.1 and 2.0), SWAG multiple choice, "
    "NER tagging of CoNLL files; csv is classification or regression of your own table",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    options.add_groups(parser, *GROUPS)
    options.add_arguments(parser, FinetuneOptions, task=TASK)


def configure(args: argparse.Namespace) -> FinetuneOptions:
    """Return the options of parsed flags. Raises TrainingError for flags that contradict each other."""
    return options.from_args(FinetuneOptions, args, given_options=getattr(args, "given_options", ()))


def run(config: FinetuneOptions) -> int:
    """Train, evaluate and predict, with one or several seeds.

    Args:
        config: configuration of the command.

    Returns:
        0 when done; 130 or 143 when stopped by Ctrl-C or SIGTERM, after saving a checkpoint.

    Raises:
        CheckpointError, ConfigError, OutputError, TaskDataError, TrainingError, VocabularyError: a one-line message.
    """
    from beambert.trainers.finetuning.sweep import run_once, run_seeds

    return run_once(config) if config.seeds == 1 else run_seeds(config)
