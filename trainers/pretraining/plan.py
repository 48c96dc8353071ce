"""Plan a pretraining run: read the manifests, resolve the model, and validate both.

TensorFlow is imported after the options are validated, so that errors are reported at once.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from beambert.bert_model.checkpoints import native
from beambert.bert_model.checkpoints.reader import Checkpoint as OpenCheckpoint
from beambert.bert_model.checkpoints.reader import find_files, open_checkpoint
from beambert.bert_model.config import BertConfig, ConfigError, resolve
from beambert.common.formatting import counted
from beambert.common.word_rules import WordRules
from beambert.pipelines import dataset as manifest
from beambert.pipelines.dataset import Dataset
from beambert.pipelines.errors import DatasetError
from beambert.tokenizer.vocabulary import Vocabulary
from beambert.trainers.backends.startup import start_backend
from beambert.trainers.checkpoints.checkpoint_manager import Checkpoint, lower_is_better
from beambert.trainers.checkpoints.initial_checkpoint import check_same_model
from beambert.trainers.checkpoints.vocabulary_check import drop_unused_rows, vocabulary_of
from beambert.trainers.data.dynamic_masking import MaskRatePhase, check_predictions, parse_mask_rates
from beambert.trainers.data.shard_reader import verify
from beambert.trainers.errors import TrainingError
from beambert.trainers.monitoring.training_progress import print_status, warn
from beambert.trainers.optimization.schedule import Stage, plan_stages
from beambert.trainers.options import LearningRateSchedule
from beambert.trainers.pretraining.options import DEFAULT_MODEL, DEFAULT_TRAIN_STEPS, PretrainOptions
from beambert.trainers.training import run_manifest
from beambert.trainers.training.run_files import is_chief, model_of_run
from beambert.trainers.training.run_manifest import RunRecord
from beambert.trainers.training_plan import TrainingPlan

# Number of steps of a plan before the speed is measured; its stages are the inputs of the measurement.
_PROVISIONAL_STEPS = 1_000_000


@dataclass(frozen=True, kw_only=True)
class PretrainingPlan(TrainingPlan):
    """The validated inputs of a pretraining run, before Keras is imported.

    Attributes:
        requested: configuration before its defaults were resolved.
        config: resolved configuration.
        directories: the directories of --data.
        datasets: manifest of each directory; all have the same vocabulary.
        mask_rates: phases of the masking rate; empty for the rate of the data.
        needs_steps: whether the number of steps is provisional, until the speed is measured for --max_train_time.
    """

    requested: PretrainOptions
    config: PretrainOptions
    directories: tuple[Path, ...]
    datasets: tuple[Dataset, ...]
    mask_rates: tuple[MaskRatePhase, ...]
    needs_steps: bool

    @property
    def next_sentence(self) -> bool:
        """Return whether next-sentence prediction is trained: some of the data has labels for it."""
        return not self.config.no_next_sentence and any(
            "next_sentence_labels" in dataset.features for dataset in self.datasets
        )

    def stages_of(self, num_train_steps: int) -> list[Stage]:
        """Return the stages of a number of training steps. Raises TrainingError if a phase is shorter than a step."""
        row_lengths = [dataset.max_seq_length for dataset in self.datasets]
        config = self.requested
        return plan_stages(num_train_steps, row_lengths, config.schedule, config.train_batch_size, config.batch_ramp)

    def with_steps(self, num_train_steps: int) -> "PretrainingPlan":
        """Return the plan with the final number of training steps.

        Raises:
            TrainingError: a phase is shorter than a step, or warm-up is not shorter than the training.
        """
        requested = dataclasses.replace(self.requested, num_train_steps=num_train_steps)
        config = requested.resolved(self.model_config, self.config.causal_attention)
        stages = self.stages_of(num_train_steps)
        record = dataclasses.replace(self.record, stages=tuple(stages), options=config.to_json())
        return dataclasses.replace(self, config=config, stages=stages, record=record, needs_steps=False)


@contextlib.contextmanager
def open_plan(config: PretrainOptions, begin: float, clock: Callable[[], float]) -> Iterator[PretrainingPlan]:
    """Read and validate all inputs of a run, before anything is written and before TensorFlow is imported.

    Args:
        config: configuration of the command, with the backend chosen.
        begin: time of the clock when the command started.
        clock: monotonic clock in seconds.

    Raises:
        CheckpointError, ConfigError, DatasetError, OutputError, TrainingError, VocabularyError: a one-line message.
    """
    output = Path(config.output)
    config = dataclasses.replace(
        config,
        do_train=config.do_train or not config.do_eval,
        do_eval=config.do_eval or not config.do_train,
    )
    lower_is_better(config.best_metric)
    directories = tuple(Path(name) for name in config.data)
    datasets = tuple(_dataset(directory) for directory in directories)
    vocabularies = [read_vocabulary(*pair) for pair in zip(directories, datasets, strict=True)]
    _check_same_vocabulary(directories, datasets)
    if config.do_train and config.eval_steps and not all(dataset.num_examples("validation") for dataset in datasets):
        raise TrainingError(
            f"invalid --eval_steps {config.eval_steps}: every --data directory must have a validation split; build the "
            "data with a --validation_fraction above 0, or leave --eval_steps out"
        )
    mask_rates = _mask_rates(config, directories, datasets)
    old = run_manifest.load(output)
    if old is not None and old.options.get("task"):
        raise TrainingError(
            f"--output {output} contains a fine-tuning run of {old.options['task']}; give another --output"
        )
    if not config.do_train and old is not None and old.options.get("no_next_sentence"):
        config = dataclasses.replace(config, no_next_sentence=True)
    if config.do_train:
        _check_best_metric(config, datasets)
    config, needs_steps = _with_steps(config, output, old)
    row_lengths = [dataset.max_seq_length for dataset in datasets]
    assert config.num_train_steps is not None
    stages = plan_stages(
        config.num_train_steps, row_lengths, config.schedule, config.train_batch_size, config.batch_ramp
    )
    initial_path = config.init_checkpoint if config.do_train and run_manifest.last_step(output) is None else None
    with _initial(config, initial_path, vocabularies[0]) if initial_path else contextlib.nullcontext() as initial:
        model_config = _model_config(config.model, output, old, initial, datasets[0])
        # Initial weights with causal attention imply it, also when the run is resumed.
        inherited = initial is not None and initial.record is not None and initial.record.causal_attention
        resumed = config.init_checkpoint and old is not None and old.options.get("causal_attention")
        requested = config
        config = config.resolved(model_config, causal_attention=bool(inherited or resumed))
        record = RunRecord(
            data_fingerprints=tuple(run_manifest.fingerprint(dataset) for dataset in datasets),
            vocab_sha256=datasets[0].vocab_sha256,
            **dataclasses.asdict(WordRules.of(datasets[0])),
            max_seq_length=max(row_lengths),
            stages=tuple(stages),
            options=config.to_json(),
            versions=run_manifest.versions(config.backend),
        )
        plan = PretrainingPlan(
            requested=requested,
            config=config,
            directories=directories,
            datasets=datasets,
            # With the added tokens, which the data does not have.
            vocabulary=Vocabulary.load(initial.vocab_file) if initial and initial.vocab_file else vocabularies[0],
            stages=stages,
            model_config=model_config,
            causal_attention=_causal_attention(config, output),
            record=record,
            output=output,
            initial=initial,
            mask_rates=mask_rates,
            start=begin,
            clock=clock,
            needs_steps=needs_steps,
        )
        _check_model(plan)
        _check_old_run(plan, old)
        if config.verify:
            for directory, dataset in zip(directories, datasets, strict=True):
                print_status(f"Verifying the SHA-256 of {len(dataset.shards)} shards in {directory}")
                verify(directory, dataset)
        yield plan


def _with_steps(config: PretrainOptions, output: Path, old: RunRecord | None) -> tuple[PretrainOptions, bool]:
    """Return the configuration with a number of training steps, and whether it is provisional.

    Raises:
        TrainingError: --max_train_time differs from that of a run in the directory that has a checkpoint.
    """
    if not config.do_train and old is not None and config.num_train_steps is None:
        return dataclasses.replace(config, num_train_steps=old.stages[-1].end_step), False
    if config.max_train_time is None:
        return dataclasses.replace(config, num_train_steps=config.num_train_steps or DEFAULT_TRAIN_STEPS), False
    if run_manifest.last_step(output) is not None:
        steps = None if old is None else old.stages[-1].end_step
        if old is not None and old.options.get("max_train_time") == config.max_train_time:
            return dataclasses.replace(config, num_train_steps=steps), False
        if config.do_train:
            raise TrainingError(
                f"invalid --max_train_time: {output} contains a run of {steps} steps, which were "
                "fixed when it started; omit the flag, and give --num_train_steps to extend the run"
            )
    return dataclasses.replace(config, num_train_steps=_PROVISIONAL_STEPS), config.do_train


def _check_best_metric(config: PretrainOptions, datasets: Sequence[Dataset]) -> None:
    """Raise TrainingError if no evaluation has the metric --best_metric."""
    metrics = ["loss", "masked_lm_accuracy", "masked_lm_loss"]
    if not config.no_next_sentence and any("next_sentence_labels" in dataset.features for dataset in datasets):
        metrics += ["next_sentence_accuracy", "next_sentence_loss"]
    if config.best_metric not in metrics:
        raise TrainingError(
            f"invalid --best_metric {config.best_metric}: not a metric of the evaluation; choose from "
            f"{', '.join(metrics)}"
        )


def _mask_rates(
    config: PretrainOptions, directories: Sequence[Path], datasets: Sequence[Dataset]
) -> tuple[MaskRatePhase, ...]:
    """Return the phases of --mask_rate_schedule. Raises TrainingError if the text or a dataset does not allow it."""
    if config.mask_rate_schedule is None:
        return ()
    phases = parse_mask_rates(config.mask_rate_schedule)
    for directory, dataset in zip(directories, datasets, strict=True):
        check_predictions(phases, directory, dataset)
    return tuple(phases)


def _dataset(directory: Path) -> Dataset:
    dataset = manifest.load(directory)
    if dataset.file_format != "tfrecord":
        raise DatasetError(
            f"{directory} contains {dataset.file_format} shards, but the trainer reads TFRecord; build the data again "
            "with --format tfrecord"
        )
    return dataset


def _check_same_vocabulary(directories: Sequence[Path], datasets: Sequence[Dataset]) -> None:
    """Raise DatasetError if directories differ in vocabulary or word rules."""
    for directory, dataset in zip(directories[1:], datasets[1:], strict=True):
        if dataset.vocab_sha256 != datasets[0].vocab_sha256:
            raise DatasetError(
                f"{directory} and {directories[0]} differ in vocabulary; build both with the same --vocab_file"
            )
        rules, first = WordRules.of(dataset), WordRules.of(datasets[0])
        if rules != first:
            raise DatasetError(
                f"{directory} ({rules.summary}) and {directories[0]} ({first.summary}) differ in word rules; build "
                "both with the same --do_lower_case, --strip_accents and --tokenize_chinese_chars"
            )


@contextlib.contextmanager
def _initial(config: PretrainOptions, path: str, vocabulary: Vocabulary) -> Iterator[OpenCheckpoint]:
    """Open --init_checkpoint; without a configuration file next to it, --model gives its configuration.

    Args:
        config: the options.
        path: value of --init_checkpoint.
        vocabulary: vocabulary of the data.

    Raises:
        TrainingError: the checkpoint has another vocabulary.
    """
    shape = resolve(config.model, len(vocabulary)) if config.model else None
    find_files(Path(path), shape)
    start_backend(config.backend, config.cpu_devices, config.deterministic_ops, config.processes)
    with open_checkpoint(Path(path), config=shape) as initial:
        own = Vocabulary.load(initial.vocab_file) if initial.vocab_file else vocabulary
        if own.sha256 != vocabulary.sha256:
            file = str(initial.vocab_file)
            if own.added_tokens and initial.kind == "huggingface":
                # This file is without the added tokens.
                file = "vocab.txt of the native model to which `beambert convert` converts it"
            raise TrainingError(
                f"--init_checkpoint {initial.path} uses {initial.vocab_file}, but --data has another vocabulary; build "
                f"the data with --vocab_file {file}"
            )
        in_data = {token.content for token in vocabulary.added_tokens}
        if missing := [token.content for token in own.added_tokens if token.content not in in_data]:
            number = counted(len(missing), "added token")
            warn(
                f"the data was built without {number} of {initial.path}, such as {missing[0]!r}: it "
                "has them split like other text"
            )
        # Without a vocabulary of its own, the checkpoint must fit that of the data.
        yield drop_unused_rows(initial, vocabulary_of(initial, own.origin), print_status)


def _causal_attention(config: PretrainOptions, output: Path) -> bool:
    """Return whether attention is causal: by the flag, or without training as in the trained model."""
    model = model_of_run(output, config.do_train)
    return config.causal_attention if config.do_train or model is None else model.causal_attention


def _check_model(plan: PretrainingPlan) -> None:
    if plan.initial is not None:
        if plan.initial.word_rules.do_lower_case is not None:
            recorded = WordRules(**dataclasses.asdict(plan.initial.word_rules))
            _check_same_rules(f"--init_checkpoint {plan.initial.path}", recorded, plan)
        check_same_model(plan.initial, plan.model_config)
    longest, limit = plan.record.max_seq_length, plan.model_config.max_position_embeddings
    if longest > limit:
        directory = next(
            path
            for path, dataset in zip(plan.directories, plan.datasets, strict=True)
            if dataset.max_seq_length == longest
        )
        raise ConfigError(
            f"max_seq_length {longest} of {directory} exceeds max_position_embeddings {limit} of the model; build the "
            "data with a lower --max_seq_length, or give a model with more position embeddings"
        )


def _check_old_run(plan: PretrainingPlan, old: RunRecord | None) -> None:
    """Raise an error if the run in --output cannot be resumed with these options; print the changed options."""
    output, do_train = plan.output, plan.config.do_train
    step = run_manifest.last_step(output)
    if do_train and old is not None and step is not None:
        old_config = BertConfig.load(output / native.CONFIG_FILE_NAME)
        run_manifest.check_same_run(output, step, old, plan.record, old_config, plan.model_config)
        for line in run_manifest.changes(old, plan.record):
            print_status(line)
        _print_decay(plan, old, step)
    elif not do_train and old is None:
        if not is_chief(plan.config):
            raise TrainingError(
                f"--output {output} contains no run to evaluate on this machine: copy run.json, bert_config.json and "
                "beambert.json of the first process's --output to it, or evaluate with a single process"
            )
        raise TrainingError(
            f"--output {output} contains no run to evaluate; train with --do_train, or give the --output of a run"
        )
    elif not do_train and old is not None and old.vocab_sha256 != plan.record.vocab_sha256:
        raise TrainingError(
            f"--output {output} and --data {plan.directories[0]} have different vocabularies; give data built with "
            f"{output / manifest.VOCAB_FILE_NAME}"
        )
    elif not do_train and old is not None:
        _check_same_rules(f"--output {output}", WordRules.of(old), plan)
        if plan.config.model is not None:
            old_config = BertConfig.load(output / native.CONFIG_FILE_NAME)
            differences = run_manifest.model_differences(old_config, plan.model_config)
            if differences:
                raise TrainingError(
                    f"{output} contains a run that differs in {', '.join(differences)}; omit --model "
                    f"{plan.config.model}"
                )


def _check_same_rules(model: str, rules: WordRules, plan: PretrainingPlan) -> None:
    """Raise TrainingError if a model and the data split text into words by different rules."""
    data = WordRules.of(plan.record)
    if rules != data:
        raise TrainingError(
            f"{model} ({rules.summary}) and --data {plan.directories[0]} ({data.summary}) differ in word rules; build "
            f"the data with the rules of the model, {rules.flags}"
        )


def _print_decay(plan: PretrainingPlan, old: RunRecord, step: int) -> None:
    """Print where the learning rate had decayed, if an extended run of schedule wsd returns to the peak."""
    names = ("lr_schedule", "lr_decay_power", "lr_decay_fraction", "lr_min_fraction")
    recorded = {name: old.options[name] for name in names}
    before = LearningRateSchedule(**recorded, num_train_steps=old.stages[-1].end_step).decay_start
    now = plan.config.decay_start
    if before is not None and now is not None and before < step < now:
        checkpoint = Checkpoint.of_step(plan.output / native.CHECKPOINTS_NAME, before)
        print_status(
            f"The learning rate had decayed since step {before}, and is at its peak again from step {step}; to resume "
            f"from before the decay instead, remove the checkpoints after {checkpoint.prefix} and run again"
        )


def read_vocabulary(directory: Path, dataset: Dataset) -> Vocabulary:
    """Return the vocabulary of a dataset directory.

    Raises:
        DatasetError: the file is not the vocabulary that the data was built with.
        VocabularyError: the file is missing, or not a valid vocabulary.
    """
    path = directory / manifest.VOCAB_FILE_NAME
    vocabulary = Vocabulary.load(path)
    if (len(vocabulary), vocabulary.sha256) != (dataset.vocab_size, dataset.vocab_sha256):
        raise DatasetError(
            f"{path} has {len(vocabulary)} tokens and SHA-256 {vocabulary.sha256}, but {manifest.FILE_NAME} records "
            f"{dataset.vocab_size} and {dataset.vocab_sha256}; restore the vocabulary that the data was built with"
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
