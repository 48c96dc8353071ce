"""Plan a run of `beambert finetune`: read the files, open the model, and validate both.

TensorFlow is imported after the options and the files are validated, so that errors are reported at once.
"""

import contextlib
import dataclasses
import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from beambert.bert_model.checkpoints import native
from beambert.bert_model.checkpoints.path_contents import contents_of, has_other_files
from beambert.bert_model.checkpoints.reader import Checkpoint as OpenCheckpoint
from beambert.bert_model.checkpoints.reader import find_files, open_checkpoint
from beambert.bert_model.config import BertConfig, ConfigError, resolve
from beambert.common.word_rules import RecordedRules, WordRules
from beambert.tokenizer.tokenizer import Tokenizer
from beambert.tokenizer.vocabulary import Vocabulary
from beambert.trainers.backends.startup import start_backend
from beambert.trainers.checkpoints.checkpoint_manager import lower_is_better
from beambert.trainers.checkpoints.vocabulary_check import (
    drop_unused_rows,
    vocabulary_of,
    with_added_tokens,
    word_rules_of,
)
from beambert.trainers.data.text_encoding import UnknownTokens
from beambert.trainers.errors import TaskDataError, TrainingError
from beambert.trainers.finetuning.finetuning_task import (
    DEV,
    TEST,
    TRAIN,
    FinetuningTask,
    Rows,
    parse_class_weights,
    split_warnings,
)
from beambert.trainers.finetuning.options import FinetuneOptions
from beambert.trainers.finetuning.row_cache import encode_cached, fingerprint
from beambert.trainers.finetuning.tasks import module_of
from beambert.trainers.monitoring.training_progress import print_status, warn
from beambert.trainers.optimization.schedule import Stage
from beambert.trainers.training import run_manifest
from beambert.trainers.training.run_files import model_of_run
from beambert.trainers.training.run_manifest import RunRecord
from beambert.trainers.training_plan import TrainingPlan

# Directory of the encoded rows in a run directory.
FEATURES_NAME = "features"
# Minimum --max_seq_length, with room for tokens between [CLS] and [SEP] of a pair.
LEAST_LENGTH = 8
# Task flags that select rows, without effect on their encoding.
_WHICH_FILES = ("train_file", "predict_file", "dev_fraction")
# Options that select the development examples.
_WHICH_DEV_EXAMPLES = ("data_dir", "predict_file", "dev_fraction", "max_eval_samples", "xnli_language")


@dataclass(frozen=True, kw_only=True)
class FinetuningPlan(TrainingPlan):
    """The validated inputs of a fine-tuning run, before Keras is imported.

    Attributes:
        config: resolved options.
        task: the task with its files.
        rows: encoded rows by split.
        unknown_tokens: warnings about [UNK] by split, where they are many.
        input_warnings: warnings about truncated, empty and skipped examples, by split.
        word_rules: rules that split text into words.
        max_seq_length: maximum length of a row, in tokens.
        class_weights: weight of a prediction by its class; None for 1 each.
        keeps_head: whether the head of `initial` is that of the task.
    """

    config: FinetuneOptions
    task: FinetuningTask
    rows: Mapping[str, Rows]
    unknown_tokens: Mapping[str, str]
    input_warnings: Mapping[str, Sequence[str]]
    word_rules: WordRules
    max_seq_length: int
    class_weights: tuple[float, ...] | None
    keeps_head: bool


