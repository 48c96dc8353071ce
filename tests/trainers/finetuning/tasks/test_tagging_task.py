import numpy as np
import pytest

from beambert.tokenizer.tokenizer import Tokenizer
from beambert.tokenizer.vocabulary import SPECIAL_TOKENS, Vocabulary
from beambert.trainers.errors import TaskDataError
from beambert.trainers.finetuning.tasks.tagging.tagging_task import open_task
from tests.trainers.finetuning.tasks.ner_sentences import sentences, text
from tests.trainers.finetuning.tasks.parsed_options import parse_options

CHARACTERS = sorted({c for document in sentences() for words in document for word, _, _ in words for c in word})
TOKENIZER = Tokenizer(Vocabulary((*SPECIAL_TOKENS, *CHARACTERS, *(f"##{c}" for c in CHARACTERS))), False)
LABELS = ("O", "B-LOC", "I-LOC", "B-MISC", "I-MISC", "B-ORG", "I-ORG", "B-PER", "I-PER")
ALL = ("train", "dev", "test")


@pytest.fixture
def folder(tmp_path):
    """A data directory in IOB1: all documents in train, two of them in dev, and another one in test."""
    documents = sentences()
    for name, part in (("eng.train", documents), ("eng.testa", documents[1:3]), ("eng.testb", documents[:1])):
        (tmp_path / name).write_text(text(documents=part), encoding="utf-8")
    return tmp_path


def arguments(folder, *flags):
    return parse_options("ner", "--data_dir", folder, *flags)


def opened(folder, *flags, wanted=ALL, labels=None):
    return open_task(arguments(folder, *flags), wanted, labels)


def logits_for(task, rows, label_ids, noise=0.0):
    """Return logits of every row that predict these label ids for its tokens; -1 stands for the first label."""
    scores = np.eye(len(task.labels), dtype=np.float32)[np.maximum(label_ids, 0)]
    scores += np.random.default_rng(0).normal(0, noise, scores.shape).astype(np.float32) if noise else 0
    return np.split(scores, rows.row_splits[1:-1])


def tag_column(path, column=-1):
    return [line.split()[column] for line in path.read_text(encoding="utf-8").split("\n") if line]


def test_the_task(folder):
    task = opened(folder)
    assert (task.name, task.head, task.labels) == ("ner", "token_classification", LABELS)
    assert (task.multi_label, task.best_metric) == (False, "eval_f1")
    assert task.splits == ALL
    assert task.eval_splits == ("dev", "test")
    assert task.predict_splits == ("test",)
    assert opened(folder, wanted=("train", "test")).eval_splits == ()
    assert opened(folder, "--feature_based", "true").head == "token_classification_bilstm"
    rows = task.rows("train", TOKENIZER, 128)
    assert len(rows) == 34
    # The IOB1 tags are converted to IOB2.
    wanted = [line.split()[3] for line in text("iob2").split("\n") if line and line[:5] != "-DOCS"]
    assert [task.labels[number] for number in rows.targets["label_ids"] if number >= 0] == wanted


@pytest.mark.parametrize("flags", [(), ("--document_context", "true"), ("--tag_scheme", "iobes")])
@pytest.mark.parametrize("length", [128, 24])
def test_perfect_model_scores_one(folder, tmp_path, flags, length):
    task = opened(folder, *flags)
    for split in ("dev", "test"):
        rows = task.rows(split, TOKENIZER, length)
        logits = logits_for(task, rows, rows.targets["label_ids"])
        metrics = task.metrics(split, rows, logits)
        prefix = "eval" if split == "dev" else "test"
        assert list(metrics)[:4] == [f"{prefix}_{name}" for name in ("precision", "recall", "f1", "accuracy")]
        assert f"{prefix}_f1_ORG" in metrics
        assert set(metrics.values()) == {1.0}
        details = task.details(split, rows, logits)
        assert all(sentence["labels"] == sentence["predictions"] != [] for sentence in details["entities"])
    (path,) = task.write_predictions("test", rows, logits, tmp_path)
    assert path.name == "test_predictions.txt"
    # The tags are in the scheme of the file, not of the model.
    assert tag_column(path) == tag_column(path, -2)
    given = (folder / "eng.testb").read_text(encoding="utf-8")
    assert (
        "".join(line.rsplit(" ", 1)[0] + "\n" if line else "\n" for line in path.read_text().split("\n")[:-1]) == given
    )


