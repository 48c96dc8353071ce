"""Build pretraining data with Apache Beam: raw text to a corpus, a corpus to shards of masked examples.

`beambert.pipelines.transforms` has the steps of the jobs. Public names are imported on first use, so that
`beambert.pipelines.dataset`, which trainers use, does not require Beam.
"""

from typing import TYPE_CHECKING

from beambert.common.imports import lazy_exports

if TYPE_CHECKING:
    from beambert.pipelines.corpus.options import CorpusOptions
    from beambert.pipelines.dataset import Dataset, Shard
    from beambert.pipelines.errors import DatasetError, OutputError, SourceError
    from beambert.pipelines.instances.options import PretrainingDataOptions
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "CorpusOptions": "beambert.pipelines.corpus.options",
            "Dataset": "beambert.pipelines.dataset",
            "Shard": "beambert.pipelines.dataset",
            "DatasetError": "beambert.pipelines.errors",
            "OutputError": "beambert.pipelines.errors",
            "SourceError": "beambert.pipelines.errors",
            "PretrainingDataOptions": "beambert.pipelines.instances.options",
        },
    )

__all__ = [
    "CorpusOptions",
    "Dataset",
    "DatasetError",
    "OutputError",
    "PretrainingDataOptions",
    "Shard",
    "SourceError",
]
