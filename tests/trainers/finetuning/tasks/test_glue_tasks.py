"""Test every task of GLUE and XNLI on files in the published layout, and on the real files in the shared data."""

import pytest

from beambert.tokenizer.tokenizer import Tokenizer
from beambert.trainers.errors import TaskDataError, TrainingError
from beambert.trainers.finetuning.tasks.text import glue
from tests.trainers.finetuning.tasks import glue_layouts
from tests.trainers.finetuning.tasks.glue_layouts import examples, open_glue, write_table, write_task
from tests.trainers.finetuning.tasks.parsed_options import parse_options

ALL = ("train", "dev", "test")


@pytest.mark.parametrize("task", glue.TASKS)
def test_the_published_layout_gives_the_texts_and_labels(task, tmp_path):
    write_task(tmp_path, task)
    opened = open_glue(task, tmp_path, *ALL)
    for split in opened.splits:
        read = opened.examples[split]
        assert [example.text for example in read] == [first for first, _, _ in examples(task)]
        seconds = [None if task in glue_layouts.SINGLE else second for _, second, _ in examples(task)]
        assert [example.text_pair for example in read] == seconds
        if split.startswith("test") and task != "xnli":
            assert {example.label for example in read} == {None}
        elif task == "stsb":
            assert [example.label for example in read] == [0.0, 2.5, 5.0, 0.0, 2.5]
        else:
            assert [example.label for example in read] == [label for _, _, label in examples(task)]
        if split.startswith("test") and task != "xnli":
            assert [example.index for example in read] == ["100", "101", "102", "103", "104"]


def test_properties_of_each_task(tmp_path):
    best = {}
    for task in glue.TASKS:
        write_task(tmp_path / task, task)
        opened = open_glue(task, tmp_path / task, "dev")
        best[task] = opened.best_metric
        assert opened.head == ("regression" if task == "stsb" else "classification")
        assert opened.labels == (None if task == "stsb" else glue_layouts.LABELS.get(task, ("0", "1")))
        assert not opened.multi_label
    assert best.pop("cola") == "eval_matthews"
    assert best.pop("stsb") == "eval_pearson"
    assert set(best.values()) == {"eval_accuracy"}


def test_mnli_has_two_sets_to_score_and_three_to_predict(tmp_path):
    write_task(tmp_path, "mnli")
    opened = open_glue("mnli", tmp_path, *ALL)
    assert opened.eval_splits == ("dev", "dev_mismatched")
    assert opened.predict_splits == ("test", "test_mismatched", "test_diagnostic")
    (tmp_path / "diagnostic.tsv").unlink()
    assert open_glue("mnli", tmp_path, "test").splits == ("test", "test_mismatched")


def test_only_what_is_wanted_is_read(tmp_path):
    write_task(tmp_path, "rte")
    (tmp_path / "train.tsv").unlink()
    (tmp_path / "test.tsv").unlink()
    assert open_glue("rte", tmp_path, "dev").splits == ("dev",)


def test_sample_limits_keep_the_first_examples(tmp_path):
    write_task(tmp_path, "mnli")
    opened = open_glue("mnli", tmp_path, *ALL, most=2)
    assert {len(read) for read in opened.examples.values()} == {2}


def test_xnli_reads_its_language(tmp_path):
    write_task(tmp_path, "xnli")
    rows = [
        {"language": language, "gold_label": "neutral", "sentence1": f"{language}1", "sentence2": f"{language}2"}
        for language in ("de", "zh", "en", "zh")
    ]
    for name in ("xnli.dev.tsv", "xnli.test.tsv"):
        write_table(tmp_path / name, glue_layouts.HEADERS["xnli"][name], rows)
    train = [{"premise": "a", "hypo": "b", "label": "contradictory"}, {"premise": "c", "hypo": "d", "label": "neutral"}]
    write_table(tmp_path / "multinli/multinli.train.zh.tsv", "premise hypo label", train)
    write_table(tmp_path / "multinli.train.en.tsv", "premise hypo label", train[1:])
    opened = open_glue("xnli", tmp_path, *ALL)
    assert [example.label for example in opened.examples["train"]] == ["contradiction", "neutral"]
    assert [example.where for example in opened.examples["dev"]] == [
        "xnli.dev.tsv, row 2 (line 3)",
        "xnli.dev.tsv, row 4 (line 5)",
    ]
    assert opened.eval_splits == ("dev", "test")  # The labels of its test file are published.
    german = open_glue("xnli", tmp_path, *ALL, flags=("--xnli_language", "de", "--xnli_train_language", "en"), most=1)
    assert [german.examples[split][0].text for split in ALL] == ["c", "de1", "de1"]
    with pytest.raises(TaskDataError, match=r"no row in language 'fr': set --xnli_language to one of de, en, zh$"):
        open_glue("xnli", tmp_path, "dev", flags=("--xnli_language", "fr"))
    with pytest.raises(TaskDataError, match=r"multinli\.train\.de\.tsv does not exist"):
        open_glue("xnli", tmp_path, "train", flags=("--xnli_language", "de"))