def test_scores_are_those_of_the_written_tags(folder, tmp_path):
    task = opened(folder)
    rows = task.rows("test", TOKENIZER, 128)
    logits = logits_for(task, rows, rows.targets["label_ids"], noise=0.6)
    metrics = task.metrics("test", rows, logits)
    (path,) = task.write_predictions("test", rows, logits, tmp_path)
    true, predicted = (
        [tag for tag, word in zip(tag_column(path, n), tag_column(path, 0), strict=True) if word != "-DOCSTART-"]
        for n in (-2, -1)
    )
    assert 0.2 < metrics["test_accuracy"] < 0.98
    assert metrics["test_accuracy"] == np.mean([one == other for one, other in zip(true, predicted, strict=True)])
    # With the written tags as the tags of the test file, every prediction is correct.
    (tmp_path / "again").mkdir()
    for name in ("eng.train", "eng.testa"):
        (tmp_path / "again" / name).write_bytes((folder / name).read_bytes())
    (tmp_path / "again" / "test.txt").write_bytes(path.read_bytes())
    again = opened(tmp_path / "again")
    assert set(again.metrics("test", rows, logits).values()) == {1.0}


def test_details(folder):
    task = opened(folder)
    rows = task.rows("dev", TOKENIZER, 128)
    label_ids = rows.targets["label_ids"].copy()
    # "Jonas Lindqvist" becomes a location, and "Svea Trust" in another sentence loses a word.
    jonas, trust = (task._files["dev"].words.index(word) for word in ("Jonas", "Trust"))
    label_ids[rows.extras["first_pieces"][[jonas, jonas + 1, trust]]] = [1, 2, 0]
    details = task.details("dev", rows, logits_for(task, rows, label_ids))
    by_type = {row["type"]: row for row in details["by_type"]}
    assert list(by_type) == ["LOC", "MISC", "ORG", "PER"]
    assert (by_type["PER"]["precision"], by_type["PER"]["recall"], by_type["PER"]["count"]) == (1.0, 2 / 3, 3)
    first, second, third = details["entities"][:3]
    assert first["location"] == "eng.testa, line 36"
    assert first["words"][:2] == ["Jonas", "Lindqvist"]
    assert first["labels"] == [[0, 2, "PER"], [8, 9, "MISC"]]
    assert first["predictions"] == [[0, 2, "LOC"], [8, 9, "MISC"]]
    assert second["words"][3:5] == ["Svea", "Trust"]
    assert (second["labels"][1], second["predictions"][1]) == ([3, 5, "ORG"], [3, 4, "ORG"])
    assert third["labels"] == third["predictions"] != []
    import json

    assert json.loads(json.dumps(details)) == details


def test_a_test_file_without_tags(folder, tmp_path):
    task = opened(folder)
    tagged = task.rows("test", TOKENIZER, 64)
    logits = logits_for(task, tagged, tagged.targets["label_ids"])
    wanted = tag_column(task.write_predictions("test", tagged, logits, tmp_path)[0])
    lines = (folder / "eng.testb").read_text(encoding="utf-8").split("\n")
    for width, flags in ((1, ()), (3, ("--test_without_tags", "true"))):
        content = "\n".join(" ".join(line.split(" ")[:width]) for line in lines)
        (folder / "eng.testb").write_text(content, encoding="utf-8")
        alone = opened(folder, *flags, wanted=("test",), labels=LABELS)
        assert (alone.splits, alone.eval_splits, alone.predict_splits) == (("test",), (), ("test",))
        rows = alone.rows("test", TOKENIZER, 64)
        assert rows.targets == {}
        np.testing.assert_array_equal(rows.ids, tagged.ids)
        task = opened(folder, *flags)
        assert task.eval_splits == ("dev",)
        (path,) = task.write_predictions("test", rows, logits, tmp_path)
        assert tag_column(path) == wanted
        assert {len(line.split()) for line in path.read_text().split("\n") if line} == {width + 1}
        (folder / "eng.testb").write_text("\n".join(lines), encoding="utf-8")
    # The last column contains chunk tags, which are not entity tags.
    (folder / "eng.testb").write_text("\n".join(" ".join(line.split(" ")[:3]) for line in lines), encoding="utf-8")
    with pytest.raises(
        TaskDataError, match=r"eng\.testb, line 3: tag I-NP \(B-NP in iob2\) is not a label of the model .*--test_wi"
    ):
        opened(folder)


