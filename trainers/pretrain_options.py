"""The options of `beambert pretrain`, and the defaults that depend on the model.

This file imports neither Keras nor TensorFlow.
"""

import argparse

from bert_model.config import PRESETS, BertConfig

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
        f"{', '.join(PRESETS)}, one of the 24 compact models such as L-6_H-256, or the path of a bert_config.json "
        f"(default: the model of the run in --output, else that of --init_checkpoint, else {DEFAULT_MODEL}, which any "
        "computer trains; base and large are the published BERT and want an accelerator)",
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
        "begin with these weights instead of random ones, for instance to go on with longer sequences; the optimizer "
        "begins anew. A run or converted model, a checkpoint or zip archive of the released BERT, or a Hugging Face "
        "directory; what it lacks keeps random values, and is listed",
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


def default_learning_rate(config: BertConfig) -> float:
    """Peak learning rate for a model: the paper's 1e-4 from base on, more for smaller ones.

    The smaller ones' rates are the best of short runs on 20 MB of Wikipedia text with a warm-up of a tenth of the run;
    there, two to three times the rate kept each of them from learning anything beyond the frequency of pieces.
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