@pytest.mark.parametrize("task", ["mnli", "squad"])
def test_the_language_is_for_xnli_alone(task):
    options = parse_options(task, "--xnli_language", "en")
    with pytest.raises(TrainingError, match=rf"^--xnli_language is a flag of xnli, not of {task}: omit it$"):
        options.check_task()


def test_rows_of_qqp_that_lack_columns_are_left_out_and_counted(tmp_path):
    write_task(tmp_path, "qqp")
    for name in ("train.tsv", "dev.tsv", "test.tsv"):
        lines = (tmp_path / name).read_text(encoding="utf-8").split("\n")
        lines[2:2] = ["7\t1\t2\tA question that", "\tis broken?\tAnother?\t0"]
        (tmp_path / name).write_text("\n".join(lines), encoding="utf-8")
    opened = open_glue("qqp", tmp_path, "train", "dev")
    tokenizer = Tokenizer(glue_layouts.VOCABULARY)
    for split in ("train", "dev"):
        rows = opened.rows(split, tokenizer, 16)
        assert (len(rows), rows.skipped) == (5, 2)
    # The GLUE server requires a prediction for every test row.
    with pytest.raises(TaskDataError, match=r"test\.tsv, row 2 \(line 3\): 4 fields, while the file has 3 columns"):
        open_glue("qqp", tmp_path, "test")


def test_mrpc_from_the_files_of_microsoft(tmp_path):
    header = "Quality #1+ID #2+ID #1+String #2+String"
    rows = [
        {"Quality": "1", "#1 ID": str(number), "#2 ID": str(number + 1), "#1 String": f"a{number}", "#2 String": "b"}
        for number in range(4)
    ]
    write_table(tmp_path / "msr_paraphrase_train.txt", header, rows)
    write_table(tmp_path / "msr_paraphrase_test.txt", header, rows[:2])
    with pytest.raises(
        TaskDataError, match=r"dev_ids\.tsv, the list of development pairs in msr_paraphrase_train\.txt, does not exist"
    ):
        open_glue("mrpc", tmp_path, "train")
    (tmp_path / "dev_ids.tsv").write_text("1\t2\n3\t4\n")
    opened = open_glue("mrpc", tmp_path, *ALL)
    assert [example.text for example in opened.examples["train"]] == ["a0", "a2"]
    assert [example.text for example in opened.examples["dev"]] == ["a1", "a3"]
    assert [example.label for example in opened.examples["test"]] == ["1", "1"]


def test_test_files_that_hide_their_labels(tmp_path):
    write_task(tmp_path, "rte")
    rows = [{"idx": "5", "sentence1": "a", "sentence2": "b", "label": "-1"}]
    write_table(tmp_path / "test.tsv", "sentence1 sentence2 label idx", rows)
    (example,) = open_glue("rte", tmp_path, "test").examples["test"]
    assert (example.text, example.text_pair, example.label, example.index) == ("a", "b", None, "5")


def test_cola_file_with_a_header(tmp_path):
    write_task(tmp_path, "cola")
    write_table(tmp_path / "dev.tsv", "sentence label", [{"sentence": "a b", "label": "0"}])
    (example,) = open_glue("cola", tmp_path, "dev").examples["dev"]
    assert (example.text, example.label, example.where) == ("a b", "0", "dev.tsv, row 1 (line 2)")


def test_the_order_of_the_classes_is_that_of_the_model(tmp_path):
    write_task(tmp_path, "rte")
    opened = open_glue("rte", tmp_path, "dev", labels=("not_entailment", "entailment"))
    assert opened.labels == ("not_entailment", "entailment")
    rows = opened.rows("dev", Tokenizer(glue_layouts.VOCABULARY), 16)
    assert rows.targets["label_ids"].tolist() == [1, 0, 1, 0, 1]


