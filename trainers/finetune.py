"""`beambert finetune TASK`: trains a pretrained BERT on a task, scores it and writes its answers.

TensorFlow is imported after the options and the files have been checked, so that mistakes answer at once.
"""

import argparse
import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from bert_model import native
from bert_model.checkpoints import Checkpoint as OpenCheckpoint
from bert_model.checkpoints import find_files, open_checkpoint
from bert_model.config import BertConfig, ConfigError, resolve
from bert_model.path_contents import contents_of, has_other_files
from pipelines.output_directory import RUN_MANIFEST, entries_of, require_own
from tokenizer.tokenizer import Tokenizer
from tokenizer.vocabulary import Vocabulary
from trainers import run_record
from trainers.best_checkpoint import lower_is_better
from trainers.checkpoint_vocabulary import lower_casing_of, vocabulary_of
from trainers.errors import TaskDataError, TrainingError
from trainers.finetune_options import add_arguments
from trainers.finetuning.class_weights import class_weights_of
from trainers.finetuning.contract import DEV, TEST, TRAIN, FinetuningTask, Rows
from trainers.finetuning.row_cache import encoded, fingerprint
from trainers.finetuning.tasks import check_task_arguments, module_of, task_defaults
from trainers.progress import say, warn
from trainers.run_files import model_of_run
from trainers.run_lock import run_lock
from trainers.run_record import RunRecord
from trainers.stages import Stage
from trainers.startup import start_tensorflow
from trainers.training_options import check_devices

DESCRIPTION = (
    "Trains a pretrained BERT on a task, from the files as they are published, scores it and writes its answers. "
    "Stopped at any moment, the same command goes on from the last checkpoint."
)
__all__ = ["DESCRIPTION", "add_arguments", "run"]
FEATURES_NAME = "features"
# Room for a piece beside [CLS] and [SEP] of a pair.
LEAST_LENGTH = 8
# Flags of tasks that say which rows are read, not how.
_WHICH_FILES = ("train_file", "predict_file", "dev_share")


class Plan(NamedTuple):
    """What a run is made of, checked.

    Attributes:
        task: with its files read.
        rows: of every split that was read.
        vocabulary: of the model.
        do_lower_case: whether text is lower-cased.
        config: shape of the model.
        left_to_right: whether a position sees only itself and those before it.
        max_seq_length: of a row.
        class_weights: how much a prediction counts by its class, or None.
        stages: of the run; one, none without training.
        record: of the run as it is asked for.
        output: the run's directory.
        initial: the checkpoint that a new run begins with, or that is evaluated alone; None for the run's own.
        keeps_head: whether the head of `initial` is the task's.
    """

    task: FinetuningTask
    rows: Mapping[str, Rows]
    vocabulary: Vocabulary
    do_lower_case: bool
    config: BertConfig
    left_to_right: bool
    max_seq_length: int
    class_weights: tuple[float, ...] | None
    stages: list[Stage]
    record: RunRecord
    output: Path
    initial: OpenCheckpoint | None
    keeps_head: bool


def run(args: argparse.Namespace) -> int:
    """Trains, evaluates and predicts, with one seed or several.

    Args:
        args: what `add_arguments` defines.

    Returns:
        0 when done; 130 or 143 when stopped by Ctrl-C or SIGTERM, after saving a checkpoint.

    Raises:
        CheckpointError, ConfigError, OutputError, TaskDataError, TrainingError, VocabularyError: one line for the user.
    """
    if args.seeds > 1:
        from trainers.finetuning.several_runs import run_seeds

        return run_seeds(args)
    return run_once(args)


def run_once(args: argparse.Namespace) -> int:
    """What `run` does, with one seed."""
    output = Path(args.output)
    # Before the lock is written, and again while it is held, when no other process writes.
    _require_own(output)
    with run_lock(args, output):
        return _run(argparse.Namespace(**vars(args)), output)


def _require_own(output: Path) -> None:
    # Encoded rows are kept before the run begins; their files are named by content, so that none is ever replaced.
    require_own(f"--output {output}", entries_of(output) - {FEATURES_NAME}, "finetune", (RUN_MANIFEST,))


