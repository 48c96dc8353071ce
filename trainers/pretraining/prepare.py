"""From the options of `beambert pretrain` to a run: read the manifests, open the model, check both, and run.

TensorFlow is imported after the options have been checked, so that mistakes are reported at once.
"""

import contextlib
import dataclasses
from collections.abc import Sequence
from pathlib import Path

from bert_model.checkpoints import native
from bert_model.checkpoints.reader import Checkpoint as OpenCheckpoint
from bert_model.checkpoints.reader import find_files, open_checkpoint
from bert_model.config import BertConfig, ConfigError, resolve
from pipelines import dataset as manifest
from pipelines.dataset import Dataset
from pipelines.errors import DatasetError
from pipelines.io.output_directory import RUN_MANIFEST, entries_of, require_own
from tokenizer.vocabulary import Vocabulary
from trainers.backends.tensorflow.startup import start_tensorflow
from trainers.checkpoints.best_checkpoint import lower_is_better
from trainers.checkpoints.initial_checkpoint import check_same_model
from trainers.config.pretrain_config import PretrainConfig
from trainers.data.verification import verify
from trainers.errors import TrainingError
from trainers.monitoring.training_progress import print_status
from trainers.optimization.schedule import plan_stages
from trainers.pretraining.plan import PretrainingPlan
from trainers.pretraining.pretrain_flags import DEFAULT_MODEL
from trainers.training import run_manifest
from trainers.training.run_files import model_of_run
from trainers.training.run_lock import run_lock
from trainers.training.run_manifest import RunRecord


def run_pretraining(config: PretrainConfig) -> int:
    """Train and evaluate as the configuration says.

    Returns:
        0 when done; 130 or 143 when stopped by Ctrl-C or SIGTERM, after saving a checkpoint.

    Raises:
        CheckpointError, ConfigError, DatasetError, OutputError, TrainingError, VocabularyError: one line for the user.
    """
    output = Path(config.output)
    # Before the lock is written, and again while it is held, when no other process writes.
    require_own(f"--output {output}", entries_of(output), "pretrain", (RUN_MANIFEST,))
    with run_lock(output, config.strategy):
        return _run(config, output)


def _run(config: PretrainConfig, output: Path) -> int:
    """Train and evaluate while --output is locked."""
    config = dataclasses.replace(
        config, do_train=config.do_train or not config.do_eval, do_eval=config.do_eval or not config.do_train
    )
    # What can be wrong is found before anything is written and before TensorFlow is imported.
    lower_is_better(config.best_metric)
    directories = tuple(Path(name) for name in config.data)
    datasets = tuple(_dataset(directory) for directory in directories)
    vocabularies = [read_vocabulary(*pair) for pair in zip(directories, datasets, strict=True)]
    _check_alike(directories, datasets)
    if config.do_train and config.eval_steps and not all(dataset.num_examples("validation") for dataset in datasets):
        raise TrainingError(
            "--eval_steps needs validation examples in every directory of --data; build the data with some held out, "
            "or leave --eval_steps out"
        )
    row_lengths = [dataset.max_seq_length for dataset in datasets]
    stages = plan_stages(
        config.num_train_steps, row_lengths, config.schedule, config.train_batch_size, config.batch_ramp
    )
    require_own(f"--output {output}", entries_of(output), "pretrain", (RUN_MANIFEST,))
    old = run_manifest.load(output)
    if old is not None and old.options.get("task"):
        raise TrainingError(f"--output {output} holds a run of {old.options['task']}; give another --output")
    begins = config.init_checkpoint if config.do_train and run_manifest.last_step(output) is None else None
    with _initial(config, begins, datasets[0]) if begins else contextlib.nullcontext() as initial:
        model_config = _model_config(config.model, output, old, initial, datasets[0])
        # A causal model stays one, also when the run is resumed.
        inherited = initial is not None and initial.record is not None and initial.record.causal_attention
        resumed = config.init_checkpoint and old is not None and old.options.get("causal_attention")
        config = config.resolved(model_config, causal_attention=bool(inherited or resumed))
        record = RunRecord(
            data_fingerprints=tuple(run_manifest.fingerprint(dataset) for dataset in datasets),
            vocab_sha256=datasets[0].vocab_sha256,
            do_lower_case=datasets[0].do_lower_case,
            max_seq_length=max(row_lengths),
            stages=tuple(stages),
            options=config.to_json(),
            versions=run_manifest.versions(),
        )
        plan = PretrainingPlan(
            config=config,
            directories=directories,
            datasets=datasets,
            vocabulary=vocabularies[0],
            stages=stages,
            model_config=model_config,
            causal_attention=_causal_attention(config, output),
            record=record,
            output=output,
            initial=initial,
        )
        _check_model(plan)
        _check_old_run(plan, old)
        if config.verify:
            for directory, dataset in zip(directories, datasets, strict=True):
                print_status(f"Comparing {len(dataset.shards)} shards of {directory} with {manifest.FILE_NAME}")
                verify(directory, dataset)
        start_tensorflow(config.cpu_devices, config.deterministic_ops)
        from trainers.pretraining.pretraining_run import train_and_evaluate

        return train_and_evaluate(plan)


