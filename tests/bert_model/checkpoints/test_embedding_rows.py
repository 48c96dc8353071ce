import dataclasses

import numpy as np
import pytest

from beambert.bert_model.checkpoints import embedding_rows
from beambert.bert_model.checkpoints.native import ModelRecord
from beambert.bert_model.checkpoints.reader import open_checkpoint
from tests.converted_models import CONFIG, PIECES, write_release

WORDS = "bert/embeddings/word_embeddings"
BIAS = "cls/predictions/output_bias"
POSITIONS = "bert/embeddings/position_embeddings"


def test_rows_are_copied_bit_for_bit_or_averaged():
    generator = np.random.default_rng(0)
    # The row has bits of all kinds. A copy through a float operation would change the NaN with its payload.
    matrix = generator.normal(0, 1, (6, 5)).astype(np.float32)
    matrix[2] = np.frombuffer(bytes.fromhex("010000800000807f230180ff000000800100c07f"), np.float32)
    rows = embedding_rows.rows_from(matrix, [(5,), (2,), (0, 1, 1), (3, 4)], ["a", "b", "c", "d"])
    assert (rows.shape, rows.dtype) == ((4, 5), np.float32)
    assert rows[0].tobytes() == matrix[5].tobytes()
    assert rows[1].tobytes() == matrix[2].tobytes()
    exact = (matrix[0].astype(np.float64) + 2 * matrix[1]) / 3
    np.testing.assert_array_equal(rows[2], exact.astype(np.float32))
    np.testing.assert_array_equal(rows[3], ((matrix[3].astype(np.float64) + matrix[4]) / 2).astype(np.float32))


def test_drawn_rows_depend_on_the_token_only_and_are_distributed_as_the_others():
    matrix = np.random.default_rng(0).normal([1, 5, -3], [0.1, 2, 1], (400, 3)).astype(np.float32)
    tokens = [f"t{number}" for number in range(500)]
    rows = embedding_rows.rows_from(matrix, [()] * 500, tokens)
    np.testing.assert_array_equal(rows[::-1], embedding_rows.rows_from(matrix, [()] * 500, tokens[::-1]))
    assert len(np.unique(rows[:, 0])) == 500
    np.testing.assert_allclose(rows.mean(axis=0), [1, 5, -3], atol=0.3)
    np.testing.assert_allclose(rows.std(axis=0), [0.1, 2, 1], rtol=0.2)
    bias = embedding_rows.rows_from(matrix[:, 1], [(), (7,), (1, 2)], ["x", "y", "z"])
    assert bias.shape == (3,)
    assert bias[1] == matrix[7, 1]
    assert bias[2] == np.float32((np.float64(matrix[1, 1]) + matrix[2, 1]) / 2)


def test_all_other_weights_stay(tmp_path):
    values = write_release(tmp_path / "a", slots=True)
    with open_checkpoint(tmp_path / "a") as checkpoint:
        sources = [*((number,) for number in range(len(PIECES))), (5, 13), ()]
        extended = embedding_rows.with_vocabulary(checkpoint, [*PIECES, "aa", "z"], sources)
        read = {name: tensor.read() for name, tensor in extended.tensors.items()}
        assert {name: tensor.shape for name, tensor in extended.tensors.items()} == {
            name: value.shape for name, value in read.items()
        }
    assert extended.config == dataclasses.replace(CONFIG, vocab_size=len(PIECES) + 2)
    assert not extended.optimizer
    assert read.keys() == {name for name in values if "adam" not in name and name != "global_step"}
    for name, value in read.items():
        kept = value[: len(PIECES)] if name in (WORDS, BIAS) else value
        assert kept.tobytes() == values[name].tobytes(), name
    np.testing.assert_array_equal(read[WORDS][-2], values[WORDS][[5, 13]].mean(axis=0, dtype=np.float64).astype("f4"))
    np.testing.assert_array_equal(read[BIAS][-2], values[BIAS][[5, 13]].mean(dtype=np.float64).astype("f4"))


@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 20])
def test_tiled_positions_repeat_and_cut(count):
    matrix = np.random.default_rng(0).normal(0, 1, (7, 4)).astype(np.float32)
    rows = embedding_rows.position_rows(matrix, count, "tile")
    assert rows.dtype == np.float32
    assert [row.tobytes() for row in rows] == [matrix[number % 7].tobytes() for number in range(count)]


@pytest.mark.parametrize("count", [1, 2, 3, 7, 13, 20])
def test_interpolated_positions_lie_between_their_neighbors(count):
    matrix = np.random.default_rng(0).normal(0, 1, (7, 4)).astype(np.float32)
    rows = embedding_rows.position_rows(matrix, count, "interpolate")
    assert (rows.shape, rows.dtype) == ((count, 4), np.float32)
    places = np.linspace(0, 6, count)
    expected = np.stack([np.interp(places, np.arange(7), column) for column in matrix.T.astype(np.float64)], axis=1)
    np.testing.assert_allclose(rows, expected, atol=1e-6)
    assert rows[0].tobytes() == matrix[0].tobytes()
    if count > 1:
        assert rows[-1].tobytes() == matrix[-1].tobytes()
    if count in (7, 13):
        assert rows[:: (count - 1) // 6].tobytes() == matrix.tobytes()


@pytest.mark.parametrize("count", [1, 7, 8, 2000])
def test_random_positions_follow_the_former_ones(count):
    matrix = np.random.default_rng(0).normal(0, 1, (7, 4)).astype(np.float32)
    rows = embedding_rows.position_rows(matrix, count, "random", 0.3)
    assert (rows.shape, rows.dtype) == ((count, 4), np.float32)
    assert rows[:7].tobytes() == matrix[:count].tobytes()
    if count == 2000:
        assert abs(rows[7:].mean()) < 0.02
        assert 0.28 < rows[7:].std() < 0.32
        assert len(np.unique(rows, axis=0)) == count


def test_one_position_is_repeated():
    matrix = np.arange(4, dtype=np.float32)[None]
    for method in ("tile", "interpolate"):
        np.testing.assert_array_equal(embedding_rows.position_rows(matrix, 3, method), np.repeat(matrix, 3, axis=0))


def test_a_recorded_length_is_at_most_the_number_of_positions(tmp_path):
    write_release(tmp_path / "a")
    with open_checkpoint(tmp_path / "a") as checkpoint:
        recorded = dataclasses.replace(
            checkpoint, record=ModelRecord(task="pretraining", max_seq_length=9, metrics={"loss": 1.0})
        )
        for count, length in ((6, 6), (9, 9), (40, 9)):
            resized = embedding_rows.with_positions(recorded, count, "tile")
            assert resized.record.max_seq_length == length
            assert resized.record.metrics == {"loss": 1.0}
            assert resized.config.max_position_embeddings == count
            assert resized.tensors[POSITIONS].shape == resized.tensors[POSITIONS].read().shape
        assert embedding_rows.with_positions(recorded, 40, "interpolate").record.metrics == {}
