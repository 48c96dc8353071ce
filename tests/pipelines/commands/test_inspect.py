"""Tests of `beambert inspect`: shards in every format of beambert and in that of google-research/bert, and errors."""

import io
import json
import os
import re
import sys
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import tensorflow as tf

import beambert
from pipelines import dataset
from pipelines.examples.example_reader import read_examples
from tokenizer.tokenizer import Tokenizer
from tokenizer.vocabulary import Vocabulary

FLOATS = "masked_lm_weights"


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    output = tmp_path_factory.mktemp("inspect") / "data"
    argv = ["build", "--input_format", "language_reference", "--output", str(output), "--vocab_size", "1500"]
    assert beambert.main([*argv, "--dupe_factor", "1", "--num_partitions", "1"]) == 0
    return output


@pytest.fixture(scope="module")
def shard(built) -> Path:
    return built / dataset.load(built).shards_of("train")[0].name


def run(capsys, *argv: object) -> tuple[int, str, str]:
    code = beambert.main(["inspect", *map(str, argv)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def rewrite(shard: Path, path: Path, change, names=None, count=20) -> Path:
    """Write the first examples of a shard, each changed, with TensorFlow or pyarrow, and return the path."""
    names = names or {}
    rows = []
    for features, _ in zip(read_examples(str(shard)), range(count), strict=False):
        rows.append({names.get(name, name): values for name, values in change(dict(features)).items()})
    if path.suffix == ".parquet":
        table = [{name: values.tolist() for name, values in row.items()} for row in rows]
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(table), path)
        return path
    options = tf.io.TFRecordOptions(compression_type="GZIP" if path.suffix == ".gz" else "")
    with tf.io.TFRecordWriter(str(path), options) as writer:
        for row in rows:
            feature = {
                name: tf.train.Feature(float_list=tf.train.FloatList(value=values))
                if name == FLOATS
                else tf.train.Feature(int64_list=tf.train.Int64List(value=values))
                for name, values in row.items()
            }
            writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())
    return path


def ragged(features):
    length, masked = int(features["input_mask"].sum()), int(features[FLOATS].sum())
    return {
        name: values[: masked if name.startswith("masked_lm") else length if len(values) > 1 else 1]
        for name, values in features.items()
    }


def lists(features):
    return {name: values for name, values in ragged(features).items() if name not in ("input_mask", FLOATS)}


def body(out: str) -> list[str]:
    """Return the lines of text, without file names and headings."""
    return [line for line in out.splitlines() if line[:3] in ("A  ", "B  ")]


def test_the_text_unmasked_is_text_of_the_corpus(built, shard, capsys):
    vocab = Vocabulary.load(built / "vocab.txt")
    tokenizer = Tokenizer(vocab, True)
    code, out, _ = run(capsys, shard, "--number", 50)
    assert code == 0
    texts = []
    for path in built.glob("corpus/train-*.parquet"):
        for sentences in pyarrow.parquet.read_table(path)["sentences"].to_pylist():
            texts.append("".join(vocab.tokens[i].removeprefix("##") for i in tokenizer.encode_batch(sentences)[0]))
    lines = body(out)
    assert len(lines) == 100
    found = 0
    for line in lines:
        text = re.sub(r"\[(\S+?)→\S+?\]", lambda match: match.group(1).removeprefix("##"), line[3:])
        found += any(text.replace(" ", "") in document for document in texts)
    # The pattern misreads a mark around a bracket or an arrow of the text itself.
    assert found >= 97
    assert out.count("IsNext, ") + out.count("NotNext, ") == 50
    assert re.search(r"\[\S+→MASK\]", out)


def test_every_format_shows_the_same_text(built, shard, tmp_path, capsys):
    (tmp_path / "vocab.txt").write_bytes((built / "vocab.txt").read_bytes())
    expected = body(run(capsys, shard, "--number", 20)[1])
    assert len(expected) == 40
    names = {"input_ids": "input_word_ids", "segment_ids": "input_type_ids"}
    for path in (
        rewrite(shard, tmp_path / "padded.tfrecord", dict),
        rewrite(shard, tmp_path / "packed.tfrecord.gz", dict),
        rewrite(shard, tmp_path / "ragged.tfrecord", ragged),
        rewrite(shard, tmp_path / "garden.tfrecord", dict, names),
        rewrite(shard, tmp_path / "lists.parquet", lists),
    ):
        assert body(run(capsys, path, "--number", 20)[1]) == expected, path.name


