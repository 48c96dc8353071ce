"""Read and write `dataset.json`, the manifest of a directory of pretraining data.

The manifest contains everything that a trainer needs to know about the data. It is written last, so a directory without
it is not a dataset. This module imports neither Beam nor TensorFlow: a training host does not need the extra [data].
"""

import dataclasses
import json
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from msgspec import Meta

from beambert.common.typed_json import (
    Count,
    FormatError,
    JsonError,
    NonEmpty,
    Positive,
    RelativeName,
    Sha256,
    convert,
    decode,
    require,
    require_format,
    shorten,
    shown,
)
from beambert.common.word_rules import without_released_rules
from beambert.pipelines.errors import DatasetError
from beambert.pipelines.io.manifest_schemas import (
    CorpusCounts,
    DatasetCounts,
    RecordedDatasetOptions,
    Split,
    TrainingCounts,
)
from beambert.pipelines.io.output_directory import CORPUS_MANIFEST, DATASET_MANIFEST, WORK_NAME, entries_of, kind_of

FILE_NAME = DATASET_MANIFEST
VOCAB_FILE_NAME = "vocab.txt"
SPLITS = ("train", "validation")
FORMAT = "beambert-pretraining-data"
FORMAT_VERSION = 3
_REMEDY = "restore it from a copy, or build the data again"


class PartitionOfSplit(NamedTuple):
    """A partition: "train" or "validation", its number, and the number of partitions of the split."""

    split: str
    partition: int
    partitions: int


@dataclasses.dataclass(frozen=True)
class Shard:
    """One shard: a file of examples.

    Attributes:
        name: Path relative to the dataset directory, with forward slashes.
        split: "train" or "validation".
        copy: Index of its copy of the data, from 0 to `dupe_factor` - 1. The training shards of one copy are one epoch.
        examples: Number of records.
        bytes: File size in bytes.
        sha256: Hex digest of the file.
        max_seq_length: Length of its rows in tokens.
        max_predictions_per_seq: Maximum number of masked tokens per row.
    """

    name: RelativeName
    split: Split
    copy: Count
    examples: Count
    bytes: Count
    sha256: Sha256
    max_seq_length: Positive
    max_predictions_per_seq: Positive


@dataclasses.dataclass(frozen=True)
class Dataset:
    """The content of `dataset.json`.

    Attributes:
        max_seq_length: Length of the longest rows in tokens.
        max_predictions_per_seq: Maximum number of masked tokens in these rows.
        instances_per_row: Maximum number of instances per row; 1 if rows are not packed.
        features: Names of the features in the shards, by their names in google-research/bert
            (`PretrainingDataOptions.names_of_features`).
        file_format: "tfrecord", "parquet" or "array_record".
        compression: "none" or "gzip".
        ragged: Whether the records contain no padding.
        vocab_size: Number of tokens in `vocab.txt` in the same directory.
        vocab_sha256: Hex digest of that file.
        do_lower_case: Whether the text was lowercased before WordPiece.
        options: All options of the build, including the random seed.
        counts: The counts of corpus.json; under "train" and "validation", the numbers of
            `beambert.pipelines.examples.statistics.Statistics`; under "overlap", the validation text that occurs in the
            training text (`beambert.pipelines.examples.train_eval_overlap.Overlap`); under "warnings", the warnings of
            report.html.
        shards: All shards.
        versions: Versions of the packages and of the Unicode data of the build.
        strip_accents, tokenize_chinese_chars: As in `WordRules`; not written where they are the released rules.
    """

    max_seq_length: Positive
    max_predictions_per_seq: Positive
    instances_per_row: Positive
    features: dict[str, NonEmpty]
    file_format: Annotated[str, Meta(pattern="^(tfrecord|parquet|array_record)$")]
    compression: Annotated[str, Meta(pattern="^(none|gzip)$")]
    ragged: bool
    vocab_size: Positive
    vocab_sha256: Sha256
    do_lower_case: bool
    options: dict[str, Any]
    counts: dict[str, Any]
    shards: list[Shard]
    versions: dict[str, str]
    strip_accents: bool | None = None
    tokenize_chinese_chars: bool = True

    def shards_of(self, split: str) -> list[Shard]:
        """Return the shards of a split.

        Args:
            split: "train" or "validation".

        Returns:
            The shards, sorted by copy, then by name.
        """
        chosen = [shard for shard in self.shards if shard.split == split]
        return sorted(chosen, key=lambda shard: (shard.copy, shard.name))

    def num_examples(self, split: str) -> int:
        """Return the number of records of a split in all copies.

        Args:
            split: "train" or "validation".

        Returns:
            The number of records.
        """
        return sum(shard.examples for shard in self.shards_of(split))

    def to_json(self) -> str:
        """Serialize the manifest.

        Returns:
            The text of `dataset.json`, with sorted keys.
        """
        fields = without_released_rules(dataclasses.asdict(self))
        content = {"format": FORMAT, "format_version": FORMAT_VERSION, **fields}
        return json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes, origin: str = FILE_NAME, remedy: str = _REMEDY) -> "Dataset":
        """Parse the text of a manifest.

        Args:
            text: The JSON text.
            origin: Path of the file, for messages.
            remedy: The remedy in the message about a corrupt manifest.

        Returns:
            The manifest.

        Raises:
            DatasetError: The text is not JSON, not a manifest of pretraining data, or of another version.
        """
        content = text.encode() if isinstance(text, str) else text
        try:
            require_format(content, FORMAT, FORMAT_VERSION)
            manifest = decode(content, cls)
            require(manifest.options, RecordedDatasetOptions, "options")
            require(manifest.counts, DatasetCounts, "counts")
            if not manifest.counts.keys().isdisjoint(CorpusCounts.__annotations__):
                require(manifest.counts, CorpusCounts, "counts")
            if "train" in manifest.counts:
                require(manifest.counts["train"], TrainingCounts, "counts.train")
            _require_features(manifest)
            _require_shards(manifest)
        except FormatError as error:
            raise DatasetError(f"{origin} {error}; build the data again into another directory") from error
        except JsonError as error:
            raise DatasetError(f"{origin}: {error}; {remedy}") from error
        return manifest


