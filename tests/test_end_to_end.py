"""Test the way from raw Wikipedia text to an encoder with a masked-LM loss below chance on the validation split."""

import json
import math
import subprocess
import sys

import pytest

from pipelines import dataset


@pytest.mark.slow
def test_ten_megabytes_of_wikipedia_to_a_pretrained_encoder(shared_data, tmp_path):
    source = shared_data / "wiki-extracted" / "enwiki-2015-00.bz2"
    for command in (
        f"build --input {source} --output OUT --vocab_size 8000 --dupe_factor 5",
        "pretrain --data OUT --output RUN --model tiny --num_train_steps 300",
        "fill-mask RUN [MASK]",
    ):
        result = subprocess.run(
            [sys.executable, "-m", "beambert", *command.split()],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == 0, result.stderr
        assert "Traceback" not in result.stderr
    manifest = dataset.load(tmp_path / "OUT")
    results = json.loads((tmp_path / "RUN" / "eval_results.json").read_text())
    lines = (tmp_path / "RUN" / "eval_results.txt").read_text().splitlines()
    assert [line.split(" = ")[0] for line in lines] == [
        "global_step",
        "loss",
        "masked_lm_accuracy",
        "masked_lm_accuracy_most_frequent_token",
        "masked_lm_loss",
        "masked_lm_predictions",
        "next_sentence_accuracy",
        "next_sentence_accuracy_majority_class",
        "next_sentence_loss",
        "next_sentence_pairs",
    ]
    assert results["global_step"] == 300
    assert results["masked_lm_loss"] < math.log(manifest.vocab_size) - 2
    assert results["loss"] == pytest.approx(results["masked_lm_loss"] + results["next_sentence_loss"])
