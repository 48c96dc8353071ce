"""Test the overlap of the validation split with the training text, against sets of strings."""

import random

import pytest

from beambert.pipelines.corpus import corpus_manifest
from beambert.pipelines.corpus.corpus_manifest import CorpusReader, CorpusShard
from beambert.pipelines.documents import Document, identity
from beambert.pipelines.examples import train_eval_overlap
from beambert.pipelines.transforms.examples import _SearchShard
from tests.small_manifests import corpus_of


def write_shard(folder, split: str, number: int, of: int, documents: list[list[str]]) -> CorpusShard:
    name = f"corpus/{split}-{number:05d}-of-{of:05d}.parquet"
    rows = [Document(["\n".join(d)], language="en", id=identity(d).hex()) for d in documents]
    size, digest = corpus_manifest.write_shard(f"{folder}/{name}", rows)
    return CorpusShard(name, split, number, of, len(documents), sum(map(len, documents)), size, digest)


def write_manifest(folder, shards: list[CorpusShard]) -> CorpusReader:
    (folder / corpus_manifest.FILE_NAME).write_text(corpus_of(shards).to_json())
    return CorpusReader.open(str(folder))


def sentence(number: int) -> str:
    # Some sentences are short, and are not searched for.
    return f"sentence {number} " + "with some words more " * (number % 4)


@pytest.fixture
def corpus(tmp_path):
    rng = random.Random(1)
    texts = [[sentence(rng.randrange(400)) for _ in range(rng.randrange(1, 9))] for _ in range(120)]
    held_out, train = texts[:20], [*texts[20:], texts[3], texts[7]]
    shards = [
        write_shard(tmp_path, "train", 0, 2, train[:50]),
        write_shard(tmp_path, "train", 1, 2, train[50:]),
        write_shard(tmp_path, "validation", 0, 2, held_out[:9]),
        write_shard(tmp_path, "validation", 1, 2, held_out[9:]),
    ]
    return write_manifest(tmp_path, shards), shards, held_out, train


def long_sentences(document: list[str]) -> list[str]:
    return [sentence for sentence in document if len(sentence) >= train_eval_overlap.SENTENCE_CHARACTERS]


def found_of(reader, shards) -> list:
    search = _SearchShard()
    return [found for shard in shards if shard.split == "train" for found in search.process((reader, shard.name))]


@pytest.mark.parametrize("most", [100_000, 25, 3, 1])
def test_overlap_equals_that_of_string_sets(corpus, monkeypatch, most):
    reader, shards, held_out, train = corpus
    monkeypatch.setattr(train_eval_overlap, "MAX_SENTENCES", most)
    result = train_eval_overlap.count_overlap(
        train_eval_overlap.read_validation_sentences(reader, shards), train_eval_overlap.union(found_of(reader, shards))
    )

    looked_for = list(dict.fromkeys(s for document in held_out for s in long_sentences(document)))[:most]
    in_training = {s for document in train for s in document}
    whole = [long for document in held_out if (long := long_sentences(document)) and set(long) <= set(looked_for)]
    found = [long for long in whole if sum(s in in_training for s in long) >= len(long) / 2]
    assert result == (len(whole), len(found), len(looked_for), len(in_training.intersection(looked_for)))
    if most > 100:
        assert 2 <= len(found) < len(whole) < len(held_out)
        assert 0 < result.sentences_found < len(looked_for)


def test_the_union_does_not_depend_on_the_order(corpus):
    reader, shards, _, _ = corpus
    found = found_of(reader, shards)
    assert (
        train_eval_overlap.union(found).tolist()
        == train_eval_overlap.union([train_eval_overlap.union(found[1:]), *found]).tolist()
    )
    assert train_eval_overlap.union([]).tolist() == []


def test_corpus_without_validation_split(tmp_path):
    shards = [write_shard(tmp_path, "train", 0, 1, [["A sentence."]])]
    reader = write_manifest(tmp_path, shards)
    held_out = train_eval_overlap.read_validation_sentences(reader, shards)
    assert train_eval_overlap.count_overlap(held_out, train_eval_overlap.union(found_of(reader, shards))) == (
        0,
        0,
        0,
        0,
    )