def _require_features(manifest: Dataset) -> None:
    """Raise JsonError if the features are not those of the options, on which trainers rely."""
    # Imported late: it imports NumPy and the tokenizer, which this module otherwise does not need.
    from beambert.pipelines.instances.options import PretrainingDataOptions

    expected = convert(manifest.options, PretrainingDataOptions, "options").names_of_features()
    for name in sorted(expected.keys() | manifest.features.keys()):
        if name not in manifest.features:
            raise JsonError(f"features.{name} is missing")
        if name not in expected:
            raise JsonError(f"features.{shorten(name)} is not a feature of objective and masking in options")
        if manifest.features[name] != expected[name]:
            raise JsonError(f"features.{name} must be {shown(expected[name])}, not {shown(manifest.features[name])}")


def _require_shards(manifest: Dataset) -> None:
    """Raise JsonError if a shard is listed twice, or the shards do not add up to the counts."""
    if len({shard.name for shard in manifest.shards}) != len(manifest.shards):
        raise JsonError("a shard is listed twice")
    for split in SPLITS:
        rows = manifest.counts.get(split, {}).get("rows")
        if rows is not None and rows != manifest.num_examples(split):
            raise JsonError(
                f"counts.{split}.rows is {rows}, but the shards have {manifest.num_examples(split)} examples"
            )


def load(directory: str | Path) -> Dataset:
    """Read the manifest of a local dataset directory.

    Args:
        directory: The directory.

    Returns:
        The manifest.

    Raises:
        DatasetError: The manifest is missing, unreadable or invalid.
    """
    path = Path(directory) / FILE_NAME
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise DatasetError(_missing(Path(directory))) from error
    except OSError as error:
        reason = error.strerror or error
        raise DatasetError(f"{path} cannot be read ({reason}); give a directory written by beambert build") from error
    return Dataset.from_json(content, origin=str(path))


def _missing(directory: Path) -> str:
    """Return the message about a directory without a manifest, with the remedy."""
    entries = entries_of(directory)
    kind = kind_of(entries)
    if CORPUS_MANIFEST in entries or any(name.startswith(f"{WORK_NAME}/") for name in entries):
        return (
            f"{directory / FILE_NAME} is missing: its build has not finished, or only the corpus was built; run the "
            "same beambert build command again, or beambert pretraining-data"
        )
    if kind:
        return f"{directory} contains {kind}, not a dataset; give a directory written by beambert build"
    if entries:
        return f"{directory} is not a dataset ({FILE_NAME} is missing); give a directory written by beambert build"
    state = "is empty" if directory.is_dir() else "does not exist"
    return f"{directory} {state}; build a dataset there with beambert build --output {shlex.quote(str(directory))}"


def sizes_of_dataset(shards: Iterable[Shard]) -> dict[str, int | None]:
    """Return the sizes of the shards and the vocabulary by file name, for `require_written`."""
    return {VOCAB_FILE_NAME: None, **{shard.name: shard.bytes for shard in shards}}
