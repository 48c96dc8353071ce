"""`beambert pretrain`: trains a BERT, from random weights or a checkpoint, on the shards of `beambert build`.

TensorFlow is imported after the options have been checked, so that `--help` and mistakes answer at once.
"""

import argparse
import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bert_model import native
from bert_model.checkpoints import Checkpoint as OpenCheckpoint
from bert_model.checkpoints import find_files, open_checkpoint
from bert_model.config import BertConfig, ConfigError, resolve
from pipelines import dataset as manifest
from pipelines.dataset import Dataset, DatasetError
from pipelines.output_directory import RUN_MANIFEST, entries_of, require_own
from tokenizer.vocabulary import Vocabulary
from trainers import run_record
from trainers.best_checkpoint import lower_is_better
from trainers.errors import TrainingError
from trainers.initial_checkpoint import check_same_model
from trainers.pretrain_options import DEFAULT_MODEL, add_arguments, default_learning_rate, default_warmup_steps
from trainers.progress import say
from trainers.recipes import with_recipe as complete_arguments
from trainers.run_files import model_of_run
from trainers.run_lock import run_lock
from trainers.run_record import RunRecord
from trainers.stages import Stage, plan_stages
from trainers.startup import start_tensorflow
from trainers.training_options import check_devices
from trainers.verification import verify

DESCRIPTION = (
    "Trains a BERT, from random weights or a checkpoint, on the data that `beambert build` made, and evaluates it. "
    "Stopped at any moment, the same command goes on from the last checkpoint."
)
__all__ = ["DESCRIPTION", "add_arguments", "complete_arguments", "run"]


class Plan(NamedTuple):
    """What a run is made of, checked, before TensorFlow is started.

    Attributes:
        directories: of --data.
        datasets: the manifest of each.
        vocabulary: of all of them.
        stages: of the whole run.
        config: shape of the model.
        left_to_right: whether a position sees only itself and those before it.
        record: of the run as it is asked for.
        output: the run's directory.
        initial: the checkpoint that a new run begins with, or None.
    """

    directories: tuple[Path, ...]
    datasets: tuple[Dataset, ...]
    vocabulary: Vocabulary
    stages: list[Stage]
    config: BertConfig
    left_to_right: bool
    record: RunRecord
    output: Path
    initial: OpenCheckpoint | None


def run(args: argparse.Namespace) -> int:
    """Trains and evaluates.

    Args:
        args: what `add_arguments` defines.

    Returns:
        0 when done; 130 or 143 when stopped by Ctrl-C or SIGTERM, after saving a checkpoint.

    Raises:
        CheckpointError, ConfigError, DatasetError, OutputError, TrainingError, VocabularyError: one line for the user.
    """
    output = Path(args.output)
    # Before the lock is written, and again while it is held, when no other process writes.
    require_own(f"--output {output}", entries_of(output), "pretrain", (RUN_MANIFEST,))
    with run_lock(args, output):
        return _run(argparse.Namespace(**vars(args)), output)


def _run(args: argparse.Namespace, output: Path) -> int:
    """What `run` does, while --output is held; defaults that depend on the model are filled in."""
    args.do_train, args.do_eval = args.do_train or not args.do_eval, args.do_eval or not args.do_train

    # What can be wrong is found before anything is written and before TensorFlow is imported.
    check_devices(args)
    lower_is_better(args.best_metric)
    directories = tuple(Path(name) for name in args.data)
    datasets = tuple(_dataset(directory) for directory in directories)
    vocabularies = [read_vocabulary(*pair) for pair in zip(directories, datasets, strict=True)]
    _check_alike(directories, datasets)
    if args.do_train and args.eval_steps and not all(dataset.num_examples("validation") for dataset in datasets):
        raise TrainingError(
            "--eval_steps needs validation examples in every directory of --data; build the data with some held out, "
            "or leave --eval_steps out"
        )
    row_lengths = [dataset.max_seq_length for dataset in datasets]
    stages = plan_stages(args.num_train_steps, row_lengths, args.schedule, args.train_batch_size, args.batch_ramp)
    require_own(f"--output {output}", entries_of(output), "pretrain", (RUN_MANIFEST,))
    old = run_record.load(output)
    if old is not None and old.options.get("task"):
        raise TrainingError(f"--output {output} holds a run of {old.options['task']}; give another --output")
    begins = args.do_train and args.init_checkpoint and run_record.last_step(output) is None
    with _initial(args, datasets[0]) if begins else contextlib.nullcontext() as initial:
        config = _config(args.model, output, old, initial, datasets[0])
        if args.learning_rate is None:
            args.learning_rate = default_learning_rate(config)
        if args.num_warmup_steps is None:
            args.num_warmup_steps = default_warmup_steps(args.num_train_steps)
        # A model that attends from left to right stays one, also when the run goes on.
        inherited = initial is not None and initial.record is not None and initial.record.left_to_right
        if inherited or (args.init_checkpoint and old is not None and old.options.get("left_to_right")):
            args.left_to_right = True
        record = RunRecord(
            data_fingerprints=tuple(run_record.fingerprint(dataset) for dataset in datasets),
            vocab_sha256=datasets[0].vocab_sha256,
            do_lower_case=datasets[0].do_lower_case,
            max_seq_length=max(row_lengths),
            stages=tuple(stages),
            options=run_record.options_of(args),
            versions=run_record.versions(),
        )
        left_to_right = _left_to_right(args, output)
        plan = Plan(directories, datasets, vocabularies[0], stages, config, left_to_right, record, output, initial)
        _check_model(plan)
        _check_old_run(args, plan, old)
        if args.verify:
            for directory, dataset in zip(directories, datasets, strict=True):
                say(f"Comparing {len(dataset.shards)} shards of {directory} with {manifest.FILE_NAME}")
                verify(directory, dataset)
        start_tensorflow(args.cpu_devices, args.deterministic_ops)
        from trainers.pretraining_run import train_and_evaluate

        return train_and_evaluate(args, plan)


