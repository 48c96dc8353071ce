"""Tests of exports against the model called with single unpadded texts, and of a SavedModel with TensorFlow alone."""

import dataclasses
import json
import pickle
import subprocess
import sys
from functools import cache

import numpy as np
import pytest

from beambert import cli
from beambert.common.word_rules import WordRules
from beambert.tokenizer.tokenizer import Tokenizer
from beambert.trainers.commands.fill_mask import fill_masks
from beambert.trainers.errors import TrainingError
from beambert.trainers.inference.export_record import export_record
from beambert.trainers.inference.export_writers import graph_tokenizer, write_saved_model
from beambert.trainers.inference.model_loading import load_model
from beambert.trainers.inference.signatures import served_model
from tests.conftest import with_slow
from tests.trainers.commands.served_models import (
    CONFIG,
    LABELS,
    LENGTH,
    MULTI_LABEL,
    STRIDE,
    TAGS,
    TASKS,
    close,
    softmax,
)
from tests.trainers.random_models import TEXTS, VOCABULARY, write_model

# Different lengths, one without tokens, one that is truncated.
SINGLE = ["", "All human beings.", *TEXTS[1:30:3], "a" * 90, " \x01 "]
PAIRS = [*SINGLE[::-1]]
CHOICES = [[pair, f"{text} human", "all"] for text, pair in zip(SINGLE, PAIRS, strict=True)]
MASKED = ["[MASK] human [MASK]s", "nothing", "", "Gr\u00f6\u00dfe[MASK]", "[MASK]" * 3]
QUESTIONS = ["all rights", "", TEXTS[3], "human", "are born", "x"]
CONTEXTS = [TEXTS[0] * 3, TEXTS[5], "", "  ", TEXTS[10] + TEXTS[6], "\u00c9 human"]

LOADING = """
import pickle, sys
import tensorflow as tf
folder, calls = pickle.load(sys.stdin.buffer)
model = tf.saved_model.load(folder)
answers = []
for signature, inputs in calls:
    outputs = model.signatures[signature](**{name: tf.constant(value) for name, value in inputs.items()})
    answers.append({name: value.numpy() for name, value in outputs.items()})
ours = {"beambert", "tensorflow_text"}
assert not ours & {name.split(".")[0] for name in sys.modules}
sys.stdout.buffer.write(pickle.dumps((answers, model.vocabulary_file.asset_path.numpy())))
"""


@pytest.mark.slow
def test_a_saved_model_needs_tensorflow_alone(models, served, tmp_path):
    """Another process, which cannot import beambert, computes the same."""
    saved = tmp_path / "saved"
    write_saved_model(load_model(models / "pretraining"), saved, LENGTH, top_k=3)
    calls = [("serving_default", {"text": SINGLE}), ("fill_mask", {"text": MASKED})]
    result = subprocess.run(
        [sys.executable, "-c", LOADING],
        input=pickle.dumps((str(saved), calls)),
        capture_output=True,
        cwd=tmp_path,
        check=False,
    )
    assert result.returncode == 0, result.stderr.decode()
    answers, vocabulary = pickle.loads(result.stdout)
    assert vocabulary.decode() == str(saved / "assets" / "vocab.txt")
    for (signature, inputs), answer in zip(calls, answers, strict=True):
        wanted = served.ask("pretraining", signature, **inputs)
        assert answer.keys() == wanted.keys()
        for name, value in wanted.items():
            (close if value.dtype == np.float32 else np.testing.assert_array_equal)(answer[name], value)


class Asked:
    """A model in Python, called with one text at a time, without padding."""

    def __init__(self, model):
        self.model = model.model
        self.tokenizer = Tokenizer(VOCABULARY, True)

    def inputs(self, text, pair=None):
        ids, mask, segments = (np.array(values)[None] for values in self.tokenizer.encode(text, pair, LENGTH))
        size = mask.sum()
        return {"input_ids": ids[:, :size], "input_mask": mask[:, :size], "segment_ids": segments[:, :size]}

    def logits(self, text, pair=None):
        return np.array(self.model(self.inputs(text, pair)))[0]


@pytest.fixture(scope="module")
def asked(models):
    return cache(lambda task: Asked(load_model(models / task)))


