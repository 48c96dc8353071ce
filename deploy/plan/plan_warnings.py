"""Where a plan is poor, and what would be better.

This file imports neither Beam nor TensorFlow.
"""

import math
from collections.abc import Sequence

from bert_model.config import BertConfig
from deploy.plan.data import DataPlan
from deploy.plan.dataflow_cost import MEMORY_GB_A_VCPU, CloudPlan
from deploy.plan.text_estimate import Text
from deploy.plan.training import Accelerator, TrainingPlan
from pipelines.instances.options import PretrainingDataOptions

# Mean occurrences of a token, below which many tokens are rare (docs/SCALE.md).
_TOKEN_OCCURRENCES = 200
# Share of padding from which on the data's own report warns too.
_PADDING = 0.3
# Beyond it the released optimizer and learning rate are out of what was ever tried: LAMB is made for it.
_LARGE_BATCH = 1024
_SHARDS_OF_TEXT = 20
_MANY_FILES = 100_000
# A job's graph: what Dataflow takes, and what it grows by (docs/SCALE.md).
_GRAPH_BYTES = 10e6
_GRAPH_BYTES_A_FILE = 50
_MANY_EPOCHS = 100
# Parsed from shards on the two cores that were measured, in batches of 256.
_EXAMPLES_A_SECOND = 145_600


def warnings_of(
    text: Text,
    options: Sequence[PretrainingDataOptions],
    config: BertConfig,
    data: DataPlan,
    cloud: CloudPlan,
    training: TrainingPlan,
    batch_sizes: Sequence[int],
    accelerator: Accelerator,
) -> list[str]:
    """Return one line for each weakness of a plan; every line says what to change."""
    warnings = _data_warnings(text, options, config, data)
    warnings += _cloud_warnings(text, data, cloud)
    for examples, length, epochs, batch_size in zip(options, data.lengths, training.epochs, batch_sizes, strict=True):
        if epochs > examples.dupe_factor and examples.masking != "dynamic":
            warnings.append(
                f"rows of {length.row_length}: {epochs:,.1f} epochs on {examples.dupe_factor} copies, so every mask "
                f"is seen {epochs / examples.dupe_factor:,.1f} times; --masking dynamic masks again in every epoch, or "
                "raise --dupe_factor, or train less"
            )
        elif epochs < 1:
            warnings.append(
                f"rows of {length.row_length}: the training reads {epochs:.1%} of the text; build from a part of it, "
                "or train more"
            )
        elif math.ceil(epochs) < examples.dupe_factor:
            warnings.append(
                f"rows of {length.row_length}: of {examples.dupe_factor} copies the training reads {epochs:,.1f}; "
                f"--dupe_factor {math.ceil(epochs)} is enough"
            )
        if epochs > _MANY_EPOCHS:
            warnings.append(
                f"rows of {length.row_length}: the text is read {epochs:,.0f} times, the paper read it 40 times; a "
                "model of this size will learn it by heart: more text, or fewer --num_train_steps"
            )
        if batch_size > length.rows / 10:
            warnings.append(
                f"--train_batch_size {batch_size:,} is more than a tenth of an epoch of {length.rows:,.0f} rows; "
                "updates will be few and alike: a smaller batch"
            )
        elif batch_size > _LARGE_BATCH:
            warnings.append(
                f"--train_batch_size {batch_size:,} is beyond what BERT's optimizer was tried with; train with "
                "`--optimizer lamb`, or use 256 and more steps"
            )
    read = training.cost.sequences / (training.hours * 3600)
    if read > _EXAMPLES_A_SECOND:
        warnings.append(
            f"{read:,.0f} examples would have to be read in a second; two cores read {_EXAMPLES_A_SECOND:,.0f} "
            "(docs/TRAINING.md, Speed), so that the accelerator may wait for them: a host with more cores"
        )
    if accelerator.hosts > 1:
        warnings.append(
            f"--accelerator {accelerator.name} spans {accelerator.hosts} machines, and the trainer reads its "
            "examples on the one that runs it, so that this slice would not be fed; take a slice of one machine, or "
            "several GPU machines with `--strategy multi_worker` (docs/TRAINING.md)"
        )
    return warnings