def _dataset(directory: Path) -> Dataset:
    dataset = manifest.load(directory)
    if dataset.file_format != "tfrecord":
        raise DatasetError(
            f"{directory} holds {dataset.file_format} files, which the trainer does not read; build it again with "
            "--format tfrecord"
        )
    return dataset


def _check_alike(directories: Sequence[Path], datasets: Sequence[Dataset]) -> None:
    """Refuses directories that one model cannot be trained on."""
    for directory, dataset in zip(directories[1:], datasets[1:], strict=True):
        if (dataset.vocab_sha256, dataset.do_lower_case) != (datasets[0].vocab_sha256, datasets[0].do_lower_case):
            raise DatasetError(
                f"{directory} was built with another vocabulary than {directories[0]}; build both with the same "
                "--vocab_file"
            )


def _initial(args: argparse.Namespace, dataset: Dataset) -> contextlib.AbstractContextManager[OpenCheckpoint]:
    """The checkpoint of --init_checkpoint; --model says its shape where no file beside it does."""
    config = resolve(args.model, dataset.vocab_size) if args.model else None
    find_files(Path(args.init_checkpoint), config)
    start_tensorflow(args.cpu_devices, args.deterministic_ops)
    return open_checkpoint(Path(args.init_checkpoint), config=config)


def _left_to_right(args: argparse.Namespace, output: Path) -> bool:
    """As the flag says when training; in evaluation alone, as the model was trained."""
    model = model_of_run(output, args.do_train)
    return args.left_to_right if args.do_train or model is None else model.left_to_right


def _check_model(plan: Plan) -> None:
    if plan.initial is not None:
        _check_vocabulary_of(plan.initial, plan.datasets[0])
        check_same_model(plan.initial, plan.config)
    longest, limit = plan.record.max_seq_length, plan.config.max_position_embeddings
    if longest > limit:
        directory = next(
            path
            for path, dataset in zip(plan.directories, plan.datasets, strict=True)
            if dataset.max_seq_length == longest
        )
        raise ConfigError(
            f"{directory} has sequences of {longest} (max_seq_length), the model reads at most {limit} "
            "(max_position_embeddings); build the data with a lower --max_seq_length, or give a model with more"
        )


def _check_old_run(args: argparse.Namespace, plan: Plan, old: RunRecord | None) -> None:
    """Refuses what does not fit the run that lies in --output, and says what changes in it."""
    output = plan.output
    step = run_record.last_step(output)
    if args.do_train and old is not None and step is not None:
        old_config = BertConfig.load(output / native.CONFIG_FILE_NAME)
        run_record.check_same_run(output, step, old, plan.record, old_config, plan.config)
        for line in run_record.changes(old, plan.record):
            say(line)
    elif not args.do_train and old is None:
        raise TrainingError(f"{output} holds no run to evaluate; train one with --do_train, or give its --output")
    elif not args.do_train and old is not None and old.vocab_sha256 != plan.record.vocab_sha256:
        raise TrainingError(
            f"{output} was trained with another vocabulary than that of {plan.directories[0]}; give data built with it"
        )


def read_vocabulary(directory: Path, dataset: Dataset) -> Vocabulary:
    """The vocabulary beside a manifest.

    Raises:
        DatasetError: it is not the vocabulary that the data was built with.
        VocabularyError: it is missing, or no vocabulary.
    """
    path = directory / manifest.VOCAB_FILE_NAME
    vocabulary = Vocabulary.load(path)
    if (len(vocabulary), vocabulary.sha256) != (dataset.vocab_size, dataset.vocab_sha256):
        raise DatasetError(
            f"{path} has {len(vocabulary)} pieces and SHA-256 {vocabulary.sha256}, {manifest.FILE_NAME} says "
            f"{dataset.vocab_size} and {dataset.vocab_sha256}; put back the vocabulary that the data was built with"
        )
    return vocabulary


def _config(
    model: str | None, output: Path, old: RunRecord | None, initial: OpenCheckpoint | None, dataset: Dataset
) -> BertConfig:
    if model is None and old is None and initial is not None:
        return initial.config
    if model is None and old is not None and (output / native.CONFIG_FILE_NAME).is_file():
        model = str(output / native.CONFIG_FILE_NAME)
    return resolve(model or DEFAULT_MODEL, dataset.vocab_size)


def _check_vocabulary_of(initial: OpenCheckpoint, dataset: Dataset) -> None:
    """Refuses a checkpoint with another vocabulary than the data's."""
    if initial.vocab_file is None:
        return
    if Vocabulary.load(initial.vocab_file).sha256 != dataset.vocab_sha256:
        raise TrainingError(
            f"--init_checkpoint {initial.path} was made with {initial.vocab_file}, which is not the vocabulary of "
            "--data; build the data with --vocab_file and that file"
        )
