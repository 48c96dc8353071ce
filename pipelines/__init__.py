"""Build pretraining data with Apache Beam: raw text to a corpus, a corpus to shards of masked examples.

The two jobs are the modules `pipelines.build_corpus` and `pipelines.build_pretraining_data`. The public names are
imported on first use, so that `pipelines.dataset`, which trainers use, does not require Beam.
"""

from typing import TYPE_CHECKING

from beambert_common.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from pipelines.corpus.options import CorpusOptions
    from pipelines.dataset import Dataset, Shard
    from pipelines.errors import DatasetError, OutputError, SourceError
    from pipelines.instances.options import PretrainingDataOptions
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "CorpusOptions": "pipelines.corpus.options",
            "Dataset": "pipelines.dataset",
            "Shard": "pipelines.dataset",
            "DatasetError": "pipelines.errors",
            "OutputError": "pipelines.errors",
            "SourceError": "pipelines.errors",
            "PretrainingDataOptions": "pipelines.instances.options",
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
