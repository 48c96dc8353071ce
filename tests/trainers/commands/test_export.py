"""Tests of SavedModels in a process with TensorFlow alone, against the model called with single unpadded texts."""

import dataclasses
import json
import pickle
import subprocess
import sys

import numpy as np
import pytest

import beambert
from beambert_common.word_rules import WordRules
from tests.conftest import ROOT, with_slow
from tests.trainers.random_models import CONFIG, TEXTS, VOCABULARY, write_model
from tokenizer.tokenizer import Tokenizer
from trainers.commands.fill_mask import fill_masks
from trainers.errors import TrainingError
from trainers.inference import span_signatures
from trainers.inference.export_record import export_record
from trainers.inference.export_writers import graph_tokenizer, write_saved_model
from trainers.inference.model_loading import load_model

LENGTH = 48
LABELS = ("no", "perhaps", "yes \u00e9")
STRIDE = 7
TASKS = {
    "pretraining": None,
    "classification": LABELS,
    "regression": None,
    "token_classification": LABELS,
    "token_classification_bilstm": LABELS,
    "multiple_choice": None,
    "span": None,
}
# Different lengths, one without tokens, one that is truncated.
SINGLE = ["", "All human beings.", *TEXTS[1:30:3], "a" * 90, " \x01 "]
PAIRS = [*SINGLE[::-1]]
CHOICES = [[pair, f"{text} human", "all"] for text, pair in zip(SINGLE, PAIRS, strict=True)]
MASKED = ["[MASK] human [MASK]s", "nothing", "", "Gr\u00f6\u00dfe[MASK]", "[MASK]" * 3]
QUESTIONS = ["all rights", "", TEXTS[3], "human", "are born", "x"]
CONTEXTS = [TEXTS[0] * 3, TEXTS[5], "", "  ", TEXTS[10] + TEXTS[6], "\u00c9 human"]

# Calls of the loading process: task, signature, inputs.
CALLS = [
    ("pretraining", "serving_default", {"text": SINGLE}),
    ("pretraining", "pair", {"text": SINGLE, "text_pair": PAIRS}),
    ("pretraining", "tokens", {"text": SINGLE}),
    ("pretraining", "fill_mask", {"text": MASKED}),
    ("pretraining", "fill_mask", {"text": ["no mask"]}),
    ("pretraining", "serving_default", {"text": ["alone"]}),
    ("classification", "serving_default", {"text": SINGLE}),
    ("classification", "pair", {"text": SINGLE, "text_pair": PAIRS}),
    ("regression", "serving_default", {"text": SINGLE}),
    ("regression", "pair", {"text": SINGLE, "text_pair": PAIRS}),
    ("token_classification", "serving_default", {"text": SINGLE}),
    ("token_classification_bilstm", "serving_default", {"text": SINGLE}),
    ("multiple_choice", "serving_default", {"text": SINGLE, "choices": CHOICES}),
    ("span", "serving_default", {"question": QUESTIONS, "context": CONTEXTS}),
]
LOADING = """
import pickle, sys
import tensorflow as tf
folder, calls = pickle.load(sys.stdin.buffer)
models = {task: tf.saved_model.load(f"{folder}/{task}-saved") for task in {call[0] for call in calls}}
answers = []
for task, signature, inputs in calls:
    outputs = models[task].signatures[signature](**{name: tf.constant(value) for name, value in inputs.items()})
    answers.append({name: value.numpy() for name, value in outputs.items()})
ours = {"beambert", "beambert_common", "trainers", "bert_model", "tokenizer", "tensorflow_text"}
assert not ours & {name.split(".")[0] for name in sys.modules}
files = {task: models[task].vocabulary_file.asset_path.numpy() for task in models}
sys.stdout.buffer.write(pickle.dumps((answers, files)))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A directory with a model of every task, and its SavedModel."""
    folder = tmp_path_factory.mktemp("exports")
    with pytest.MonkeyPatch.context() as patch:
        # So that windows overlap in a model this small.
        patch.setattr(span_signatures, "DOC_STRIDE", STRIDE)
        for task, labels in TASKS.items():
            write_saved_model(
                load_model(write_model(folder / task, task, labels)), folder / f"{task}-saved", LENGTH, top_k=3
            )
    return folder