def _run(args: argparse.Namespace, output: Path) -> int:
    """What `run_once` does, while --output is held."""
    check_devices(args)
    check_task_arguments(args)
    require_data_directory(args)
    if args.model and args.init_checkpoint:
        raise TrainingError("--model is for random weights, --init_checkpoint for a pretrained model; give one of them")
    if not (args.do_train or args.do_eval or args.do_predict):
        args.do_train = args.do_eval = True
    if args.do_train and (args.eval_steps or args.early_stopping):
        # The best checkpoint becomes the model: the last one must be scored too.
        args.do_eval = True
    _require_own(output)
    old = run_record.load(output)
    model = model_of_run(output, args.do_train)
    if old is not None and old.options.get("task") != args.task:
        there = old.options.get("task") or "pretraining"
        raise TrainingError(f"{output} holds a run of {there}, not of {args.task}; give another --output")
    trained = old is not None and model is not None and native.checkpoint(output) is not None
    if old is not None and trained:
        _take_over(args, old)
    # The classes of a model that is there already are its own; else the files are read before TensorFlow is started.
    begins = args.do_train and not trained
    task = _open_task(args, None) if begins else None
    place, given = _origin_path(args, output, trained)
    files = None if place is None else find_files(place, given)
    if files is not None:
        vocabulary_of(files, args.vocab_file)
    if not begins and files is not None and (files.kind != "huggingface" or files.task is not None):
        task = _open_task(args, files.labels)
    with _open_origin(args, place, given) as origin:
        vocabulary, do_lower_case = _vocabulary(args, origin)
        config = _config(args, origin, vocabulary)
        if not begins:
            assert origin is not None
            task = task or _open_task(args, origin.labels)
            _check_head(origin, task)
        assert task is not None
        args.best_metric = args.best_metric or task.best_metric
        lower_is_better(args.best_metric)
        max_seq_length = _max_seq_length(args, config)
        tokenizer = Tokenizer(vocabulary, do_lower_case)
        cache = Path(args.cache_dir) if args.cache_dir else output / FEATURES_NAME
        rows = {split: encoded(task, split, tokenizer, max_seq_length, cache) for split in task.splits}
        _say_what_was_cut(rows, max_seq_length)
        stages = _stages(args, rows.get(TRAIN))
        weighted = args.class_weights and TRAIN in rows
        plan = Plan(
            task=task,
            rows=rows,
            vocabulary=vocabulary,
            do_lower_case=do_lower_case,
            config=config,
            left_to_right=origin is not None and origin.record is not None and origin.record.left_to_right,
            max_seq_length=max_seq_length,
            class_weights=class_weights_of(args.class_weights, task, rows[TRAIN]) if weighted else None,
            stages=stages,
            record=RunRecord(
                data_fingerprints=(fingerprint(rows[TRAIN]),) if TRAIN in rows else (),
                vocab_sha256=vocabulary.sha256,
                do_lower_case=do_lower_case,
                max_seq_length=max_seq_length,
                stages=tuple(stages),
                options=run_record.options_of(args),
                versions=run_record.versions(),
            ),
            output=output,
            initial=None if trained else origin,
            keeps_head=origin is not None and _same_head(origin, task),
        )
        _check_old_run(args, plan, old if trained else None)
        start_tensorflow(args.cpu_devices, args.deterministic_ops)
        from trainers.finetuning.run import train_evaluate_predict

        return train_evaluate_predict(args, plan)


def require_data_directory(args: argparse.Namespace) -> None:
    """Refuse a missing --data_dir, or one that is no directory.

    Raises:
        TrainingError: it is; the message says what is there.
    """
    # The files of squad may be named one by one.
    if args.data_dir is None and args.task != "squad":
        raise TrainingError("--data_dir is missing; name the directory with the files of the task")
    if args.data_dir is not None and not Path(args.data_dir).is_dir():
        raise TrainingError(
            f"--data_dir {args.data_dir} {contents_of(Path(args.data_dir))}; name the directory with the files of "
            f"{args.task}"
        )


def _take_over(args: argparse.Namespace, old: RunRecord) -> None:
    """What says how the files are read stays as it was where the command does not say otherwise; what says which files
    are read, only in the same --data_dir."""
    if args.max_seq_length is None:
        args.max_seq_length = old.max_seq_length
    leave = () if args.data_dir == old.options.get("data_dir") else _WHICH_FILES
    for name, default in task_defaults(args.task).items():
        if name not in leave and getattr(args, name) == default and name in old.options:
            setattr(args, name, old.options[name])


def _origin_path(args: argparse.Namespace, output: Path, trained: bool) -> tuple[Path | None, BertConfig | None]:
    """The model that the run begins or goes on with, and its --bert_config_file; None, None for random weights."""
    if trained:
        return output, None
    if args.init_checkpoint:
        return Path(args.init_checkpoint), BertConfig.load(args.bert_config_file) if args.bert_config_file else None
    if not args.do_train:
        raise TrainingError(
            f"{output} holds no model to evaluate; train one with --do_train, or name a fine-tuned model with "
            "--init_checkpoint"
        )
    if args.model:
        return None, None
    raise TrainingError("--init_checkpoint is missing: name a pretrained model, or --model to begin at random")


def _open_origin(
    args: argparse.Namespace, place: Path | None, config: BertConfig | None
) -> contextlib.AbstractContextManager[OpenCheckpoint | None]:
    if place is None:
        return contextlib.nullcontext()
    start_tensorflow(args.cpu_devices, args.deterministic_ops)
    return open_checkpoint(place, config=config)