def test_words_that_the_tokenizer_drops_are_outside(tmp_path):
    content = "Oslo B-LOC\n\x01 I-LOC\n\u200b O\n\n\u200b B-LOC\n"
    for name in ("train.txt", "dev.txt", "test.txt"):
        (tmp_path / name).write_text(content, encoding="utf-8")
    task = opened(tmp_path)
    rows = task.rows("test", TOKENIZER, 16)
    logits = logits_for(task, rows, rows.targets["label_ids"])
    assert tag_column(task.write_predictions("test", rows, logits, tmp_path)[0]) == ["B-LOC", "O", "O", "O"]
    assert task.metrics("test", rows, logits)["test_recall"] == 0


def test_the_first_sentences_of_each_file(folder):
    flags = ("--max_train_samples", "5", "--max_eval_samples", "3", "--max_predict_samples", "2")
    task = opened(folder, *flags, labels=LABELS)
    assert [len(task.rows(split, TOKENIZER, 128)) for split in ALL] == [5, 3, 2]


def test_classes_are_those_of_the_whole_train_file(folder):
    task = opened(folder, "--max_train_samples", "1")
    assert len(task.rows("train", TOKENIZER, 128)) == 1
    assert task.labels == LABELS


def test_invalid_tag_after_the_first_sentences_of_train_is_named(folder):
    content = (folder / "eng.train").read_text(encoding="utf-8")
    (folder / "eng.train").write_text(content + "Oslo NN I-NP LOC\n", encoding="utf-8")
    line = len(content.splitlines()) + 1
    with pytest.raises(TaskDataError, match=rf"^eng\.train, line {line}: 'LOC' is not a valid tag"):
        opened(folder, "--max_train_samples", "1")


def test_bare_types_and_untyped_entities(tmp_path):
    for name in ("train.txt", "dev.txt"):
        (tmp_path / name).write_text("Ana person\nDuarte person\nin O\nOslo place-city\n", encoding="utf-8")
    with pytest.raises(TaskDataError, match=r"line 1: 'person' is not a valid tag .*--file_tag_scheme io for bare"):
        opened(tmp_path, wanted=("train", "dev"))
    task = opened(tmp_path, "--file_tag_scheme", "io", wanted=("train", "dev"))
    assert task.labels == ("O", "B-person", "I-person", "B-place-city", "I-place-city")
    rows = task.rows("dev", TOKENIZER, 64)
    assert task.metrics("dev", rows, logits_for(task, rows, rows.targets["label_ids"]))["eval_accuracy"] == 1
    # The labels of the model are bare types.
    task = opened(tmp_path, "--file_tag_scheme", "io", wanted=("dev",), labels=("person", "place-city", "O"))
    rows = task.rows("dev", TOKENIZER, 64)
    assert task.metrics("dev", rows, logits_for(task, rows, rows.targets["label_ids"]))["eval_f1"] == 1
    (tmp_path / "train.txt").write_text("Ana B\nDuarte I\nin O\n", encoding="utf-8")
    assert opened(tmp_path, wanted=("train",)).labels == ("O", "B", "I")
    with pytest.raises(TaskDataError, match="entities without a type, which --tag_scheme io requires"):
        opened(tmp_path, "--tag_scheme", "io", wanted=("train",))