@pytest.fixture(scope="module")
def answers(folder):
    """The outputs in a process without beambert, for each of `CALLS`."""
    result = subprocess.run(
        [sys.executable, "-c", LOADING],
        input=pickle.dumps((str(folder), CALLS)),
        capture_output=True,
        cwd=folder,
        check=False,
    )
    assert result.returncode == 0, result.stderr.decode()
    answers, files = pickle.loads(result.stdout)
    for task, path in files.items():
        assert path.decode() == str(folder / f"{task}-saved" / "assets" / "vocab.txt")
    return answers


class Asked:
    """A model in Python, called with one text at a time, without padding."""

    def __init__(self, folder, task):
        self.opened = load_model(folder / task)
        self.model = self.opened.model
        self.tokenizer = Tokenizer(VOCABULARY, True)

    def inputs(self, text, pair=None):
        ids, mask, segments = (np.array(values)[None] for values in self.tokenizer.encode(text, pair, LENGTH))
        size = mask.sum()
        return {"input_ids": ids[:, :size], "input_mask": mask[:, :size], "segment_ids": segments[:, :size]}

    def logits(self, text, pair=None):
        return np.array(self.model(self.inputs(text, pair)))[0]


def softmax(logits):
    return np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)


def answer_to(answers, task, signature, number=0):
    matching = [answer for call, answer in zip(CALLS, answers, strict=True) if call[:2] == (task, signature)]
    return matching[number]


def close(found, wanted):
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("signature", "pairs"), [("serving_default", [None] * len(SINGLE)), ("pair", PAIRS)])
def test_embeddings(folder, answers, signature, pairs):
    asked, found = Asked(folder, "pretraining"), answer_to(answers, "pretraining", signature)
    assert found.keys() == {"cls_embedding", "mean_embedding", "pooled_output"}
    for row, (text, pair) in enumerate(zip(SINGLE, pairs, strict=True)):
        hidden, pooled = asked.model.encoder(**asked.inputs(text, pair))
        close(found["cls_embedding"][row], hidden[0, 0])
        close(found["mean_embedding"][row], np.mean(hidden[0], axis=0))
        close(found["pooled_output"][row], pooled[0])


def test_tokens_and_their_embeddings(folder, answers):
    asked, found = Asked(folder, "pretraining"), answer_to(answers, "pretraining", "tokens")
    assert found["tokens"].shape == (len(SINGLE), LENGTH)
    for row, text in enumerate(SINGLE):
        inputs = asked.inputs(text)
        size = inputs["input_ids"].size
        hidden, _ = asked.model.encoder(**inputs)
        tokens = [token.decode() for token in found["tokens"][row]]
        assert tokens == [VOCABULARY.tokens[i] for i in inputs["input_ids"][0]] + [""] * (LENGTH - size)
        close(found["embeddings"][row, :size], hidden[0])


def test_the_length_is_that_of_the_longest_text(answers):
    assert answer_to(answers, "pretraining", "serving_default", 1)["cls_embedding"].shape == (1, CONFIG.hidden_size)


def test_fill_mask_equals_the_command(folder, answers):
    found = answer_to(answers, "pretraining", "fill_mask")
    assert found["pieces"].shape == (len(MASKED), 3, 3)
    assert found["positions"].tolist()[0][:2] == [1, 3]
    masked = [text for text in MASKED if "[MASK]" in text]
    wanted = dict(zip(masked, fill_masks(folder / "pretraining", masked, top_k=3), strict=True))
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
    assert answer_to(answers, "pretraining", "fill_mask", 1)["pieces"].shape == (1, 0, 3)