def inputs_of(texts, pairs):
    return {"text": texts} if pairs[0] is None else {"text": texts, "text_pair": pairs}


@pytest.mark.parametrize(("signature", "pairs"), [("serving_default", [None] * len(SINGLE)), ("pair", PAIRS)])
def test_embeddings(served, asked, signature, pairs):
    model, found = asked("pretraining"), served.ask("pretraining", signature, **inputs_of(SINGLE, pairs))
    assert found.keys() == {"cls_embedding", "mean_embedding", "pooled_output"}
    for row, (text, pair) in enumerate(zip(SINGLE, pairs, strict=True)):
        hidden, pooled = model.model.encoder(**model.inputs(text, pair))
        close(found["cls_embedding"][row], hidden[0, 0])
        close(found["mean_embedding"][row], np.mean(hidden[0], axis=0))
        close(found["pooled_output"][row], pooled[0])


def test_tokens_and_their_embeddings(served, asked):
    model, found = asked("pretraining"), served.ask("pretraining", "tokens", text=SINGLE)
    assert found["tokens"].shape == (len(SINGLE), LENGTH)
    for row, text in enumerate(SINGLE):
        inputs = model.inputs(text)
        size = inputs["input_ids"].size
        hidden, _ = model.model.encoder(**inputs)
        tokens = [token.decode() for token in found["tokens"][row]]
        assert tokens == [VOCABULARY.tokens[i] for i in inputs["input_ids"][0]] + [""] * (LENGTH - size)
        close(found["embeddings"][row, :size], hidden[0])


def test_fill_mask_equals_the_command(models, served):
    found = served.ask("pretraining", "fill_mask", text=MASKED)
    assert found["pieces"].shape == (len(MASKED), 3, 3)
    assert found["positions"].tolist()[0][:2] == [1, 3]
    masked = [text for text in MASKED if "[MASK]" in text]
    wanted = dict(zip(masked, fill_masks(models / "pretraining", masked, top_k=3), strict=True))
    for row, text in enumerate(MASKED):
        fillings = wanted.get(text, [])
        assert (found["positions"][row] >= 0).sum() == len(fillings)
        for mask, candidates in enumerate(fillings):
            assert [piece.decode() for piece in found["pieces"][row, mask]] == [c.token for c in candidates]
            assert [VOCABULARY.tokens[i] for i in found["ids"][row, mask]] == [c.token for c in candidates]
            close(found["probabilities"][row, mask], [c.probability for c in candidates])
        padding = slice(len(fillings), None)
        assert set(found["pieces"][row, padding].ravel()) <= {b""}
        assert set(found["ids"][row, padding].ravel()) <= {-1}
        assert not found["probabilities"][row, padding].any()
    assert served.ask("pretraining", "fill_mask", text=["no mask"])["pieces"].shape == (1, 0, 3)


@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.parametrize(("signature", "pairs"), [("serving_default", [None] * len(SINGLE)), ("pair", PAIRS)])
def test_classes_and_scores(served, asked, task, signature, pairs):
    found = served.ask(task, signature, **inputs_of(SINGLE, pairs))
    logits = np.array([asked(task).logits(text, pair) for text, pair in zip(SINGLE, pairs, strict=True)])
    if task == "regression":
        close(found["score"], logits)
        return
    close(found["probabilities"], softmax(logits))
    assert [label.decode() for label in found["label"]] == [LABELS[i] for i in logits.argmax(-1)]


@pytest.mark.parametrize(
    "task", with_slow(["token_classification", "token_classification_bilstm"], ["token_classification_bilstm"])
)
def test_token_labels_and_offsets(served, asked, task):
    model, found = asked(task), served.ask(task, "serving_default", text=SINGLE)
    ids, splits, offsets = model.tokenizer.encode_batch_with_offsets(SINGLE)
    for row, text in enumerate(SINGLE):
        logits = model.logits(text)[1:-1]
        size = len(logits)
        part = slice(splits[row], splits[row] + size)
        assert [token.decode() for token in found["tokens"][row, :size]] == [VOCABULARY.tokens[i] for i in ids[part]]
        assert [label.decode() for label in found["labels"][row, :size]] == [TAGS[i] for i in logits.argmax(-1)]
        close(found["probabilities"][row, :size], softmax(logits))
        data = text.encode()
        for start, end, (first, last) in zip(
            found["start"][row, :size], found["end"][row, :size], offsets[part], strict=True
        ):
            assert data[start:end].decode() == text[first:last]
        assert set(found["tokens"][row, size:]) | set(found["labels"][row, size:]) <= {b""}
        assert set(found["start"][row, size:]) | set(found["end"][row, size:]) <= {-1}
        assert not found["probabilities"][row, size:].any()


