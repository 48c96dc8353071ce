"""`beambert pretrain`: trains a BERT, from random weights or a checkpoint, on the shards of `beambert build`.

TensorFlow is imported after the options have been checked, so that `--help` and mistakes answer at once.
"""

import argparse
import contextlib
import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING

from bert_model import native
from bert_model.checkpoints import Checkpoint as OpenCheckpoint
from bert_model.checkpoints import open_checkpoint
from bert_model.config import BertConfig, ConfigError, resolve
from bert_model.model_card import model_card
from bert_model.names import PRETRAINING
from bert_model.size import parameter_counts
from pipelines import dataset as manifest
from pipelines.dataset import Dataset, DatasetError
from tokenizer.vocabulary import Vocabulary
from trainers import run_record
from trainers.errors import TrainingError
from trainers.initial_checkpoint import check_same_model, load_weights
from trainers.pretrain_options import DEFAULT_MODEL, add_arguments, default_learning_rate, default_warmup_steps
from trainers.progress import say, warn
from trainers.run_record import RunRecord
from trainers.startup import start_tensorflow
from trainers.whole_files import write_whole

if TYPE_CHECKING:
    from trainers.checkpointing import Checkpoint
    from trainers.loop import Task

DESCRIPTION = (
    "Trains a BERT, from random weights or a checkpoint, on the data that `beambert build` made, and evaluates it. "
    "Stopped at any moment, the same command goes on from the last checkpoint."
)
__all__ = ["DESCRIPTION", "add_arguments", "run"]


def run(args: argparse.Namespace) -> int:
    """Trains and evaluates.

    Args:
        args: what `add_arguments` defines.

    Returns:
        0 when done; 130 or 143 when stopped by Ctrl-C or SIGTERM, after saving a checkpoint.

    Raises:
        CheckpointError, ConfigError, DatasetError, TrainingError, VocabularyError: one line for the user.
    """
    args = argparse.Namespace(**vars(args))  # Defaults that depend on the model are filled in below.
    data, output = Path(args.data), Path(args.output)
    do_train = args.do_train or not args.do_eval
    do_eval = args.do_eval or not args.do_train

    # What can be wrong is found before anything is written and before TensorFlow is imported.
    dataset = manifest.load(data)
    if dataset.file_format != "tfrecord":
        raise DatasetError(
            f"{data} holds {dataset.file_format} files, which the trainer does not read; build it again with "
            "--format tfrecord"
        )
    vocabulary = read_vocabulary(data, dataset)
    old = run_record.load(output)
    if old is None and native.load(output):
        raise TrainingError(f"{output} holds a model that was converted; give another --output, or remove it first")
    begins = do_train and args.init_checkpoint and not run_record.has_checkpoints(output)
    with _initial(args, dataset) if begins else contextlib.nullcontext() as initial:
        return _run(args, do_train, do_eval, dataset, vocabulary, old, initial)


def _initial(args: argparse.Namespace, dataset: Dataset) -> contextlib.AbstractContextManager[OpenCheckpoint]:
    """The checkpoint of --init_checkpoint; --model says its shape where no file beside it does."""
    config = resolve(args.model, dataset.vocab_size) if args.model else None
    start_tensorflow()
    return open_checkpoint(Path(args.init_checkpoint), config=config)


def _run(
    args: argparse.Namespace,
    do_train: bool,
    do_eval: bool,
    dataset: Dataset,
    vocabulary: Vocabulary,
    old: RunRecord | None,
    initial: OpenCheckpoint | None,
) -> int:
    data, output = Path(args.data), Path(args.output)
    if initial is not None:
        _check_vocabulary_of(initial, dataset)
    config = _config(args.model, output, old, initial, dataset)
    if initial is not None:
        check_same_model(initial, config)
    if dataset.max_seq_length > config.max_position_embeddings:
        raise ConfigError(
            f"{data} has sequences of {dataset.max_seq_length} (max_seq_length), the model reads at most "
            f"{config.max_position_embeddings} (max_position_embeddings); build the data with a lower "
            "--max_seq_length, or give a model with more"
        )
    if args.learning_rate is None:
        args.learning_rate = default_learning_rate(config)
    if args.num_warmup_steps is None:
        args.num_warmup_steps = default_warmup_steps(args.num_train_steps)
    record = _record(args, dataset)
    if do_train and old is not None and run_record.has_checkpoints(output):
        old_config = BertConfig.load(output / native.CONFIG_FILE_NAME)
        run_record.check_same_run(output, old, record, old_config, config)
        changes = run_record.schedule_changes(old, record)
        if changes:
            say(f"The course of the learning rate changes: {', '.join(changes)}")
    elif not do_train and old is None:
        raise TrainingError(f"{output} holds no run to evaluate; train one with --do_train, or give its --output")
    elif not do_train and old is not None and old.vocab_sha256 != dataset.vocab_sha256:
        raise TrainingError(
            f"{output} was trained with another vocabulary than that of {data}; give data built with it"
        )

    start_tensorflow()
    import keras
    import tensorflow as tf

    from bert_model.pretraining import BertForPretraining
    from trainers.pretraining_task import pretraining_task

    keras.utils.set_random_seed(args.seed)
    # Matrix units want rows by the 128; on a CPU the padding made no difference.
    accelerated = any(device.device_type != "CPU" for device in tf.config.list_logical_devices())
    model = BertForPretraining(config, pad_vocabulary=accelerated)
    task = pretraining_task(model)

    if do_train:
        output.mkdir(parents=True, exist_ok=True)
        write_whole(output / manifest.VOCAB_FILE_NAME, vocabulary.to_bytes())
        write_whole(output / native.CONFIG_FILE_NAME, config.to_json().encode())
        write_whole(output / run_record.FILE_NAME, record.to_json().encode())
        if native.load(output) is None or not run_record.has_checkpoints(output):
            _write_model(output, config, _new_model(args, record))
        stopped = _train(args, task, data, dataset, output, initial)
        if stopped is not None:
            return 128 + stopped
    checkpoint = _last_checkpoint(output)
    results = _evaluate(args, task, data, dataset, output, checkpoint) if do_eval else None
    model_record = native.load(output)
    if model_record is not None:
        _write_model(output, config, _trained_model(model_record, checkpoint, results))
    _summarise(output, checkpoint, results)
    return 0