@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.parametrize(("signature", "pairs"), [("serving_default", [None] * len(SINGLE)), ("pair", PAIRS)])
def test_classes_and_scores(folder, answers, task, signature, pairs):
    asked, found = Asked(folder, task), answer_to(answers, task, signature)
    logits = np.array([asked.logits(text, pair) for text, pair in zip(SINGLE, pairs, strict=True)])
    if task == "regression":
        close(found["score"], logits)
        return
    close(found["probabilities"], softmax(logits))
    assert [label.decode() for label in found["label"]] == [LABELS[i] for i in logits.argmax(-1)]


@pytest.mark.parametrize("task", ["token_classification", "token_classification_bilstm"])
def test_token_labels_and_offsets(folder, answers, task):
    asked, found = Asked(folder, task), answer_to(answers, task, "serving_default")
    ids, splits, offsets = asked.tokenizer.encode_batch_with_offsets(SINGLE)
    for row, text in enumerate(SINGLE):
        logits = asked.logits(text)[1:-1]
        size = len(logits)
        part = slice(splits[row], splits[row] + size)
        assert [token.decode() for token in found["tokens"][row, :size]] == [VOCABULARY.tokens[i] for i in ids[part]]
        assert [label.decode() for label in found["labels"][row, :size]] == [LABELS[i] for i in logits.argmax(-1)]
        close(found["probabilities"][row, :size], softmax(logits))
        data = text.encode()
        for start, end, (first, last) in zip(
            found["start"][row, :size], found["end"][row, :size], offsets[part], strict=True
        ):
            assert data[start:end].decode() == text[first:last]
        assert set(found["tokens"][row, size:]) | set(found["labels"][row, size:]) <= {b""}
        assert set(found["start"][row, size:]) | set(found["end"][row, size:]) <= {-1}
        assert not found["probabilities"][row, size:].any()