def _data_warnings(
    text: Text, options: Sequence[PretrainingDataOptions], config: BertConfig, data: DataPlan
) -> list[str]:
    warnings = []
    occurrences = text.tokens / config.vocab_size
    if occurrences < _TOKEN_OCCURRENCES:
        warnings.append(
            f"a vocabulary of {config.vocab_size:,} is too large for {text.tokens / 1e6:,.1f} million pieces of text, "
            f"{occurrences:,.0f} for each; many would hardly ever be seen: --vocab_size "
            f"{max(1000, round(text.tokens / _TOKEN_OCCURRENCES, -3)):,.0f}, or the released vocabulary and more text"
        )
    for examples, length in zip(options, data.lengths, strict=True):
        if length.fill < 1 - _PADDING and not examples.pack:
            warnings.append(
                f"rows of {length.row_length}: {1 - length.fill:.0%} of the positions would be padding, for many "
                "documents end before; use --pack or a shorter --max_seq_length"
            )
    if data.shard_bytes > _SHARDS_OF_TEXT * text.bytes and data.shard_bytes > 1e12:
        warnings.append(
            f"the shards are {data.shard_bytes / text.bytes:,.0f} times the text; --masking dynamic with --dupe_factor "
            "1 needs one copy, --format parquet a fifth of the bytes"
        )
    return warnings


def _cloud_warnings(text: Text, data: DataPlan, cloud: CloudPlan) -> list[str]:
    warnings = []
    room = MEMORY_GB_A_VCPU * 1e9
    if data.partition_memory > room:
        warnings.append(
            f"the largest partition needs {data.partition_memory / 1e9:,.1f} GB in a process and a vCPU has "
            f"{MEMORY_GB_A_VCPU:g} GB; raise --num_partitions, or take machines with more memory"
        )
    longest = float(text.document_bytes.max())
    if longest > 0.5 * text.bytes / data.partitions and longest > 16e6:
        warnings.append(
            f"a document has {longest / 1e6:,.0f} MB, and a document is never divided; cut it before "
            "(--document_unit chapter for Gutenberg's books)"
        )
    # Identities of the validation documents, which every worker searches for in its shards.
    if data.validation_documents > 1e6:
        warnings.append(
            f"{data.validation_documents:,.0f} documents would be held out and evaluation needs some thousands; "
            f"--validation_fraction {max(1e-5, 1e4 / text.documents):.0e}"
        )
    if data.files > _MANY_FILES:
        warnings.append(
            f"{data.files:,} shards: listing and opening them takes longer than reading; larger partitions "
            "(--num_partitions) or fewer copies (--masking dynamic --dupe_factor 1)"
        )
    graph = text.files * _GRAPH_BYTES_A_FILE
    if graph > _GRAPH_BYTES:
        warnings.append(
            f"{text.files:,} files make a job of about {graph / 1e6:,.0f} MB, and Dataflow takes "
            f"{_GRAPH_BYTES / 1e6:,.0f}; put several into one, or build them in several corpora"
        )
    if text.files and text.bytes / text.files < 100_000 and text.files > 10_000:
        warnings.append(
            f"{text.files:,} files of {text.bytes / text.files / 1e3:,.0f} kB each; opening one costs more than "
            "reading it: put many into one, such as JSON lines"
        )
    if cloud.workers * cloud.vcpus > data.corpus_shards:
        warnings.append(
            f"{cloud.workers * cloud.vcpus} vCPUs for {data.corpus_shards} corpus shards: some would be idle; "
            "fewer --workers or more --num_partitions"
        )
    return warnings