@contextlib.contextmanager
def open_plan(config: FinetuneOptions, begin: float) -> Iterator[FinetuningPlan]:
    """Read and validate all inputs of a run, before TensorFlow is imported.

    Args:
        config: configuration of the command, with the backend chosen.
        begin: monotonic time at which the command started.

    Raises:
        CheckpointError, ConfigError, TaskDataError, TrainingError, VocabularyError: a one-line message.
    """
    output = Path(config.output)
    config.check_task()
    require_data_directory(config)
    if config.model and config.init_checkpoint:
        raise TrainingError(
            "--model (random weights) and --init_checkpoint (pretrained weights) exclude each other: give one of them"
        )
    config = _with_actions(config)
    old = run_manifest.load(output)
    model = model_of_run(output, config.do_train)
    if old is not None and old.options.get("task") != config.task:
        recorded_task = old.options.get("task") or "pretraining"
        raise TrainingError(f"{output} contains a run of {recorded_task}, not of {config.task}: use another --output")
    trained = old is not None and model is not None and native.checkpoint(output) is not None
    if old is not None and trained:
        config = _with_recorded_options(config, old)
    # An existing model has its own labels; otherwise the files are read before TensorFlow is started.
    begins = config.do_train and not trained
    task = _open_task(config, None) if begins else None
    path, config_file = _origin_path(config, output, trained)
    files = None if path is None else find_files(path, config_file)
    if files is not None:
        vocabulary_of(files, config.vocab_file, config.added_tokens)
    if not begins and files is not None and (files.kind != "huggingface" or files.head is not None):
        task = _open_task(config, files.labels)
    with _open_origin(config, path, config_file) as origin:
        vocabulary, word_rules = _vocabulary(config, origin)
        if origin is not None and not trained:
            origin = drop_unused_rows(origin, vocabulary, print_status)
        model_config = _model_config(config, origin, vocabulary)
        if not begins:
            assert origin is not None
            task = task or _open_task(config, origin.labels)
            _check_head(origin, task)
        assert task is not None
        max_seq_length = _max_seq_length(config, model_config)
        best_metric = config.best_metric or task.best_metric
        lower_is_better(best_metric)
        grouped = config.group_by_length
        if grouped is None:
            grouped = task.head.groups_by_length
        config = dataclasses.replace(config, best_metric=best_metric, group_by_length=grouped)
        tokenizer = Tokenizer(vocabulary, **dataclasses.asdict(word_rules))
        cache = Path(config.cache_dir) if config.cache_dir else output / FEATURES_NAME
        rows = {split: encode_cached(task, split, tokenizer, max_seq_length, cache) for split in task.splits}
        unknown_tokens = _unknown_tokens(task, rows, tokenizer)
        for line in unknown_tokens.values():
            warn(line)
        input_warnings = _input_warnings(task, rows, max_seq_length)
        for line in itertools.chain.from_iterable(input_warnings.values()):
            warn(line)
        for split in rows:
            for line in split_warnings(task, split, rows[split]):
                warn(line)
        config, stages = _with_steps(config, rows.get(TRAIN))
        evaluated = task.fingerprint(task.eval_splits[0]) if task.eval_splits else None
        recorded = old if trained else None
        weighted = config.class_weights if TRAIN in rows else None
        plan = FinetuningPlan(
            config=config,
            task=task,
            rows=rows,
            unknown_tokens=unknown_tokens,
            input_warnings=input_warnings,
            vocabulary=vocabulary,
            word_rules=word_rules,
            model_config=model_config,
            causal_attention=origin is not None and origin.record is not None and origin.record.causal_attention,
            max_seq_length=max_seq_length,
            class_weights=parse_class_weights(weighted, task, rows[TRAIN]) if weighted else None,
            stages=stages,
            record=RunRecord(
                data_fingerprints=(fingerprint(rows[TRAIN]),) if TRAIN in rows else (),
                vocab_sha256=vocabulary.sha256,
                **dataclasses.asdict(word_rules),
                max_seq_length=max_seq_length,
                stages=tuple(stages),
                options=config.to_json(),
                versions=run_manifest.versions(config.backend),
                evaluation_fingerprint=evaluated or (recorded.evaluation_fingerprint if recorded else None),
            ),
            output=output,
            initial=None if trained else origin,
            keeps_head=origin is not None and _same_head(origin, task),
            records_evaluation=config.do_train
            or recorded is None
            or _evaluates_own_examples(config, evaluated, recorded),
            start=begin,
            clock=time.monotonic,
        )
        _check_old_run(plan, recorded)
        yield plan


def _evaluates_own_examples(config: FinetuneOptions, evaluated: str | None, old: RunRecord) -> bool:
    """Return whether the development examples are the run's own.

    Args:
        config: the options.
        evaluated: fingerprint of the development examples; None without an evaluation.
        old: the record that the run began with.
    """
    if old.evaluation_fingerprint is not None:
        return evaluated == old.evaluation_fingerprint
    # A run without an evaluation.
    return all(getattr(config, name) == old.options.get(name) for name in _WHICH_DEV_EXAMPLES)


def _with_actions(config: FinetuneOptions) -> FinetuneOptions:
    """Return the configuration with the actions set: by default training and evaluation."""
    if not (config.do_train or config.do_eval or config.do_predict):
        return dataclasses.replace(config, do_train=True, do_eval=True)
    if config.do_train and (config.eval_steps or config.early_stopping):
        # The best checkpoint becomes the model, so the last one must be evaluated too.
        return dataclasses.replace(config, do_eval=True)
    return config


