"""Tests of `beambert predict` against the exported SavedModel, and the model called with single unpadded texts."""

import io
import itertools
import json
import os
import re
import subprocess
import sys
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beambert import cli
from beambert.common.word_rules import WordRules
from beambert.tokenizer.normalization import split_words
from beambert.tokenizer.tokenizer import Tokenizer
from beambert.trainers.commands import predict
from beambert.trainers.errors import TrainingError
from beambert.trainers.finetuning.tasks.squad_answers import ONLY_NULL
from beambert.trainers.inference import predictor as prediction
from beambert.trainers.inference.model_loading import load_model
from beambert.trainers.inference.predictor import Predictor, best_windows, window_starts
from tests.conftest import ROOT
from tests.converted_models import write_release
from tests.trainers.commands.served_models import LABELS, LENGTH, MULTI_LABEL, STRIDE, TAGS, close, softmax
from tests.trainers.random_models import TEXTS, VOCABULARY

# Different lengths, one without tokens, one that is truncated.
SINGLE = ["", "All human beings.", *TEXTS[1:30:3], "a" * 90, " \x01 "]
PAIRS = [f"{first} ||| {second}" for first, second in zip(TEXTS[:12], TEXTS[12:24], strict=True)]
CHOICES = ["all ||| human ||| rights ||| a", f"{TEXTS[2]} ||| {TEXTS[3]} ||| {TEXTS[4]}"]
QUESTIONS = [("all rights", TEXTS[0] * 3), ("human", TEXTS[5]), (TEXTS[3], TEXTS[10] + TEXTS[6]), ("x", "\u00c9 human")]


@pytest.fixture(scope="module")
def predictor(models):
    load = cache(load_model)

    def make(name, **options):
        return Predictor(load(models / name), **{"max_seq_length": LENGTH, "batch_size": 4, **options})

    return make


def answers(predictor, texts):
    return predictor.answers(texts, [f"line {number}" for number in range(len(texts))])


def unpadded(text, pair=None):
    ids, mask, segments = (np.array(part)[None] for part in Tokenizer(VOCABULARY, True).encode(text, pair, LENGTH))
    size = mask.sum()
    return {"input_ids": ids[:, :size], "input_mask": mask[:, :size], "segment_ids": segments[:, :size]}


def logits_alone(predictor, text, pair=None):
    """The model, called with one text without padding."""
    return np.array(predictor.inference_model.model(unpadded(text, pair)))[0]


def test_classes(predictor):
    asking = predictor("classification")
    for text, answer in zip(SINGLE, answers(asking, SINGLE), strict=True):
        probabilities = {entry["label"]: entry["probability"] for entry in answer["labels"]}
        close([probabilities[name] for name in LABELS], softmax(logits_alone(asking, text)))
        shares = [entry["probability"] for entry in answer["labels"]]
        assert shares == sorted(shares, reverse=True)
    assert asking.cut > 0
    assert [len(answer["labels"]) for answer in answers(predictor("classification", top_k=2), SINGLE[:3])] == [2] * 3


def test_pairs_and_scores(predictor):
    asking = predictor("regression")
    found = answers(asking, PAIRS)
    close([answer["score"] for answer in found], [logits_alone(asking, *pair.split(" ||| ")) for pair in PAIRS])
    assert [(answer["text"], answer["text_pair"]) for answer in found] == [tuple(pair.split(" ||| ")) for pair in PAIRS]


