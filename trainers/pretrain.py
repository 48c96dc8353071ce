"""`beambert pretrain`: trains a BERT from random weights on the shards of `beambert build`.

TensorFlow is imported after the options have been checked, so that `--help` and mistakes answer at once.
"""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from bert_model.config import PRESETS, BertConfig, ConfigError, resolve
from pipelines import dataset as manifest
from pipelines.dataset import Dataset, DatasetError
from tokenizer.vocabulary import Vocabulary
from trainers import run_record
from trainers.errors import TrainingError
from trainers.progress import say, warn
from trainers.run_record import RunRecord, write_whole
from trainers.startup import start_tensorflow

if TYPE_CHECKING:
    from trainers.checkpointing import Checkpoint
    from trainers.loop import Task

DESCRIPTION = (
    "Trains a BERT from random weights on the data that `beambert build` made, and evaluates it. Stopped at any moment,"
    " the same command goes on from the last checkpoint."
)
DEFAULT_MODEL = "tiny"
LEAST_WARMUP_STEPS = 1000
MOST_WARMUP_STEPS = 10_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options; names and defaults are those of the released run_pretraining.py where it has them."""

    def add(name: str, help: str, **options: object) -> None:
        parser.add_argument(name, help=help, **options)  # type: ignore[arg-type]

    add(
        "--data",
        "directory made by `beambert build` or `beambert pretraining-data`; the vocabulary, max_seq_length and "
        "max_predictions_per_seq are read from it",
        required=True,
        metavar="DIR",
    )
    add(
        "--output",
        "directory for checkpoints, logs and results; if a run of the same data, model and seed lies there, it goes on "
        "from its last checkpoint",
        required=True,
        metavar="DIR",
    )
    add(
        "--model",
        f"{', '.join(PRESETS)}, or the path of a bert_config.json (default: the model of the run in --output, else "
        f"{DEFAULT_MODEL}, which any computer trains; base and large are the published BERT and want an accelerator)",
        metavar="NAME|FILE.json",
    )
    add(
        "--num_train_steps",
        "updates in all (default: %(default)s; the paper made 1000000)",
        type=_positive,
        default=100_000,
        metavar="N",
    )
    add(
        "--num_warmup_steps",
        "updates over which the learning rate climbs to its peak, from where it falls in a line to 0 (default: a tenth "
        f"of num_train_steps, from {LEAST_WARMUP_STEPS} to {MOST_WARMUP_STEPS}, but never more than half)",
        type=_natural,
        metavar="N",
    )
    add(
        "--learning_rate",
        "peak learning rate (default: 1e-4 for base and large, as in the paper; 2e-4 for medium and small, 5e-4 for "
        "mini, 1e-3 for tiny)",
        type=_rate,
        metavar="RATE",
    )
    add(
        "--train_batch_size",
        "sequences an update (default: %(default)s; the paper had 256)",
        type=_positive,
        default=32,
        metavar="N",
    )
    add(
        "--eval_batch_size",
        "sequences at a time in evaluation; the results do not depend on it (default: %(default)s)",
        type=_positive,
        default=32,
        metavar="N",
    )
    add(
        "--max_eval_steps",
        "evaluation stops after so many batches (default: %(default)s)",
        type=_positive,
        default=100,
        metavar="N",
    )
    add(
        "--save_checkpoints_steps",
        "updates between checkpoints; the last five are kept (default: %(default)s)",
        type=_positive,
        default=1000,
        metavar="N",
    )
    add(
        "--iterations_per_loop",
        "updates between two looks at the metrics, which Ctrl-C waits for too (default: 1 on a CPU, 100 elsewhere)",
        type=_positive,
        metavar="N",
    )
    add(
        "--init_checkpoint",
        "begin with the weights of this run or checkpoint instead of random ones, for instance to go on with longer "
        "sequences; the optimizer begins anew, and a checkpoint of the released BERT will do too",
        metavar="PATH",
    )
    add(
        "--seed",
        "of the random weights, the order of the data and dropout; the same seed on the same machine gives the same "
        "weights (default: %(default)s)",
        type=_seed,
        default=12345,
        metavar="N",
    )
    add("--do_train", "train; with neither --do_train nor --do_eval, both are done", action="store_true")
    add("--do_eval", "evaluate the last checkpoint on the validation shards", action="store_true")


def run(args: argparse.Namespace) -> int:
    """Trains and evaluates.

    Args:
        args: what `add_arguments` defines.

    Returns:
        0 when done; 130 or 143 when stopped by Ctrl-C or SIGTERM, after saving a checkpoint.

    Raises:
        ConfigError, DatasetError, TrainingError, VocabularyError: one line for the user.
    """
    args = argparse.Namespace(**vars(args))  # Defaults that depend on the model are filled in below.
    data, output = Path(args.data), Path(args.output)
    do_train = args.do_train or not args.do_eval
    do_eval = args.do_eval or not args.do_train

    # What can be wrong is found before anything is written and before TensorFlow is imported.
    dataset = manifest.load(data)
    vocabulary = read_vocabulary(data, dataset)
    old = run_record.load(output)
    config = _config(args.model, output, old, dataset)
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
        old_config = BertConfig.load(output / run_record.CONFIG_FILE_NAME)
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

    from bert_model.pretraining import BertForPretraining
    from trainers.pretraining_task import pretraining_task

    keras.utils.set_random_seed(args.seed)
    model = BertForPretraining(config)
    task = pretraining_task(model)

    if do_train:
        output.mkdir(parents=True, exist_ok=True)
        write_whole(output / manifest.VOCAB_FILE_NAME, vocabulary.to_bytes())
        write_whole(output / run_record.CONFIG_FILE_NAME, config.to_json().encode())
        write_whole(output / run_record.FILE_NAME, record.to_json().encode())
        stopped = _train(args, task, data, dataset, output)
        if stopped is not None:
            return 128 + stopped
    checkpoint = _last_checkpoint(output)
    results = _evaluate(args, task, data, dataset, output, checkpoint) if do_eval else None
    _summarise(output, checkpoint, results)
    return 0


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


def default_learning_rate(config: BertConfig) -> float:
    """Peak learning rate for a model: the paper's 1e-4 from base on, more for smaller ones.

    The smaller ones' rates are the best of short runs on 3 MB of Wikipedia text; two to three times the rate kept
    each of them from learning anything beyond the frequency of pieces.
    """
    for hidden_size, rate in ((768, 1e-4), (512, 2e-4), (256, 5e-4)):
        if config.hidden_size >= hidden_size:
            return rate
    return 1e-3


def default_warmup_steps(num_train_steps: int) -> int:
    """A tenth of the steps, at least 1,000 of them, at most the 10,000 of the paper and half of the run.

    BERT's Adam does not correct its bias, so that its first updates are several times too long. With a shorter warm-up
    they leave a small model predicting word frequencies for the rest of a short run.
    """
    return min(max(num_train_steps // 10, LEAST_WARMUP_STEPS), num_train_steps // 2, MOST_WARMUP_STEPS)


def _config(model: str | None, output: Path, old: RunRecord | None, dataset: Dataset) -> BertConfig:
    if model is None and old is not None:
        model = str(output / run_record.CONFIG_FILE_NAME)
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


def _train(args: argparse.Namespace, task: "Task", data: Path, dataset: Dataset, output: Path) -> int | None:
    """Trains, resuming if there is a checkpoint; the number of the signal that stopped it, or None."""
    import tensorflow as tf

    from trainers import checkpointing
    from trainers.input import damaged_shard, train_batches
    from trainers.loop import Schedule, Trainer, train
    from trainers.pretraining_task import SHOWN_METRICS

    schedule = Schedule(
        num_train_steps=args.num_train_steps,
        num_warmup_steps=args.num_warmup_steps,
        learning_rate=args.learning_rate,
        save_checkpoints_steps=args.save_checkpoints_steps,
        iterations_per_loop=args.iterations_per_loop or (100 if tf.config.list_logical_devices("GPU") else 1),
        batch_size=args.train_batch_size,
        seed=args.seed,
    )
    checkpoint_directory = output / run_record.CHECKPOINTS_NAME
    saved = checkpointing.checkpoints(checkpoint_directory)
    if saved and saved[-1].step >= schedule.num_train_steps:
        say(f"{output} is already trained to step {saved[-1].step}; a higher --num_train_steps would go on")
        return None
    trainer = Trainer(task, schedule)
    parameters = sum(variable.shape.num_elements() for variable in task.variables.values())
    if saved:
        checkpointing.restore(saved[-1].prefix, trainer.saved_variables)
        say(f"Resuming {output} from step {saved[-1].step} of {schedule.num_train_steps}")
    else:
        if args.init_checkpoint:
            prefix = checkpointing.find(Path(args.init_checkpoint))
            _check_vocabulary_of(prefix, dataset)
            checkpointing.restore(prefix, task.variables)
            say(f"Weights read from {prefix}")
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


def _check_vocabulary_of(prefix: Path, dataset: Dataset) -> None:
    """Refuses a checkpoint beside another vocabulary than the data's; the released archives have one there too."""
    for directory in (prefix.parent, prefix.parent.parent):
        path = directory / manifest.VOCAB_FILE_NAME
        if path.is_file() and Vocabulary.load(path).sha256 != dataset.vocab_sha256:
            raise TrainingError(
                f"--init_checkpoint {prefix} was made with {path}, which is not the vocabulary of --data; build the "
                f"data with --vocab_file {path}"
            )


