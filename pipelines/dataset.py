"""`dataset.json`: what a directory of pretraining data holds, and all that a trainer needs to know of it.

This file imports neither Beam nor TensorFlow, so that a training host reads it without the data extra.
The manifest is written last: a directory without it is not a dataset.
"""

import dataclasses
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from beambert_common.renamed_fields import with_new_names, with_old_names
from beambert_common.typed_json import (
    Count,
    JsonError,
    NonEmpty,
    Positive,
    RelativeName,
    Sha256,
    convert,
    decode,
    header_of,
    require,
    shortened,
    shown,
)
from pipelines.errors import DatasetError
from pipelines.io.manifest_schemas import (
    RENAMED_DATASET_FIELDS,
    DatasetCounts,
    RecordedDatasetOptions,
    Split,
    TrainingCounts,
)
from pipelines.io.output_directory import CORPUS_MANIFEST, DATASET_MANIFEST, WORK_NAME, entries_of, kind_of

FILE_NAME = DATASET_MANIFEST
VOCAB_FILE_NAME = "vocab.txt"
SPLITS = ("train", "validation")
FORMAT = "beambert-pretraining-data"
FORMAT_VERSION = 3
_REMEDY = "restore it from a copy, or build the data again"


@dataclasses.dataclass(frozen=True)
class Shard:
    """One file of examples.

    Attributes:
        name: path relative to the dataset's directory, with forward slashes.
        split: "train" or "validation".
        copy: which of the `dupe_factor` copies of the corpus it belongs to, from 0; one copy of all
            train shards of one copy is one epoch.
        examples: number of records.
        bytes: file size.
        sha256: hex digest of the file.
        max_seq_length: length of its rows.
        max_predictions_per_seq: room for masked tokens in its rows.
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
        max_seq_length: length of the longest rows.
        max_predictions_per_seq: room for masked tokens in them.
        instances_per_row: room for instances in a row, 1 where rows are not packed.
        features: name in the files of every feature there is (`PretrainingDataOptions.names_of_features`).
        file_format: "tfrecord" or "parquet".
        compression: "none" or "gzip".
        ragged: whether padding is left out of the records.
        vocab_size: number of tokens in `vocab.txt` beside the manifest.
        vocab_sha256: hex digest of that file.
        do_lower_case: whether the text was lower-cased and stripped of accents before WordPiece.
        options: every option the data was built with, the random seed among them.
        counts: the counts of corpus.json; "train" and "validation", the numbers of
            `pipelines.examples.statistics.Statistics`; "overlap", validation text in the training text
            (`pipelines.examples.train_eval_overlap.Overlap`); "warnings", a line each, as report.html has them.
        shards: every file of examples.
        versions: packages and Unicode data the build ran with.
    """

    max_seq_length: Positive
    max_predictions_per_seq: Positive
    instances_per_row: Positive
    features: dict[str, NonEmpty]
    file_format: Annotated[str, Meta(pattern="^(tfrecord|parquet)$")]
    compression: Annotated[str, Meta(pattern="^(none|gzip)$")]
    ragged: bool
    vocab_size: Positive
    vocab_sha256: Sha256
    do_lower_case: bool
    options: dict[str, Any]
    counts: dict[str, Any]
    shards: list[Shard]
    versions: dict[str, str]

    def shards_of(self, split: str) -> list[Shard]:
        """Return the shards of "train" or "validation", by copy, then name."""
        chosen = [shard for shard in self.shards if shard.split == split]
        return sorted(chosen, key=lambda shard: (shard.copy, shard.name))

    def num_examples(self, split: str) -> int:
        """Return the number of records in all shards of a split, over all copies."""
        return sum(shard.examples for shard in self.shards_of(split))

    def to_json(self) -> str:
        """Serialize to the text of `dataset.json`, keys sorted."""
        content = {"format": FORMAT, "format_version": FORMAT_VERSION, **dataclasses.asdict(self)}
        return json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes, origin: str = FILE_NAME, remedy: str = _REMEDY) -> "Dataset":
        """Parse the text of a manifest.

        Args:
            text: the JSON text.
            origin: the file it came from, for messages.
            remedy: the end of the message about a corrupt manifest.

        Raises:
            DatasetError: not JSON, not a manifest of pretraining data, or of a version this code cannot read.
        """
        content = text.encode() if isinstance(text, str) else text
        names: dict[str, str] = {}
        try:
            header = header_of(content)
            if header.format != FORMAT:
                raise DatasetError(f"{origin} is not a manifest of pretraining data; give what `beambert build` made")
            if header.format_version not in (FORMAT_VERSION, *RENAMED_DATASET_FIELDS):
                raise DatasetError(
                    f"{origin} has format_version {shown(header.format_version)}, this beambert reads "
                    f"{FORMAT_VERSION}; build the data again"
                )
            names = RENAMED_DATASET_FIELDS.get(header.format_version, {})
            manifest = convert(with_new_names(decode(content, dict[str, Any]), names), cls)
            require(manifest.options, RecordedDatasetOptions, "options")
            require(manifest.counts, DatasetCounts, "counts")
            if "train" in manifest.counts:
                require(manifest.counts["train"], TrainingCounts, "counts.train")
            _require_features(manifest)
            _require_shards(manifest)
        except JsonError as error:
            raise DatasetError(f"{origin}: {with_old_names(str(error), names)}; {remedy}") from error
        return manifest