def test_multi_label_classification(predictor):
    asking = predictor(MULTI_LABEL)
    sizes = set()
    for text, answer in zip(SINGLE, answers(asking, SINGLE), strict=True):
        shares = 1 / (1 + np.exp(-logits_alone(asking, text)))
        likely = {name: share for name, share in zip(LABELS, shares, strict=True) if share > 0.5}
        assert {entry["label"] for entry in answer["labels"]} == likely.keys()
        assert list(answer["probabilities"]) == list(LABELS)
        close(list(answer["probabilities"].values()), shares)
        close([entry["probability"] for entry in answer["labels"]], sorted(likely.values(), reverse=True))
        sizes.add(len(likely))
    assert len(sizes) > 1
    for threshold, least in ((0.0, len(LABELS)), (1.0, 0)):
        found = answers(predictor(MULTI_LABEL, threshold=threshold), SINGLE)
        assert {len(answer["labels"]) for answer in found} == {least}
    with pytest.raises(TrainingError, match="--threshold is a flag for models with several labels per text"):
        predictor("classification", threshold=0.3)


def test_choices(predictor):
    asking = predictor("multiple_choice")
    found = answers(asking, CHOICES)
    for line, answer in zip(CHOICES, found, strict=True):
        text, *choices = line.split(" ||| ")
        inputs = [unpadded(text, choice) for choice in choices]
        model = asking.inference_model.model
        logits = np.array([model({n: v[None] for n, v in one.items()}) for one in inputs])[:, 0, 0]
        assert (answer["text"], answer["choices"], answer["choice"]) == (text, choices, logits.argmax())
        close(answer["probabilities"], softmax(logits))
    # A text is counted once, not once per choice.
    assert asking.cut == 1
    answers(asking, [CHOICES[0], f"{'a ' * 90}||| a ||| b ||| all", f"a ||| {'b ' * 90} ||| b"])
    assert asking.cut == 3
    with pytest.raises(TrainingError, match=r"line 1 has fewer than two choices: write 'text \|\|\| choice"):
        answers(asking, [CHOICES[0], "a ||| b"])


def test_answers_and_their_places(predictor, served, monkeypatch):
    monkeypatch.setattr(prediction, "DOC_STRIDE", STRIDE)
    questions, contexts = zip(*QUESTIONS, strict=True)
    # test_export.py compares these answers with those of a loop.
    wanted = served.ask("span", "serving_default", question=list(questions), context=list(contexts))
    asking = predictor("span")
    found = answers(asking, [f"{question} ||| {context}\n" for question, context in QUESTIONS])
    # The same with the question as an argument of its own.
    (apart,) = answers(predictor("span", question=QUESTIONS[0][0]), [QUESTIONS[0][1]])
    assert {**apart, "score": 0, "null_score": 0} == {**found[0], "score": 0, "null_score": 0}
    for i, answer in enumerate(found):
        assert (answer["question"], answer["context"]) == QUESTIONS[i]
        assert answer["answer"] == wanted["answer"][i].decode() == answer["context"][answer["start"] : answer["end"]]
        close([answer["score"], answer["null_score"]], [wanted["score"][i], wanted["null_score"][i]])
    assert any(answer["end"] > len(answer["answer"].encode()) for answer in found)
    none = predictor("span", question="all", null_score_diff_threshold=-1e9)
    for answer in answers(none, ["human", "  "]):
        assert (answer["answer"], answer["start"], answer["end"]) == ("", -1, -1)
    (empty,) = answers(asking, ["all rights |||"])
    assert (empty["question"], empty["context"], empty["answer"], empty["end"]) == ("all rights", "", "", -1)
    with pytest.raises(TrainingError, match=r"line 1 has no question: write 'question \|\|\| context', or use --"):
        answers(asking, ["a ||| b", "a"])


