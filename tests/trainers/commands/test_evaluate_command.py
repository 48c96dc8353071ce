"""Tests of the command `beambert evaluate`: output files, terminal output and errors."""

import json

import pytest

from beambert import cli
from tests.conftest import ROOT
from tests.trainers.random_models import write_model

FIXTURES = ROOT / "tests/fixtures/hugging_face"
MODEL = FIXTURES / "pretraining_erf"


@pytest.fixture
def inputs(tmp_path):
    folder = tmp_path / "inputs"
    folder.mkdir()
    rows = "".join(
        f"the {name} is near\tthe {name} is nears\ta_very_long_name_of_a_paradigm_{n % 3}_<b>\tfield_{n % 2}\n"
        for n, name in enumerate(("sea", "sun", "rain", "train", "tie", "tin"))
    )
    (folder / "pairs.tsv").write_text(rows, encoding="utf-8")
    (folder / "text.txt").write_text("rain on the sea\n\na tin train is near the sea on a tie\n", encoding="utf-8")
    return folder


@pytest.fixture
def evaluate(inputs, tmp_path):
    def run(*flags, model=MODEL):
        return cli.main(["evaluate", str(model), *map(str, flags)])

    return run


def test_json_and_report(evaluate, inputs, tmp_path, capsys):
    flags = ("--pairs", inputs / "pairs.tsv", "--texts", inputs)
    outputs = ("--output", tmp_path / "out.json", "--report", tmp_path / "out.html")
    # The directory of --texts also has a file of pairs, which is ignored since it is not a .txt file.
    assert evaluate(*flags, *outputs) == 0
    content = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert (content["format"], content["format_version"]) == ("beambert-evaluation", 1)
    assert content["pairs"]["pairs"] == 6
    assert sorted(content["pairs"]["fields"]) == ["field_0", "field_1"]
    assert content["text"]["windows"] <= content["text"]["masked_lm_loss"]["tokens"] < content["text"]["tokens"]
    assert content["text"]["pseudo_perplexity"]["tokens"] == content["text"]["tokens"] == content["text"]["all_tokens"]
    page = (tmp_path / "out.html").read_text(encoding="utf-8")
    assert "a_very_long_name_of_a_paradigm_0_&lt;b&gt;" in page
    assert "<b>" not in page
    assert sorted(path.name for path in tmp_path.iterdir()) == ["inputs", "out.html", "out.json"]
    # A second run writes the same bytes; files are replaced only with --overwrite.
    first = (tmp_path / "out.json").read_bytes()
    capsys.readouterr()
    assert evaluate(*flags, *outputs) == 1
    assert "out.html already exists; use --overwrite" in capsys.readouterr().err
    assert evaluate(*flags, *outputs, "--overwrite") == 0
    assert (tmp_path / "out.json").read_bytes() == first


def test_unknown_words_are_a_warning(evaluate, inputs, capsys):
    (inputs / "text.txt").write_text("rain on a \u5e9c\n", encoding="utf-8")
    (inputs / "pairs.tsv").write_text("a sun\t\u4eac sun\tone\ta\na sun\tsun a\tone\ta\n", encoding="utf-8")
    assert evaluate("--pairs", inputs / "pairs.tsv", "--texts", inputs / "text.txt") == 0
    said = capsys.readouterr().err
    assert "12.5% of the tokens of --texts are [UNK], such as '\u5e9c': the vocabulary lacks these words; use" in said
    assert "1 of 2 pairs contain [UNK], such as '\u4eac': the vocabulary lacks these words; use" in said


@pytest.mark.parametrize("width", [60, 120])
def test_the_table_fits_the_terminal(evaluate, inputs, monkeypatch, capsys, width):
    monkeypatch.setenv("COLUMNS", str(width))
    assert evaluate("--pairs", inputs / "pairs.tsv", "--texts", inputs / "text.txt") == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    for part in ("masked_lm_loss", "masked_lm_accuracy", "pseudo_perplexity", "field_0", "mean of 6 paradigms"):
        assert part in text
    assert ("a_very_long_name_of_a_paradigm_0_<b>" in text) == (width == 120)
    assert ("a_very_long_nam...a_paradigm_0_<b>" in text) == (width == 60)
    numbers = next(line for line in lines if line.startswith("mean of 2 fields"))
    assert numbers.split()[-1] == "6"


