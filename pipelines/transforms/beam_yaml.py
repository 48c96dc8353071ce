"""The public transforms with arguments as Beam YAML has them: options are mappings, side inputs are named inputs.

`examples/beambert_providers.yaml` names them. Needs the extra `[yaml]`.
"""

from collections.abc import Mapping
from typing import Any

import apache_beam as beam

from beambert.common.command_line.options import from_mapping
from beambert.pipelines.cleaning.rules import CleaningOptions
from beambert.pipelines.errors import DatasetError, SourceError
from beambert.pipelines.instances.options import PretrainingDataOptions
from beambert.pipelines.transforms import documents, examples
from beambert.pipelines.transforms.partitions import NUM_PARTITIONS, VALIDATION_FRACTION


class CleanDocuments(documents.CleanDocuments):
    """As `beambert.pipelines.transforms.CleanDocuments`; `rules` has fields of `CleaningOptions`."""

    def __init__(self, rules: Mapping[str, Any] | None = None) -> None:
        super().__init__(from_mapping(CleaningOptions, rules, "rules", SourceError))


class RejectDocuments(documents.RejectDocuments):
    """As `beambert.pipelines.transforms.RejectDocuments`; `rules` has fields of `CleaningOptions`."""

    def __init__(self, rules: Mapping[str, Any] | None = None) -> None:
        super().__init__(from_mapping(CleaningOptions, rules, "rules", SourceError))


class CreatePretrainingExamples(beam.PTransform):
    """As `beambert.pipelines.transforms.CreatePretrainingExamples`; `options` has fields of `PretrainingDataOptions`.

    The inputs are `documents`, and `vocabulary` unless its path is given.
    """

    def __init__(
        self,
        options: Mapping[str, Any] | None = None,
        vocabulary: str = "",
        num_partitions: int = NUM_PARTITIONS,
        validation_fraction: float = VALIDATION_FRACTION,
    ) -> None:
        super().__init__()
        self._options = from_mapping(PretrainingDataOptions, options, "options", DatasetError)
        self._vocabulary, self._num_partitions, self._fraction = vocabulary, num_partitions, validation_fraction

    def expand(self, inputs: Any) -> beam.PCollection:
        """Return the examples."""
        found, vocabulary = _with_vocabulary(inputs, self._vocabulary, "documents")
        return found | examples.CreatePretrainingExamples(
            vocabulary, self._options, self._num_partitions, validation_fraction=self._fraction
        )


class WriteShards(beam.PTransform):
    """As `beambert.pipelines.transforms.WriteShards`; None keeps the option of the examples.

    The inputs are `examples`, and `vocabulary` unless its path is given.
    """

    def __init__(
        self,
        path: str,
        vocabulary: str = "",
        format: str | None = None,
        compression: str | None = None,
        feature_names: str | None = None,
        ragged: bool | None = None,
    ) -> None:
        super().__init__()
        self._path, self._vocabulary, self._format = path, vocabulary, format
        self._compression, self._feature_names, self._ragged = compression, feature_names, ragged

    def expand(self, inputs: Any) -> beam.PCollection:
        """Return the path of `dataset.json`."""
        found, vocabulary = _with_vocabulary(inputs, self._vocabulary, "examples")
        return found | examples.WriteShards(
            self._path,
            vocabulary,
            self._format,
            compression=self._compression,
            feature_names=self._feature_names,
            ragged=self._ragged,
        )


def _with_vocabulary(inputs: Any, path: str, name: str) -> tuple[beam.PCollection, Any]:
    """Return the main input and the vocabulary, a path or a collection.

    Raises:
        SourceError: there is neither, or another input.
    """
    named = inputs if isinstance(inputs, Mapping) else {name: inputs}
    wanted = {name} if path else {name, "vocabulary"}
    if named.keys() != wanted:
        raise SourceError(
            f"the inputs are {', '.join(sorted(named))}, not {' and '.join(sorted(wanted))}; name them under input, or "
            "give the path of a vocabulary in config"
        )
    return named[name], path or named["vocabulary"]