def test_packed_rows_and_rows_for_the_trainer_to_mask(built, shard, tmp_path, capsys):
    def packed(features):
        one = ragged(features)
        length, masked = len(one["input_ids"]), len(one[FLOATS])
        return {
            "input_ids": np.tile(one["input_ids"], 2),
            "input_mask": np.ones(2 * length, int),
            "segment_ids": np.tile(one["segment_ids"], 2),
            "sequence_ids": np.repeat([1, 2], length),
            "masked_lm_positions": np.concatenate([one["masked_lm_positions"], one["masked_lm_positions"] + length]),
            "masked_lm_ids": np.tile(one["masked_lm_ids"], 2),
            FLOATS: np.ones(2 * masked, np.float32),
            "next_sentence_positions": np.array([0, length, 0]),
            "next_sentence_labels": np.array([*features["next_sentence_labels"], 1, 0]),
        }

    def dynamic(features):
        return {name: features[name] for name in ("input_ids", "input_mask", "segment_ids")}

    one = body(run(capsys, shard, "--number", 1)[1])
    path = rewrite(shard, built / "packed.tfrecord", packed, count=1)
    _, out, _ = run(capsys, path)
    assert body(out) == one * 2
    assert "\n0.0  " in out
    assert "\n0.1  NotNext" in out
    path = rewrite(shard, built / "dynamic.tfrecord", dynamic, count=3)
    _, out, _ = run(capsys, path)
    assert out.count("masked during training") == 3
    assert "Next" not in out
    _, out, _ = run(capsys, path, "--stats")
    assert "masked      during training" in out
    assert "labels" not in out


def test_numbers_are_those_of_the_manifest(built, shard, capsys):
    code, out, _ = run(capsys, shard, "--stats")
    assert code == 0
    counts = dataset.load(built).counts["train"]
    assert f"examples    {counts['rows']:,} rows with {counts['instances']:,} instances" in out
    assert f"{1 - counts['instance_tokens'] / counts['positions']:.1%} padding" in out
    assert f"labels      {counts['instances_labeled_1'] / counts['instances']:.1%} NotNext" in out
    masked = counts["masked_tokens"]
    assert f"masked      {masked / counts['instance_tokens']:.1%} of tokens" in out
    assert f"{counts['masked_as_mask'] / masked:.1%} [MASK]" in out
    assert f"{counts['masked_as_original'] / masked:.1%} unchanged" in out


def test_what_labels_mean_is_read_from_the_manifest(built, shard, tmp_path, capsys):
    content = json.loads((built / "dataset.json").read_text())
    content["options"]["objective"] = "sop"
    (tmp_path / "dataset.json").write_text(json.dumps(content))
    (tmp_path / "vocab.txt").write_bytes((built / "vocab.txt").read_bytes())
    (tmp_path / "shards").mkdir()
    path = rewrite(shard, tmp_path / "shards" / "one.tfrecord", dict)
    _, out, _ = run(capsys, path)
    assert "swapped, A " in out
    assert "in order, A " in out
    assert "% swapped" in run(capsys, path, "--stats")[1]


def test_start_and_number_select_examples(shard, capsys):
    _, all_out, _ = run(capsys, shard, "--number", 7)
    _, some, _ = run(capsys, shard, "--start", 4, "--number", 3)
    assert body(some) == body(all_out)[8:]
    assert "\n4  " in some
    code, out, _ = run(capsys, shard, "--start", 10**6)
    assert code == 0
    assert "no examples at or after index 1000000" in out


