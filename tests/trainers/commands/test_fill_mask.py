import argparse

import pytest

from beambert import cli
from beambert.bert_model.checkpoints.stored_tensors import CheckpointError
from beambert.tokenizer.tokenizer import Tokenizer
from beambert.trainers.commands import fill_mask
from beambert.trainers.commands.fill_mask import encode, fill_masks
from beambert.trainers.errors import TrainingError
from tests.conftest import ROOT
from tests.trainers.pretraining_shards import LENGTH, SMALLEST, VOCABULARY
from tests.trainers.random_models import write_model


@pytest.fixture(scope="module")
def output(tmp_path_factory):
    """The directory of a pretraining model with random weights."""
    directory = write_model(tmp_path_factory.mktemp("fill") / "model", config=SMALLEST)
    (directory / "vocab.txt").write_bytes(VOCABULARY.to_bytes())
    return directory


def test_encode_puts_masks_between_the_tokens():
    ids = encode("[MASK]ba bes [MASK] fu.[MASK]", Tokenizer(VOCABULARY, never_split=["[MASK]"]), LENGTH)
    pieces = [VOCABULARY.tokens[number] for number in ids]
    assert pieces == ["[CLS]", "[MASK]", "ba", "be", "##s", "[MASK]", "fu", ".", "[MASK]", "[SEP]"]


def test_fillings_are_the_best_of_a_distribution(output):
    (one, two) = fill_masks(output, ["ba [MASK].", "[MASK] be [MASK]"], top_k=len(VOCABULARY))
    assert [len(one), len(two)] == [1, 2]
    for fillings in (*one, *two):
        probabilities = [filling.probability for filling in fillings]
        assert sum(probabilities) == pytest.approx(1)
        assert probabilities == sorted(probabilities, reverse=True)
        assert {filling.token for filling in fillings} == set(VOCABULARY.tokens)


def test_unknown_words_are_a_warning(output, capsys):
    assert cli.main(["fill-mask", str(output), "ba [MASK] q", "be [MASK]"]) == 0
    assert "20.0% of the tokens of the texts are [UNK], such as 'q': the vocabulary lacks" in capsys.readouterr().err


def test_answers_come_in_the_order_of_the_texts(output):
    texts = ["ba be bi bo bu [MASK]", "[MASK]", "be [MASK] ba", "[MASK] [MASK]"]
    answers = fill_masks(output, texts, top_k=2)
    assert [len(masks) for masks in answers] == [1, 1, 1, 2]
    for text, masks in zip(texts, answers, strict=True):
        [alone] = fill_masks(output, [text], top_k=2)
        assert [[filling.token for filling in mask] for mask in masks] == [
            [filling.token for filling in mask] for mask in alone
        ]


def test_the_flag_sets_the_precision(capsys):
    command = [
        "fill-mask",
        str(ROOT / "tests/fixtures/hugging_face/pretraining_erf"),
        "a [MASK] tea",
        "[MASK] sun [MASK]",
    ]
    printed = []
    for flags in ([], ["--precision", "float32"], ["--precision", "bfloat16"]):
        assert cli.main([*command, "--top_k", "40", *flags]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1] != printed[2]


def test_a_model_without_the_head_is_refused():
    with pytest.raises(TrainingError, match="has no masked-LM head"):
        fill_masks(ROOT / "tests/fixtures/hugging_face/classification", ["[MASK]"])


def test_errors(tmp_path, output):
    with pytest.raises(TrainingError, match=r"invalid TEXT 'ba': \[MASK\] is missing"):
        fill_masks(output, ["ba"])
    with pytest.raises(TrainingError, match=rf"{LENGTH + 1} tokens .* max_seq_length is {LENGTH}"):
        fill_masks(output, ["ba " * (LENGTH - 2) + "[MASK]"])
    fill_masks(output, ["ba " * (LENGTH - 3) + "[MASK]"])
    with pytest.raises(TrainingError, match="invalid --top_k 0"):
        fill_masks(output, ["[MASK]"], top_k=0)
    with pytest.raises(CheckpointError, match=r"is not a checkpoint"):
        fill_masks(tmp_path, ["[MASK]"])


def test_printed_fillings(output, capsys):
    parser = argparse.ArgumentParser()
    fill_mask.add_arguments(parser)
    args = parser.parse_args([str(output), "ba [MASK] [MASK]", "--top_k", "2"])
    assert fill_mask.run(fill_mask.configure(args)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "ba [MASK] [MASK]"
    assert [line.strip() for line in lines if "[MASK]" in line][1:] == ["[MASK] 1", "[MASK] 2"]
    assert len(lines) == 7
