"""Manifests of corpora for tests that do not build a corpus."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from beambert.pipelines.corpus.corpus_manifest import Corpus, CorpusShard
from beambert.pipelines.corpus.options import CorpusOptions


def corpus_of(shards: Sequence[CorpusShard]) -> Corpus:
    """Return the manifest of a corpus with the given shards; all other counts are zero."""
    splits = ("train", "validation")
    counts: dict[str, Any] = {
        unit: {split: sum(getattr(shard, unit) for shard in shards if shard.split == split) for split in splits}
        for unit in ("documents", "sentences")
    }
    rules: dict[str, int] = {}
    groups = {"documents_rejected": rules, "documents_reported": rules, "paragraphs_cleaned": rules}
    numbers = {"documents_read": 0, "bytes": 0, "words": 0, "characters": 0}
    coverage = {"words": 0, "unknown": 0, "whole_words": 0, "tokens": 0}
    vocabulary: dict[str, Any] = {"size": 5, "sha256": "0" * 64, "learned_from": None, "alphabet": None}
    vocabulary["validation"] = {"vocab": coverage}
    options = CorpusOptions(
        do_lower_case=True, vocab_size=0, character_rules="", num_partitions=1, validation_fraction=0.0
    )
    counts |= {**groups, **numbers, "inputs": {}, "languages": {}, "files_mostly_rejected": []}
    return Corpus(dataclasses.asdict(options), [], counts, vocabulary, list(shards), {})
