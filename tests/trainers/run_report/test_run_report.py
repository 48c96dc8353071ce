"""Test `report.html` of a run: content, harmless and self-contained markup, missing files, display in a browser."""

import json
import re

import numpy as np
import pytest

from beambert.bert_model.config import BertConfig
from beambert.trainers.run_report.run_report import FILE_NAME, write_report
from beambert.trainers.run_report.run_warnings import warnings_of
from tests.pages import assert_harmless, look_at, needs_chromium, parsed

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>&amp;\"'"
SECTIONS = (
    *("warnings", "curves", "speed", "evaluation", "masks", "checkpoints", "data", "model", "options", "versions"),
)


def lines(steps: int, report: int, evaluation: int) -> list[dict]:
    generator = np.random.default_rng(0)
    found = []
    for step in range(report, steps + 1, report):
        done = step / steps
        counts = {"examples": 32 * step, "tokens": 4096 * step, "seconds": 0.1 * step}
        loss = 10 - 6 * done + float(generator.normal(0, 0.1))
        accuracies = {"masked_lm_accuracy": 0.5 * done, "next_sentence_accuracy": 0.5 + 0.4 * done}
        rate = 5e-4 * min(10 * done, (1 - done) / 0.9)
        speed = {"sequences_per_second": 300 + 10 * done, "tokens_per_second": 38_400.0, "data_wait_fraction": 0.01}
        train = {"loss": loss, **accuracies, "learning_rate": rate, "gradient_norm": 2.0 - done}
        found.append({"split": "train", "step": step, **train, **counts, **(speed if step > report else {})})
        if step % evaluation == 0:
            masks = ["the [cat→dog 12%] sat on [the→the 95%] mat.", "… a [b→c 50%]"]
            held_out = {"loss": 10 - 5.5 * done, "masked_lm_loss": 9.5 - 5.5 * done, **accuracies}
            found.append({"split": "validation", "step": step, **held_out, **counts, "mlm_samples": masks})
    return found


def write_run(output, found: list[dict], text: str = "text", options: dict | None = None) -> None:
    """Write the files of a run, with the given text in every text field."""
    (output / "checkpoints").mkdir(parents=True)
    (output / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in found), encoding="utf-8")
    record = {
        "data_fingerprints": ["0123456789abcdef" * 4, text],
        "vocab_sha256": "b" * 64,
        "do_lower_case": True,
        "stages": [{"data": text, "batch_size": 32, "first_step": 0, "end_step": 1000}],
        "options": {"model": "tiny", "num_train_steps": 1000, "data": [text], text: text, **(options or {})},
        "versions": {"python": "3.11", text: text},
    }
    (output / "run.json").write_text(json.dumps(record), encoding="utf-8")
    (output / "bert_config.json").write_text(BertConfig.preset("tiny", 8000).to_json(), encoding="utf-8")
    (output / "init_checkpoint.txt").write_text(f"{text}\n", encoding="utf-8")
    for step in (500, 1000):
        for ending, size in ((".index", 1000), (".data-00000-of-00001", 2_000_000)):
            (output / "checkpoints" / f"model.ckpt-{step}{ending}").write_bytes(b"\0" * size)
    best = {"step": 500, "metric": text, "value": 3.25}
    (output / "checkpoints" / "best.json").write_text(json.dumps(best), encoding="utf-8")
    results = {"global_step": 1000, "masked_lm_accuracy": 0.515625, text: 1.5}
    (output / "eval_results.json").write_text(json.dumps(results), encoding="utf-8")


def write_baselines(output, levels: dict[str, tuple[float, float]]) -> None:
    """Write the levels of a run, given the loss and the accuracy of each."""
    fractions = {"repeated": 0.01, "rare_vocabulary": 0.02, "masked": 0.8, "expected_masked": 0.8, "unchanged": 0.1}
    fractions |= {"expected_unchanged": 0.1, "most_frequent_label": 0.05, "labeled_1": 0.5}
    content = {
        "format": "beambert-baselines",
        "format_version": 1,
        "levels": {name: {"loss": loss, "accuracy": accuracy} for name, (loss, accuracy) in levels.items()},
        "text": {"tokens": 900_000, "predictions": 8000, "pairs": 8000, **fractions},
    }
    (output / "baselines.json").write_text(json.dumps(content), encoding="utf-8")