def _require_features(manifest: Dataset) -> None:
    """Raise JsonError where the features are not those of the options, which a trainer relies on."""
    # It imports this file, for the errors.
    from pipelines.instances.options import PretrainingDataOptions

    expected = convert(manifest.options, PretrainingDataOptions, "options").names_of_features()
    for name in sorted(expected.keys() | manifest.features.keys()):
        if name not in manifest.features:
            raise JsonError(f"features.{name} is missing")
        if name not in expected:
            raise JsonError(f"features.{shortened(name)} is not a feature of objective and masking in options")
        if manifest.features[name] != expected[name]:
            raise JsonError(f"features.{name} must be {shown(expected[name])}, not {shown(manifest.features[name])}")


def _require_shards(manifest: Dataset) -> None:
    """Raise JsonError where shards occur twice, or do not add up to the counts."""
    if len({shard.name for shard in manifest.shards}) != len(manifest.shards):
        raise JsonError("a shard is listed twice")
    for split in SPLITS:
        rows = manifest.counts.get(split, {}).get("rows")
        if rows is not None and rows != manifest.num_examples(split):
            raise JsonError(
                f"counts.{split}.rows is {rows}, the sum of examples over the shards is {manifest.num_examples(split)}"
            )


def load(directory: str | Path) -> Dataset:
    """Read the manifest of a local dataset directory.

    Raises:
        DatasetError: the directory holds no readable manifest.
    """
    path = Path(directory) / FILE_NAME
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise DatasetError(_missing(Path(directory))) from error
    except OSError as error:
        reason = error.strerror or error
        raise DatasetError(f"{path} cannot be read ({reason}); give a directory made by `beambert build`") from error
    return Dataset.from_json(content, origin=str(path))


def _missing(directory: Path) -> str:
    """Return what to do about a directory without a manifest of its own."""
    entries = entries_of(directory)
    kind = kind_of(entries)
    if CORPUS_MANIFEST in entries or any(name.startswith(f"{WORK_NAME}/") for name in entries):
        return (
            f"{directory / FILE_NAME} is missing: its build has not finished, or only the corpus was built; run the "
            "same beambert build again, or beambert pretraining-data"
        )
    if kind:
        return f"{directory} holds {kind}, not a dataset; give a directory made by `beambert build`"
    if entries:
        return f"{directory} is not a dataset ({FILE_NAME} is missing); give a directory made by `beambert build`"
    there = "is empty" if directory.is_dir() else "does not exist"
    return f"{directory} {there}; build a dataset there with `beambert build --output {directory}`"


def sizes_of_dataset(shards: Iterable[Shard]) -> dict[str, int | None]:
    """Return what `require_written` checks of pretraining data: its shards and its vocabulary."""
    return {VOCAB_FILE_NAME: None, **{shard.name: shard.bytes for shard in shards}}