def test_a_model_of_other_classes_is_refused(tmp_path):
    write_task(tmp_path, "rte")
    with pytest.raises(
        TaskDataError, match=r"labels of the model \(0, 1\) are not those of rte \(entailment, not_entailment\)"
    ):
        open_glue("rte", tmp_path, "test", labels=("0", "1"))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "dev.tsv",
            "index\tsentence1\tlabel\n1\ta\tentailment\n",
            r"has no column 'sentence2'.*has 'index', 'sentence1'",
        ),
        ("dev.tsv", "index\tsentence1\tsentence2\n1\ta\tb\n", r"has no column 'label'"),
        (
            "dev.tsv",
            "index\tsentence1\tsentence2\tlabel\n1\ta\tb\tentailment\n\n2\ta\tb\tmaybe\n",
            r"^dev\.tsv, row 2 \(line 4\): label 'maybe' is not one of entailment, not_entailment: ",
        ),
        (
            "dev.tsv",
            "index\tsentence1\tsentence2\tlabel\n1\ta\tb\tc\tentailment\n",
            r"^dev\.tsv, row 1 \(line 2\): 5 fields, while the file has 4 columns ",
        ),
        (
            "dev.tsv",
            "index\tsentence1\tsentence2\tlabel\n1\ta\n",
            r"row 1 \(line 2\): 2 fields, while the file has 4 columns ",
        ),
        ("dev.tsv", "index\tsentence1\tsentence2\tlabel\n", r"dev\.tsv has no row for split dev: use another file$"),
        ("dev.tsv", "", r"dev\.tsv is empty"),
        ("dev.tsv", None, r"dev\.tsv does not exist, which rte needs for split dev: add it$"),
    ],
)
def test_a_file_that_cannot_be_used(name, content, message, tmp_path):
    write_task(tmp_path, "rte")
    if content is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_text(content)
    with pytest.raises(TaskDataError, match=message) as caught:
        open_glue("rte", tmp_path, "dev")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("score", "message"), [("high", "score 'high' is not a number"), ("nan", "label nan is not a finite")]
)
def test_invalid_scores_are_refused(score, message, tmp_path):
    write_task(tmp_path, "stsb")
    row = {"sentence1": "a", "sentence2": "b", "score": score}
    write_table(tmp_path / "dev.tsv", glue_layouts.HEADERS["stsb"]["dev.tsv"], [row])
    with pytest.raises(TaskDataError, match=rf"^dev\.tsv, row 1 \(line 2\): {message}"):
        open_glue("stsb", tmp_path, "dev")


def test_missing_data_dir_is_refused(tmp_path):
    with pytest.raises(TaskDataError, match="is not a directory"):
        open_glue("cola", tmp_path / "CoLA", "dev")


def test_the_real_files(shared_data):
    # Numbers of examples, and of MRPC pairs with label 1, as published with the tasks.
    counts = {}
    for task, directory, wanted in (("cola", "CoLA", ALL), ("mrpc", "MRPC", ALL), ("sst2", "SST-2", ALL[:2])):
        opened = open_glue(task, shared_data / "glue" / directory, *wanted)
        counts[task] = {split: len(read) for split, read in opened.examples.items()}
        if task == "mrpc":
            labels = [example.label for example in opened.examples["dev"]]
            assert labels.count("1") == 279
            assert opened.examples["dev"][0].text_pair.startswith('"The foodservice pie')
            assert opened.examples["test"][-1].index == "1724"
    assert counts == {
        "cola": {"train": 8551, "dev": 1043, "test": 1063},
        "mrpc": {"train": 3668, "dev": 408, "test": 1725},
        "sst2": {"train": 67349, "dev": 872},
    }


def test_long_sentences_are_cut_and_counted(shared_data):
    tokenizer = Tokenizer.load(shared_data / "tokenizer" / "bert-base-uncased-vocab.txt")
    opened = open_glue("mrpc", shared_data / "glue" / "MRPC", "dev")
    assert opened.rows("dev", tokenizer, 128).truncated == 0
    rows = opened.rows("dev", tokenizer, 40)
    lengths = [sum(tokenizer.encode(example.text, example.text_pair, 512)[1]) for example in opened.examples["dev"]]
    assert rows.truncated == sum(length > 40 for length in lengths)
    assert max(rows.row_splits[1:] - rows.row_splits[:-1]) == 40