@pytest.fixture
def results_with(evaluate, inputs, tmp_path):
    """A function that returns the results of `evaluate` with flags."""

    def results(*flags):
        flags = ("--pairs", inputs / "pairs.tsv", "--texts", inputs / "text.txt", *flags)
        assert evaluate(*flags, "--output", tmp_path / "out.json", "--overwrite") == 0
        return json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))

    return results


def test_flags_of_variant_and_sampling(results_with):
    every, words = results_with(), results_with("--whole_word")
    sample = results_with("--max_pairs", "3", "--max_tokens", "10")
    assert words["text"]["masked_lm_loss"] == every["text"]["masked_lm_loss"]
    perplexity = every["text"]["pseudo_perplexity"]["mean"]
    assert words["text"]["pseudo_perplexity"]["mean"] != pytest.approx(perplexity, rel=1e-3)
    assert (sample["pairs"]["pairs"], sample["pairs"]["all_pairs"]) == (3, 6)
    assert sample["text"]["tokens"] <= 18 < sample["text"]["all_tokens"]


@pytest.mark.slow
def test_flags_of_batches_and_precision(results_with):
    flags = ("--max_seq_length", "18", "--text_unit", "document", "--batch_size", "2")
    every, short, bfloat16 = (
        results_with(*flags)["text"]["pseudo_perplexity"]["mean"] for flags in ((), flags, ("--precision", "bfloat16"))
    )
    assert short == pytest.approx(every, rel=1e-4)
    assert bfloat16 != every
    assert bfloat16 == pytest.approx(every, rel=0.2)


def test_models_without_a_masked_lm_head_are_refused(evaluate, inputs, tmp_path, capsys):
    for model in (FIXTURES / "classification", write_model(tmp_path / "headless", without=("cls/predictions/",))):
        assert evaluate("--pairs", inputs / "pairs.tsv", model=model) == 1
        assert capsys.readouterr().err.endswith("has no masked-LM head; give a pretrained model\n")


@pytest.mark.parametrize("report", ["./scores", "folder/../scores", "link"])
def test_the_report_may_not_replace_the_scores(evaluate, inputs, tmp_path, monkeypatch, capsys, report):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("scores")
    flags = ("--pairs", inputs / "pairs.tsv", "--output", "scores", "--report", report, "--overwrite")
    assert evaluate(*flags) == 1
    error = capsys.readouterr().err
    assert error.endswith(f"--output scores is the same file as --report {report}: give two names\n")
    assert not (tmp_path / "scores").exists()


def test_errors_are_one_line_and_leave_no_output(evaluate, inputs, tmp_path, capsys):
    (inputs / "empty.txt").write_bytes(b"")
    (inputs / "long.tsv").write_text(f"{'a ' * 30}\tb\n", encoding="utf-8")
    pairs = ("--pairs", inputs / "pairs.tsv")
    before = sorted(tmp_path.rglob("*"))
    for flags, message in (
        ((), "give --pairs, --texts, or both"),
        (("--pairs", inputs / "none.tsv"), "does not exist"),
        (("--texts", inputs / "empty.txt"), "empty.txt has no text"),
        (("--pairs", inputs / "empty.txt"), "has no minimal pairs"),
        (("--pairs", inputs / "long.tsv"), "long.tsv, line 1: a sentence has 32 tokens"),
        ((*pairs, "--max_seq_length", "19"), "invalid --max_seq_length 19: must be 3 to 18"),
        ((*pairs, "--output", inputs / "pairs.tsv", "--overwrite"), "is the same file as --pairs"),
        (
            ("--pairs", f"{inputs}/p*.tsv", "--output", inputs / "pairs.tsv", "--overwrite"),
            "pairs.tsv is the same file",
        ),
        (("--texts", f"{inputs}/t*.txt", "--report", inputs / "text.txt", "--overwrite"), "text.txt is the same file"),
        ((*pairs, "--report", MODEL / "vocab.txt", "--overwrite"), "is a file of DIR"),
        ((*pairs, "--output", tmp_path / "none/out.json"), "directory"),
        ((*pairs, "--output", tmp_path / "o", "--report", tmp_path / "o"), "is the same file as --report"),
        ((*pairs, "--vocab_file", tmp_path / "none.txt"), "none.txt"),
    ):
        assert evaluate(*flags) == 1, message
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before
