"""Test that pretraining on real text, in two languages and two sizes, leaves the plateau without a warning."""

from pathlib import Path

import pytest

from beambert import cli
from beambert.bert_model.config import BertConfig
from tests.trainers.pretraining.diagnosed_runs import GOOD, pretrained
from tests.trainers.pretraining.test_healthy_runs import assert_healthy

# Files in the shared data, flags of `build`, hidden size and layers of the model, seed, number of steps.
ENGLISH = "wiki-extracted/enwiki-2015-00.bz2"
REAL_RUNS = {
    "German novels": ("gutenberg/[78]*.txt", ("--language", "de"), (64, 2), 1, 1200),
    "German novels, wide": ("gutenberg/[78]*.txt", ("--language", "de"), (128, 2), 2, 1000),
    "English plays and novels": ("gutenberg/[0p][wg]*.txt", ("--document_unit", "chapter"), (64, 2), 3, 2000),
    "English novels, wide": ("gutenberg/pg*.txt", ("--document_unit", "chapter"), (128, 2), 4, 1200),
    "Wikipedia": (ENGLISH, (), (64, 2), 5, 2000),
    "Wikipedia, wide": (ENGLISH, (), (128, 2), 6, 2400),
}


@pytest.fixture(scope="module")
def built_of(tmp_path_factory, shared_data):
    """A function from files and flags to a dataset built from them; each dataset is built once."""
    datasets: dict[tuple, Path] = {}

    def build(files: str, flags: tuple[str, ...]) -> Path:
        if (files, flags) not in datasets:
            folder = tmp_path_factory.mktemp("data") / "data"
            argv = [
                "build",
                "--input",
                str(shared_data / files),
                "--output",
                str(folder),
                "--vocab_size",
                "1500",
                *flags,
            ]
            argv += ["--max_seq_length", "64", "--max_predictions_per_seq", "10", "--dupe_factor", "2"]
            assert cli.main(argv) == 0
            datasets[files, flags] = folder
        return datasets[files, flags]

    return build


@pytest.mark.parametrize("name", REAL_RUNS)
def test_real_text(tmp_path, capsys, built_of, name):
    files, flags, (hidden_size, layers), seed, steps = REAL_RUNS[name]
    data = built_of(files, flags)
    model = BertConfig(
        vocab_size=1500,
        hidden_size=hidden_size,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=4 * hidden_size,
        max_position_embeddings=64,
    )
    capsys.readouterr()
    schedule = ("--num_train_steps", str(steps), "--num_warmup_steps", "200", "--seed", str(seed))
    assert_healthy(pretrained(tmp_path, data, model, *GOOD, *schedule), capsys)
