"""`beambert plan`: a build and a training on paper, with their bill, before either is spent."""

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

DESCRIPTION = """Says what a build and a training would take, before they are spent: documents, pieces, examples,
shards, worker hours on Dataflow, accelerator hours, money, each with its arithmetic, and where the plan is poor. Give
the size of the text, or files to look into. Nothing is built."""
EXAMPLE = "beambert plan --words 3.3e9 --model base --accelerator h100"
COMMON_FLAGS = ()

# What a well-fed encoder should reach; measured on the CPU alone (docs/TRAINING.md).
_UTILIZATION = 0.45


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `beambert plan`."""
    group = parser.add_argument_group("the text: one of the first three")
    group.add_argument("--corpus_bytes", type=positive_float, metavar="N", help="bytes of text, such as 1e12 for 1 TB")
    group.add_argument("--words", type=positive_float, metavar="N", help="words of text, such as 3.3e9")
    group.add_argument(
        "--input",
        action="extend",
        nargs="+",
        type=ANY_PATH,
        metavar="GLOB",
        help="files, or quoted patterns, as `beambert build` takes them: some are read and the rest is reckoned up",
    )
    group.add_argument(
        "--document_bytes",
        type=positive_float,
        default=PlanConfig.document_bytes,
        metavar="N",
        help="mean size of a document where no --input is given; Wikipedia's (about 4000 is usual for web pages)",
    )
    group.add_argument(
        "--input_format",
        default=PlanConfig.input_format,
        metavar="FORMAT",
        help="of --input, see beambert build --help",
    )
    group.add_argument(
        "--text_field", default=PlanConfig.text_field, metavar="NAME", help="of JSON lines and Parquet in --input"
    )
    group.add_argument("--language", default=PlanConfig.language, metavar="CODE", help="of the text in --input")

    group = parser.add_argument_group("the data, as for beambert build")
    group.add_argument(
        "--vocab_size", type=vocabulary_size, metavar="N", help=f"pieces (default: {DEFAULT_VOCAB_SIZE})"
    )
    group.add_argument(
        "--vocab_file", type=ANY_PATH, metavar="FILE", help="a vocab.txt: its size, and with --input its very pieces"
    )
    group.add_argument(
        "--max_seq_length",
        type=sequence_length,
        default=PretrainingDataOptions.max_seq_length,
        metavar="N",
        help="tokens in an example",
    )
    group.add_argument(
        "--dupe_factor",
        type=copies,
        default=PretrainingDataOptions.dupe_factor,
        metavar="N",
        help="copies of the data, each with other masks and pairs",
    )
    group.add_argument(
        "--objective",
        choices=pretraining_options.OBJECTIVES,
        default=PretrainingDataOptions.objective,
        help="of the examples",
    )
    group.add_argument(
        "--masking",
        choices=pretraining_options.MASKINGS,
        default=PretrainingDataOptions.masking,
        help="of the examples",
    )
    group.add_argument("--pack", action="store_true", help="put several short instances into one row")
    group.add_argument(
        "--format", choices=pretraining_options.FORMATS, default=PretrainingDataOptions.format, help="of the shards"
    )
    group.add_argument(
        "--compression",
        choices=pretraining_options.COMPRESSIONS,
        default=PretrainingDataOptions.compression,
        help="of TFRecord shards",
    )
    flag = group.add_argument(
        "--num_partitions", type=num_partitions, metavar="N", help="of the documents (default: by size)"
    )
    accept_old_name(group, flag, "--num_buckets")
    group.add_argument(
        "--validation_fraction", type=fraction, default=PlanConfig.validation_fraction, metavar="SHARE", help="held out"
    )

    group = parser.add_argument_group("the build on Dataflow")
    group.add_argument(
        "--workers", type=positive_int, metavar="N", help="machines of 4 vCPUs (default: as many as end it in an hour)"
    )
    group.add_argument(
        "--cpu_factor",
        type=positive_float,
        default=PlanConfig.cpu_factor,
        metavar="F",
        help="seconds of a vCPU there for a CPU second on the machine that was measured; the default is a guess",
    )

    group = parser.add_argument_group("the training, as for beambert pretrain")
    group.add_argument("--model", default="base", metavar="NAME", help="tiny to large, or a bert_config.json")
    group.add_argument("--train_batch_size", type=batch_size, default=256, metavar="N", help="examples an update")
    group.add_argument("--num_train_steps", type=positive_int, default=1_000_000, metavar="N", help="updates")
    group.add_argument(
        "--schedule",
        metavar="TEXT",
        help="shares of the updates by length, such as 128x0.9,512x0.1, instead of --max_seq_length",
    )
    group.add_argument(
        "--accelerator",
        default=PlanConfig.accelerator,
        metavar="NAME",
        help="a slice of TPUs (v2-8, v3-8, v4-8, v5e-8, v5p-8, v6e-8 and larger), or a GPU (h100, a100, l4, t4, v100)",
    )
    group.add_argument(
        "--num_accelerators",
        type=positive_int,
        default=PlanConfig.num_accelerators,
        metavar="N",
        help="such slices or GPUs",
    )
    group.add_argument(
        "--mfu",
        type=number(0.0, 1.0, least_too=False, most_too=True),
        metavar="SHARE",
        help="share of the accelerator's peak that training reaches, as `beambert pretrain` shows it (default: "
        f"{_UTILIZATION}, a goal that was not measured on any accelerator)",
    )
    group.add_argument(
        "--peak_tflops", type=positive_float, metavar="T", help="peak of one device, 10^12 operations a second"
    )

    group = parser.add_argument_group("the bill")
    group.add_argument(
        "--prices",
        type=LOCAL_PATH,
        metavar="FILE",
        help="a table like deploy/plan/prices.toml, which holds the default prices with dates",
    )
    group.add_argument("--spot", action="store_true", help="accelerators at the price of those that may be taken away")
    group.add_argument(
        "--storage_months",
        type=positive_float,
        default=PlanConfig.storage_months,
        metavar="N",
        help="how long data is kept",
    )
    group.add_argument("--json", action="store_true", help="print numbers for a program to read")


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
    # Other commands may leave these two out.
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
            f"sequences of {max(lengths)} are longer than the {model.max_position_embeddings} positions of --model "
            f"{pretraining.model}; shorten them, or raise max_position_embeddings in a bert_config.json"
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
    batch_sizes = [max(stage.batch_size for stage in stages if stage.data == place) for place in range(len(lengths))]
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
        return estimate_text(text_bytes, config.document_bytes, vocab_size, f"{count(config.words)} words were given")
    assert config.corpus_bytes is not None
    return estimate_text(config.corpus_bytes, config.document_bytes, vocab_size, "was given")