def test_the_answers_are_those_of_finetune(models, predictor, tmp_path):
    # q and z are not in the vocabulary, so that their words are [UNK].
    contexts = [
        "human, (qz)-rights; the all of (zip)  all!",
        *(f"{word}.qq" for word in ("z", "q,z", "q all", "zz-rights")),
        "a zq. (all)zzz,human\u2014qqq rights",
        "rights e\u0301 all \ufb01 human",
        *(f"{text} (qi).z!" for text in TEXTS[:8]),
    ]
    questions = [QUESTIONS[number % 4][0] for number in range(len(contexts))]
    paragraphs = [
        {"context": context, "qas": [{"id": str(number), "question": question, "answers": []}]}
        for number, (question, context) in enumerate(zip(questions, contexts, strict=True))
    ]
    (tmp_path / "dev.json").write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}), encoding="utf-8")
    output = tmp_path / "output"
    flags = ["--predict_file", tmp_path / "dev.json", "--init_checkpoint", models / "span", "--output", output]
    flags += ["--max_seq_length", LENGTH, "--max_query_length", prediction.max_query_length(LENGTH), "--do_predict"]
    flags += ["--version_2_with_negative", "--null_score_diff_threshold", "1e9"]
    assert cli.main(["finetune", "squad", *map(str, flags)]) == 0
    written = json.loads((output / "predictions.json").read_text(encoding="utf-8"))
    odds = json.loads((output / "null_odds.json").read_text(encoding="utf-8"))
    found = answers(predictor("span"), [" ||| ".join(pair) for pair in zip(questions, contexts, strict=True)])
    assert [answer["answer"] for answer in found] == [written[str(number)] for number in range(len(contexts))]
    for number, (answer, context) in enumerate(zip(found, contexts, strict=True)):
        if answer["end"] < 0:
            # The 20 best starts or ends are in the question.
            assert odds[str(number)] == ONLY_NULL
        else:
            close(answer["null_score"] - answer["score"], odds[str(number)])
            assert answer["answer"].split() == context[answer["start"] : answer["end"]].split()
    # An answer with [UNK] has whole words.
    assert found[1]["answer"] == "z.qq"


def test_words_and_entities(predictor, served):
    asking = predictor("token_classification")
    found = answers(asking, SINGLE)
    wanted = served.ask("token_classification", "serving_default", text=SINGLE)
    for row, (text, answer) in enumerate(zip(SINGLE, found, strict=True)):
        assert [word["word"] for word in answer["words"]] == _surface_words(text)
        data = text.encode()
        by_start = {}
        for start, label, probabilities in zip(
            wanted["start"][row], wanted["labels"][row], wanted["probabilities"][row], strict=True
        ):
            if start >= 0:
                # The label of a word is that of its first token.
                by_start.setdefault(len(data[:start].decode()), (label.decode(), probabilities.max()))
        if len(Tokenizer(VOCABULARY, True).tokenize(text)) > LENGTH - 2:
            continue  # The SavedModel truncates it.
        for word in answer["words"]:
            assert text[word["start"] : word["end"]] == word["word"]
            label, probability = by_start[word["start"]]
            assert word["label"] == label
            close(word["probability"], probability)
        # For all labels, exactly the words with a type are in an entity of that type.
        inside = {}
        for entity in answer["entities"]:
            assert text[entity["start"] : entity["end"]] == entity["text"]
            for word in answer["words"]:
                if entity["start"] <= word["start"] < entity["end"]:
                    inside[word["start"]] = entity["type"]
        wanted_types = {w["start"]: w["label"].split("-")[1] for w in answer["words"] if w["label"] != "O"}
        assert inside == wanted_types
    assert any(answer["entities"] for answer in found)


def _surface_words(text):
    """Return the words of a text in their original spelling."""
    tokenizer = Tokenizer(VOCABULARY, True)
    _, _, offsets = tokenizer.encode_batch_with_offsets([text])
    words, pieces = [], tokenizer.tokenize(text)
    for piece, (start, end) in zip(pieces, offsets.tolist(), strict=True):
        if piece.startswith("##"):
            words[-1] = (words[-1][0], end)
        else:
            words.append((start, end))
    assert len(words) == len(split_words(text, WordRules()))
    return [text[start:end] for start, end in words]


