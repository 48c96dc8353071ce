"""Tests of `beambert features` against a plain loop, recorded outputs of transformers and Python's rounding."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beambert import cli
from beambert.bert_model.checkpoints.variable_names import variables_by_tf1_name
from beambert.trainers.commands import features
from beambert.trainers.commands.features import FeatureExtractor
from beambert.trainers.errors import TrainingError
from beambert.trainers.inference.feature_writers import rounded_to_6_decimals
from beambert.trainers.inference.model_loading import load_model
from beambert.trainers.inference.tokenization import split_pair
from tests.conftest import ROOT

MODEL = ROOT / "tests/fixtures/hugging_face/pretraining_erf"
LINES = ["a tea sun", "", "rain a ||| no rain", "a ||| b ||| c", "  tea  ", "q " * 40, "z " * 9 + "||| " + "q " * 30]
LENGTH = 16


def reference(lines, layers, length=LENGTH):
    """Return features as the released extract_features.py computes them.

    Texts are computed one at a time, padded to the full length and truncated in a loop.
    """
    opened = load_model(MODEL)
    tokenizer = opened.tokenizer()
    result = []
    for number, line in enumerate(lines):
        text, pair = line.strip(), None
        if " ||| " in text:
            text, pair = text[: text.rindex(" ||| ")], text[text.rindex(" ||| ") + 5 :]
        ids, mask, segments = (np.array([values], np.int32) for values in tokenizer.encode(text, pair, length))
        states = list(opened.model.encoder.hidden_states(ids, mask, segments))[1:]
        result.append(
            {
                "linex_index": number,
                "features": [
                    {
                        "token": opened.vocabulary.tokens[ids[0, place]],
                        "layers": [
                            {"index": layer, "values": [round(float(x), 6) for x in states[layer][0, place]]}
                            for layer in layers
                        ],
                    }
                    for place in range(mask.sum())
                ],
            }
        )
    return result


@pytest.fixture
def run(tmp_path):
    """A function that runs the command on lines and returns its exit code."""

    def run_on(lines, name, *flags):
        source = tmp_path / "input.txt"
        source.write_bytes(b"\n".join(line if isinstance(line, bytes) else line.encode() for line in lines) + b"\n")
        argv = ["features", "--input_file", str(source), "--output_file", str(tmp_path / name)]
        argv += ["--init_checkpoint", str(MODEL), "--max_seq_length", str(LENGTH), *flags]
        return cli.main(argv)

    return run_on


def assert_same(found, wanted):
    assert [(line["linex_index"], [f["token"] for f in line["features"]]) for line in found] == [
        (line["linex_index"], [f["token"] for f in line["features"]]) for line in wanted
    ]
    for line, other in zip(found, wanted, strict=True):
        assert line.keys() == {"linex_index", "features"}
        for feature, expected in zip(line["features"], other["features"], strict=True):
            assert feature.keys() == {"token", "layers"}
            assert [layer["index"] for layer in feature["layers"]] == [layer["index"] for layer in expected["layers"]]
            for layer, values in zip(feature["layers"], expected["layers"], strict=True):
                np.testing.assert_allclose(layer["values"], values["values"], atol=1e-5)
                # Values are written with at most six decimals.
                assert all(value == round(value, 6) for value in layer["values"])


@pytest.mark.parametrize("layers", ["-1,-2", "0", "1,-2"])
def test_json_lines_are_those_of_the_released_code(run, tmp_path, layers, capsys):
    assert run(LINES, "out.jsonl", "--layers", layers, "--batch_size", "3") == 0
    found = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()]
    assert_same(found, reference(LINES, [int(layer) for layer in layers.split(",")]))
    said = capsys.readouterr().err
    assert f"2 of {len(LINES)} texts exceeded --max_seq_length {LENGTH} and were truncated" in said
    assert not list(tmp_path.glob(".*"))


def test_parquet_and_npz_hold_the_same_numbers(run, tmp_path):
    flags = ("--layers", "-1,-2")
    assert [run(LINES, f"out.{kind}", *flags) for kind in ("parquet", "npz")] == [0, 0]
    wanted = reference(LINES, [-1, -2])
    table = pq.read_table(tmp_path / "out.parquet")
    assert table.column_names == ["linex_index", "tokens", "layer_-1", "layer_-2"]
    archive = np.load(tmp_path / "out.npz")
    assert sorted(archive.files) == ["input_ids", "layer_-1", "layer_-2", "row_splits", "vocabulary"]
    splits = archive["row_splits"]
    assert (splits.dtype, archive["input_ids"].dtype, archive["layer_-1"].dtype) == (np.int64, np.int32, np.float32)
    for number, (row, line) in enumerate(zip(table.to_pylist(), wanted, strict=True)):
        tokens = [feature["token"] for feature in line["features"]]
        rows = slice(splits[number], splits[number + 1])
        assert row["linex_index"] == number
        assert row["tokens"] == archive["vocabulary"][archive["input_ids"][rows]].tolist() == tokens
        for place, name in enumerate(("layer_-1", "layer_-2")):
            values = [feature["layers"][place]["values"] for feature in line["features"]]
            np.testing.assert_allclose(row[name], values, atol=1e-5)
            np.testing.assert_allclose(archive[name][rows], values, atol=1e-5)


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_pooling_gives_one_vector_per_text(run, tmp_path, pooling):
    flags = ("--pooling", pooling, "--layers", "-1,0")
    assert [run(LINES, f"out.{kind}", *flags) for kind in ("jsonl", "parquet", "npz")] == [0, 0, 0]
    vectors = [
        [
            tokens[0] if pooling == "cls" else np.mean(tokens, axis=0)
            for tokens in ([f["layers"][place]["values"] for f in line["features"]] for place in (0, 1))
        ]
        for line in reference(LINES, [-1, 0])
    ]
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [line["linex_index"] for line in lines] == list(range(len(LINES)))
    found = [[layer["values"] for layer in line["layers"]] for line in lines]
    np.testing.assert_allclose(found, vectors, atol=1e-5)
    table, archive = pq.read_table(tmp_path / "out.parquet"), np.load(tmp_path / "out.npz")
    for place, name in enumerate(("layer_-1", "layer_0")):
        np.testing.assert_allclose(table[name].to_pylist(), np.array(vectors)[:, place], atol=1e-5)
        np.testing.assert_allclose(archive[name], np.array(vectors)[:, place], atol=1e-5)


def test_the_default_is_the_last_four_layers_or_as_many_as_there_are():
    assert FeatureExtractor(MODEL, max_seq_length=LENGTH).layout.layers == (-1, -2)
    assert FeatureExtractor(MODEL, pooling="mean", max_seq_length=LENGTH).layout.layers == (-1,)


def test_layers_above_those_wanted_are_not_built():
    assert load_model(MODEL, layers=[0]).config.num_hidden_layers == 1
    assert load_model(MODEL, layers=[-2]).layers == (0,)


def test_the_flag_sets_the_precision(run, tmp_path):
    for precision in ("float32", "bfloat16"):
        assert run(LINES, f"{precision}.npz", "--layers", "-1", "--precision", precision) == 0
    assert run(LINES, "default.npz", "--layers", "-1") == 0
    default, wanted, found = (
        np.load(tmp_path / f"{name}.npz")["layer_-1"] for name in ("default", "float32", "bfloat16")
    )
    np.testing.assert_array_equal(default, wanted)
    assert 1e-3 < np.abs(found - wanted).max() < 0.1


def test_only_dense_weights_are_bfloat16():
    import keras

    opened = load_model(MODEL, precision="bfloat16")
    dtypes = {name: str(variable.dtype) for name, variable in variables_by_tf1_name(opened.model).items()}
    dense = {name for name in dtypes if name.endswith(("/kernel", "/bias")) and "seq_relationship" not in name}
    assert {dtypes[name] for name in dense} == {"bfloat16"}
    assert {dtypes[name] for name in dtypes.keys() - dense} == {"float32"}
    assert "bert/embeddings/word_embeddings" in dtypes.keys() - dense
    # The dtype policy of the process is unchanged.
    assert keras.config.dtype_policy().name == "float32"


def test_a_single_batch_and_a_graph_give_the_same_features():
    extractor = FeatureExtractor(MODEL, [-1], max_seq_length=LENGTH)
    (without_graph,), (in_graph,) = extractor.extract(LINES), extractor.extract(LINES)
    np.testing.assert_allclose(without_graph.values[0], in_graph.values[0], atol=1e-5)


def test_batches_have_a_maximum_number_of_tokens(monkeypatch):
    from beambert.trainers.inference import forward

    monkeypatch.setattr(forward, "TOKENS_A_BATCH", 48)
    lengths = [3, 16, 8, 9, 1, 16, 12, 16, 8, 8, 8]
    extractor = FeatureExtractor(MODEL, [-1], max_seq_length=LENGTH)
    batches = list(forward.batches_by_length(lengths, extractor._forward._texts_of_length))
    # 48 tokens are six texts of 8 tokens, or three of 16.
    assert batches == [[4, 0, 2, 8, 9, 10], [3, 6, 1], [5, 7]]
    two = FeatureExtractor(MODEL, [-1], max_seq_length=LENGTH, batch_size=2)
    assert {len(batch) for batch in forward.batches_by_length(lengths, two._forward._texts_of_length)} == {1, 2}
    monkeypatch.setattr(forward, "TOKENS_A_BATCH", 4)
    one = forward.batches_by_length(lengths, extractor._forward._texts_of_length)
    assert {len(batch) for batch in one} == {1}


def test_features_do_not_depend_on_windows(monkeypatch):
    whole = list(FeatureExtractor(MODEL, [-1], max_seq_length=LENGTH).extract(LINES))
    monkeypatch.setattr(features, "BYTES_A_WINDOW", 1500)
    monkeypatch.setattr(features, "LINES_A_CHUNK", 4)
    parts = list(FeatureExtractor(MODEL, [-1], max_seq_length=LENGTH, batch_size=2).extract(iter(LINES)))
    assert len(whole) == 1
    assert len(parts) > 3
    firsts = [part.first for part in parts]
    assert firsts == np.cumsum([0, *(len(part.token_splits) - 1 for part in parts)])[:-1].tolist()
    assert np.concatenate([part.input_ids for part in parts]).tolist() == whole[0].input_ids.tolist()
    np.testing.assert_allclose(np.concatenate([part.values[0] for part in parts]), whole[0].values[0], atol=1e-5)


def test_invalid_utf8_and_empty_input(run, tmp_path, capsys):
    assert run([b"a \xff b", b"a b"], "out.jsonl") == 0
    first, second = map(json.loads, (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines())
    assert [f["token"] for f in first["features"]] == [f["token"] for f in second["features"]]
    assert "1 of 2 texts were not valid UTF-8" in capsys.readouterr().err
    (tmp_path / "empty.txt").write_bytes(b"")
    for kind in ("jsonl", "parquet", "npz"):
        output = tmp_path / f"empty.{kind}"
        argv = ["--input_file", str(tmp_path / "empty.txt"), "--output_file", str(output), "--max_seq_length", "8"]
        assert cli.main(["features", *argv, "--init_checkpoint", str(MODEL)]) == 0
    assert (tmp_path / "empty.jsonl").read_bytes() == b""
    assert pq.read_table(tmp_path / "empty.parquet").num_rows == 0
    assert np.load(tmp_path / "empty.npz")["row_splits"].tolist() == [0]


def test_unknown_words_are_a_warning(run, capsys):
    assert run(["a tea", "sun ||| a \u5e9c"], "out.npz") == 0
    assert (
        "11.1% of the tokens of the texts are [UNK], such as '\u5e9c': the vocabulary lacks" in capsys.readouterr().err
    )


def test_default_length_is_at_most_that_of_the_model(tmp_path, capsys):
    (tmp_path / "input.txt").write_text(f"a b\n{'a ' * 40}\n", encoding="utf-8")
    argv = ["--input_file", str(tmp_path / "input.txt"), "--output_file", str(tmp_path / "out.npz")]
    assert cli.main(["features", *argv, "--init_checkpoint", str(MODEL)]) == 0
    limit = load_model(MODEL).config.max_position_embeddings
    assert np.diff(np.load(tmp_path / "out.npz")["row_splits"]).tolist() == [4, limit]
    assert f"1 of 2 texts exceeded --max_seq_length {limit} and were truncated" in capsys.readouterr().err


def test_errors_are_one_line_and_leave_no_output(run, tmp_path, capsys):
    for name, flags, message in (
        ("out.txt", (), "unknown suffix of --output_file"),
        ("out.npz", ("--layers", "2"), "invalid layer 2 in --layers: must be -2 to 1"),
        ("out.npz", ("--layers", "0,-2"), "contains a layer of 2 twice"),
        ("out.npz", ("--layers", "last"), "must be integers"),
        ("out.npz", ("--max_seq_length", "19"), "must be 3 to 18"),
        ("there/out.npz", (), "cannot be written"),
        ("out.npz", ("--vocab_file", str(tmp_path / "none.txt")), "none.txt"),
    ):
        assert run(["a"], name, *flags) == 1
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["input.txt"]


def test_a_failed_run_leaves_no_file(run, tmp_path, monkeypatch):
    def fail(self, lines):
        yield from list(extract(self, ["a"]))
        raise TrainingError("stopped")

    extract = FeatureExtractor.extract
    monkeypatch.setattr(FeatureExtractor, "extract", fail)
    for kind in ("jsonl", "parquet", "npz"):
        assert run(["a"], f"out.{kind}") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["input.txt"]


def test_pairs_are_split_at_the_last_separator():
    assert split_pair(" a ||| b ||| c\n") == ("a ||| b", "c")
    assert split_pair("a|||b") == ("a|||b", None)
    # An empty text is one of a pair, also where an editor has removed the last space.
    assert split_pair("a ||| \n") == split_pair("a |||\n") == ("a", "")
    assert split_pair("||| b") == ("", "b")
    assert split_pair("a ||| ||| b") == ("a ||| ", "b")


@given(st.lists(st.floats(width=32, min_value=-(2.0**33), max_value=2.0**33), min_size=1))
def test_rounding_equals_that_of_python(values):
    found = rounded_to_6_decimals(np.array(values, np.float32)).tolist()
    assert list(map(repr, found)) == [repr(round(value, 6)) for value in values]