def test_choices(served, asked):
    model = asked("multiple_choice")
    found = served.ask("multiple_choice", "serving_default", text=SINGLE, choices=CHOICES)
    for row, (text, pair) in enumerate(zip(SINGLE, PAIRS, strict=True)):
        logits = [
            float(np.array(model.model({n: v[None] for n, v in model.inputs(text, choice).items()}))[0, 0])
            for choice in (pair, f"{text} human", "all")
        ]
        close(found["probabilities"][row], softmax(np.array(logits)))
        assert found["choice"][row] == np.argmax(logits)


def best_span(asked, question, context):
    """Return the answer by the method of the released run_squad.py, in loops: windows, max context, all spans."""
    ids, splits, offsets = asked.tokenizer.encode_batch_with_offsets([question, context])
    query, pieces, offsets = ids[: splits[1]][: (LENGTH - 3) // 2], ids[splits[1] :], offsets[splits[1] :]
    room = LENGTH - len(query) - 3
    windows, start = [], 0
    while start < len(pieces):
        length = min(len(pieces) - start, room)
        windows.append((start, length))
        if start + length == len(pieces):
            break
        start += min(length, STRIDE)

    def amount(window, place):
        first, length = window
        return min(place - first, first + length - 1 - place) + 0.01 * length

    found, null = (-np.inf, None, None), np.inf
    for number, (first, length) in enumerate(windows or [(0, 0)]):
        row = [VOCABULARY.cls_id, *query, VOCABULARY.sep_id, *pieces[first : first + length], VOCABULARY.sep_id]
        segments = [0] * (len(query) + 2) + [1] * (length + 1)
        logits = asked.model(
            {"input_ids": np.array([row]), "input_mask": np.ones((1, len(row))), "segment_ids": np.array([segments])}
        )
        starts, ends = np.array(logits)[0]
        null = min(null, starts[0] + ends[0])
        for i in range(length):
            place = first + i
            holding = [n for n, (f, size) in enumerate(windows) if f <= place < f + size]
            if max(holding, key=lambda n: amount(windows[n], place)) != number:
                continue
            for j in range(i, min(length, i + 30)):
                score = starts[len(query) + 2 + i] + ends[len(query) + 2 + j]
                found = max(found, (score, place, first + j))
    if found[1] is None:
        return "", null, null
    return context[offsets[found[1]][0] : offsets[found[2]][1]], found[0], null


def test_answers_to_questions(served, asked):
    model = asked("span")
    found = served.ask("span", "serving_default", question=QUESTIONS, context=CONTEXTS)
    assert found.keys() == {"answer", "start", "end", "score", "null_score"}
    lengths = [len(model.tokenizer.tokenize(context)) for context in CONTEXTS]
    assert max(lengths) > 2 * LENGTH
    for row, (question, context) in enumerate(zip(QUESTIONS, CONTEXTS, strict=True)):
        text, score, null_score = best_span(model, question, context)
        assert found["answer"][row].decode() == text
        close(found["score"][row], score)
        close(found["null_score"][row], null_score)
        start, end = found["start"][row], found["end"][row]
        assert context.encode()[start:end].decode() == text if lengths[row] else (start, end) == (-1, -1)


@pytest.mark.parametrize("task", TASKS)
def test_ids(served, asked, task):
    model = asked(task).model
    generator = np.random.default_rng(0)
    shape = (3, 2, 9) if task == "multiple_choice" else (3, 9)
    inputs = {
        "input_ids": generator.integers(5, len(VOCABULARY), shape).astype(np.int32),
        "input_mask": np.ones(shape, np.int32),
        "segment_ids": generator.integers(0, 2, shape).astype(np.int32),
    }
    inputs["input_mask"][0, ..., 5:] = 0
    found = served.ask(task, "ids", **inputs)
    if task == "pretraining":
        hidden, pooled = model.encoder(**inputs)
        close(found["embeddings"], hidden)
        close(found["pooled_output"], pooled)
        close(found["mean_embedding"][0], np.mean(hidden[0, :5], axis=0))
    elif task == "span":
        close(np.stack([found["start_logits"], found["end_logits"]], axis=1), model(inputs))
    elif task == "regression":
        close(found["score"], model(inputs))
    else:
        close(found["probabilities"], softmax(np.array(model(inputs))))


def test_labels_of_a_multi_label_model_are_independent(served, asked):
    logits = asked(MULTI_LABEL).logits(SINGLE[1])
    found = served.ask(MULTI_LABEL, "serving_default", text=[SINGLE[1]])
    # The caller chooses the threshold.
    assert found.keys() == {"probabilities"}
    close(found["probabilities"][0], 1 / (1 + np.exp(-logits)))


def test_the_command(models, saved_classifier, tmp_path, capsys):
    import tensorflow as tf
    from tensorflow.python.tools import saved_model_cli  # The module of the command of that name.

    assert saved_model_cli
    assert (saved_classifier / "assets" / "vocab.txt").read_bytes() == VOCABULARY.to_bytes()
    assert json.loads((saved_classifier / "assets" / "labels.json").read_text(encoding="utf-8")) == list(LABELS)
    assert [path.name for path in saved_classifier.parent.iterdir()] == ["1"]
    record = json.loads((saved_classifier / "export.json").read_text(encoding="utf-8"))
    assert (record["tokenizer"]["name"], record["labels"], record["max_seq_length"]) == ("exact", list(LABELS), 20)
    assert "differences" not in record["tokenizer"]
    assert "tensorflow-text" not in record["versions"]
    card = (saved_classifier / "README.md").read_text(encoding="utf-8")
    assert "text_pair" in card
    assert "tensorflow_text" not in card
    # A server finds names and free dimensions.
    signature = tf.saved_model.load(saved_classifier).signatures["pair"]
    specs = signature.structured_input_signature[1]
    assert {name: (spec.dtype.name, spec.shape.as_list()) for name, spec in specs.items()} == {
        "text": ("string", [None]),
        "text_pair": ("string", [None]),
    }
    outputs = {name: (spec.dtype.name, spec.shape.rank) for name, spec in signature.structured_outputs.items()}
    assert outputs == {"label": ("string", 1), "probabilities": ("float32", 2)}
    for flags, message in (
        ([str(saved_classifier)], "already exists; use a new directory"),
        ([str(tmp_path / "a"), "--max_seq_length", "65"], "must be 8 to 64"),
        ([str(tmp_path / "a"), "--top_k", "99999"], "invalid --top_k 99999"),
    ):
        assert cli.main(["export", str(models / "classification"), *flags]) == 1
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1
    assert not any(tmp_path.iterdir())


def test_models_without_some_heads(models, tmp_path):
    """A BertModel has no heads, a BertForMaskedLM neither pooler nor next-sentence head; another head is an error."""

    def signatures_of(name, *without):
        model = load_model(write_model(tmp_path / name, without=without, config=CONFIG))
        return served_model(model, graph_tokenizer(model, "exact"), LENGTH, 3)[1]

    with pytest.raises(TrainingError, match=r"is missing cls/squad/output_weights and 1 more.* \(span\) requires"):
        load_model(models / "pretraining", task="span")
    assert signatures_of("encoder", "cls/").keys() == {"serving_default", "pair", "tokens", "ids"}
    signatures = signatures_of("masked", "bert/pooler/", "cls/seq_relationship/")
    assert "fill_mask" in signatures
    outputs = signatures["serving_default"].get_concrete_function().structured_outputs
    assert outputs.keys() == {"cls_embedding", "mean_embedding"}


def ids_inputs(task):
    generator = np.random.default_rng(1)
    shape = (3, 2, 11) if task == "multiple_choice" else (3, 11)
    ids = generator.integers(5, len(VOCABULARY), shape).astype(np.int32)
    mask = np.ones(shape, np.int32)
    mask[0, ..., 6:] = 0
    return {"input_ids": ids, "input_mask": mask, "segment_ids": generator.integers(0, 2, shape).astype(np.int32)}


def test_word_rules_are_those_of_the_model(models):
    model = load_model(models / "classification", do_lower_case=True, strip_accents="false")
    text = "Gr\u00f6\u00dfe HUMAN"
    tokenizer = graph_tokenizer(model, "exact")
    assert tokenizer([text]).to_list() == [model.tokenizer().encode_batch([text])[0].tolist()]
    assert export_record(model, LENGTH, {}, None)["tokenizer"]["strip_accents"] is False


@pytest.mark.parametrize(
    ("task", "flags", "message"),
    [
        ("token_classification_bilstm", ["--to", "litert"], "--to litert does not support the head"),
        ("classification", ["--quantization", "int8"], "--quantization int8 requires --to onnx or --to litert"),
    ],
)
def test_unsupported_conversions_are_refused(models, tmp_path, capsys, task, flags, message):
    assert cli.main(["export", str(models / task), str(tmp_path / "out"), *flags]) == 1
    assert message in capsys.readouterr().err
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("kind", "task"),
    with_slow(
        [
            ("onnx", "span"),
            ("litert", "pretraining"),
            ("onnx", "pretraining"),
            ("litert", "span"),
            ("onnx", "multiple_choice"),
            ("litert", "multiple_choice"),
        ],
        [("onnx", "pretraining"), ("litert", "span"), ("onnx", "multiple_choice"), ("litert", "multiple_choice")],
    ),
)
@pytest.mark.filterwarnings("ignore:.*tf.lite.Interpreter is deprecated")
def test_onnx_and_litert_compute_the_same(models, served, tmp_path, task, kind):
    """The runtimes compute the same for a batch size and a length that were not used in the conversion."""
    import tensorflow as tf

    inputs = ids_inputs(task)
    wanted = served.ask(task, "ids", **inputs)
    if kind == "onnx":
        pytest.importorskip("tf2onnx")
        runtime = pytest.importorskip("onnxruntime")
    argv = ["export", str(models / task), str(tmp_path / "out"), "--to", kind]
    assert cli.main([*argv, "--strip_accents", "false", "--do_lower_case", "true"]) == 0
    # Whoever computes the ids finds the word rules.
    assert Tokenizer.load(tmp_path / "out").rules == WordRules(strip_accents=False)
    if kind == "onnx":
        session = runtime.InferenceSession(tmp_path / "out" / "model.onnx")
        found = dict(zip([output.name for output in session.get_outputs()], session.run(None, inputs), strict=True))
    else:
        runner = tf.lite.Interpreter(str(tmp_path / "out" / "model.tflite")).get_signature_runner()
        found = runner(**inputs)
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("kind", with_slow(["onnx", "litert"], ["litert"]))
@pytest.mark.filterwarnings("ignore:.*tf.lite.Interpreter is deprecated")
def test_weights_of_8_bits(tmp_path, kind, caplog):
    import tensorflow as tf

    if kind == "onnx":
        pytest.importorskip("tf2onnx")
        runtime = pytest.importorskip("onnxruntime")
    # So wide that the weight matrices are most of the file; LiteRT does not quantize the smallest ones.
    config = dataclasses.replace(CONFIG, hidden_size=128, intermediate_size=512)
    source = str(write_model(tmp_path / "model", "classification", LABELS, config=config))
    sizes, answers = [], []
    for quantization in ("none", "int8"):
        destination = tmp_path / quantization
        command = ["export", source, str(destination), "--to", kind, "--quantization", quantization]
        assert cli.main(command) == 0
        (path,) = destination.glob("model.*")
        assert {file.name for file in destination.iterdir()} == {path.name, "vocab.txt", "labels.json"}
        sizes.append(path.stat().st_size)
        inputs = ids_inputs("classification")
        if kind == "onnx":
            answers.append(runtime.InferenceSession(path).run(None, inputs)[0])
        else:
            answers.append(tf.lite.Interpreter(str(path)).get_signature_runner()(**inputs)["probabilities"])
    assert "pre-processing" not in caplog.text
    assert sizes[1] < 0.5 * sizes[0]
    # On processors without instructions for 8-bit products (VNNI), onnxruntime saturates some sums.
    assert 0 < np.abs(answers[1] - answers[0]).max() < 0.05