def test_truncation_counts_sentences(folder):
    task = opened(folder)
    rows = task.rows("train", TOKENIZER, 24)
    assert len(rows) > 34
    assert task.truncation("train", rows, 24) == (
        f"{rows.truncated} of 34 train sentences exceed --max_seq_length 24 and were split between words; only longer "
        "words were truncated"
    )


def test_fingerprint_depends_on_the_inputs_of_rows(folder):
    def fingerprints(*flags, **options):
        task = opened(folder, *flags, **options)
        return [task.fingerprint(split) for split in task.splits]

    plain = fingerprints()
    assert len(set(plain)) == 3
    assert fingerprints() == plain
    # The fingerprint depends neither on the scheme in which the file has the same tags, nor on the head of the model.
    (folder / "eng.testa").write_text(text("iob2", sentences()[1:3]), encoding="utf-8")
    assert fingerprints("--feature_based", "true") == plain
    for changed in (
        fingerprints("--document_context", "true"),
        fingerprints("--tag_scheme", "iobes"),
        fingerprints(labels=LABELS[::-1]),
    ):
        assert not set(changed) & set(plain)
    assert fingerprints("--max_train_samples", "9", labels=LABELS)[1:] == plain[1:]
    assert fingerprints("--max_train_samples", "9", labels=LABELS)[0] != plain[0]
    (folder / "eng.testa").write_text(text(documents=sentences()[1:3]).replace("AG NN", "Ag NN"))
    assert fingerprints()[1] != plain[1]


@pytest.mark.parametrize(
    ("name", "old", "new", "flags", "message"),
    [
        (
            "eng.testa",
            "I-MISC",
            "I-GPE",
            (),
            "eng.testa, line 44: tag I-GPE (B-GPE in iob2) is not a label of the model",
        ),
        ("eng.testb", "I-MISC", "MISC", (), "eng.testb, line 3: 'MISC' is not a valid tag such as O, B-PER or I-PER"),
        ("eng.train", "I-PER", "PER", (), "eng.train, line 9: 'PER' is not a valid tag such as"),
        (
            "eng.train",
            "I-PER",
            "I_PER",
            (),
            "eng.train, line 9: 'I_PER' is not a valid tag: did you mean 'I-PER'? Corr",
        ),
        ("eng.testa", "I-MISC", "I-misc", (), ": did you mean B-MISC? Use a file with the tags of the training"),
        ("eng.train", "I-PER", "E-PER", ("--file_tag_scheme", "iob1"), "line 9: 'E-PER' is not a tag of scheme iob1"),
        ("eng.train", "\n\n", "\n\n# id 7 = 8\n", (), 'for a comment use --comment_prefix "#"'),
        ("eng.train", "\n\n", "\n\n# id 7 8\n", (), 'for a comment use --comment_prefix "#"'),
        ("eng.testa", "-DOCSTART-", "x", ("--document_context", "true"), "eng.testa has no -DOCSTART- line, which"),
    ],
)
def test_files_that_do_not_fit(folder, name, old, new, flags, message):
    content = (folder / name).read_text(encoding="utf-8")
    assert old in content
    (folder / name).write_text(content.replace(old, new), encoding="utf-8")
    with pytest.raises(TaskDataError) as caught:
        opened(folder, *flags)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_classes_that_do_not_fit(folder):
    with pytest.raises(TaskDataError, match=r"labels of the model \(LABEL_0, LABEL_1\.\.\.\) are not tags"):
        opened(folder, labels=("LABEL_0", "LABEL_1"))
    with pytest.raises(TaskDataError, match=r"eng\.train, line 3: .* is not a label of the model \(O, B-PER, I-PER\)"):
        opened(folder, labels=("O", "B-PER", "I-PER"), wanted=("train",))
    with pytest.raises(TaskDataError, match="train it first"):
        opened(folder, wanted=("test",))
    (folder / "eng.train").write_text("Oslo O\n", encoding="utf-8")
    with pytest.raises(TaskDataError, match=r"eng\.train has no entity, since every tag is O"):
        opened(folder)
