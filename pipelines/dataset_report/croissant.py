"""Describe a dataset in Croissant 1.1, the JSON-LD vocabulary of MLCommons for machine-learning datasets.

The description is made from `dataset.json` alone and has no dates, so it is deterministic. Shards are file sets: a file
object for each of thousands of shards would make the description slow to load. `dataset.json` has their checksums.
Readers of Croissant know Parquet, but neither TFRecord nor ArrayRecord, so that only Parquet has record sets.
"""

import json
from typing import Any

from beambert.pipelines.dataset import FILE_NAME as MANIFEST_FILE_NAME
from beambert.pipelines.dataset import SPLITS, VOCAB_FILE_NAME, Dataset
from beambert.pipelines.dataset_report.feature_descriptions import describe_feature, is_list, shard_pattern, type_of

FILE_NAME = "croissant.json"
# Name of the dataset in the description; a file with it was written by beambert.
NAME = "beambert-pretraining-data"
_VERSION = "http://mlcommons.org/croissant/1.1"
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
_DATA_TYPES = {"uint8": "cr:UInt8", "int32": "cr:Int32"}


def render(manifest: Dataset) -> str:
    """Return the text of croissant.json."""
    splits = [split for split in SPLITS if manifest.num_examples(split)]
    content: dict[str, Any] = {
        "@context": dict(sorted(_CONTEXT.items())),
        "@type": "sc:Dataset",
        "conformsTo": _VERSION,
        "name": NAME,
        "description": _description(manifest),
        "keywords": ["BERT", "masked language modeling", "pretraining"],
    }
    if languages := sorted(filter(None, manifest.counts.get("languages", {}))):
        content["inLanguage"] = languages
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
        "includes": shard_pattern(manifest, split),
    }


def _record_set(manifest: Dataset, split: str) -> dict[str, Any]:
    fields = []
    for feature, name in sorted(manifest.features.items()):
        field: dict[str, Any] = {
            "@type": "cr:Field",
            "@id": f"{split}/{name}",
            "name": name,
            "description": describe_feature(feature, manifest),
            "dataType": _DATA_TYPES[type_of(feature, manifest)],
            "source": {"fileSet": {"@id": f"{split}-shards"}, "extract": {"column": name}},
        }
        if is_list(feature, manifest):
            field |= {"isArray": True, "arrayShape": "-1"}
        fields.append(field)
    return {
        "@type": "cr:RecordSet",
        "@id": split,
        "name": split,
        "description": f"The {split} split, {manifest.num_examples(split):,} examples.",
        "field": fields,
    }