def test_entities_of_several_words(predictor, monkeypatch):
    asking = predictor("token_classification")
    tags = ["B-PER", "I-PER", "O", "B-LOC", "B-LOC"]
    scores = np.stack([[0.0] * len(TAGS), *(np.eye(len(TAGS))[TAGS.index(tag)] for tag in tags), [0.0] * len(TAGS)])
    monkeypatch.setattr(asking, "_logits", lambda rows, segments: [scores])
    (answer,) = answers(asking, ["a  b  c d e"])
    assert answer["entities"] == [
        {"type": "PER", "text": "a  b", "start": 0, "end": 4},
        {"type": "LOC", "text": "d", "start": 8, "end": 9},
        {"type": "LOC", "text": "e", "start": 10, "end": 11},
    ]


def test_words_that_are_already_split(predictor):
    text = "all-human  rights. (all) a"
    words = {
        where: [word["word"] for word in answers(predictor("token_classification", words_at=where), [text])[0]["words"]]
        for where in ("punctuation", "whitespace")
    }
    assert words["punctuation"] == ["all", "-", "human", "rights", ".", "(", "all", ")", "a"]
    assert words["whitespace"] == ["all-human", "rights.", "(all)", "a"]


def test_feature_based_tagger(predictor, models):
    asking = predictor("token_classification_bilstm")
    (answer,) = answers(asking, ["all human rights"])
    logits = logits_alone(asking, "all human rights")
    # Tokens: [CLS] all human rights [SEP].
    assert [word["label"] for word in answer["words"]] == [TAGS[i] for i in logits[1:4].argmax(-1)]
    # Its layers can be selected as those of any other model.
    assert load_model(models / "token_classification_bilstm", layers=[0]).missing == ()


def test_a_long_text_is_labelled_to_its_end(predictor):
    """Words in the middle of a window have the labels of that window alone."""
    asking = predictor("token_classification", max_seq_length=10)
    text = "a b c d e " * 5
    (answer,) = answers(asking, [text])
    assert len(answer["words"]) == 25
    # Windows of 8 tokens start at 0, 4, ..., 16, 17.
    pieces = text.split()
    for place, start in ((0, 0), (3, 0), (6, 4), (12, 8), (24, 17)):
        window = pieces[start : start + 8]
        (alone,) = answers(asking, [" ".join(window)])
        assert answer["words"][place]["label"] == alone["words"][place - start]["label"]
        close(answer["words"][place]["probability"], alone["words"][place - start]["probability"])


@settings(deadline=None)
@given(st.integers(0, 300), st.integers(2, 40))
def test_windows_cover_a_row_and_show_most(count, room):
    starts = window_starts(count, room)
    assert starts[0] == 0
    assert all(0 < b - a <= room // 2 for a, b in itertools.pairwise(starts))
    assert count <= room or starts[-1] == count - room
    pieces = np.arange(count)
    chosen = best_windows(pieces, starts, room)
    for piece, window in zip(pieces.tolist(), chosen.tolist(), strict=True):
        around = [min(piece - start, start + room - 1 - piece) for start in starts.tolist()]
        assert around[window] == max(around)
        assert around[window] >= 0


# The command.


def called(capsys, *argv):
    capsys.readouterr()
    code = cli.main(["predict", *map(str, argv)])
    return code, *capsys.readouterr()


def test_the_most_probable_label_is_printed_where_none_is_predicted(models, capsys):
    code, out, _ = called(capsys, models / MULTI_LABEL, "all human", "--threshold", "1")
    assert code == 0
    first, second = out.splitlines()
    assert first == "all human"
    names = "|".join(LABELS)
    assert re.fullmatch(rf"  no label, the most probable is ({names}) with \d+\.\d% \(--threshold\)", second)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("classification", "all qi"),
        ("regression", "all ||| qi"),
        ("multiple_choice", "all ||| qi ||| human"),
        ("span", "all ||| qi human rights"),
        ("token_classification", "all qi"),
    ],
)
def test_unknown_words_are_a_warning(models, capsys, name, text):
    code, _, said = called(capsys, models / name, text)
    assert code == 0
    assert "% of the tokens of the texts are [UNK], such as 'qi': the vocabulary lacks these words; use" in said
    assert called(capsys, models / name, text.replace("qi", "all"))[2] == ""


