"""Render the dataset card: `README.md` of a dataset, with front matter for Hugging Face.

The card is made from `dataset.json` alone and has no dates, so it is deterministic.
"""

from collections.abc import Mapping
from typing import Any

from beambert.common.formatting import table_cell
from beambert.common.word_rules import WordRules
from beambert.pipelines.dataset import FILE_NAME as MANIFEST_FILE_NAME
from beambert.pipelines.dataset import SPLITS, Dataset
from beambert.pipelines.dataset_report.feature_descriptions import describe_feature, is_list, shard_pattern, type_of
from beambert.reporting import rendering

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
    counts = manifest.counts
    examples = {split: number for split in SPLITS if (number := manifest.num_examples(split))}
    inputs = _sizes(counts.get("inputs", {}))
    rejected = sorted(counts.get("documents_rejected", {}).items())
    return rendering.render(
        "dataset_card.md",
        manifest_name=MANIFEST_FILE_NAME,
        mark=MARK,
        dataset=manifest,
        counts=counts,
        copies=manifest.options["dupe_factor"],
        languages=sorted(filter(None, counts.get("languages", {}))),
        size_category=_SIZES[min(max(len(str(sum(examples.values()))) - 3, 0), len(_SIZES) - 1)],
        splits=[{"name": split, "pattern": shard_pattern(manifest, split)} for split in examples],
        split_rows=[_split_row(manifest, split) for split in examples],
        inputs=inputs[:_MAX_INPUTS],
        more_inputs=max(0, len(inputs) - _MAX_INPUTS),
        language_rows=_sizes(counts.get("languages", {})),
        rejected=", ".join(f"{table_cell(rule)} {number:,}" for rule, number in rejected),
        creation=_creation(manifest),
        features=_features(manifest),
        readers=_readers(manifest),
        warnings=list(map(table_cell, counts.get("warnings", []))),
    )


def _split_row(manifest: Dataset, split: str) -> tuple[Any, ...]:
    shards, counts = manifest.shards_of(split), manifest.counts.get(split, {})
    text = counts.get("documents"), counts.get("tokens")
    return split, manifest.num_examples(split), *text, len(shards), sum(shard.bytes for shard in shards)


def _sizes(sizes: Mapping[str, Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """Return the rows of inputs or languages, largest first."""
    ordered = sorted(sizes.items(), key=lambda item: (-item[1].get("words", 0), item[0]))
    units = ("documents", "words", "bytes")
    return [(table_cell(name or "unknown"), *map(size.get, units)) for name, size in ordered]


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


def _features(manifest: Dataset) -> list[tuple[str, str, str]]:
    rows = []
    for feature, name in sorted(manifest.features.items(), key=lambda item: item[1]):
        kind = type_of(feature, manifest)
        if is_list(feature, manifest):
            kind = f"list of {kind}"
        rows.append((f"`{name}`", kind, describe_feature(feature, manifest)))
    return rows


def _readers(manifest: Dataset) -> list[tuple[str, str]]:
    """Return the name of each feature with its specification for tf.train.Example.

    Rows of other lengths than the maximum are ragged.
    """
    lengths = {"input_": manifest.max_seq_length, "segment_": manifest.max_seq_length}
    lengths |= {"sequence_": manifest.max_seq_length, "masked_lm_": manifest.max_predictions_per_seq}
    lengths["next_sentence_"] = manifest.instances_per_row
    ragged = manifest.ragged or any(shard.max_seq_length != manifest.max_seq_length for shard in manifest.shards)
    readers = []
    for feature, name in sorted(manifest.features.items(), key=lambda item: item[1]):
        kind = f"tf.{type_of(feature, manifest)}"
        length = next(length for prefix, length in lengths.items() if feature.startswith(prefix))
        reader = f"tf.io.RaggedFeature({kind})" if ragged else f"tf.io.FixedLenFeature([{length}], {kind})"
        readers.append((name, reader))
    return readers
