"""Test shards of real text in every format: all formats contain the same examples."""

import bz2
import dataclasses
import gzip
import importlib.util
import itertools
import re

import numpy as np
import pyarrow.parquet
import pytest
import tensorflow as tf

from beambert.deploy.plan.data import _record_bytes
from beambert.pipelines.dataset import PartitionOfSplit
from beambert.pipelines.examples.example_encoder import mask_feature
from beambert.pipelines.examples.pretraining_examples import PretrainingExamples, generator
from beambert.pipelines.examples.shards import create_shard, write_shards
from beambert.pipelines.instances.instances import from_sentences
from beambert.pipelines.instances.options import PretrainingDataOptions
from beambert.pipelines.segmentation.segmenters import split_sentences
from beambert.tokenizer.tokenizer import Tokenizer
from beambert.tokenizer.vocabulary import Vocabulary
from tests.pipelines.examples.test_example_encoder import random_features

PART = PartitionOfSplit("train", 0, 1)
needs_array_record = pytest.mark.skipif(
    importlib.util.find_spec("array_record") is None, reason="array-record is not installed"
)
FORMATS = [
    {"compression": "gzip"},
    {"format": "parquet"},
    pytest.param({"format": "array_record"}, marks=needs_array_record),
]


@pytest.fixture(scope="module")
def vocab(shared_data):
    path = shared_data / "tokenizer" / "bert-base-uncased-vocab.txt"
    return Vocabulary.from_bytes(path.read_bytes(), str(path))


@pytest.fixture(scope="module")
def documents(shared_data, vocab):
    """The first 40 articles, tokenized."""
    with bz2.open(shared_data / "wiki-extracted" / "enwiki-2015-00.bz2", "rt", encoding="utf-8") as file:
        text = file.read(1_500_000)
    articles = itertools.islice(re.findall(r"<doc[^>]*>\n(.*?)</doc>", text, re.DOTALL), 40)
    sentences = [
        [sentence for line in article.splitlines() if line for sentence in split_sentences(line, "en")]
        for article in articles
    ]
    token_ids, starts = Tokenizer(vocab, True).encode_batch([sentence for article in sentences for sentence in article])
    return from_sentences(token_ids, starts, np.array([len(article) for article in sentences]))


@pytest.fixture(scope="module")
def write(tmp_path_factory, documents, vocab):
    """A function that writes the text with options; it returns the directory, shards, statistics and options."""

    def written(**options):
        options = PretrainingDataOptions(**options)
        output = tmp_path_factory.mktemp("output")
        (output / "shards").mkdir()
        examples = PretrainingExamples(lambda _: documents, PART, (0,), Tokenizer(vocab, True), options)
        shards, statistics = write_shards(examples, 0, str(output))
        # The directory contains nothing but the shards, and their sizes are those recorded.
        assert sorted(path.name for path in (output / "shards").iterdir()) == sorted(
            shard.name.removeprefix("shards/") for shard in shards
        )
        for shard in shards:
            assert (output / shard.name).stat().st_size == shard.bytes
        return output, shards, statistics, options

    return written


def array_records(path: str) -> list[bytes]:
    from array_record.python.array_record_module import ArrayRecordReader

    return ArrayRecordReader(path).read_all()


def read(output, shard, options) -> dict[str, np.ndarray]:
    """Return padded arrays by the feature names of beambert, read by TensorFlow or pyarrow."""
    path = str(output / shard.name)
    length, predictions, names = shard.max_seq_length, shard.max_predictions_per_seq, options.names_of_features()
    counts = {
        "input_mask": length,
        "masked_lm_weights": predictions,
        "next_sentence_weights": options.instances_per_row,
    }
    if options.format == "parquet":
        table = pyarrow.parquet.read_table(path)
        assert set(table.column_names) == set(names.values())
        features = {}
        for name, in_file in names.items():
            lists = [value if isinstance(value, list) else [value] for value in table[in_file].to_pylist()]
            features[name] = np.array([values + [0] * (counts[mask_feature(name)] - len(values)) for values in lists])
        return features
    kind = "GZIP" if options.compression == "gzip" else ""
    if options.format == "array_record":
        records = array_records(path)
    else:
        records = list(tf.data.TFRecordDataset(path, compression_type=kind).as_numpy_iterator())
    assert len(records) == shard.examples
    dtypes = {name: tf.float32 if name.endswith("_weights") else tf.int64 for name in names}
    if options.ragged:
        spec = {
            in_file: tf.io.RaggedFeature(dtypes[name], row_splits_dtype=tf.int64) for name, in_file in names.items()
        }
        parsed = tf.io.parse_example(records, spec)
        return {
            name: parsed[in_file].to_tensor(shape=[None, counts[mask_feature(name)]]).numpy()
            for name, in_file in names.items()
        }
    spec = {
        in_file: tf.io.FixedLenFeature([counts[mask_feature(name)]], dtypes[name]) for name, in_file in names.items()
    }
    return {name: tf.io.parse_example(records, spec)[in_file].numpy() for name, in_file in names.items()}


@pytest.fixture(scope="module", params=[False, True], ids=["single", "packed"])
def padded(request, write):
    """Options, arrays as google-research/bert reads them, and bytes of a shard, with single or packed instances."""
    output, [shard], _, options = write(pack=request.param)
    return options, read(output, shard, options), shard.bytes


