"""Test the sections of a fine-tuning report: content, harmless markup, readability, and malformed details."""

import itertools
import json
import re
from html import unescape

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beambert.trainers.run_report import task_sections
from beambert.trainers.run_report.published_scores import published
from beambert.trainers.run_report.run_report import write_report
from beambert.trainers.run_report.task_sections import mark_spans, metric_label, sections, warnings_of_details
from tests.pages import assert_harmless, look_at, needs_chromium, parsed
from tests.trainers.run_report.report_details import confusion, entities, evaluations

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>&amp;\"'"
RIGHT_TO_LEFT = "יולד جميع הניאס \u202eقلب " + "ש" * 50
LONG = "x" * 3000 + " " + "long " * 600
KINDS = tuple(evaluations("text"))
# Sections that are specific to each kind of task.
OWN = {
    "mrpc": ("published", "confusion", "errors", "classes"),
    "many": ("confusion", "errors", "classes"),
    "twenty": ("confusion", "classes"),
    "stsb": ("published", "regression", "errors"),
    "swag": ("published", "choices"),
    "squad": ("published", "answers"),
    "squad2": ("published", "answers"),
    "ner": ("published", "types", "entities"),
}


def write_run(output, kind, text="some text"):
    evaluation, results = evaluations(text)[kind]
    output.mkdir(parents=True, exist_ok=True)
    metrics = {name: value for name, value in results.items() if name not in ("eval_loss", "global_step", "total")}
    train = {"loss": 0.7, "task_loss": 0.7, "accuracy": 0.5, "learning_rate": 1e-5}
    lines = [{"split": "train", "step": step, **train} for step in (10, 20, 30)]
    lines += [{"split": "validation", "step": step, **metrics} for step in (20, 30)]
    (output / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    record = {"options": {"task": evaluation["task"], "learning_rate": 2e-5}}
    (output / "run.json").write_text(json.dumps(record), encoding="utf-8")
    (output / "evaluation.json").write_text(json.dumps(evaluation), encoding="utf-8")
    (output / "eval_results.json").write_text(json.dumps(results), encoding="utf-8")
    return output


def page_of(output) -> str:
    return write_report(output).read_text(encoding="utf-8")


def text_of(page: str) -> str:
    return " ".join("".join(parsed(page).text).split())


@pytest.mark.parametrize("kind", OWN)
def test_a_run_has_the_sections_of_its_task(tmp_path, kind):
    page = page_of(write_run(tmp_path, kind))
    assert_harmless(page)
    checker = parsed(page)
    assert tuple(checker.ids) == ("warnings", *OWN[kind], "curves", "evaluation", "options")
    assert f"Fine-tuning: {evaluations('')[kind][0]['task']}" in checker.text
    assert not re.search("pretrain|masked", text_of(page), re.IGNORECASE)


def test_training_and_evaluation_share_the_figure_of_a_metric(tmp_path):
    page = page_of(write_run(tmp_path, "mrpc"))
    assert "accuracy of train and validation by step" in page
    assert "loss of train and validation by step" in page
    assert "task loss" not in page
    # Figures: loss, learning rate, accuracy and F1.
    assert page.count("<svg") == 4


def test_splits_have_sections_of_their_own(tmp_path):
    checker = parsed(page_of(write_run(tmp_path, "mnli")))
    names = ("confusion", "errors", "classes")
    own = checker.ids[2:8]
    assert [name.split("-")[0] for name in own] == [*names, *names]
    assert len(set(own)) == 6
    assert "Confusion matrix, dev_mismatched" in checker.text


@pytest.mark.parametrize("kind", KINDS)
def test_any_text_is_shown_and_nothing_of_it_runs(tmp_path, kind):
    page = page_of(write_run(tmp_path, kind, f"{HOSTILE} {RIGHT_TO_LEFT} {LONG}"))
    assert_harmless(page)
    assert "evaluation" in parsed(page).ids
    # Texts are clipped, so that no page is large.
    assert len(page) < 400_000


# "many" and "twenty" have the details of "mrpc".
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("many", "twenty", "squad2")])
def test_malformed_details_are_omitted(tmp_path, kind):
    """Replace each value of the details in turn: the sections and the page are rendered all the same."""
    evaluation, results = evaluations("text")[kind]

    def places(value, path=()):
        yield path
        items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, part in itertools.islice(items, 3):
            yield from places(part, (*path, key))

    def replaced(value, path, new):
        if not path:
            return new
        changed = dict(value) if isinstance(value, dict) else list(value)
        changed[path[0]] = replaced(value[path[0]], path[1:], new)
        return changed

    for path in places(evaluation):
        for new in (None, 7, "x", [], {}, [[1, 2, 3]], float("nan")):
            changed = replaced(evaluation, path, new)
            if not isinstance(changed, dict):
                continue
            for name, title, content in sections(changed, results):
                assert name
                assert title
                parsed(content)
            warnings_of_details(changed)
    output = write_run(tmp_path, kind)
    for content in ("", "{", "[1]", "\xff", '{"splits": {"dev": {"confusion": 3}}}'):
        (output / "evaluation.json").write_text(content, encoding="latin-1")
        page = page_of(output)
        assert_harmless(page)
        assert "Fine-tuning: " in page