def require_data_directory(config: FinetuneOptions) -> None:
    """Check that --data_dir is a directory.

    Raises:
        TrainingError: --data_dir is missing or not a directory.
    """
    # The files of squad may be given individually.
    if config.data_dir is None and config.task != "squad":
        raise TrainingError("--data_dir is missing: give the directory of the task's files")
    if config.data_dir is not None and not Path(config.data_dir).is_dir():
        raise TrainingError(
            f"--data_dir {config.data_dir} {contents_of(Path(config.data_dir))}: give the directory of the files of "
            f"{config.task}"
        )


def _with_recorded_options(config: FinetuneOptions, old: RunRecord) -> FinetuneOptions:
    """Return the configuration with the recorded options of the examples of a run, where no flag overrides them.

    A flag overrides them also with its default. Options that select files are used for the same --data_dir only.
    """
    excluded = () if config.data_dir == old.options.get("data_dir") else _WHICH_FILES
    known = {
        name: old.options[name]
        for name, default in {**config.task_defaults, "group_by_length": None}.items()
        if name in old.options and name not in (*excluded, *config.given_options) and getattr(config, name) == default
    }
    if config.max_seq_length is None:
        known["max_seq_length"] = old.max_seq_length
    return dataclasses.replace(config, **known)


def _origin_path(config: FinetuneOptions, output: Path, trained: bool) -> tuple[Path | None, BertConfig | None]:
    """Return the initial model and its --bert_config_file; (None, None) for random weights."""
    if trained:
        return output, None
    if config.init_checkpoint:
        return Path(config.init_checkpoint), BertConfig.load(
            config.bert_config_file
        ) if config.bert_config_file else None
    if not config.do_train:
        purpose = " or ".join(
            name for name, is_wanted in (("evaluate", config.do_eval), ("predict with", config.do_predict)) if is_wanted
        )
        raise TrainingError(
            f"{output} contains no model to {purpose}: train one with --do_train, or give a fine-tuned model with "
            "--init_checkpoint"
        )
    if config.model:
        return None, None
    raise TrainingError("--init_checkpoint is missing: give a pretrained model, or --model for random weights")


def _open_origin(
    config: FinetuneOptions, path: Path | None, model_config: BertConfig | None
) -> contextlib.AbstractContextManager[OpenCheckpoint | None]:
    if path is None:
        return contextlib.nullcontext()
    start_backend(config.backend, config.cpu_devices, config.deterministic_ops, config.processes)
    return open_checkpoint(path, config=model_config)


def _vocabulary(config: FinetuneOptions, origin: OpenCheckpoint | None) -> tuple[Vocabulary, WordRules]:
    if origin is not None:
        vocabulary = vocabulary_of(origin, config.vocab_file, config.added_tokens)
        return vocabulary, word_rules_of(origin, vocabulary, config)
    if config.vocab_file:
        vocabulary = Vocabulary.load(config.vocab_file)
        if config.added_tokens:
            vocabulary = with_added_tokens(vocabulary, config.added_tokens)
        return vocabulary, config.rules(RecordedRules(), vocabulary.has_capitals())
    raise TrainingError("--model (random weights) requires --vocab_file")


def _model_config(config: FinetuneOptions, origin: OpenCheckpoint | None, vocabulary: Vocabulary) -> BertConfig:
    if origin is not None:
        return origin.config
    assert config.model is not None
    return resolve(config.model, len(vocabulary))


def _open_task(config: FinetuneOptions, labels: tuple[str, ...] | None) -> FinetuningTask:
    """Read the files of the splits that the actions need."""
    wanted: set[str] = set()
    if config.do_train:
        wanted.add(TRAIN)
    if config.do_eval or (config.do_train and (config.eval_steps or config.early_stopping)):
        wanted.add(DEV)
    if config.do_predict:
        wanted.add(TEST)
    directory = None if config.data_dir is None else Path(config.data_dir)
    try:
        return module_of(config.task).open_task(config, wanted, labels)
    except TaskDataError as error:
        if directory is None or has_other_files(directory):
            raise
        raise TaskDataError(f"--data_dir {directory} {contents_of(directory)}: {error}") from error


def _check_head(origin: OpenCheckpoint, task: FinetuningTask) -> None:
    """Check that the head of a model is that of the task. Raise TrainingError where it is not."""
    if _same_head(origin, task):
        return
    model_head = (
        f"{origin.head.name} with {origin.num_labels} labels" if origin.labels is None else ", ".join(origin.labels)
    )
    task_head = f"{task.head.name} with labels {', '.join(task.labels)}" if task.labels else task.head.name
    raise TrainingError(
        f"{origin.path} is a model for {model_head}, while {task.name} is {task_head}: fine-tune it with --do_train, "
        "or use a model of the task"
    )