@pytest.mark.parametrize(
    "changes",
    [
        {"compression": "gzip", "ragged": True, "feature_names": "model_garden"},
        {"format": "parquet", "feature_names": "model_garden"},
        pytest.param({"format": "array_record"}, marks=needs_array_record),
        pytest.param({"format": "array_record", "ragged": True}, marks=needs_array_record),
    ],
    ids=str,
)
def test_every_format_holds_the_same_examples(write, padded, changes):
    options, expected, padded_bytes = padded
    options = dataclasses.replace(options, **changes)
    output, [shard], _, _ = write(**dataclasses.asdict(options))
    features = read(output, shard, options)
    assert features.keys() == options.names_of_features().keys()
    for name, values in features.items():
        assert np.array_equal(values, expected[name]), name
    if options.format == "parquet":
        # The features that Parquet omits follow from the lengths of its lists.
        assert set(expected) - set(features) <= {"input_mask", "masked_lm_weights", "next_sentence_weights"}
    else:
        assert features.keys() == expected.keys()
    if options.without_padding or options.compression == "gzip":
        assert shard.bytes < padded_bytes


@pytest.mark.parametrize("changes", [*FORMATS, {"ragged": True}, {"pack": True}], ids=str)
def test_same_options_same_bytes(write, changes):
    first, second = (write(**changes) for _ in range(2))
    assert first[1] == second[1]
    [shard] = first[1]
    assert (first[0] / shard.name).read_bytes() == (second[0] / shard.name).read_bytes()


@pytest.mark.parametrize("changes", FORMATS, ids=str)
def test_plan_estimates_the_bytes_of_each_format(write, vocab, changes):
    _, [shard], _, options = write(**changes)
    # ArrayRecord rounds its files up to blocks of 64 KiB, and adds one block.
    rounding = 2 << 16 if options.format == "array_record" else 0
    estimate = shard.examples * _record_bytes(options, 128, len(vocab))
    assert 0.95 * estimate < shard.bytes < 1.05 * estimate + rounding


def test_gzip_contains_the_plain_shard_and_no_timestamp(write):
    plain_output, [plain], _, _ = write()
    output, [shard], _, _ = write(compression="gzip")
    assert shard.name == plain.name + ".gz"
    content = (output / shard.name).read_bytes()
    assert gzip.decompress(content) == (plain_output / plain.name).read_bytes()
    flags, time = content[3], content[4:8]
    assert (flags, time) == (0, bytes(4))


@pytest.mark.parametrize("pack", [False, True])
def test_parquet_has_lists_of_small_integers_and_bounded_row_groups(write, pack):
    output, [shard], _, _ = write(format="parquet", pack=pack)
    assert shard.name.endswith(".parquet")
    file = pyarrow.parquet.ParquetFile(output / shard.name)
    types = {field.name: str(field.type) for field in file.schema_arrow}
    expected = {
        "input_ids": "list<element: int32 not null>",
        "segment_ids": "list<element: uint8 not null>",
        "masked_lm_positions": "list<element: int32 not null>",
        "masked_lm_ids": "list<element: int32 not null>",
        "next_sentence_labels": "uint8",
    }
    if pack:
        expected["sequence_ids"] = "list<element: uint8 not null>"
        expected["next_sentence_labels"] = "list<element: uint8 not null>"
        expected["next_sentence_positions"] = "list<element: int32 not null>"
    assert types == expected
    groups = [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)]
    assert sum(groups) == shard.examples
    assert max(groups) <= 1024
    assert len(groups) > 1


def test_bins_have_shapes_of_their_own_and_less_padding(write):
    _, _, one_length, _ = write(max_seq_length=512, max_predictions_per_seq=76)
    output, shards, statistics, options = write(
        max_seq_length=512, max_predictions_per_seq=76, length_bins=(64, 128, 256, 512)
    )
    assert [shard.name for shard in shards] == [
        f"shards/train-copy-000-length-{length:05d}-00000-of-00001.tfrecord" for length in (64, 128, 256, 512)
    ]
    shorter = 0
    for shard, length, predictions in zip(shards, (64, 128, 256, 512), (10, 19, 38, 76), strict=True):
        assert (shard.max_seq_length, shard.max_predictions_per_seq) == (length, predictions)
        features = read(output, shard, options)
        assert features["input_ids"].shape == (shard.examples, length)
        assert features["masked_lm_ids"].shape == (shard.examples, predictions)
        lengths = features["input_mask"].sum(axis=1)
        assert ((lengths > shorter) & (lengths <= length)).all()
        shorter = length
    assert sum(shard.examples for shard in shards) == statistics.instances == one_length.instances
    padding, padding_before = (1 - s.instance_tokens / s.positions for s in (statistics, one_length))
    assert padding < padding_before / 2


@pytest.mark.parametrize("changes", [{}, *FORMATS], ids=str)
def test_nothing_is_left_of_a_shard_that_failed(tmp_path, changes):
    options = PretrainingDataOptions(**changes)
    features = random_features(np.random.default_rng(0), 10, 1000, 128, 20, 1)

    def write_and_fail():
        with create_shard(str(tmp_path / "shard"), options, 128, 1000) as file:
            file.write(features)
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_and_fail()
    assert list(tmp_path.iterdir()) == []


def test_draws_differ_between_shards_and_are_reproducible():
    shards = list(itertools.product((0, 1, 12345), ("train", "validation"), (0, 1, 7), (0, 1, 9)))
    first = [tuple(generator(shard[0], PartitionOfSplit(*shard[1:3], 1), shard[3]).random(4)) for shard in shards]
    assert len(set(first)) == len(shards)
    assert first == [
        tuple(generator(shard[0], PartitionOfSplit(*shard[1:3], 1), shard[3]).random(4)) for shard in shards
    ]
    # Recorded: another value would mean that every dataset built so far can no longer be rebuilt.
    assert generator(12345, PartitionOfSplit("train", 0, 1), 0).random() == 0.22733602246716966