def test_scores_stand_beside_published_ones(tmp_path):
    text = text_of(page_of(write_run(tmp_path, "mrpc")))
    assert "this rundev84.688.7" in text.replace(" ", "").replace("thisrun", "this run")
    for words in ("BERT base", "88.9", "table 1", "86.7", "84.1", "84.6", "84 to 88 by seed"):
        assert words in text, words
    text = text_of(page_of(write_run(tmp_path / "squad", "squad")))
    for words in ("81.2", "88.4", "80.8", "88.5"):
        assert words in text, words
    assert "78.7" not in text
    # SQuAD metrics are in percent. The number of questions is not a metric.
    assert "81.25%" in text
    assert "10,570" not in text
    text = text_of(page_of(write_run(tmp_path / "squad2", "squad2")))
    assert "78.7" in text
    assert "80.8" not in text
    assert published("csv", {"eval_accuracy": 1.0}) == []


def test_published_scores_have_the_units_of_the_metrics():
    tasks = ("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "wnli", "xnli", "ner", "swag")
    everything = dict.fromkeys(("accuracy", "f1", "matthews", "pearson", "spearman", "mismatched_accuracy"), 0.5)
    for task in tasks:
        lines = published(task, {f"eval_{name}": value for name, value in everything.items()})
        assert lines, task
        assert all(0.3 < score < 1 for line in lines for score in line.scores.values())
        assert all(name.removeprefix("eval_") in everything for line in lines for name in line.scores)
    for metrics in ({"exact_match": 80.0, "f1": 88.0}, {"exact": 70.0, "f1": 80.0}):
        lines = published("squad", metrics)
        assert lines
        assert all(line.scores.keys() == metrics.keys() for line in lines)
        assert all(50 < score < 100 for line in lines for score in line.scores.values())


def test_the_matrix_has_every_count_and_its_sums():
    content = {"labels": ["a", "b", "<c>"], "counts": [[5, 2, 0], [1, 7, 0], [0, 3, 4]]}
    html = task_sections.confusion(content)
    rows = re.findall(r"<tr><th scope=\"row\">(.*?)</th>(.*?)</tr>", html)
    assert [unescape(label) for label, _ in rows] == ["a", "b", "<c>", "all"]
    cells = [re.findall(r">(\d+)</td>", cells) for _, cells in rows]
    assert cells == [["5", "2", "0", "7"], ["1", "7", "0", "8"], ["0", "3", "4", "7"], ["6", "12", "4", "22"]]
    # 5 of 7 and 3 of 7, in one of four shades by the square root of the fraction. Correct counts are also bold.
    assert '<td class="number hit right-3" title="71.4% of the row">5</td>' in html
    assert '<td class="number wrong-2" title="42.9% of the row">3</td>' in html
    # By hand: precision 5/6, recall 5/7, F1 10/13.
    assert '>a</td><td class="number">83.3%</td><td class="number">71.4%</td><td class="number">76.9%</td>' in (
        task_sections.by_class(content)
    )


def test_with_many_labels_the_most_confused_pairs_are_shown():
    labels = [f"label {i}" for i in range(100)]
    content = confusion(labels)
    content["counts"][17][42] = 5000
    html = task_sections.confusion(content)
    first = re.search(r"<tbody><tr>(.*?)</tr>", html)[1]
    share = 5000 / sum(content["counts"][17])
    assert re.findall(r">([^<]+)</td>", first) == ["label 17", "label 42", "5,000", f"{share:.1%}"]
    assert html.count("<tr>") == 21
    right = sum(content["counts"][i][i] for i in range(100))
    assert f"{right:,} of {sum(map(sum, content['counts'])):,} examples" in html
    assert task_sections.by_class(content).count("<tr>") == 21


def test_a_constant_prediction_gives_a_warning():
    evaluation = {"task": "rte", "splits": {"dev": {"confusion": {"labels": ["a", "b"], "counts": [[0, 9], [0, 7]]}}}}
    (warning,) = warnings_of_details(evaluation)
    assert "The model predicts the label b for every example of dev" in warning
    evaluation["splits"]["dev"]["confusion"]["counts"] = [[0, 0], [0, 7]]
    (warning,) = warnings_of_details(evaluation)
    assert "Every example of dev has the label b (7 examples)" in warning
    # The warnings that the task recorded are shown too; values that are not text are omitted.
    evaluation["splits"]["dev"] = {"warnings": ["a finding", 3]}
    assert warnings_of_details(evaluation) == ["a finding"]


def test_a_regression_is_a_scatter_plot_with_a_diagonal():
    html = task_sections.regression({"points": [[0, 1], [5, 4.5], [2, 2], [3, float("nan")]]})
    assert html.count("<circle") == 3
    assert html.count('class="diagonal"') == 1
    assert "label 5, prediction 4.5" in html
    for points in ([[1, 1]], [[1, 1], [1, 1]], [[0, -3], [0, 8]], [[1e300, -1e300]], [[-1e-9, 0.0]]):
        html = task_sections.regression({"points": points})
        for x, y in re.findall(r'cx="([-\d.]+)" cy="([-\d.]+)"', html):
            assert -1 < float(x) < 361
            assert -1 < float(y) < 201
    assert task_sections.regression({"points": []}) == ""


# Marked spans in their context.

_SPANS = st.lists(st.tuples(st.integers(0, 80), st.integers(1, 30)), max_size=3)


@settings(deadline=None)
@given(st.text("ab <&'é\u05e9", min_size=120, max_size=120), _SPANS, _SPANS)
def test_every_character_has_the_marks_of_its_spans(context, true, predicted):
    spans = [[(start, start + length) for start, length in group] for group in (true, predicted)]
    marked = [(character, kinds) for text, kinds in mark_spans(context, *spans) for character in text]
    assert "".join(character for character, _ in marked) == context
    for place, (_, kinds) in enumerate(marked):
        names = ("true", "predicted")
        wanted = [n for n, group in zip(names, spans, strict=True) if any(s <= place < e for s, e in group)]
        assert kinds == wanted


def test_text_far_from_all_spans_is_omitted():
    context = "".join(f"{i:05d} " for i in range(500))
    fragments = mark_spans(context, [(1200, 1206)], [(2400, 2406)])
    text = "".join(text for text, _ in fragments)
    assert text.startswith("… ")
    assert text.endswith(" …")
    assert text.count("…") == 3
    assert ("00200 ", ["true"]) in fragments
    assert ("00400 ", ["predicted"]) in fragments
    assert "00300" not in text
    # Without any span, the start of the context is shown.
    assert mark_spans(context, [], []) == [(context[:395], []), (" …", [])]
    assert mark_spans("x" * 900, [(450, 451)], [])[2] == ("x", ["true"])
    assert mark_spans("short", [], []) == [("short", [])]


def test_answers_in_the_page(tmp_path):
    text = text_of(page_of(write_run(tmp_path, "squad")))
    assert "predicted 1889 by Eiffel (90.0%), true 1889, in 1889" in text
    assert "predicted Eiffel (80.0%), true no answer" in text
    assert "predicted no answer (70.0%), true Before" in text


def test_entities_are_marked_and_a_right_sentence_has_one_line(tmp_path):
    page = page_of(write_run(tmp_path, "ner"))
    assert re.search(r'<mark class="type-\d">Angela Merkel<small>PER</small></mark> visited', page)
    assert re.search(r'visited <mark class="type-\d">some text Paris<small>MISC</small></mark>', page)
    assert page.count("<dt>both</dt>") == 1
    assert page.count("<dt>true</dt>") == page.count("<dt>predicted</dt>") == len(entities("")) - 1


def test_choices_name_the_true_and_the_predicted_one(tmp_path):
    page = page_of(write_run(tmp_path, "swag"))
    assert '<mark class="true">first some text</mark> <small>true</small>' in page
    assert '<mark class="predicted">second</mark> <small>predicted</small>' in page


def test_labels_of_metrics():
    assert metric_label("eval_matthews") == "Matthews correlation"
    assert metric_label("eval_my_own_score") == "my own score"
    assert metric_label("eval_f1_LOC") == "F1, LOC"


@needs_chromium
@pytest.mark.parametrize(
    ("kinds", "width", "dark"),
    [
        (("mnli", "squad2"), 1280, False),
        (("mrpc", "ner"), 1280, True),
        (("twenty", "swag"), 390, False),
        (("ner",), 390, True),
    ],
)
def test_a_browser_shows_it_on_desktop_and_phone_in_light_and_dark(tmp_path, kinds, width, dark):
    text = f"{HOSTILE} {'unbroken' * 40} {RIGHT_TO_LEFT} and some words of a sentence"
    for kind in kinds:
        folder = tmp_path / kind
        folder.mkdir()
        page = page_of(write_run(folder / "run", kind, text)).replace("<details>", "<details open>")
        look_at(page, folder, width, dark)
