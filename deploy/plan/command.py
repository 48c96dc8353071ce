"""`beambert plan`: estimate the size, time and cost of a build and a pretraining run."""

import argparse

from beambert_common.command_line.flags import (
    accept_old_name,
    batch_size,
    copies,
    fraction,
    num_partitions,
    number,
    positive_float,
    positive_int,
    sequence_length,
    vocabulary_size,
)
from beambert_common.command_line.path_flags import ANY_PATH, LOCAL_PATH
from bert_model.config import ConfigError, resolve
from deploy.plan.config import PlanConfig
from deploy.plan.data import plan_data
from deploy.plan.dataflow_cost import plan_cloud
from deploy.plan.plan_warnings import warnings_of
from deploy.plan.prices import load_prices
from deploy.plan.table import (
    Line,
    as_json,
    as_text,
    bill_lines,
    cloud_lines,
    count,
    data_lines,
    text_lines,
    training_lines,
)
from deploy.plan.text_estimate import BYTES_A_WORD, Text, estimate_text
from deploy.plan.training import find_accelerator, plan_training
from pipelines.commands.vocabulary_flags import DEFAULT_VOCAB_SIZE
from pipelines.instances import options as pretraining_options
from pipelines.instances.options import PretrainingDataOptions
from tokenizer.vocabulary import Vocabulary
from trainers.optimization.schedule import plan_stages

DESCRIPTION = """Estimate size, time and cost of a build and a pretraining run.

Give one of --corpus_bytes, --words and --input. The estimate covers documents, tokens, examples, shards, Dataflow
workers, accelerator hours and money, each with its arithmetic. Nothing is built or submitted."""

EXAMPLE = """beambert plan --corpus_bytes 20e9
beambert plan --words 3.3e9 --model base --schedule 128x0.9,512x0.1 --accelerator v3-8
beambert plan --input 'texts/*.txt' --max_seq_length 128 --json"""

COMMON_FLAGS = (
    "--corpus_bytes",
    "--input",
    "--max_seq_length",
    "--model",
    "--num_train_steps",
    "--train_batch_size",
    "--accelerator",
    "--mfu",
)

