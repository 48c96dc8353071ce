"""Test that healthy runs of several languages, texts, sizes, optimizers and seeds leave the plateau without warning."""

import re
from pathlib import Path

import pytest

import beambert
from bert_model.config import BertConfig
from tests.trainers.pretraining.diagnosed_runs import GOOD, pretrained
from tests.trainers.pretraining.toy_language import Language, write_language

BERT_ADAM = ("--learning_rate", "3e-3", "--train_batch_size", "64", "--no_next_sentence")
LAMB = ("--optimizer", "lamb", "--learning_rate", "2e-2", "--train_batch_size", "64", "--no_next_sentence")

TOY_RUNS = {
    "two layers": (Language(1, 60, 2), (64, 2), (*GOOD, "--num_warmup_steps", "60", "--num_train_steps", "400")),
    "wide": (Language(2, 120, 3), (128, 1), (*GOOD, "--num_warmup_steps", "60", "--num_train_steps", "400")),
    "bert_adam": (Language(3, 60, 2), (64, 1), (*BERT_ADAM, "--num_warmup_steps", "250", "--num_train_steps", "500")),
    "LAMB": (Language(4, 60, 2), (64, 1), (*LAMB, "--num_warmup_steps", "100", "--num_train_steps", "500")),
}
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


def assert_healthy(result, capsys) -> None:
    assert result.causes == []
    assert not result.is_stuck
    printed = capsys.readouterr().err
    warnings = [line for line in printed.splitlines() if line.startswith("warning:")]
    assert warnings == []


def test_a_toy_language_is_learned_without_an_alarm(tmp_path, capsys):
    language = Language()
    write_language(tmp_path / "data", language)
    flags = (*GOOD, "--num_warmup_steps", "60", "--num_train_steps", "240", "--eval_steps", "120")
    result = pretrained(tmp_path, tmp_path / "data", language.model(), *flags)
    assert_healthy(result, capsys)
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    section = page.partition('<section id="warnings">')[2].partition("</section>")[0]
    # Waiting for data depends on the load of the machine.
    assert [text for text in re.findall(r"<li>(.*?)</li>", section) if "waiting for data" not in text] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", TOY_RUNS)
def test_toy_languages(tmp_path, capsys, name):
    language, shape, flags = TOY_RUNS[name]
    write_language(tmp_path / "data", language)
    assert_healthy(pretrained(tmp_path, tmp_path / "data", language.model(*shape), *flags), capsys)


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
            assert beambert.main(argv) == 0
            datasets[files, flags] = folder
        return datasets[files, flags]

    return build


@pytest.mark.slow
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