def _vocabulary(args: argparse.Namespace, origin: OpenCheckpoint | None) -> tuple[Vocabulary, bool]:
    if origin is not None:
        vocabulary = vocabulary_of(origin, args.vocab_file)
        found = lower_casing_of(origin, vocabulary)
    elif args.vocab_file:
        vocabulary = Vocabulary.load(args.vocab_file)
        found = not vocabulary.has_capitals()
    else:
        raise TrainingError("--model begins with random weights and so needs --vocab_file")
    return vocabulary, found if args.do_lower_case is None else args.do_lower_case


def _config(args: argparse.Namespace, origin: OpenCheckpoint | None, vocabulary: Vocabulary) -> BertConfig:
    return resolve(args.model, len(vocabulary)) if origin is None else origin.config


def _open_task(args: argparse.Namespace, labels: tuple[str, ...] | None) -> FinetuningTask:
    """Reads the files that are needed."""
    wanted: set[str] = set()
    if args.do_train:
        wanted.add(TRAIN)
    if args.do_eval or (args.do_train and (args.eval_steps or args.early_stopping)):
        wanted.add(DEV)
    if args.do_predict:
        wanted.add(TEST)
    directory = None if args.data_dir is None else Path(args.data_dir)
    try:
        return module_of(args.task).open_task(args, wanted, labels)
    except TaskDataError as error:
        if directory is None or has_other_files(directory):
            raise
        raise TaskDataError(f"--data_dir {directory} {contents_of(directory)}: {error}") from error


def _check_head(origin: OpenCheckpoint, task: FinetuningTask) -> None:
    """Refuses to use a model for a task that is not its own."""
    if _same_head(origin, task):
        return
    theirs = f"{origin.task} with {origin.num_labels} labels" if origin.labels is None else ", ".join(origin.labels)
    ours = f"{task.head} with labels {', '.join(task.labels)}" if task.labels else task.head
    raise TrainingError(
        f"{origin.path} is a model for {theirs}, while {task.name} is {ours}; fine-tune it with --do_train, or give a "
        "model of the task"
    )


def _same_head(origin: OpenCheckpoint, task: FinetuningTask) -> bool:
    """Whether the head of a model is that of the task, label for label as far as its labels have names."""
    if origin.task != task.head:
        return False
    if task.labels is None:
        return True
    several = origin.record is not None and origin.record.multi_label
    if origin.num_labels != len(task.labels) or (origin.record is not None and several != task.multi_label):
        return False
    if origin.labels is None or not all(label.isdigit() for label in task.labels):
        return origin.labels in (None, task.labels)
    # A number is a name in its own task alone.
    run = run_record.load(origin.path) if origin.path.is_dir() else None
    return origin.labels == task.labels and (run is None or run.options.get("task") == task.name)


def _max_seq_length(args: argparse.Namespace, config: BertConfig) -> int:
    limit = config.max_position_embeddings
    if args.max_seq_length is None:
        return min(module_of(args.task).DEFAULT_MAX_SEQ_LENGTH, limit)
    if not LEAST_LENGTH <= args.max_seq_length <= limit:
        raise ConfigError(
            f"--max_seq_length is {args.max_seq_length}; give {LEAST_LENGTH} to {limit}, the model's "
            "max_position_embeddings"
        )
    return args.max_seq_length


def _stages(args: argparse.Namespace, rows: Rows | None) -> list[Stage]:
    """The one stage of a run, and the numbers of updates that the options mean."""
    if rows is None or not args.do_train:
        return []
    # As the released code counts.
    args.num_train_steps = int(len(rows) / args.train_batch_size * args.num_train_epochs)
    if args.num_train_steps < 1:
        raise TrainingError(
            f"{len(rows)} training examples are not one update of --train_batch_size {args.train_batch_size} in "
            f"{args.num_train_epochs:g} epochs; give a smaller batch or more epochs"
        )
    args.num_warmup_steps = int(args.num_train_steps * args.warmup_proportion)
    if args.early_stopping and not args.eval_steps:
        args.eval_steps = max(1, len(rows) // args.train_batch_size)
    return [Stage(0, args.train_batch_size, 0, args.num_train_steps, 0)]


def _say_what_was_cut(rows: Mapping[str, Rows], max_seq_length: int) -> None:
    for split, some in rows.items():
        if some.truncated:
            warn(f"{some.truncated} of {len(some)} {split} examples are longer than --max_seq_length {max_seq_length}")
        if some.skipped:
            warn(
                f"{some.skipped} {split} examples were left out: columns are missing, or the answer is not in the text"
            )


def _check_old_run(args: argparse.Namespace, plan: Plan, old: RunRecord | None) -> None:
    """Refuses what does not fit the run that lies in --output, and says what changes in it."""
    if old is None:
        return
    if old.vocab_sha256 != plan.record.vocab_sha256 or old.do_lower_case != plan.do_lower_case:
        raise TrainingError(f"{plan.output} was trained with another vocabulary or casing; leave them to the model")
    step = run_record.last_step(plan.output)
    if args.do_train and step is not None:
        run_record.check_same_run(plan.output, step, old, plan.record, plan.config, plan.config)
        for line in run_record.changes(old, plan.record):
            say(line)