def _dataset(directory: Path) -> Dataset:
    dataset = manifest.load(directory)
    if dataset.file_format != "tfrecord":
        raise DatasetError(
            f"{directory} holds {dataset.file_format} files, which the trainer does not read; build it again with "
            "--format tfrecord"
        )
    return dataset


def _check_alike(directories: Sequence[Path], datasets: Sequence[Dataset]) -> None:
    """Refuse directories that one model cannot be trained on."""
    for directory, dataset in zip(directories[1:], datasets[1:], strict=True):
        if (dataset.vocab_sha256, dataset.do_lower_case) != (datasets[0].vocab_sha256, datasets[0].do_lower_case):
            raise DatasetError(
                f"{directory} was built with another vocabulary than {directories[0]}; build both with the same "
                "--vocab_file"
            )


def _initial(config: PretrainConfig, path: str, dataset: Dataset) -> contextlib.AbstractContextManager[OpenCheckpoint]:
    """Open --init_checkpoint; --model says its shape where no file beside it does."""
    shape = resolve(config.model, dataset.vocab_size) if config.model else None
    find_files(Path(path), shape)
    start_tensorflow(config.cpu_devices, config.deterministic_ops)
    return open_checkpoint(Path(path), config=shape)


def _causal_attention(config: PretrainConfig, output: Path) -> bool:
    """Return whether attention is causal: as the flag says, or in evaluation alone as the model was trained."""
    model = model_of_run(output, config.do_train)
    return config.causal_attention if config.do_train or model is None else model.causal_attention


def _check_model(plan: PretrainingPlan) -> None:
    if plan.initial is not None:
        _check_vocabulary_of(plan.initial, plan.datasets[0])
        check_same_model(plan.initial, plan.model_config)
    longest, limit = plan.record.max_seq_length, plan.model_config.max_position_embeddings
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


def _check_old_run(plan: PretrainingPlan, old: RunRecord | None) -> None:
    """Refuse what does not fit the run in --output, and print what changes in it."""
    output, do_train = plan.output, plan.config.do_train
    step = run_manifest.last_step(output)
    if do_train and old is not None and step is not None:
        old_config = BertConfig.load(output / native.CONFIG_FILE_NAME)
        run_manifest.check_same_run(output, step, old, plan.record, old_config, plan.model_config)
        for line in run_manifest.changes(old, plan.record):
            print_status(line)
    elif not do_train and old is None:
        raise TrainingError(f"{output} holds no run to evaluate; train one with --do_train, or give its --output")
    elif not do_train and old is not None and old.vocab_sha256 != plan.record.vocab_sha256:
        raise TrainingError(
            f"{output} was trained with another vocabulary than that of {plan.directories[0]}; give data built with it"
        )


def read_vocabulary(directory: Path, dataset: Dataset) -> Vocabulary:
    """Return the vocabulary beside a manifest.

    Raises:
        DatasetError: it is not the vocabulary that the data was built with.
        VocabularyError: it is missing, or not a vocabulary.
    """
    path = directory / manifest.VOCAB_FILE_NAME
    vocabulary = Vocabulary.load(path)
    if (len(vocabulary), vocabulary.sha256) != (dataset.vocab_size, dataset.vocab_sha256):
        raise DatasetError(
            f"{path} has {len(vocabulary)} pieces and SHA-256 {vocabulary.sha256}, {manifest.FILE_NAME} says "
            f"{dataset.vocab_size} and {dataset.vocab_sha256}; put back the vocabulary that the data was built with"
        )
    return vocabulary


def _model_config(
    model: str | None, output: Path, old: RunRecord | None, initial: OpenCheckpoint | None, dataset: Dataset
) -> BertConfig:
    if model is None and old is None and initial is not None:
        return initial.config
    if model is None and old is not None and (output / native.CONFIG_FILE_NAME).is_file():
        model = str(output / native.CONFIG_FILE_NAME)
    return resolve(model or DEFAULT_MODEL, dataset.vocab_size)


def _check_vocabulary_of(initial: OpenCheckpoint, dataset: Dataset) -> None:
    """Refuse a checkpoint with another vocabulary than the data's."""
    if initial.vocab_file is None:
        return
    if Vocabulary.load(initial.vocab_file).sha256 != dataset.vocab_sha256:
        raise TrainingError(
            f"--init_checkpoint {initial.path} was made with {initial.vocab_file}, which is not the vocabulary of "
            "--data; build the data with --vocab_file and that file"
        )