def page_of(output) -> str:
    assert write_report(output) == output / FILE_NAME
    return (output / FILE_NAME).read_text(encoding="utf-8")


def test_the_page_is_complete_and_shows_the_values_of_the_files(tmp_path):
    write_run(tmp_path, lines(1000, 50, 500))
    page = page_of(tmp_path)
    assert_harmless(page)
    checker = parsed(page)
    assert tuple(checker.ids) == SECTIONS
    assert [value for _, name, value in checker.attributes if name == "href"] == [f"#{name}" for name in SECTIONS]
    text = " ".join(checker.text)
    for words in (
        *("1,000", "32,000", "4.1 million", "100 s", "1,528,130 parameters", "0.516", "0123456789abcdef"),
        *(
            "next-sentence accuracy",
            "2.0 MB",
            "best",
            "Best checkpoint: step 500",
            "num train steps",
            "the",
            "95%",
            "hidden size",
        ),
    ):
        assert words in text, words
    # Figures: loss, masked-LM loss, two accuracies, learning rate, gradient norm, and three of speed.
    assert page.count("<svg") == 9
    assert re.search(r"<dt>steps</dt>\s*<dd[^>]*>1,000</dd>", page)
    assert page.count("<article") == 2
    assert '<mark class="other"><s>cat</s> dog <small>12%</small></mark>' in page
    assert "step 1,000: " in page
    assert "No warnings." in page


def test_metrics_of_a_fine_tuning_run_name_their_split(tmp_path):
    write_run(tmp_path, [], options={"task": "swag"})
    results = {"global_step": 1000, "eval_accuracy": 0.75, "test_accuracy": 0.5}
    (tmp_path / "eval_results.json").write_text(json.dumps(results), encoding="utf-8")
    labels = re.findall(r"<dt>([^<]+)</dt>", page_of(tmp_path))
    assert [label for label in labels if "accuracy" in label] == ["dev accuracy", "test accuracy"]


def test_the_wall_time_is_a_table_by_cause(tmp_path):
    found = lines(1000, 50, 500)
    # The last record of a run that was resumed from step 500 has the longest wall time.
    causes = {"step_seconds": 5400.0, "start_seconds": 180.0, "compile_seconds": 300.0, "input_seconds": 0.0}
    causes |= {"checkpoint_seconds": 60.0, "evaluation_seconds": 60.0, "lost_seconds": 1200.0}
    for line in found:
        line |= {name: seconds * line["step"] / 1000 for name, seconds in causes.items()}
    write_run(tmp_path, found)
    page = page_of(tmp_path)
    assert_harmless(page)
    assert "goodput" in parsed(page).ids
    table = page.partition('id="goodput"')[2].partition("</table>")[0]
    rows = re.findall(r"<td>([a-z ]+)</td><td[^>]*>([^<]+)</td><td[^>]*>([^<]+)</td>", table)
    assert rows == [
        ("training steps", "1.5 h", "75.0%"),
        ("start", "3 min", "2.5%"),
        ("compilation", "5 min", "4.2%"),
        ("checkpoints", "1 min", "0.83%"),
        ("evaluation", "1 min", "0.83%"),
        ("lost work", "20 min", "16.7%"),
        ("total", "2.0 h", "100.0%"),
    ]


def test_markup_in_any_string_is_shown_not_run(tmp_path):
    found = lines(1000, 100, 500)
    for line in found:
        line[HOSTILE] = 1.0
        if "mlm_samples" in line:
            line["mlm_samples"] = [HOSTILE, "[<b>→</article> 5%]"]
    write_run(tmp_path, found, HOSTILE)
    page = page_of(tmp_path)
    assert_harmless(page)
    assert tuple(parsed(page).ids) == SECTIONS
    assert page.count("&lt;script&gt;") >= 12