def test_truncated_questions_are_counted(models, tmp_path, capsys):
    lines = tmp_path / "questions.txt"
    # 22 tokens are half of the window of 48 without [CLS] and two [SEP]; a long context is read in windows.
    questions = ("a " * 22, "a " * 23, "a " * 70)
    lines.write_text("".join(f"{question}||| {'human ' * 90}\n" for question in questions), encoding="utf-8")
    flags = (models / "span", "--input_file", lines, "--json", "--max_seq_length", LENGTH)
    code, said, errors = called(capsys, *flags)
    assert (code, len(said.splitlines())) == (0, 3)
    assert "warning: 2 of 3 questions exceeded 22 tokens and were truncated\n" in errors
    lines.write_text("".join(f"{'human ' * 90}\n" for _ in range(2)), encoding="utf-8")
    assert "truncated" not in called(capsys, *flags, "--question", questions[0])[2]
    assert "2 of 2 questions exceeded 22 tokens" in called(capsys, *flags, "--question", questions[1])[2]


def test_output_for_a_terminal(models, capsys):
    code, said, _ = called(capsys, models / "classification", "all human", "rights ||| all", "--top_k", "2")
    lines = said.splitlines()
    assert (code, len(lines), lines[0], lines[3]) == (0, 6, "all human", "rights ||| all")
    assert lines[1].strip().split("  ")[1] in LABELS
    assert lines[1].strip().split("  ")[0].endswith("%")
    assert called(capsys, models / "regression", "all")[1].splitlines()[0] == "all"
    code, said, _ = called(capsys, models / "span", "all human beings", "--question", "who?")
    assert said.splitlines()[0] == "all human beings"
    assert "score" in said.splitlines()[1]
    code, said, _ = called(capsys, models / "token_classification", "all human beings")
    assert "human" in said.splitlines()[1]
    code, said, _ = called(capsys, models / "multiple_choice", "all ||| human ||| rights")
    assert {line.split("%  ")[1] for line in said.splitlines()[1:]} == {"human", "rights"}
    code, said, _ = called(capsys, models / MULTI_LABEL, "all ||| human")
    assert said.startswith("all ||| human\n  ")


@pytest.mark.parametrize("task", ["classification", "multiple_choice", "span"])
def test_a_file_of_lines(models, predictor, tmp_path, capsys, monkeypatch, task):
    monkeypatch.setattr(predict, "LINES_A_CHUNK", 3)
    texts = {"multiple_choice": CHOICES * 3, "span": [" ||| ".join(pair) for pair in QUESTIONS] * 2}.get(task, SINGLE)
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    flags = ["--input_file", tmp_path / "texts.txt", "--json", "--max_seq_length", LENGTH]
    code, said, _ = called(capsys, models / task, *flags)
    assert code == 0
    found = [json.loads(line) for line in said.splitlines()]
    wanted = answers(predictor(task, batch_size=32), texts)
    assert [entry.keys() for entry in found] == [entry.keys() for entry in wanted]
    key = {"multiple_choice": "choice", "span": "answer", "regression": "text"}.get(task)
    for one, other in zip(found, wanted, strict=True):
        if key:
            assert one[key] == other[key]
        else:
            part = "labels" if task == "classification" else "words"
            assert [entry["label"] for entry in one[part]] == [entry["label"] for entry in other[part]]


def test_output_file_equals_stdout(models, tmp_path, capsys):
    (tmp_path / "texts.txt").write_text("all\nhuman\n", encoding="utf-8")
    flags = [models / "regression", "--input_file", tmp_path / "texts.txt", "--json"]
    _, said, _ = called(capsys, *flags)
    _, nothing, errors = called(capsys, *flags, "--output_file", tmp_path / "answers.jsonl")
    assert nothing == ""
    assert (tmp_path / "answers.jsonl").read_text(encoding="utf-8") == said
    assert "2 texts" in errors
    assert {path.name for path in tmp_path.iterdir()} == {"texts.txt", "answers.jsonl"}