def _write_model(output: Path, config: BertConfig, model: native.ModelRecord) -> None:
    """Writes `beambert.json` and the model card, which make a run's directory a model for every command."""
    card = model_card(config, model, parameter_counts(config).total)
    write_whole(output / native.MODEL_CARD_FILE_NAME, card.encode())
    write_whole(output / native.FILE_NAME, model.to_json().encode())


def _new_model(args: argparse.Namespace, record: RunRecord) -> native.ModelRecord:
    origin = f"training began with the weights of {Path(args.init_checkpoint).name}" if args.init_checkpoint else None
    return native.ModelRecord(
        task=PRETRAINING,
        do_lower_case=record.do_lower_case,
        max_seq_length=record.max_seq_length,
        data_fingerprint=record.data_fingerprint,
        origin=origin,
    )


def _trained_model(
    model: native.ModelRecord, checkpoint: "Checkpoint", results: dict[str, float] | None
) -> native.ModelRecord:
    """The record of a model after training or evaluation; metrics stay as long as the weights do."""
    metrics = model.metrics if model.steps == checkpoint.step else {}
    if results is not None:
        metrics = {name: value for name, value in results.items() if name != "global_step"}
    return dataclasses.replace(model, steps=checkpoint.step, metrics=metrics)


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
    if model is None and old is not None:
        model = str(output / native.CONFIG_FILE_NAME)
    return resolve(model or DEFAULT_MODEL, dataset.vocab_size)


def _record(args: argparse.Namespace, dataset: Dataset) -> RunRecord:
    return RunRecord(
        data_fingerprint=run_record.fingerprint(dataset),
        vocab_sha256=dataset.vocab_sha256,
        do_lower_case=dataset.do_lower_case,
        max_seq_length=dataset.max_seq_length,
        seed=args.seed,
        train_batch_size=args.train_batch_size,
        options={name: value for name, value in vars(args).items() if isinstance(value, str | int | float | None)},
        versions=run_record.versions(),
    )


def _train(
    args: argparse.Namespace,
    task: "Task",
    data: Path,
    dataset: Dataset,
    output: Path,
    initial: OpenCheckpoint | None,
) -> int | None:
    """Trains, resuming if there is a checkpoint; the number of the signal that stopped it, or None."""
    import tensorflow as tf

    from trainers import checkpointing
    from trainers.input import damaged_shard, train_batches
    from trainers.loop import Schedule, Trainer, train
    from trainers.pretraining_task import SHOWN_METRICS
    from trainers.static_shapes import with_static_lengths

    schedule = Schedule(
        num_train_steps=args.num_train_steps,
        num_warmup_steps=args.num_warmup_steps,
        learning_rate=args.learning_rate,
        save_checkpoints_steps=args.save_checkpoints_steps,
        iterations_per_loop=args.iterations_per_loop or (100 if tf.config.list_logical_devices("GPU") else 1),
        batch_size=args.train_batch_size,
        seed=args.seed,
    )
    checkpoint_directory = output / native.CHECKPOINTS_NAME
    saved = checkpointing.checkpoints(checkpoint_directory)
    if saved and saved[-1].step >= schedule.num_train_steps:
        say(f"{output} is already trained to step {saved[-1].step}; a higher --num_train_steps would go on")
        return None
    trainer = Trainer(with_static_lengths(task, dataset), schedule)
    parameters = sum(variable.shape.num_elements() for variable in task.variables.values())
    if saved:
        checkpointing.restore(saved[-1].prefix, trainer.saved_variables, task.vocab_size)
        say(f"Resuming {output} from step {saved[-1].step} of {schedule.num_train_steps}")
    else:
        if initial is not None:
            weights = load_weights(initial, task.variables)
            write_whole(output / run_record.INITIAL_WEIGHTS_NAME, weights.to_text().encode())
            say(f"Weights read from {initial.path}: {'; '.join(weights.lines())}")
        say(
            f"Training {parameters:,} parameters for {schedule.num_train_steps} steps of {schedule.batch_size} "
            f"sequences of {dataset.max_seq_length}; compiling takes some seconds"
        )
    step = int(trainer.global_step.numpy())
    batches = train_batches(data, dataset, args.train_batch_size, args.seed, first_step=step)
    try:
        return train(trainer, batches, checkpoint_directory, output / "logs" / "train", SHOWN_METRICS)
    except tf.errors.DataLossError as error:
        path = damaged_shard(data, dataset.shards_of("train")) or data
        raise DatasetError(f"{path} is damaged: its bytes are not those that were built; copy it again") from error