def _same_head(origin: OpenCheckpoint, task: FinetuningTask) -> bool:
    """Return whether the head of a model is that of the task, with the same label names where it has names."""
    if origin.head.recorded_task != task.head.recorded_task:
        return False
    if task.labels is None:
        return True
    # Only beambert.json records several labels for certain.
    if origin.num_labels != len(task.labels) or (origin.record is not None and origin.head is not task.head):
        return False
    if origin.labels is None or not all(label.isdigit() for label in task.labels):
        return origin.labels in (None, task.labels)
    # Numeric labels have a meaning in their own task only.
    run = run_manifest.load(origin.path) if origin.path.is_dir() else None
    return origin.labels == task.labels and (run is None or run.options.get("task") == task.name)


def _max_seq_length(config: FinetuneOptions, model: BertConfig) -> int:
    limit = model.max_position_embeddings
    if config.max_seq_length is None:
        return min(module_of(config.task).DEFAULT_MAX_SEQ_LENGTH, limit)
    if not LEAST_LENGTH <= config.max_seq_length <= limit:
        raise ConfigError(
            f"invalid --max_seq_length {config.max_seq_length}: must be {LEAST_LENGTH} to {limit}, the model's "
            "max_position_embeddings"
        )
    return config.max_seq_length


def _with_steps(config: FinetuneOptions, rows: Rows | None) -> tuple[FinetuneOptions, list[Stage]]:
    """Return the configuration with the numbers of steps, and the single stage."""
    if rows is None or not config.do_train:
        return config, []
    # Rounded as in the released code. For squad, run_squad.py counts questions; here every window is an example.
    steps = int(len(rows) / config.train_batch_size * config.num_train_epochs)
    if steps < 1:
        raise TrainingError(
            f"{len(rows)} training examples are less than one batch of --train_batch_size {config.train_batch_size} in "
            f"{config.num_train_epochs:g} epochs: use a smaller batch size or more epochs"
        )
    each_epoch = max(1, len(rows) // config.train_batch_size) if config.early_stopping else 0
    warmup_steps = int(steps * config.warmup_proportion)
    config = dataclasses.replace(
        config,
        num_train_steps=steps,
        num_warmup_steps=warmup_steps,
        eval_steps=config.eval_steps or each_epoch,
    )
    return config, [Stage(0, config.train_batch_size, 0, steps, 0)]


def _unknown_tokens(task: FinetuningTask, rows: Mapping[str, Rows], tokenizer: Tokenizer) -> dict[str, str]:
    """Return a warning for each split with many [UNK]."""
    warnings = {}
    for split, table in rows.items():
        unknown = UnknownTokens(tokenizer)
        unknown.add([table.ids], task.texts(split))
        if (line := unknown.warning(f"the {split} split")) is not None:
            warnings[split] = line
    return warnings


def _input_warnings(task: FinetuningTask, rows: Mapping[str, Rows], max_seq_length: int) -> dict[str, list[str]]:
    """Return the warnings about truncated, empty and skipped examples of each split."""
    warnings: dict[str, list[str]] = {split: [] for split in rows}
    for split, table in rows.items():
        if table.truncated:
            warnings[split].append(task.truncation(split, table, max_seq_length))
        if len(table.empty):
            warnings[split].append(task.emptiness(split, table))
        if table.skipped:
            warnings[split].append(
                f"{table.skipped} {split} examples were skipped: columns are missing, or the answer is not in the text"
            )
    return warnings


def _check_old_run(plan: FinetuningPlan, old: RunRecord | None) -> None:
    """Check that the run in --output can be continued, and print the options that change."""
    if old is None:
        return
    if old.vocab_sha256 != plan.record.vocab_sha256 or WordRules.of(old) != plan.word_rules:
        raise TrainingError(
            f"{plan.output} was trained with another vocabulary or other word rules "
            f"({WordRules.of(old).summary}): omit --vocab_file, --do_lower_case, --strip_accents and "
            "--tokenize_chinese_chars"
        )
    step = run_manifest.last_step(plan.output)
    if plan.config.do_train and step is not None:
        run_manifest.check_same_run(plan.output, step, old, plan.record, plan.model_config, plan.model_config)
        for line in run_manifest.changes(old, plan.record):
            print_status(line)
