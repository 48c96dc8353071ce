"""Describe the features of a dataset, for the dataset card and the Croissant description."""

from beambert.pipelines.dataset import Dataset

_DESCRIPTIONS = {
    "input_ids": "token ids, with masked tokens replaced",
    "input_mask": "1 over tokens, 0 over padding",
    "segment_ids": "0 over segment A, 1 over segment B and its [SEP]",
    "sequence_ids": "number of the instance at each position, from 1; 0 over padding",
    "masked_lm_positions": "positions of the tokens to predict",
    "masked_lm_ids": "original ids of these tokens",
    "masked_lm_weights": "1 for a prediction, 0 for padding",
    "next_sentence_positions": "position of the [CLS] of each instance",
    "next_sentence_weights": "1 for an instance, 0 for padding",
}
_LABELS = {
    "nsp": "0 if B follows A, 1 if B is a random sentence",
    "sop": "0 if A and B are in order, 1 if they are swapped",
}
_WITHOUT_MASKS = "token ids, without masks"
_BYTES = ("segment_ids", "sequence_ids", "next_sentence_labels")


def describe_feature(feature: str, manifest: Dataset) -> str:
    """Return one line about a feature.

    Args:
        feature: name of the feature in google-research/bert.
        manifest: the dataset.
    """
    if feature == "input_ids" and manifest.options["masking"] == "dynamic":
        return _WITHOUT_MASKS
    return _LABELS[manifest.options["objective"]] if feature == "next_sentence_labels" else _DESCRIPTIONS[feature]


def type_of(feature: str, manifest: Dataset) -> str:
    """Return the type of the values of a feature in the shards: "float32", "int64", "int32" or "uint8"."""
    if manifest.file_format != "parquet":
        return "float32" if feature.endswith("_weights") else "int64"
    return "uint8" if feature in _BYTES else "int32"


def is_list(feature: str, manifest: Dataset) -> bool:
    """Return whether a record has a list of values of a feature, rather than a single value."""
    return manifest.file_format != "parquet" or manifest.instances_per_row > 1 or not feature.startswith("next_")


def shard_pattern(manifest: Dataset, split: str) -> str:
    """Return a glob pattern of the shards of a split, relative to the dataset directory."""
    shards = manifest.shards_of(split)
    extension = shards[0].name.rpartition("/")[2].partition(".")[2] if shards else "*"
    return f"shards/{split}-*.{extension}"
