"""Real text to real scores: `mini` pretrained on 60 MB of Wikipedia, then MRPC, CoLA and SST-2, beside random weights.

`make test-slow` runs it, some 15 minutes on two cores; it is no part of `make test`.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

# What pretraining must at least be worth on SST-2's development sentences, and a model on each task.
SST2_MARGIN = 0.03
LEAST = {"mrpc": ("eval_f1", 0.80), "cola": ("eval_matthews", 0.0), "sst2": ("eval_accuracy", 0.75)}
FILES = {"mrpc": "MRPC", "cola": "CoLA", "sst2": "SST-2"}
EXAMPLES = {"sst2": 10_000}


def beambert(*argv: object) -> None:
    """Runs the command in a process of its own, whose lines are seen."""
    subprocess.run([sys.executable, "-m", "beambert", *map(str, argv)], check=True)


@pytest.fixture(scope="session")
def pretrained(tmp_path_factory, shared_data):
    """A `mini` pretrained here, or that of an earlier run where BEAMBERT_PRETRAINED names its directory."""
    if given := os.environ.get("BEAMBERT_PRETRAINED"):
        return Path(given)
    directory = tmp_path_factory.mktemp("pretrained")
    text = str(shared_data / "wiki-extracted" / "*.bz2")
    masks = ["--objective", "mlm", "--masking", "dynamic", "--masked_lm_prob", 0.3, "--max_predictions_per_seq", 20]
    build = ["build", "--input", text, "--input_format", "wikiextractor", "--output", directory / "data"]
    beambert(*build, "--vocab_size", 8000, "--max_seq_length", 64, "--dupe_factor", 1, *masks)
    train = ["pretrain", "--data", directory / "data", "--output", directory / "model", "--model", "mini"]
    course = ["--num_train_steps", 2000, "--num_warmup_steps", 300, "--train_batch_size", 64]
    beambert(*train, *course, "--optimizer", "adamw", "--learning_rate", 1e-3)
    results = json.loads((directory / "model" / "eval_results.json").read_text())
    # Beyond the plateau at which a model knows how frequent pieces are: there it is at 0.04.
    assert results["masked_lm_accuracy"] > 0.15
    return directory / "model"


def score(task, output, shared_data, *initial):
    """The metrics of a fine-tuning with the same options from whatever weights."""
    flags = ["--data_dir", shared_data / "glue" / FILES[task], "--output", output, "--num_train_epochs", 3]
    if task in EXAMPLES:
        flags += ["--max_train_samples", EXAMPLES[task]]
    beambert("finetune", task, *flags, *initial, "--learning_rate", 2e-4, "--do_train", "--do_eval")
    return json.loads((output / "eval_results.json").read_text())


@pytest.mark.parametrize("task", FILES)
def test_a_task_is_learnt(task, pretrained, tmp_path, shared_data):
    metric, least = LEAST[task]
    results = score(task, tmp_path / "pretrained", shared_data, "--init_checkpoint", pretrained)
    print(f"{task} after pretraining: {results}")
    assert results[metric] > least
    if task == "sst2":
        random = ["--model", pretrained / "bert_config.json", "--vocab_file", pretrained / "vocab.txt"]
        without = score(task, tmp_path / "random", shared_data, *random)
        print(f"{task} from random weights: {without}")
        assert results[metric] > without[metric] + SST2_MARGIN