def _last_checkpoint(output: Path) -> "Checkpoint":
    from trainers import checkpointing

    saved = checkpointing.checkpoints(output / run_record.CHECKPOINTS_NAME)
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
    checkpointing.restore(checkpoint.prefix, task.variables)
    try:
        metrics = evaluate(task, batches)
    except tf.errors.DataLossError as error:
        path = damaged_shard(data, dataset.shards_of("validation")) or data
        raise DatasetError(f"{path} is damaged: its bytes are not those that were built; copy it again") from error
    metrics["loss"] = metrics["masked_lm_loss"] + metrics["next_sentence_loss"]
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
    say(f"Model        {output / run_record.CONFIG_FILE_NAME}, {output / manifest.VOCAB_FILE_NAME}")
    if results:
        say(
            f"Evaluation   {output / 'eval_results.txt'}: masked LM accuracy {results['masked_lm_accuracy']:.3f}, "
            f"next sentence accuracy {results['next_sentence_accuracy']:.3f}, loss {results['loss']:.3f}"
        )
    say(f"Curves       tensorboard --logdir {output / 'logs'}")
    say(f"Try it       beambert fill-mask {output} 'The capital of France is [MASK].'")


def _positive(text: str) -> int:
    value = _natural(text)
    if value == 0:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def _natural(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 0")
    return int(text)


def _seed(text: str) -> int:
    value = _natural(text)
    if value >= 2**31:
        raise argparse.ArgumentTypeError(f"must be below {2**31}")
    return value


def _rate(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0, such as 1e-4")
    return value
