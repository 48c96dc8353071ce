"""Describe a dataset for its users: `README.md`, a dataset card for Hugging Face, and `croissant.json`.

Both are made from `dataset.json` alone and have no dates, so they are deterministic. A file of the same name that
another program wrote is kept.

Croissant 1.1 is the JSON-LD vocabulary of MLCommons for machine-learning datasets. Shards are file sets: a file object
for each of thousands of shards would make the description slow to load. `dataset.json` has their checksums. Readers of
Croissant know Parquet, but neither TFRecord nor ArrayRecord, so that only Parquet has record sets.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from apache_beam.io.filesystems import FileSystems

from beambert.common.formatting import table_cell
from beambert.common.word_rules import WordRules
from beambert.pipelines.dataset import FILE_NAME as MANIFEST_FILE_NAME
from beambert.pipelines.dataset import SPLITS, VOCAB_FILE_NAME, Dataset
from beambert.pipelines.io.atomic_files import delete_files, read_bytes, storage_errors, write_text
from beambert.reporting import rendering

# A card with this line was written by beambert.
_MARK = f"beambert generated the rest of this card from `{MANIFEST_FILE_NAME}`."
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
# The field of `Dataset` that is the maximum number of values, and the content, by the name in google-research/bert.
_FEATURES = {
    "input_ids": ("max_seq_length", "token ids, with masked tokens replaced"),
    "input_mask": ("max_seq_length", "1 over tokens, 0 over padding"),
    "segment_ids": ("max_seq_length", "0 over segment A, 1 over segment B and its [SEP]"),
    "sequence_ids": ("max_seq_length", "number of the instance at each position, from 1; 0 over padding"),
    "masked_lm_positions": ("max_predictions_per_seq", "positions of the tokens to predict"),
    "masked_lm_ids": ("max_predictions_per_seq", "original ids of these tokens"),
    "masked_lm_weights": ("max_predictions_per_seq", "1 for a prediction, 0 for padding"),
    "next_sentence_positions": ("instances_per_row", "position of the [CLS] of each instance"),
    "next_sentence_labels": ("instances_per_row", ""),
    "next_sentence_weights": ("instances_per_row", "1 for an instance, 0 for padding"),
}
_LABELS = {
    "nsp": "0 if B follows A, 1 if B is a random sentence",
    "sop": "0 if A and B are in order, 1 if they are swapped",
}
_BYTES = ("segment_ids", "sequence_ids", "next_sentence_labels")

# Name of the dataset in croissant.json; a file with it was written by beambert.
_NAME = "beambert-pretraining-data"
# The context of the specification. Most terms are those of the namespace `cr`.
_TERMS = (
    *("arrayShape", "citeAs", "column", "equivalentProperty", "extract", "field", "fileObject", "fileProperty"),
    *("fileSet", "format", "includes", "isArray", "isLiveDataset", "jsonPath", "key", "md5", "parentField", "path"),
    *("recordSet", "references", "regex", "repeated", "replace", "samplingRate", "separator", "source", "subField"),
    "transform",
)
_CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "rai": "http://mlcommons.org/croissant/RAI/",
    "sc": "https://schema.org/",
    **{term: f"cr:{term}" for term in _TERMS},
}
# Formats without a media type have the URL of their documentation, as the specification recommends.
_ENCODING_FORMATS = {
    "parquet": "application/x-parquet",
    "tfrecord": "https://www.tensorflow.org/tutorials/load_data/tfrecord",
    "array_record": "https://github.com/google/array_record",
}
_CROISSANT_TYPES = {"uint8": "cr:UInt8", "int32": "cr:Int32"}


class _Feature(NamedTuple):
    """A feature of the records.

    Attributes:
        name: name in the shards.
        type: "float32", "int64", "int32" or "uint8".
        max_length: maximum number of values in a record.
        is_list: whether a record has a list of values, rather than a single value.
        content: description of the values.
    """

    name: str
    type: str
    max_length: int
    is_list: bool
    content: str


def _features(manifest: Dataset) -> list[_Feature]:
    """Return the features in the order of their names in google-research/bert."""
    is_parquet = manifest.file_format == "parquet"
    features = []
    for feature, name in sorted(manifest.features.items()):
        length_field, content = _FEATURES[feature]
        max_length = getattr(manifest, length_field)
        if is_parquet:
            kind = "uint8" if feature in _BYTES else "int32"
        else:
            kind = "float32" if feature.endswith("_weights") else "int64"
        if feature == "input_ids" and manifest.options["masking"] == "dynamic":
            content = "token ids, without masks"
        elif feature == "next_sentence_labels":
            content = _LABELS[manifest.options["objective"]]
        is_list = not is_parquet or length_field != "instances_per_row" or max_length > 1
        features.append(_Feature(name, kind, max_length, is_list, content))
    return features


def _splits(manifest: Dataset) -> list[str]:
    """Return the splits that have examples."""
    return [split for split in SPLITS if manifest.num_examples(split)]


def _shard_pattern(manifest: Dataset, split: str) -> str:
    """Return a glob pattern of the shards of a split, relative to the dataset directory."""
    shards = manifest.shards_of(split)
    extension = shards[0].name.rpartition("/")[2].partition(".")[2] if shards else "*"
    return f"shards/{split}-*.{extension}"


# The dataset card.


def render_card(manifest: Dataset) -> str:
    """Return the text of README.md."""
    counts, splits = manifest.counts, _splits(manifest)
    num_examples = sum(map(manifest.num_examples, splits))
    inputs = _size_rows(counts.get("inputs", {}))
    rejected = sorted(counts.get("documents_rejected", {}).items())
    features = sorted(_features(manifest))
    return rendering.render(
        "dataset_card.md",
        manifest_name=MANIFEST_FILE_NAME,
        mark=_MARK,
        dataset=manifest,
        counts=counts,
        copies=manifest.options["dupe_factor"],
        languages=sorted(filter(None, counts.get("languages", {}))),
        size_category=_SIZES[min(max(len(str(num_examples)) - 3, 0), len(_SIZES) - 1)],
        splits=[{"name": split, "pattern": _shard_pattern(manifest, split)} for split in splits],
        split_rows=[_split_row(manifest, split) for split in splits],
        inputs=inputs[:_MAX_INPUTS],
        more_inputs=max(0, len(inputs) - _MAX_INPUTS),
        language_rows=_size_rows(counts.get("languages", {})),
        rejected=", ".join(f"{table_cell(rule)} {number:,}" for rule, number in rejected),
        creation=_creation_rows(manifest),
        features=features,
        feature_rows=[
            (f"`{feature.name}`", f"list of {feature.type}" if feature.is_list else feature.type, feature.content)
            for feature in features
        ],
        is_ragged=manifest.ragged or any(shard.max_seq_length != manifest.max_seq_length for shard in manifest.shards),
        warnings=list(map(table_cell, counts.get("warnings", []))),
    )


def _split_row(manifest: Dataset, split: str) -> tuple[Any, ...]:
    shards, counts = manifest.shards_of(split), manifest.counts.get(split, {})
    text = counts.get("documents"), counts.get("tokens")
    return split, manifest.num_examples(split), *text, len(shards), sum(shard.bytes for shard in shards)


def _size_rows(sizes: Mapping[str, Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """Return the rows of inputs or languages, largest first."""
    ordered = sorted(sizes.items(), key=lambda item: (-item[1].get("words", 0), item[0]))
    units = ("documents", "words", "bytes")
    return [(table_cell(name or "unknown"), *map(size.get, units)) for name, size in ordered]


def _creation_rows(manifest: Dataset) -> list[tuple[str, str]]:
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


# croissant.json.


def render_croissant(manifest: Dataset) -> str:
    """Return the text of croissant.json."""
    content: dict[str, Any] = {
        "@context": dict(sorted(_CONTEXT.items())),
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.1",
        "name": _NAME,
        "description": _description(manifest),
        "keywords": ["BERT", "masked language modeling", "pretraining"],
    }
    if languages := sorted(filter(None, manifest.counts.get("languages", {}))):
        content["inLanguage"] = languages
    splits = _splits(manifest)
    content["distribution"] = [_vocabulary(manifest), *(_file_set(manifest, split) for split in splits)]
    if manifest.file_format == "parquet":
        content["recordSet"] = [_record_set(manifest, split) for split in splits]
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def _description(manifest: Dataset) -> str:
    examples = " and ".join(f"{manifest.num_examples(split):,} {split}" for split in SPLITS)
    return (
        f"Pretraining examples for BERT, written by beambert {manifest.versions.get('beambert', '')}: {examples} "
        f"examples of at most {manifest.max_seq_length:,} tokens. {MANIFEST_FILE_NAME} has all options, counts and the "
        "SHA-256 of every shard."
    )


def _vocabulary(manifest: Dataset) -> dict[str, Any]:
    return {
        "@type": "cr:FileObject",
        "@id": VOCAB_FILE_NAME,
        "name": VOCAB_FILE_NAME,
        "description": f"The vocabulary of {manifest.vocab_size:,} tokens; the line number, from 0, is the token id.",
        "contentUrl": VOCAB_FILE_NAME,
        "encodingFormat": "text/plain",
        "sha256": manifest.vocab_sha256,
    }


def _file_set(manifest: Dataset, split: str) -> dict[str, Any]:
    features = ", ".join(sorted(manifest.features.values()))
    kind = "" if manifest.file_format == "parquet" else ": serialized tf.train.Example messages"
    compression = " Compressed with gzip." if manifest.compression == "gzip" else ""
    return {
        "@type": "cr:FileSet",
        "@id": f"{split}-shards",
        "name": f"{split}-shards",
        "description": f"{manifest.num_examples(split):,} examples{kind}, with the features {features}.{compression}",
        "encodingFormat": _ENCODING_FORMATS[manifest.file_format],
        "includes": _shard_pattern(manifest, split),
    }


def _record_set(manifest: Dataset, split: str) -> dict[str, Any]:
    return {
        "@type": "cr:RecordSet",
        "@id": split,
        "name": split,
        "description": f"The {split} split, {manifest.num_examples(split):,} examples.",
        "field": [
            {
                "@type": "cr:Field",
                "@id": f"{split}/{feature.name}",
                "name": feature.name,
                "description": feature.content,
                "dataType": _CROISSANT_TYPES[feature.type],
                "source": {"fileSet": {"@id": f"{split}-shards"}, "extract": {"column": feature.name}},
                **({"isArray": True, "arrayShape": "-1"} if feature.is_list else {}),
            }
            for feature in _features(manifest)
        ],
    }


# The files.


# The function that renders a file, and text that only a file of beambert contains, by name.
_FILES = {"croissant.json": (render_croissant, f'"name": "{_NAME}"'), "README.md": (render_card, _MARK)}
FILE_NAMES = tuple(_FILES)


def write_missing_descriptions(manifest: Dataset, output: str) -> None:
    """Write the descriptions that do not exist.

    Args:
        manifest: Manifest of the dataset.
        output: The dataset directory, on any Beam filesystem.
    """
    for name, (render, _) in _FILES.items():
        path = f"{output}/{name}"
        with storage_errors(path):
            exists = FileSystems.exists(path)
        if not exists:
            write_text(path, render(manifest))


def delete_own_descriptions(output: str) -> None:
    """Delete the descriptions that a stopped job has written; they describe a dataset that does not exist yet."""
    own = [f"{output}/{name}" for name, is_own in _origins(output) if is_own]
    delete_files(own)


def foreign_descriptions(output: str) -> list[str]:
    """Return the names of the descriptions that exist and that beambert did not write."""
    return [name for name, is_own in _origins(output) if not is_own]


def _origins(output: str) -> Iterator[tuple[str, bool]]:
    """Yield the name of every description that exists, and whether beambert wrote it."""
    for name, (_, mark) in _FILES.items():
        try:
            yield name, mark.encode() in read_bytes(f"{output}/{name}")
        except (IsADirectoryError, PermissionError):
            yield name, False
        except (FileNotFoundError, NotADirectoryError):
            continue