# Assumed model FLOPs utilization, not measured on an accelerator (docs/benchmarks/training.md).
_UTILIZATION = 0.45


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `beambert plan`."""
    group = parser.add_argument_group("input")
    group.add_argument(
        "--corpus_bytes", type=positive_float, metavar="N", help="Size of the text in bytes, such as 1e12 for 1 TB"
    )
    group.add_argument("--words", type=positive_float, metavar="N", help="Size of the text in words, such as 3.3e9")
    group.add_argument(
        "--input",
        action="extend",
        nargs="+",
        type=ANY_PATH,
        metavar="GLOB",
        help="Input files or quoted glob patterns, as for `beambert build`; a sample is read and extrapolated",
    )
    group.add_argument(
        "--document_bytes",
        type=positive_float,
        default=PlanConfig.document_bytes,
        metavar="N",
        help="Mean document size in bytes, used without --input (default: %(default)s, English Wikipedia; about 4000 "
        "is usual for web pages)",
    )
    group.add_argument(
        "--input_format",
        default=PlanConfig.input_format,
        metavar="FORMAT",
        help="Format of --input; `beambert build --help` lists the formats",
    )
    group.add_argument(
        "--text_field",
        default=PlanConfig.text_field,
        metavar="NAME",
        help="Field that contains the text, for JSON lines and Parquet in --input",
    )
    group.add_argument(
        "--language", default=PlanConfig.language, metavar="CODE", help="Language code of the text in --input"
    )

    group = parser.add_argument_group("data")
    group.add_argument(
        "--vocab_size",
        type=vocabulary_size,
        metavar="N",
        help=f"Vocabulary size, in tokens (default: {DEFAULT_VOCAB_SIZE})",
    )
    group.add_argument(
        "--vocab_file",
        type=ANY_PATH,
        metavar="FILE",
        help="Existing vocab.txt; sets the vocabulary size and, with --input, tokenizes the sample",
    )
    group.add_argument(
        "--max_seq_length",
        type=sequence_length,
        default=PretrainingDataOptions.max_seq_length,
        metavar="N",
        help="Sequence length of an example, in tokens",
    )
    group.add_argument(
        "--dupe_factor",
        type=copies,
        default=PretrainingDataOptions.dupe_factor,
        metavar="N",
        help="Number of copies of the data, each with its own masks and sentence pairs",
    )
    group.add_argument(
        "--objective",
        choices=pretraining_options.OBJECTIVES,
        default=PretrainingDataOptions.objective,
        help="Pretraining objective of the examples",
    )
    group.add_argument(
        "--masking",
        choices=pretraining_options.MASKINGS,
        default=PretrainingDataOptions.masking,
        help="Masking strategy of the examples",
    )
    group.add_argument("--pack", action="store_true", help="Pack several short instances into one sequence")
    group.add_argument(
        "--format",
        choices=pretraining_options.FORMATS,
        default=PretrainingDataOptions.format,
        help="File format of the shards",
    )
    group.add_argument(
        "--compression",
        choices=pretraining_options.COMPRESSIONS,
        default=PretrainingDataOptions.compression,
        help="Compression of TFRecord shards",
    )
    flag = group.add_argument(
        "--num_partitions",
        type=num_partitions,
        metavar="N",
        help="Number of hash partitions of the documents (default: chosen by input size)",
    )
    accept_old_name(group, flag, "--num_buckets")
    group.add_argument(
        "--validation_fraction",
        type=fraction,
        default=PlanConfig.validation_fraction,
        metavar="FRACTION",
        help="Fraction of the documents in the validation split",
    )

    group = parser.add_argument_group("training")
    group.add_argument("--model", default="base", metavar="NAME", help="Model size (tiny to large) or bert_config.json")
    group.add_argument(
        "--train_batch_size",
        type=batch_size,
        default=256,
        metavar="N",
        help="Global training batch size, in sequences",
    )
    group.add_argument(
        "--num_train_steps", type=positive_int, default=1_000_000, metavar="N", help="Number of training steps"
    )
    group.add_argument(
        "--schedule",
        metavar="SCHEDULE",
        help="Fraction of the steps for each sequence length, such as 128x0.9,512x0.1; replaces --max_seq_length",
    )

    group = parser.add_argument_group("devices")
    group.add_argument(
        "--accelerator",
        default=PlanConfig.accelerator,
        metavar="NAME",
        help="TPU slice (v2-8, v3-8, v4-8, v5e-8, v5p-8, v6e-8 and larger) or GPU (h100, a100, l4, t4, v100)",
    )
    group.add_argument(
        "--num_accelerators",
        type=positive_int,
        default=PlanConfig.num_accelerators,
        metavar="N",
        help="Number of TPU slices or GPUs",
    )
    group.add_argument(
        "--mfu",
        type=number(0.0, 1.0, least_too=False, most_too=True),
        metavar="FRACTION",
        help="Model FLOPs utilization, as `beambert pretrain` reports it (default: "
        f"{_UTILIZATION}, an assumption that was not measured on any accelerator)",
    )
    group.add_argument(
        "--peak_tflops",
        type=positive_float,
        metavar="TFLOPS",
        help="Peak throughput of one device, in TFLOP/s (default: by --accelerator)",
    )

    group = parser.add_argument_group("cost model")
    group.add_argument(
        "--workers",
        type=positive_int,
        metavar="N",
        help="Number of Dataflow workers with 4 vCPUs each (default: enough to finish in about an hour)",
    )
    group.add_argument(
        "--cpu_factor",
        type=positive_float,
        default=PlanConfig.cpu_factor,
        metavar="FACTOR",
        help="Dataflow vCPU seconds per CPU second of the benchmark machine (default: %(default)s, an assumption)",
    )
    group.add_argument(
        "--prices",
        type=LOCAL_PATH,
        metavar="FILE",
        help="TOML file of prices (default: deploy/plan/prices.toml, which dates each price)",
    )
    group.add_argument("--spot", action="store_true", help="Use spot prices for the accelerators")
    group.add_argument(
        "--storage_months",
        type=positive_float,
        default=PlanConfig.storage_months,
        metavar="N",
        help="Storage duration of corpus and shards, in months",
    )

    group = parser.add_argument_group("output")
    group.add_argument("--json", action="store_true", help="Print the estimate as JSON")


def configure(args: argparse.Namespace) -> PlanConfig:
    """Return the configuration. Raise SubmitError, DatasetError or TrainingError for invalid flags."""
    return PlanConfig.from_args(args)


def run(config: PlanConfig) -> int:
    """Run the command.

    Raises:
        SubmitError, ConfigError, DatasetError, TrainingError, SourceError, VocabularyError: invalid flags.
    """
    lines, warnings = make_plan(config)
    print(as_json(lines, warnings) if config.json else as_text(lines, warnings))
    return 0


def make_plan(config: PlanConfig) -> tuple[list[Line], list[str]]:
    """Return the lines of the plan and its warnings. Raise as `run` does."""
    pretraining = config.training
    # Both are optional in PretrainConfig; the flags of this command have defaults.
    assert pretraining.model is not None
    assert pretraining.num_train_steps is not None
    prices = load_prices(config.prices)
    accelerator = find_accelerator(config.accelerator, config.num_accelerators, pretraining.peak_tflops)
    vocab_size = _vocab_size(config.vocab_size, config.vocab_file)
    model = resolve(pretraining.model, vocab_size)
    options = config.examples_by_length()
    lengths = [examples.max_seq_length for examples in options]
    if max(lengths) > model.max_position_embeddings:
        raise ConfigError(
            f"sequence length {max(lengths)} exceeds the {model.max_position_embeddings} position embeddings of "
            f"--model {pretraining.model}: use a shorter length, or a bert_config.json with more of them"
        )
    stages = plan_stages(pretraining.num_train_steps, lengths, pretraining.schedule, pretraining.train_batch_size, None)
    text = _text(config, vocab_size)
    data = plan_data(
        text,
        options,
        vocab_size,
        num_partitions=config.num_partitions,
        validation_fraction=config.validation_fraction,
        learns_vocabulary=not config.vocab_file,
    )
    cloud = plan_cloud(data, config.workers, config.cpu_factor)
    predictions = [examples.max_predictions_per_seq for examples in options]
    rows = [length.rows for length in data.lengths]
    training = plan_training(model, stages, lengths, predictions, rows, accelerator, config.mfu or _UTILIZATION)
    batch_sizes = [
        max(stage.batch_size for stage in stages if stage.data == data_index) for data_index in range(len(lengths))
    ]
    lines = text_lines(text)
    lines += data_lines(text, data, config.examples.dupe_factor, config.validation_fraction)
    lines += cloud_lines(data, cloud, config.cpu_factor)
    lines += training_lines(text, data, training, accelerator, pretraining.model, utilization_is_given=bool(config.mfu))
    lines += bill_lines(data, cloud, training, accelerator, prices, config.storage_months, spot=config.spot)
    return lines, warnings_of(text, options, model, data, cloud, training, batch_sizes, accelerator)


def _vocab_size(vocab_size: int | None, vocab_file: str | None) -> int:
    return vocab_size or DEFAULT_VOCAB_SIZE if vocab_file is None else len(Vocabulary.load(vocab_file))


def _text(config: PlanConfig, vocab_size: int) -> Text:
    if config.input:
        from deploy.plan.text_sample import sample_text

        return sample_text(
            list(config.input), config.input_format, config.text_field, config.language, vocab_size, config.vocab_file
        )
    if config.words:
        text_bytes = config.words * BYTES_A_WORD
        return estimate_text(text_bytes, config.document_bytes, vocab_size, f"from --words {count(config.words)}")
    assert config.corpus_bytes is not None
    return estimate_text(config.corpus_bytes, config.document_bytes, vocab_size, "from --corpus_bytes")
