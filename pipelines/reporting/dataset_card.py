"""Render the dataset card: `README.md` of a dataset, with front matter for Hugging Face.

The card is made from `dataset.json` alone and has no dates, so it is deterministic.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from beambert.common.markdown import table_cell
from beambert.common.word_rules import WordRules
from beambert.pipelines.dataset import FILE_NAME as MANIFEST_FILE_NAME
from beambert.pipelines.dataset import SPLITS, Dataset
from beambert.pipelines.reporting.feature_descriptions import description_of, is_list, shard_pattern, type_of

FILE_NAME = "README.md"
# A card with this line was written by beambert.
MARK = f"beambert generated the rest of this card from `{MANIFEST_FILE_NAME}`."
_MAX_INPUTS = 50
# Categories of Hugging Face, by the number of digits after the first three.
_SIZES = (
    *("n<1K", "1K<n<10K", "10K<n<100K", "100K<n<1M", "1M<n<10M", "10M<n<100M", "100M<n<1B", "1B<n<10B"),
    *("10B<n<100B", "100B<n<1T", "n>1T"),
)
_OBJECTIVES = {
    "nsp": "masked LM and next sentence prediction",
    "sop": "masked LM and sentence order prediction",
    "mlm": "masked LM",
}


def render(manifest: Dataset) -> str:
    """Return the text of the card."""
    splits = [split for split in SPLITS if manifest.num_examples(split)]
    warnings = [f"- {table_cell(warning)}" for warning in manifest.counts.get("warnings", [])]
    hub = ", or its name on the Hugging Face Hub" if manifest.file_format == "parquet" else ""
    lines = [
        "---",
        *_front_matter(manifest, splits),
        "---",
        "",
        "# BERT pretraining data",
        "",
        "Before publishing this dataset, describe its text, its intended use and its license here.",
        MARK,
        "",
        "## Splits",
        "",
        *_splits(manifest, splits),
        "",
        "## Sources",
        "",
        *_sources(manifest),
        "",
        "## Creation",
        "",
        *_table(("", ""), _creation(manifest)),
        "",
        f"`{MANIFEST_FILE_NAME}` has all options, all counts and the SHA-256 of every shard.",
        "",
        "## Features",
        "",
        *_features(manifest),
        "",
        "## Loading",
        "",
        f"`PATH` is this directory{hub}:",
        "",
        "```python",
        *_loading(manifest),
        "```",
        "",
        *(["## Warnings", "", *warnings, ""] if warnings else []),
    ]
    return "\n".join(lines)


def _front_matter(manifest: Dataset, splits: list[str]) -> list[str]:
    """Return the lines of YAML; strings are quoted as JSON, since `no` is a language and a Boolean."""
    examples = sum(map(manifest.num_examples, splits))
    lines = []
    if languages := sorted(filter(None, manifest.counts.get("languages", {}))):
        lines += ["language:", *(f"- {json.dumps(language)}" for language in languages)]
    lines += [
        'pretty_name: "BERT pretraining data"',
        "size_categories:",
        f'- "{_SIZES[min(max(len(str(examples)) - 3, 0), len(_SIZES) - 1)]}"',
        "task_categories:",
        "- fill-mask",
        "tags:",
        "- bert",
        "- beambert",
    ]
    if manifest.file_format == "parquet":
        lines += ["configs:", "- config_name: default", "  data_files:"]
        for split in splits:
            lines += [f"  - split: {split}", f'    path: "{shard_pattern(manifest, split)}"']
    else:
        lines.append("viewer: false")
    return lines


def _splits(manifest: Dataset, splits: list[str]) -> list[str]:
    rows = []
    for split in splits:
        shards, counts = manifest.shards_of(split), manifest.counts.get(split, {})
        numbers = [manifest.num_examples(split), counts.get("documents"), counts.get("tokens"), len(shards)]
        rows.append((split, *map(_number, numbers), _number(sum(shard.bytes for shard in shards))))
    header = ("split", "examples", "documents", "tokens", "shards", "bytes")
    copies = manifest.options["dupe_factor"]
    text = f"The train split has {copies:,} copies of its text, each with its own pairs and masks; documents and tokens"
    return [*_table(header, rows), "", f"{text} are counted once." if copies > 1 else "Each split has one copy."]


def _sources(manifest: Dataset) -> list[str]:
    counts = manifest.counts
    inputs = sorted(counts.get("inputs", {}).items(), key=lambda item: (-item[1].get("words", 0), item[0]))
    rows = [(table_cell(name), *_sizes(size)) for name, size in inputs[:_MAX_INPUTS]]
    lines = _table(("input", "documents", "words", "bytes"), rows) if rows else ["The inputs are not recorded."]
    if len(inputs) > _MAX_INPUTS:
        lines += ["", f"{len(inputs) - _MAX_INPUTS:,} more inputs are in `{MANIFEST_FILE_NAME}`."]
    languages = sorted(counts.get("languages", {}).items(), key=lambda item: (-item[1].get("words", 0), item[0]))
    if len(languages) > 1:
        rows = [(table_cell(name or "unknown"), *_sizes(size)) for name, size in languages]
        lines += ["", *_table(("language", "documents", "words", "bytes"), rows)]
    if rejected := counts.get("documents_rejected"):
        rules = ", ".join(f"{table_cell(rule)} {number:,}" for rule, number in sorted(rejected.items()))
        lines += ["", f"Of {_number(counts.get('documents_read'))} documents, these were rejected by rule: {rules}."]
    return lines


def _creation(manifest: Dataset) -> list[tuple[str, str]]:
    options = manifest.options
    masking = options["masking"].replace("_", " ")
    if options["masking"] != "dynamic":
        most = manifest.max_predictions_per_seq
        masking += f", {options['masked_lm_prob']:.4g} of the tokens, at most {most:,} per row"
    packing = f"at most {manifest.instances_per_row:,} instances per row" if manifest.instances_per_row > 1 else "none"
    compression = f", {manifest.compression}" if manifest.compression != "none" else ""
    padding = ", without padding" if manifest.ragged else ""
    return [
        ("Software", table_cell(", ".join(f"{name} {value}" for name, value in sorted(manifest.versions.items())))),
        ("Objective", _OBJECTIVES[options["objective"]]),
        ("Masking", masking),
        ("Maximum sequence length", f"{manifest.max_seq_length:,} tokens"),
        ("Packing", packing),
        ("Copies of the text", f"{options['dupe_factor']:,}"),
        ("Vocabulary", f"`vocab.txt`, {manifest.vocab_size:,} tokens, {WordRules.of(manifest).summary}"),
        ("File format", f"{manifest.file_format.replace('_', ' ')}{compression}{padding}"),
        ("Random seed", str(options["random_seed"])),
        ("SHA-256 of vocab.txt", manifest.vocab_sha256),
    ]


def _features(manifest: Dataset) -> list[str]:
    rows = []
    for feature, name in sorted(manifest.features.items(), key=lambda item: item[1]):
        kind = type_of(feature, manifest)
        rows.append(
            (f"`{name}`", f"list of {kind}" if is_list(feature, manifest) else kind, description_of(feature, manifest))
        )
    return _table(("feature", "type", "content"), rows)


def _loading(manifest: Dataset) -> list[str]:
    if manifest.file_format == "parquet":
        return [
            "from datasets import load_dataset",
            "",
            'dataset = load_dataset("PATH")',
            'example = dataset["train"][0]',
        ]
    pattern = shard_pattern(manifest, "train")
    lines = ["from pathlib import Path"]
    shards = f'sorted(str(path) for path in Path("PATH").glob("{pattern}"))'
    if manifest.file_format == "array_record":
        lines += ["import grain", "import tensorflow as tf", "", f"shards = {shards}"]
        lines += ["records = grain.sources.ArrayRecordDataSource(shards)"]
        return [*lines, *_spec(manifest), "example = tf.io.parse_single_example(records[0], spec)"]
    compression = ', compression_type="GZIP"' if manifest.compression == "gzip" else ""
    lines += ["import tensorflow as tf", "", f"shards = {shards}"]
    lines += [f"records = tf.data.TFRecordDataset(shards{compression})", *_spec(manifest)]
    return [*lines, "example = tf.io.parse_single_example(next(iter(records)), spec)"]


def _spec(manifest: Dataset) -> list[str]:
    """Return the lines of the features of a tf.train.Example; rows of other lengths than the maximum are ragged."""
    lengths = {"input_": manifest.max_seq_length, "segment_": manifest.max_seq_length}
    lengths |= {"sequence_": manifest.max_seq_length, "masked_lm_": manifest.max_predictions_per_seq}
    lengths["next_sentence_"] = manifest.instances_per_row
    ragged = manifest.ragged or any(shard.max_seq_length != manifest.max_seq_length for shard in manifest.shards)
    lines = ["spec = {"]
    for feature, name in sorted(manifest.features.items(), key=lambda item: item[1]):
        kind = f"tf.{type_of(feature, manifest)}"
        length = next(length for prefix, length in lengths.items() if feature.startswith(prefix))
        reader = f"tf.io.RaggedFeature({kind})" if ragged else f"tf.io.FixedLenFeature([{length}], {kind})"
        lines.append(f'    "{name}": {reader},')
    return [*lines, "}"]


def _sizes(size: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(_number(size.get(name)) for name in ("documents", "words", "bytes"))


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    lines = [header, tuple("---" for _ in header), *rows]
    return [f"| {' | '.join(cells)} |" for cells in lines]