def _check_vocabulary_of(initial: OpenCheckpoint, dataset: Dataset) -> None:
    """Refuses a checkpoint with another vocabulary than the data's."""
    if initial.vocab_file is None:
        return
    if Vocabulary.load(initial.vocab_file).sha256 != dataset.vocab_sha256:
        raise TrainingError(
            f"--init_checkpoint {initial.path} was made with {initial.vocab_file}, which is not the vocabulary of "
            "--data; build the data with --vocab_file and that file"
        )


def _last_checkpoint(output: Path) -> "Checkpoint":
    from trainers import checkpointing

    saved = checkpointing.checkpoints(output / native.CHECKPOINTS_NAME)
    if not saved:
        raise TrainingError(f"{output} holds no checkpoint to evaluate; train it with --do_train")
    return saved[-1]


def _evaluate(
    args: argparse.Namespace, task: "Task", data: Path, dataset: Dataset, output: Path, checkpoint: "Checkpoint"
) -> dict[str, float] | None:
    """Evaluates a checkpoint and writes the result files; None if there are no validation examples.

    All five numbers are taken over the examples as a whole: sums of weights and losses are divided once, at the end.
    The released code does the same for the four masked_lm_* and next_sentence_* numbers; its `loss` is the mean over
    batches of each batch's loss, ours the sum of masked_lm_loss and next_sentence_loss, which the batch size leaves
    alone.
    """
    import tensorflow as tf

    from trainers import checkpointing
    from trainers.input import damaged_shard, validation_batches
    from trainers.loop import evaluate

    batches = validation_batches(data, dataset, args.eval_batch_size, args.max_eval_steps)
    if batches is None:
        warn(f"{data} has no validation examples, so nothing is evaluated; build the data with some held out")
        return None
    checkpointing.restore(checkpoint.prefix, task.variables, task.vocab_size)
    try:
        metrics = evaluate(task, batches)
    except tf.errors.DataLossError as error:
        path = damaged_shard(data, dataset.shards_of("validation")) or data
        raise DatasetError(f"{path} is damaged: its bytes are not those that were built; copy it again") from error
    metrics["loss"] = metrics["masked_lm_loss"] + metrics.get("next_sentence_loss", 0.0)
    writer = tf.summary.create_file_writer(str(output / "logs" / "validation"))
    with writer.as_default(step=checkpoint.step):
        for name, value in metrics.items():
            tf.summary.scalar(name, value)
    writer.close()
    results = {"global_step": checkpoint.step, **metrics}
    lines = "".join(f"{name} = {value}\n" for name, value in sorted(results.items()))
    write_whole(output / "eval_results.txt", lines.encode())
    write_whole(output / "eval_results.json", json.dumps(results, indent=2, sort_keys=True).encode() + b"\n")
    return results


def _summarise(output: Path, checkpoint: "Checkpoint", results: dict[str, float] | None) -> None:
    say(f"Checkpoint   {checkpoint.prefix} (step {checkpoint.step})")
    say(f"Model        {output / native.CONFIG_FILE_NAME}, {output / manifest.VOCAB_FILE_NAME}")
    if results:
        shown = {"masked_lm_accuracy": "masked LM accuracy", "next_sentence_accuracy": "next sentence accuracy"}
        shown["loss"] = "loss"
        numbers = ", ".join(f"{words} {results[name]:.3f}" for name, words in shown.items() if name in results)
        say(f"Evaluation   {output / 'eval_results.txt'}: {numbers}")
    say(f"Curves       tensorboard --logdir {output / 'logs'}")
    say(f"Try it       beambert fill-mask {output} 'The capital of France is [MASK].'")
