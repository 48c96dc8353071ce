"""Warnings about a cost estimate: weaknesses of the planned build and run, each with a remedy.

This file imports neither Beam nor TensorFlow.
"""

import math
from collections.abc import Sequence

from beambert.bert_model.config import BertConfig
from beambert.deploy.plan.data import MEMORY_GB_A_VCPU, DataflowPlan, DataPlan
from beambert.deploy.plan.estimate_lines import gibibytes
from beambert.deploy.plan.text_estimate import Text
from beambert.deploy.plan.tpu_compiler.compiler_process import CompilerTarget
from beambert.deploy.plan.tpu_compiler.step_estimate import StepEstimate
from beambert.deploy.plan.training import Accelerator, TrainingPlan
from beambert.pipelines.instances.options import PretrainingDataOptions

# Mean occurrences of a token, below which many tokens are rare (docs/guides/choose-vocabulary-size.md).
_TOKEN_OCCURRENCES = 200
# Fraction of padding above which the data report warns too.
_PADDING = 0.3
# Largest batch size for the released optimizer and learning rate; LAMB is designed for larger ones.
_LARGE_BATCH = 1024
_SHARDS_OF_TEXT = 20
_MANY_FILES = 100_000
# Limit of Dataflow for a job graph, and its size per input file (docs/benchmarks/scale.md).
_GRAPH_BYTES = 10e6
_GRAPH_BYTES_A_FILE = 50
_MANY_EPOCHS = 100
# Examples per second parsed from shards by two cores of the benchmark machine, in batches of 256.
_EXAMPLES_A_SECOND = 145_600


def warnings_of(
    text: Text,
    options: Sequence[PretrainingDataOptions],
    config: BertConfig,
    data: DataPlan,
    dataflow: DataflowPlan,
    training: TrainingPlan,
    batch_sizes: Sequence[int],
    accelerator: Accelerator,
) -> list[str]:
    """Return one line for each weakness of the estimate; every line names a remedy."""
    warnings = _data_warnings(text, options, config, data)
    warnings += _dataflow_warnings(text, data, dataflow)
    for examples, length, epochs, batch_size in zip(options, data.lengths, training.epochs, batch_sizes, strict=True):
        if epochs > examples.dupe_factor and examples.masking != "dynamic":
            warnings.append(
                f"sequence length {length.row_length}: {epochs:,.1f} epochs on {examples.dupe_factor} copies repeat "
                f"every mask {epochs / examples.dupe_factor:,.1f} times; use --masking dynamic, a higher --dupe_factor "
                "or fewer --num_train_steps"
            )
        elif epochs < 1:
            warnings.append(
                f"sequence length {length.row_length}: training reads only {epochs:.1%} of the text; build from less "
                "text, or raise --num_train_steps"
            )
        elif math.ceil(epochs) < examples.dupe_factor:
            warnings.append(
                f"sequence length {length.row_length}: training reads {epochs:,.1f} of {examples.dupe_factor} copies; "
                f"use --dupe_factor {math.ceil(epochs)}"
            )
        if epochs > _MANY_EPOCHS:
            warnings.append(
                f"sequence length {length.row_length}: {epochs:,.0f} epochs (the paper: 40) risk overfitting; add "
                "text, or lower --num_train_steps"
            )
        if batch_size > length.rows / 10:
            warnings.append(
                f"--train_batch_size {batch_size:,} is more than 10 % of an epoch of {length.rows:,.0f} sequences; "
                "lower it"
            )
        elif batch_size > _LARGE_BATCH:
            warnings.append(
                f"--train_batch_size {batch_size:,} exceeds the batch sizes that BERT's optimizer was used with; "
                "pretrain with `--optimizer lamb`, or use batch size 256 and more steps"
            )
    read = training.cost.sequences / (training.hours * 3600)
    if read > _EXAMPLES_A_SECOND:
        warnings.append(
            f"training reads {read:,.0f} examples/s, while two CPU cores parse {_EXAMPLES_A_SECOND:,.0f} examples/s "
            "(docs/benchmarks/training.md); use a host with more cores, or the accelerator may wait for input"
        )
    if accelerator.hosts > 1:
        warnings.append(
            f"--accelerator {accelerator.name} spans {accelerator.hosts} hosts, which requires JAX: train with "
            "`beambert submit tpu`, which starts the command on every host (docs/guides/cloud-tpu.md)"
        )
    return warnings


