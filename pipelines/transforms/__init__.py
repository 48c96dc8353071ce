"""Beam transforms from files to pretraining data, for pipelines of your own.

`beambert corpus`, `pretraining-data` and `build` are made of the same functions, so that the same documents and options
give the same bytes. The elements are `Document` and `PretrainingExamples`.

A transform that rejects a document sets its field `rejected` to the name of the rule, and passes it on. Later
transforms do not change it, `WriteCorpus` counts and lists it, and no vocabulary and no example contains it.

Transforms of single documents (`CleanDocuments`, `SegmentSentences`, `RejectDocuments`, `RejectUrls`,
`IdentifyLanguage`, `RejectContaminated`, `TruncateSentences`) work in batch and streaming pipelines. The others compare
all documents or end with a manifest. They require bounded collections in the global window.

A name is imported when it is first used, since a job needs few of the modules.
"""

from typing import TYPE_CHECKING

from beambert.common.imports import lazy_exports

if TYPE_CHECKING:
    from beambert.pipelines.cleaning.rules import CleaningOptions
    from beambert.pipelines.documents import Document
    from beambert.pipelines.errors import DatasetError, OutputError, SourceError
    from beambert.pipelines.examples.pretraining_examples import PretrainingExamples
    from beambert.pipelines.formats.input_format import ReadOptions
    from beambert.pipelines.transforms.corpora import DeduplicateDocuments, ReadCorpus, WriteCorpus
    from beambert.pipelines.transforms.documents import (
        CleanDocuments,
        CleanParagraphs,
        IdentifyLanguage,
        PartitionRejected,
        ReadDocuments,
        RejectContaminated,
        RejectDocuments,
        RejectIf,
        RejectUrls,
        SegmentSentences,
        TruncateSentences,
    )
    from beambert.pipelines.transforms.examples import CreateExamplesOfCorpus, CreatePretrainingExamples, WriteShards
    from beambert.pipelines.transforms.rows import RowsToDocuments
    from beambert.pipelines.transforms.vocabulary import LearnWordPieceVocabulary
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "CleanDocuments": "beambert.pipelines.transforms.documents",
            "CleanParagraphs": "beambert.pipelines.transforms.documents",
            "CleaningOptions": "beambert.pipelines.cleaning.rules",
            "CreateExamplesOfCorpus": "beambert.pipelines.transforms.examples",
            "CreatePretrainingExamples": "beambert.pipelines.transforms.examples",
            "DatasetError": "beambert.pipelines.errors",
            "DeduplicateDocuments": "beambert.pipelines.transforms.corpora",
            "Document": "beambert.pipelines.documents",
            "IdentifyLanguage": "beambert.pipelines.transforms.documents",
            "LearnWordPieceVocabulary": "beambert.pipelines.transforms.vocabulary",
            "OutputError": "beambert.pipelines.errors",
            "PartitionRejected": "beambert.pipelines.transforms.documents",
            "PretrainingExamples": "beambert.pipelines.examples.pretraining_examples",
            "ReadCorpus": "beambert.pipelines.transforms.corpora",
            "ReadDocuments": "beambert.pipelines.transforms.documents",
            "ReadOptions": "beambert.pipelines.formats.input_format",
            "RejectContaminated": "beambert.pipelines.transforms.documents",
            "RejectUrls": "beambert.pipelines.transforms.documents",
            "RejectDocuments": "beambert.pipelines.transforms.documents",
            "RejectIf": "beambert.pipelines.transforms.documents",
            "RowsToDocuments": "beambert.pipelines.transforms.rows",
            "SegmentSentences": "beambert.pipelines.transforms.documents",
            "SourceError": "beambert.pipelines.errors",
            "TruncateSentences": "beambert.pipelines.transforms.documents",
            "WriteCorpus": "beambert.pipelines.transforms.corpora",
            "WriteShards": "beambert.pipelines.transforms.examples",
        },
    )

__all__ = [
    "CleanDocuments",
    "CleanParagraphs",
    "CleaningOptions",
    "CreateExamplesOfCorpus",
    "CreatePretrainingExamples",
    "DatasetError",
    "DeduplicateDocuments",
    "Document",
    "IdentifyLanguage",
    "LearnWordPieceVocabulary",
    "OutputError",
    "PartitionRejected",
    "PretrainingExamples",
    "ReadCorpus",
    "ReadDocuments",
    "ReadOptions",
    "RejectContaminated",
    "RejectDocuments",
    "RejectIf",
    "RejectUrls",
    "RowsToDocuments",
    "SegmentSentences",
    "SourceError",
    "TruncateSentences",
    "WriteCorpus",
    "WriteShards",
]
