"""What of the held-out text is found in the training text: against sets of strings."""

import random

import pytest

from pipelines import corpus_files, overlap
from pipelines.corpus_files import Corpus, Part
from pipelines.corpus_reader import CorpusReader
from pipelines.documents import identity
from pipelines.records import Record


def write_part(folder, name: str, split: str, documents: list[list[str]]) -> Part:
    records = [Record(identity(d), "", "", "en", "\n".join(d), (len(d),), "", 1.0, "", "") for d in documents]
    size, digest = corpus_files.write_part(f"{folder}/{name}", records)
    return Part(name, split, 0, 1, len(documents), sum(map(len, documents)), size, digest)


def write_manifest(folder, parts: list[Part]) -> CorpusReader:
    (folder / corpus_files.FILE_NAME).write_text(Corpus({}, [], {}, {}, parts, {}).to_json())
    return CorpusReader.of(str(folder))


def sentence(number: int) -> str:
    # Short ones too, which are not looked for.
    return f"sentence {number} " + "with some words more " * (number % 4)


@pytest.fixture
def corpus(tmp_path):
    rng = random.Random(1)
    texts = [[sentence(rng.randrange(400)) for _ in range(rng.randrange(1, 9))] for _ in range(120)]
    held_out, train = texts[:20], [*texts[20:], texts[3], texts[7]]
    parts = [
        write_part(tmp_path, "train-0.parquet", "train", train[:50]),
        write_part(tmp_path, "train-1.parquet", "train", train[50:]),
        write_part(tmp_path, "validation-0.parquet", "validation", held_out[:9]),
        write_part(tmp_path, "validation-1.parquet", "validation", held_out[9:]),
    ]
    return write_manifest(tmp_path, parts), parts, held_out, train


def test_what_is_found_is_what_sets_say(corpus):
    reader, parts, held_out, train = corpus
    do = overlap.FindHeldOut(reader, parts)
    do.setup()
    documents, sentences = overlap.union(found for part in parts for found in do.process(part))
    texts = {"\n".join(document) for document in train}
    assert len(documents) == sum("\n".join(document) in texts for document in held_out) >= 2
    long = {s for document in held_out for s in document if len(s) >= overlap.SENTENCE_CHARACTERS}
    in_training = {s for document in train for s in document}
    assert len(overlap.read_held_out(reader, parts).sentences) == len(long)
    assert len(sentences) == len(long & in_training)
    assert 0 < len(sentences) < len(long)


def test_no_more_is_looked_for_than_a_worker_can_hold(corpus, monkeypatch):
    reader, parts, held_out, _ = corpus
    monkeypatch.setattr(overlap, "MOST_DOCUMENTS", 12)
    found = overlap.read_held_out(reader, parts)
    assert found.documents.to_pylist() == [identity(document).hex() for document in held_out[:12]]


def test_the_union_does_not_depend_on_the_order(corpus):
    reader, parts, _, _ = corpus
    do = overlap.FindHeldOut(reader, parts)
    do.setup()
    found = [each for part in parts for each in do.process(part)]
    together, again = overlap.union(found), overlap.union([overlap.union(found[1:]), *found])
    assert [each.tolist() for each in together] == [each.tolist() for each in again]
    assert [each.tolist() for each in overlap.union([])] == [[], []]


def test_only_a_sample_of_many_sentences_is_looked_for(corpus, monkeypatch):
    reader, parts, _, _ = corpus
    monkeypatch.setattr(overlap, "MOST_SENTENCES", 3)
    held_out = overlap.read_held_out(reader, parts)
    assert (len(held_out.documents), len(held_out.sentences)) == (20, 3)
