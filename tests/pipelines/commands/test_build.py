"""Tests of `beambert build`: its corpus, examples and manifest, resuming, and errors."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from beambert import cli
from beambert.pipelines import dataset
from beambert.pipelines.formats.input_format import ReadOptions
from beambert.pipelines.sources.readers import read_file
from beambert.tokenizer.tokenizer import Tokenizer
from beambert.tokenizer.vocabulary import Vocabulary
from tests.conftest import SMALL
from tests.every_output import corpus_rows, digests, rejected
from tests.pipelines.examples.test_example_encoder import feature_spec


def records(output: Path, split: str) -> dict[str, np.ndarray]:
    manifest = dataset.load(output)
    paths = [str(output / shard.name) for shard in manifest.shards_of(split)]
    serialised = list(tf.data.TFRecordDataset(paths).as_numpy_iterator())
    spec = feature_spec(manifest.max_seq_length, manifest.max_predictions_per_seq)
    return {name: value.numpy() for name, value in tf.io.parse_example(serialised, spec).items()}


def test_manifest_says_what_is_on_disk(built):
    manifest = dataset.load(built)
    assert {shard.name: shard.sha256 for shard in manifest.shards} == digests(built, "shards/*")
    assert all((built / shard.name).stat().st_size == shard.bytes for shard in manifest.shards)
    assert manifest.num_examples("train") == manifest.counts["train"]["instances"]
    assert {shard.copy for shard in manifest.shards_of("train")} == {0, 1, 2}
    assert {shard.copy for shard in manifest.shards_of("validation")} == {0}
    vocab = Vocabulary.load(built / "vocab.txt")
    assert (manifest.vocab_size, manifest.vocab_sha256) == (len(vocab), vocab.sha256) == (2000, vocab.sha256)
    assert not list(built.rglob("*.tmp"))


def test_every_rejected_document_is_counted(built):
    topics = list(read_file("language_reference", ReadOptions("language_reference")))
    distinct = {" ".join(" ".join(topic.paragraphs).split()) for topic in topics}
    counts = dataset.load(built).counts
    duplicates = len(topics) + 1 - len(distinct)
    assert counts["documents_read"] == len(topics) + 2
    assert counts["documents_rejected"] == {"duplicate": duplicates, "no_text": 1}
    assert sum(counts["documents"].values()) == len(distinct)
    assert sorted(line["reason"] for line in rejected(built)) == ["duplicate"] * duplicates + ["no_text"]


def test_corpus_is_readable_and_no_text_is_in_both_splits(built):
    texts: dict[str, set[str]] = {}
    for split in ("train", "validation"):
        texts[split] = {"\n".join(row["sentences"]) for row in corpus_rows(built, split)}
    assert len(texts["train"]) == dataset.load(built).counts["documents"]["train"]
    assert texts["validation"]
    assert not texts["train"] & texts["validation"]


@pytest.mark.parametrize("split", ["train", "validation"])
def test_unmasked_examples_are_text_of_the_documents(built, split):
    """Parse the examples with TensorFlow and google-research/bert's feature spec, unmask them and find their text."""
    vocab = Vocabulary.load(built / "vocab.txt")
    tokenizer = Tokenizer(vocab, True)
    documents = [
        " " + " ".join(map(str, tokenizer.encode_batch(row["sentences"])[0])) + " " for row in corpus_rows(built, split)
    ]
    examples = records(built, split)
    count = len(examples["input_ids"])
    assert count == dataset.load(built).num_examples(split)
    ids = examples["input_ids"].copy()
    row = np.arange(count)[:, None]
    weighted = examples["masked_lm_weights"] > 0
    ids[np.broadcast_to(row, weighted.shape)[weighted], examples["masked_lm_positions"][weighted]] = examples[
        "masked_lm_ids"
    ][weighted]
    lengths = examples["input_mask"].sum(axis=1)
    assert (ids[:, 0] == vocab.cls_id).all()
    special = set(vocab.special_ids().tolist())
    for i in range(0, count, 5):
        tokens = ids[i, : lengths[i]].tolist()
        first, second = (position for position, token in enumerate(tokens) if token == vocab.sep_id)
        assert second == lengths[i] - 1
        assert examples["segment_ids"][i].tolist() == [0] * (first + 1) + [1] * (second - first) + [0] * (
            128 - lengths[i]
        )
        a, b = tokens[1:first], tokens[first + 1 : second]
        assert not special.intersection(a + b) - {vocab.unk_id}
        in_a, in_b = (
            {number for number, text in enumerate(documents) if f" {' '.join(map(str, run))} " in text}
            for run in (a, b)
        )
        assert in_a
        assert in_b
        if examples["next_sentence_labels"][i, 0] == 0:
            assert any(
                (start := text.find(f" {' '.join(map(str, a))} ")) >= 0 and f" {' '.join(map(str, b))} " in text[start:]
                for text in (documents[number] for number in in_a & in_b)
            )
    share = weighted.sum() / lengths.sum()
    assert abs(share - 0.15) < 0.005


def test_examples_of_a_shard_are_shuffled(built):
    """Count examples that start a document.

    All documents are sampled at once, so an unshuffled shard would start with the beginning of every document.
    """
    tokenizer = Tokenizer(Vocabulary.load(built / "vocab.txt"), True)
    beginnings = {
        tuple(tokenizer.encode_batch(row["sentences"])[0][:3].tolist()) for row in corpus_rows(built, "train")
    }
    examples = records(built, "train")
    ids = examples["input_ids"].copy()
    rows, slots = np.nonzero(examples["masked_lm_weights"])
    ids[rows, examples["masked_lm_positions"][rows, slots]] = examples["masked_lm_ids"][rows, slots]
    first_shard = dataset.load(built).shards_of("train")[0].examples
    begins = [tuple(row[1:4].tolist()) in beginnings for row in ids[:first_shard]]
    assert sum(begins) >= 10
    assert sum(begins[:10]) < 6


def test_another_seed_gives_other_bytes(built, tmp_path):
    argv = ["pretraining-data", "--input", str(built), "--output", str(tmp_path), "--dupe_factor", "1"]
    assert cli.main([*argv, "--random_seed", "1"]) == 0
    other = digests(tmp_path, "shards/*")
    assert other.keys() <= digests(built, "shards/*").keys()
    assert not set(other.values()) & set(digests(built, "shards/*").values())


def test_an_output_that_holds_something_else_is_left_alone(built, articles, tmp_path, capsys):
    before = digests(built, "shards/*")
    argv = ["build", "--input", f"{articles}/*.jsonl", "--output", str(built), *SMALL]
    (tmp_path / "b.txt").write_text("Other text.")
    assert cli.main([*argv, "--input", f"{tmp_path}/b.txt"]) == 1
    assert "contains a corpus of other input files" in capsys.readouterr().err
    assert digests(built, "shards/*") == before


def test_a_missing_input_is_one_line_and_leaves_nothing(tmp_path, capsys):
    assert cli.main(["build", "--output", str(tmp_path / "out")]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "--input is missing" in error
    assert not list(tmp_path.iterdir())