@pytest.mark.parametrize("damage", ["", "{", "[1, 2]", "\xff", '{"options": 3, "stages": [1], "versions": []}'])
def test_missing_or_malformed_files_are_omitted(tmp_path, damage):
    assert_harmless(page_of(tmp_path))
    (tmp_path / "checkpoints").mkdir()
    for name in ("run.json", "bert_config.json", "eval_results.json", "metrics.jsonl", "checkpoints/best.json"):
        (tmp_path / name).write_text(damage, encoding="latin-1")
    page = page_of(tmp_path)
    assert_harmless(page)
    parsed(page)
    assert "no training metrics" in page


def test_levels_are_in_the_curves_of_a_run_and_in_a_table(tmp_path):
    write_run(tmp_path, lines(1000, 50, 500))
    assert "levels" not in parsed(page_of(tmp_path)).ids
    levels = {"unigram": (8.1, 0.1), "unchanged": (6.9, 0.2), "bigram": (1.5, 0.3)}
    write_baselines(tmp_path, levels)
    page = page_of(tmp_path)
    assert_harmless(page)
    section = page.partition('<section id="levels">')[2].partition("</section>")[0]
    cells = re.findall(r"<tr><td>(\w+)</td>.*?<td>([^<]*)</td><td>([^<]*)</td></tr>", section)
    # Training lines have no masked_lm_loss here; evaluations are at steps 500 and 1,000.
    expected = [("unigram", "step 500"), ("unchanged", "step 500"), ("bigram", "not yet")]
    assert [(name, validation) for name, _, validation in cells] == expected
    assert page.count('class="level"') == 6
    assert "tiny after" in section
    assert "The plateau was left by validation at step 500." in section
    assert "Validation past unchanged at step 1,000." in section
    write_baselines(tmp_path, {**levels, "unchanged": (0.5, 0.2)})
    assert "The plateau was not left." in page_of(tmp_path)


def test_a_level_that_is_lost_again_is_named(tmp_path):
    found = lines(200, 10, 200)[:-1]
    for line in found:
        line["masked_lm_loss"] = 6.9 if line["step"] == 170 else 7.1
    write_run(tmp_path, found)
    write_baselines(tmp_path, {"unigram": (7.0, 0.05)})
    section = page_of(tmp_path).partition('<section id="levels">')[2].partition("</section>")[0]
    assert "Training not past unigram at step 200, after it had passed unigram at step 170." in section


# Warnings.


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"options": {"num_train_steps": 2000}}, "incomplete: 1,000 of 2,000"),
        ({"train": {"skipped_steps": 3}}, "3 of 1,000 steps were skipped"),
        ({"train": {"corrupt_records": 7}}, "7 corrupt records were skipped"),
        ({"train": {"data_wait_fraction": 0.4}}, "40.0% of the training time was spent waiting"),
        ({"validation": {"loss": 9.9}}, "validation loss is 9.900, up from"),
        ({"validation": None}, "no evaluation"),
        ({}, None),
    ],
)
def test_warnings(changes, words):
    found = lines(1000, 100, 500)
    train = [{**line, **changes.get("train", {})} for line in found if line["split"] == "train"]
    validation = [line for line in found if line["split"] == "validation"]
    if changes.get("validation", {}) is None:
        validation = []
    elif "validation" in changes:
        validation[-1] = {**validation[-1], **changes["validation"]}
    warnings = warnings_of(changes.get("options", {"num_train_steps": 1000}), train, validation)
    assert len(warnings) == (0 if words is None else 1)
    if words is not None:
        assert words in warnings[0]


@needs_chromium
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (360, True)])
def test_a_browser_shows_it_on_desktop_and_phone_in_light_and_dark(tmp_path, width, dark):
    write_run(tmp_path / "run", lines(100_000, 100, 10_000), "a rather long text without sense, of many words " * 3)
    assert look_at(page_of(tmp_path / "run"), tmp_path, width, dark)["figures"] == 9