def compilation_warnings(estimates: Sequence[StepEstimate], target: CompilerTarget, slices: int) -> list[str]:
    """Return one line for each weakness of the compiled steps; every line names a remedy."""
    warnings = []
    for estimate in estimates:
        request, step = estimate.request, estimate.step
        if not step.fits:
            largest = f"or use --train_batch_size {estimate.largest * target.devices * slices}, which fits"
            warnings.append(
                f"sequence length {estimate.length}: {request.examples:,} examples per {target.device} do not fit into "
                f"the memory of {target.name}, {gibibytes(step.required_bytes)} of {gibibytes(step.available_bytes)}; "
                "raise --gradient_accumulation_steps, use --activation_checkpointing layer, "
                + ("" if request.training.shard_optimizer_state else "use --shard_optimizer_state, ")
                + (largest if estimate.largest else "or lower --train_batch_size")
            )
    if estimates and estimates[0].request.training.precision == "float32":
        warnings.append(
            f"the step was compiled for {target.name} in float32, the default; the matrix units of TPUs are made for "
            "--precision bfloat16: use it here and in `beambert pretrain`"
        )
    return warnings


def _data_warnings(
    text: Text, options: Sequence[PretrainingDataOptions], config: BertConfig, data: DataPlan
) -> list[str]:
    warnings = []
    occurrences = text.tokens / config.vocab_size
    if occurrences < _TOKEN_OCCURRENCES:
        warnings.append(
            f"vocabulary size {config.vocab_size:,} is too large for {text.tokens / 1e6:,.1f} million tokens of text "
            f"({occurrences:,.0f} occurrences per token); use --vocab_size "
            f"{max(1000, round(text.tokens / _TOKEN_OCCURRENCES, -3)):.0f}, or more text with the released vocabulary"
        )
    for examples, length in zip(options, data.lengths, strict=True):
        if length.fill < 1 - _PADDING and not examples.pack:
            warnings.append(
                f"sequence length {length.row_length}: {1 - length.fill:.0%} of the positions are padding, since many "
                "documents are shorter; use --pack or a shorter --max_seq_length"
            )
    if data.shard_bytes > _SHARDS_OF_TEXT * text.bytes and data.shard_bytes > 1e12:
        warnings.append(
            f"the shards are {data.shard_bytes / text.bytes:,.0f} times as large as the text; use --masking dynamic "
            "--dupe_factor 1 (one copy), or --format parquet (about a fifth of the bytes)"
        )
    return warnings


def _dataflow_warnings(text: Text, data: DataPlan, dataflow: DataflowPlan) -> list[str]:
    warnings = []
    memory = MEMORY_GB_A_VCPU * 1e9
    if data.partition_memory > memory:
        warnings.append(
            f"the largest partition needs {data.partition_memory / 1e9:,.1f} GB in one process, and a worker has "
            f"{MEMORY_GB_A_VCPU:g} GB per vCPU; raise --num_partitions, or use a highmem machine type"
        )
    longest = float(text.document_bytes.max())
    if longest > 0.5 * text.bytes / data.partitions and longest > 16e6:
        warnings.append(
            f"a document has {longest / 1e6:,.0f} MB, and documents are not split across partitions; split it in the "
            "input (for Gutenberg books: --document_unit chapter)"
        )
    # Every worker looks up the identities of all validation documents.
    if data.validation_documents > 1e6:
        warnings.append(
            f"the validation split has {data.validation_documents:,.0f} documents, while evaluation needs a few "
            f"thousand; use --validation_fraction {max(1e-5, 1e4 / text.documents):.0e}"
        )
    if data.files > _MANY_FILES:
        warnings.append(
            f"{data.files:,} shards take longer to list and open than to read; lower --num_partitions, or write fewer "
            "copies (--masking dynamic --dupe_factor 1)"
        )
    graph = text.files * _GRAPH_BYTES_A_FILE
    if graph > _GRAPH_BYTES:
        warnings.append(
            f"{text.files:,} input files make a job graph of about {graph / 1e6:,.0f} MB, over Dataflow's limit of "
            f"{_GRAPH_BYTES / 1e6:,.0f} MB; merge files, or build several corpora"
        )
    if text.files and text.bytes / text.files < 100_000 and text.files > 10_000:
        warnings.append(
            f"{text.files:,} files of {text.bytes / text.files / 1e3:,.0f} kB each take longer to open than to read; "
            "merge them, for example into JSON lines"
        )
    if dataflow.workers * dataflow.vcpus > data.corpus_shards:
        warnings.append(
            f"{dataflow.workers * dataflow.vcpus} vCPUs for {data.corpus_shards} corpus shards leave some idle; lower "
            "--workers, or raise --num_partitions"
        )
    return warnings