LINES = b"all human\n\xff rights ||| all\n" * 300


def test_lines_of_stdin(models, capsys, monkeypatch):
    monkeypatch.setattr(predict, "LINES_A_CHUNK", 100)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(LINES)))
    code, said, errors = called(capsys, models / "classification", "--input_file", "-", "--json")
    found = [json.loads(line) for line in said.splitlines()]
    assert (code, len(found), found[1]["text_pair"]) == (0, 600, "all")
    assert "300 of 600 lines were not valid UTF-8" in errors


@pytest.mark.slow
def test_stdout_may_be_closed(models):
    command = f"{sys.executable} -m beambert predict {models}/classification --input_file - --json | head -n 1"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    result = subprocess.run(command, shell=True, input=LINES * 10, capture_output=True, env=environment, cwd=models)
    assert json.loads(result.stdout)["text"] == "all human"
    assert b"Traceback" not in result.stderr
    assert b"rror" not in result.stderr


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_json_in_every_encoding_of_stdout(models, capsys, monkeypatch, encoding):
    text = "\u00e9 human \u4eba"
    stdout = io.TextIOWrapper(io.BytesIO(), encoding, errors="backslashreplace")
    monkeypatch.setattr(sys, "stdout", stdout)
    assert cli.main(["predict", str(models / "classification"), text, "--json"]) == 0
    stdout.flush()
    answer = json.loads(stdout.buffer.getvalue().decode())
    assert answer["text"] == text
    assert {label["label"] for label in answer["labels"]} == set(LABELS)
    assert (text.encode() in stdout.buffer.getvalue()) == (encoding == "utf-8")


@pytest.mark.parametrize(
    ("name", "flags", "message"),
    [
        ("pretraining", ["a"], "is a pretrained model without a task head: fine-tune it first"),
        ("classification", [], "give either TEXT or --input_file"),
        ("classification", ["a", "--input_file", "b"], "give either TEXT or --input_file"),
        ("classification", ["a", "--question", "b"], "--question is a flag for span models"),
        ("span", ["a ||| b", "--words_at", "whitespace"], "--words_at is a flag for token_classification models"),
        ("classification", ["a", "--max_seq_length", "65"], "must be 8 to 64"),
        ("classification", ["--input_file", "nowhere.txt"], "nowhere.txt"),
        ("nowhere", ["a"], "is not a checkpoint"),
    ],
)
def test_mistakes_are_one_line(models, capsys, name, flags, message):
    code, said, error = called(capsys, models / name, *flags)
    assert (code, said, error.count("\n")) == (1, "", 1)
    assert message in error


def test_the_flag_sets_the_precision(models, capsys):
    printed = []
    for flags in ([], ["--precision", "float32"], ["--precision", "bfloat16"]):
        code, said, _ = called(capsys, models / "classification", TEXTS[1], "--json", *flags)
        assert code == 0
        printed.append(json.loads(said)["labels"])
    assert printed[0] == printed[1] != printed[2]
    wanted, found = ({entry["label"]: entry["probability"] for entry in labels} for labels in printed[1:])
    assert found == pytest.approx(wanted, abs=0.02)


def test_a_tf1_token_classifier_with_its_task_named(tmp_path, capsys):
    write_release(tmp_path / "release", "token_classification", 3)
    code, said, _ = called(capsys, tmp_path / "release", "a b", "--json", "--task", "token_classification")
    assert code == 0
    answer = json.loads(said)
    assert [word["word"] for word in answer["words"]] == ["a", "b"]
    assert {word["label"] for word in answer["words"]} <= {"0", "1", "2"}
    assert answer["entities"] == []