def test_choices(folder, answers):
    asked, found = Asked(folder, "multiple_choice"), answer_to(answers, "multiple_choice", "serving_default")
    for row, (text, pair) in enumerate(zip(SINGLE, PAIRS, strict=True)):
        logits = [
            float(np.array(asked.model({n: v[None] for n, v in asked.inputs(text, choice).items()}))[0, 0])
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
        starts, ends = asked.model(
            {"input_ids": np.array([row]), "input_mask": np.ones((1, len(row))), "segment_ids": np.array([segments])}
        )
        starts, ends = np.array(starts)[0], np.array(ends)[0]
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


def test_answers_to_questions(folder, answers):
    asked, found = Asked(folder, "span"), answer_to(answers, "span", "serving_default")
    assert found.keys() == {"answer", "start", "end", "score", "null_score"}
    lengths = [len(asked.tokenizer.tokenize(context)) for context in CONTEXTS]
    assert max(lengths) > 2 * LENGTH
    for row, (question, context) in enumerate(zip(QUESTIONS, CONTEXTS, strict=True)):
        text, score, null_score = best_span(asked, question, context)
        assert found["answer"][row].decode() == text
        close(found["score"][row], score)
        close(found["null_score"][row], null_score)
        start, end = found["start"][row], found["end"][row]
        assert context.encode()[start:end].decode() == text if lengths[row] else (start, end) == (-1, -1)


@pytest.mark.parametrize("task", TASKS)
def test_ids(folder, task):
    import tensorflow as tf

    loaded = tf.saved_model.load(folder / f"{task}-saved")
    asked = Asked(folder, task)
    generator = np.random.default_rng(0)
    shape = (3, 2, 9) if task == "multiple_choice" else (3, 9)
    inputs = {
        "input_ids": generator.integers(5, len(VOCABULARY), shape).astype(np.int32),
        "input_mask": np.ones(shape, np.int32),
        "segment_ids": generator.integers(0, 2, shape).astype(np.int32),
    }
    inputs["input_mask"][0, ..., 5:] = 0
    found = loaded.signatures["ids"](**{name: tf.constant(value) for name, value in inputs.items()})
    if task == "pretraining":
        hidden, pooled = asked.model.encoder(**inputs)
        close(found["embeddings"], hidden)
        close(found["pooled_output"], pooled)
        close(found["mean_embedding"][0], np.mean(hidden[0, :5], axis=0))
    elif task == "span":
        close(found["start_logits"], asked.model(inputs)[0])
        close(found["end_logits"], asked.model(inputs)[1])
    elif task == "regression":
        close(found["score"], asked.model(inputs))
    else:
        close(found["probabilities"], softmax(np.array(asked.model(inputs))))


def test_a_server_finds_names_and_free_dimensions(folder):
    from tensorflow.python.tools import saved_model_cli  # The module of the command of that name.

    assert saved_model_cli
    import tensorflow as tf

    signature = tf.saved_model.load(folder / "span-saved").signatures["serving_default"]
    names = {
        name: (spec.dtype.name, spec.shape.as_list()) for name, spec in signature.structured_input_signature[1].items()
    }
    assert names == {"question": ("string", [None]), "context": ("string", [None])}
    outputs = {name: (spec.dtype.name, spec.shape.rank) for name, spec in signature.structured_outputs.items()}
    assert outputs["answer"] == ("string", 1)
    assert outputs["score"] == ("float32", 1)


def test_the_command(folder, tmp_path, capsys):
    destination = tmp_path / "models" / "1"
    assert beambert.main(["export", str(folder / "classification"), str(destination), "--max_seq_length", "20"]) == 0
    assert (destination / "assets" / "vocab.txt").read_bytes() == VOCABULARY.to_bytes()
    assert json.loads((destination / "assets" / "labels.json").read_text(encoding="utf-8")) == list(LABELS)
    assert (destination / "saved_model.pb").is_file()
    assert [path.name for path in destination.parent.iterdir()] == ["1"]
    said = capsys.readouterr().out
    assert "pair" in said
    assert "text_pair" in said
    for flags, message in (
        ([str(destination)], "already exists; use a new directory"),
        ([str(tmp_path / "a"), "--max_seq_length", "65"], "must be 8 to 64"),
        ([str(tmp_path / "a"), "--top_k", "99999"], "invalid --top_k 99999"),
    ):
        assert beambert.main(["export", str(folder / "classification"), *flags]) == 1
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["models"]


def test_models_without_some_heads(tmp_path):
    """A BertModel has no heads, a BertForMaskedLM neither pooler nor next-sentence head; another head is an error."""
    import tensorflow as tf

    with pytest.raises(TrainingError, match=r"is missing cls/squad/output_weights and 1 more.* \(span\) requires"):
        load_model(write_model(tmp_path / "pretrained"), task="span")

    write_saved_model(load_model(write_model(tmp_path / "encoder", without=("cls/",))), tmp_path / "1", LENGTH)
    assert set(tf.saved_model.load(tmp_path / "1").signatures) == {"serving_default", "pair", "tokens", "ids"}
    masked = write_model(tmp_path / "masked", without=("bert/pooler/", "cls/seq_relationship/"))
    write_saved_model(load_model(masked), tmp_path / "2", LENGTH)
    signatures = tf.saved_model.load(tmp_path / "2").signatures
    assert "fill_mask" in signatures
    assert "pooled_output" not in signatures["serving_default"].structured_outputs


def test_a_hugging_face_model_gives_the_logits_of_transformers(tmp_path):
    import tensorflow as tf

    recorded = np.load(ROOT / "tests/fixtures/hugging_face/outputs.npz")
    write_saved_model(load_model(ROOT / "tests/fixtures/hugging_face/classification"), tmp_path / "1", 18)
    names = ("input_ids", "input_mask", "segment_ids")
    inputs = {name: tf.constant(recorded[f"classification/{name}"]) for name in names}
    found = tf.saved_model.load(tmp_path / "1").signatures["ids"](**inputs)
    close(found["probabilities"], softmax(recorded["classification/logits"]))


def ids_inputs(task):
    generator = np.random.default_rng(1)
    shape = (3, 2, 11) if task == "multiple_choice" else (3, 11)
    ids = generator.integers(5, len(VOCABULARY), shape).astype(np.int32)
    mask = np.ones(shape, np.int32)
    mask[0, ..., 6:] = 0
    return {"input_ids": ids, "input_mask": mask, "segment_ids": generator.integers(0, 2, shape).astype(np.int32)}


def test_word_rules_are_those_of_the_model(folder, tmp_path):
    """They are in the graph of a SavedModel, in export.json, and in tokenizer_config.json of a model that takes ids."""
    model = load_model(folder / "classification", do_lower_case=True, strip_accents="false")
    text = "Gr\u00f6\u00dfe HUMAN"
    tokenizer = graph_tokenizer(model, "exact")
    assert tokenizer([text]).to_list() == [model.tokenizer().encode_batch([text])[0].tolist()]
    assert export_record(model, LENGTH, {}, None)["tokenizer"]["strip_accents"] is False
    argv = ["export", str(folder / "classification"), str(tmp_path / "out"), "--to", "litert"]
    assert beambert.main([*argv, "--strip_accents", "false", "--do_lower_case", "true"]) == 0
    assert Tokenizer.load(tmp_path / "out").rules == WordRules(strip_accents=False)


@pytest.mark.parametrize("kind", ["onnx", "litert"])
def test_a_bilstm_requires_a_saved_model(folder, tmp_path, capsys, kind):
    source = str(folder / "token_classification_bilstm")
    assert beambert.main(["export", source, str(tmp_path / "out"), "--to", kind]) == 1
    assert f"--to {kind} does not support the BiLSTM head" in capsys.readouterr().err
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    "task",
    with_slow(["pretraining", "classification", "multiple_choice", "span"], ["classification", "multiple_choice"]),
)
@pytest.mark.parametrize("kind", ["onnx", "litert"])
@pytest.mark.filterwarnings("ignore:.*tf.lite.Interpreter is deprecated")
def test_onnx_and_litert_compute_the_same(folder, tmp_path, task, kind):
    """The runtimes compute the same for a batch size and a length that were not used in the conversion."""
    import tensorflow as tf

    inputs = ids_inputs(task)
    saved = tf.saved_model.load(folder / f"{task}-saved").signatures["ids"]
    wanted = saved(**{name: tf.constant(value) for name, value in inputs.items()})
    if kind == "onnx":
        pytest.importorskip("tf2onnx")
        runtime = pytest.importorskip("onnxruntime")
    assert beambert.main(["export", str(folder / task), str(tmp_path / "out"), "--to", kind]) == 0
    names = {path.name for path in (tmp_path / "out").iterdir()} - {"labels.json"}
    if kind == "onnx":
        assert names == {"model.onnx", "vocab.txt"}
        session = runtime.InferenceSession(tmp_path / "out" / "model.onnx")
        found = dict(zip([output.name for output in session.get_outputs()], session.run(None, inputs), strict=True))
    else:
        assert names == {"model.tflite", "vocab.txt"}
        runner = tf.lite.Interpreter(str(tmp_path / "out" / "model.tflite")).get_signature_runner()
        found = runner(**inputs)
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["onnx", "litert"])
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
        assert beambert.main(command) == 0
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
    assert 0 < np.abs(answers[1] - answers[0]).max() < 0.02


def test_quantization_requires_onnx_or_litert(folder, tmp_path, capsys):
    command = ["export", str(folder / "classification"), str(tmp_path / "out"), "--quantization", "int8"]
    assert beambert.main(command) == 1
    assert "--quantization int8 requires --to onnx or --to litert" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