def test_mistakes_are_one_line(built, shard, tmp_path, capsys):
    lonely = rewrite(shard, tmp_path / "lonely.tfrecord", dict, count=2)
    (tmp_path / "few.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n")
    pyarrow.parquet.write_table(pyarrow.table({"x": [1]}), tmp_path / "other.parquet")
    torn = tmp_path / "torn.tfrecord"
    torn.write_bytes(lonely.read_bytes()[:-9])
    vocab = ("--vocab_file", built / "vocab.txt")
    for argv, says in (
        ((lonely,), "give the vocabulary of"),
        ((lonely, "--vocab_file", tmp_path / "none"), "none does not exist"),
        ((lonely, "--vocab_file", tmp_path / "few.txt"), "lonely.tfrecord, example 0: token id"),
        ((torn, *vocab), "torn.tfrecord ends within the record at byte"),
        ((built / "corpus.json", *vocab), "not a TFRecord file"),
        ((tmp_path / "none.tfrecord", *vocab), "none.tfrecord does not exist"),
        ((tmp_path / "none.tfrecord",), "none.tfrecord does not exist"),
        ((tmp_path / "other.parquet", *vocab), "input_ids is missing"),
    ):
        code, _, err = run(capsys, *argv)
        assert (code, err.count("\n")) == (1, 1), err
        assert says in err
    # The valid examples before the corrupt record are shown.
    code, out, _ = run(capsys, torn, *vocab)
    assert (code, len(body(out))) == (1, 2)


@pytest.mark.parametrize("flags", [(), ("--stats",)])
def test_rows_without_tokens_are_empty(built, tmp_path, capsys, flags):
    table = pyarrow.table({"input_ids": [[], None, [0, 0]], "input_mask": [[], None, [0, 0]]})
    pyarrow.parquet.write_table(table, tmp_path / "empty.parquet")
    pyarrow.parquet.write_table(table.slice(0, 1), tmp_path / "none.parquet")
    for name, number in (("empty.parquet", 3), ("none.parquet", 1)):
        code, out, err = run(capsys, tmp_path / name, "--vocab_file", built / "vocab.txt", *flags)
        assert (code, err) == (0, "")
        if flags:
            assert f"examples    {number} rows with 0 instances" in out
        else:
            assert out.count("no tokens, row length ") == number


@pytest.mark.parametrize("flags", [(), ("--stats",)])
def test_invalid_rows_are_one_line(built, tmp_path, capsys, flags):
    rows = {
        "missing.parquet": {"input_ids": [[5], [5, None]]},
        "float.parquet": {"input_ids": [[5.0], [6.5]]},
        "label.parquet": {"input_ids": [[5, 6]], "next_sentence_labels": [-1]},
        "position.parquet": {
            "input_ids": [[5, 6]],
            "masked_lm_positions": [[1.0]],
            "masked_lm_ids": [[7]],
        },
    }
    for name, columns in rows.items():
        pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / name)
        code, _, err = run(capsys, tmp_path / name, "--vocab_file", built / "vocab.txt", *flags)
        assert (code, err.count("\n")) == (1, 1), err
        assert f"{name}, example {int(name == 'missing.parquet')}: " in err


def test_closed_stdout_prints_no_error(shard, monkeypatch, capsys):
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as closed:
        monkeypatch.setattr(sys, "stdout", closed)
        assert beambert.main(["inspect", str(shard), "--number", "100000"]) == 0
    assert capsys.readouterr().err == ""


def test_colors_are_for_terminals_only(shard, monkeypatch, capsys):
    assert "\x1b" not in run(capsys, shard)[1]
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("TERM", "xterm-256color")
    assert beambert.main(["inspect", str(shard), "--number", "1"]) == 0
    assert "→MASK" in terminal.getvalue()
    assert "\x1b[" in terminal.getvalue()


@pytest.mark.parametrize(
    "options",
    [
        "--format parquet --pack --max_seq_length 256 --feature_names model_garden",
        "--masking dynamic --objective sop --length_bins 32,64,128 --compression gzip",
    ],
)
def test_shards_with_other_options_are_inspected_and_reported(built, tmp_path, capsys, options):
    output = tmp_path / "data"
    argv = ["pretraining-data", "--input", str(built), "--output", str(output), "--dupe_factor", "1"]
    assert beambert.main([*argv, *options.split()]) == 0
    manifest = dataset.load(output)
    counts = manifest.counts["train"]
    capsys.readouterr()
    code, out, _ = run(capsys, *(output / shard.name for shard in manifest.shards_of("train")), "--stats")
    assert code == 0
    rows, instances = (
        sum(int(number.replace(",", "")) for number in numbers)
        for numbers in zip(*re.findall(r"examples    ([\d,]+) rows with ([\d,]+) instances", out), strict=True)
    )
    assert (rows, instances) == (counts["rows"], counts["instances"])
    page = (output / "report.html").read_text(encoding="utf-8")
    assert page.count("<article") == 8
    assert ('<mark class="mask">' in page.split('id="samples"')[1]) is ("dynamic" not in options)
