"""SavedModels with the tokenizer of tensorflow_text, loaded by a process with TensorFlow and tensorflow_text alone."""

import json
import pickle
import signal
import subprocess
import sys
import unicodedata

import numpy as np
import pytest

import beambert
from beambert_common.word_rules import WordRules
from tests.conftest import ROOT, with_slow
from tests.trainers.commands.test_export import CALLS, LABELS, LENGTH, LOADING, STRIDE, TASKS, close
from tests.trainers.random_models import VOCABULARY, write_model
from tokenizer.differences import find_differences
from tokenizer.tokenizer import Tokenizer
from tokenizer.vocabulary import Vocabulary
from trainers.inference import span_signatures
from trainers.inference.export_writers import write_saved_model
from trainers.inference.model_loading import load_model

tensorflow_text = pytest.importorskip("tensorflow_text", exc_type=ImportError)

IMPORT = "import tensorflow_text\n"
# The other tasks have all encodings: a text, a pair, several masks; words with their offsets; windows of a context.
SLOW_TASKS = ("classification", "regression", "token_classification", "token_classification_bilstm", "multiple_choice")


@pytest.fixture(scope="module")
def differing():
    from tokenizer.tensorflow_text_tokenizer import TensorFlowTextTokenizer

    found = find_differences(
        VOCABULARY, WordRules(), lambda vocabulary: TensorFlowTextTokenizer(vocabulary).encode_batch
    )
    assert found.mark_pairs == found.tokens == ()
    return dict.fromkeys(found.code_points)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A directory with a model of every task."""
    folder = tmp_path_factory.mktemp("exports")
    for task, labels in TASKS.items():
        write_model(folder / task, task, labels)
    return folder


def saved(folder, task):
    """Write the two SavedModels of a task, unless they exist."""
    if not (folder / f"{task}-saved").exists():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(span_signatures, "DOC_STRIDE", STRIDE)
            model = load_model(folder / task)
            write_saved_model(model, folder / f"{task}-exact", LENGTH, top_k=3)
            write_saved_model(model, folder / f"{task}-saved", LENGTH, top_k=3, tokenizer="tensorflow_text")


def served(folder, calls, code):
    """Return the outputs of the SavedModels in another process, or its last line on stderr."""
    code = code.replace(', "tensorflow_text"}', "}")
    result = subprocess.run(
        [sys.executable, "-c", code],
        input=pickle.dumps((str(folder), calls)),
        capture_output=True,
        cwd=folder,
        check=False,
    )
    if result.returncode:
        return result.stderr.decode()
    return pickle.loads(result.stdout)[0]


@pytest.mark.parametrize("task", with_slow(TASKS, SLOW_TASKS))
def test_every_task_and_signature(folder, differing, task):
    """The exact export, which test_export.py compares with the models, has the same outputs."""
    import tensorflow as tf

    saved(folder, task)
    of_task = [call for call in CALLS if call[0] == task]

    def clean(value):
        if isinstance(value, list):
            return [clean(text) for text in value]
        # Ends of tokens differ by the characters after them that are removed.
        return "".join(c for c in value.translate(differing) if unicodedata.category(c) not in ("Cc", "Cf"))

    calls = [
        (task, signature, {name: clean(value) for name, value in inputs.items()}) for _, signature, inputs in of_task
    ]
    assert calls
    texts = "".join(str(inputs) for _, _, inputs in calls)
    assert len(texts) > 0.97 * sum(len(str(inputs)) for _, _, inputs in of_task)
    assert any(not character.isascii() for character in texts)
    answers = served(folder, calls, IMPORT + LOADING)
    exact = tf.saved_model.load(folder / f"{task}-exact")
    for (_, signature, inputs), outputs in zip(calls, answers, strict=True):
        function = exact.signatures[signature]
        wanted = function(**{name: tf.constant(value) for name, value in inputs.items()})
        assert outputs.keys() == wanted.keys()
        for name, value in wanted.items():
            if value.dtype == tf.float32:
                close(outputs[name], value)
            else:
                assert np.array_equal(outputs[name], value), (task, signature, name)


def test_the_operations_are_required(folder):
    saved(folder, CALLS[0][0])
    error = served(folder, CALLS[:1], LOADING)
    assert "Op type not registered 'FastBertNormalize'" in error


def test_the_command_reports_and_records_the_differences(folder, tmp_path, capsys):
    destination = tmp_path / "saved"
    source = str(folder / "token_classification")
    assert beambert.main(["export", source, str(destination), "--tokenizer", "tensorflow_text"]) == 0
    record = json.loads((destination / "export.json").read_text(encoding="utf-8"))
    tokenizer = record["tokenizer"]
    assert tokenizer["name"] == "tensorflow_text"
    assert record["versions"]["tensorflow-text"] == tensorflow_text.__version__
    differences = tokenizer["differences"]
    codes = [code for text in differences["code_points"] for code in code_points(text)]
    assert len(codes) == len(set(codes)) == differences["num_code_points"]
    assert differences["num_code_points_compared"] == 1_112_064
    # The final sigma, which is in the vocabulary, and a control character, which is not.
    assert {0x03C2, 0x01} <= set(codes)
    assert "\u03c2" in VOCABULARY.ids
    assert "U+03C2" in differences["code_points_in_vocabulary"]
    assert not set(map(ord, "ab\u00e4\u4e00")) & set(codes)
    card = (destination / "README.md").read_text(encoding="utf-8")
    said = capsys.readouterr().out
    for text in (said, card):
        assert f"{len(codes):,} of 1,112,064 code points differ" in text
        assert "\u03c2" in text
    assert "`import tensorflow_text`" in card
    assert "`export.json` lists the code points" in card
    assert "| `serving_default` | `text` | `tokens`, `labels`" in card


def test_the_command_with_cased_text_and_other_flags(folder, tmp_path):
    import tensorflow as tf

    command = ["export", str(folder / "pretraining"), str(tmp_path / "saved"), "--tokenizer", "tensorflow_text"]
    flags = ["--do_lower_case", "false", "--max_seq_length", "12", "--top_k", "2", "--task", "pretraining"]
    assert beambert.main([*command, *flags]) == 0
    record = json.loads((tmp_path / "saved" / "export.json").read_text(encoding="utf-8"))
    assert (record["max_seq_length"], record["tokenizer"]["do_lower_case"]) == (12, False)
    # The final sigma differs only for uncased models.
    codes = {code for text in record["tokenizer"]["differences"]["code_points"] for code in code_points(text)}
    assert 0 < len(codes) < 1000
    assert 0x03C2 not in codes
    texts = ["All human", "\u00e9 e\u0301 gr\u00f6\u00dfe", "\u4eba\u6743 all rights \u3042", "a" * 40]
    saved = tf.saved_model.load(tmp_path / "saved")
    found = saved.signatures["tokens"](text=tf.constant(texts))["tokens"].numpy()
    expected, uncased = ([row_of_tokens(text, do_lower_case) for text in texts] for do_lower_case in (False, True))
    assert [[token.decode() for token in row] for row in found.tolist()] == expected
    assert expected[2] == uncased[2] != expected[0]
    assert (expected[0] != uncased[0], expected[1] != uncased[1]) == (True, True)
    answer = saved.signatures["fill_mask"](text=tf.constant(["all [MASK]"]))
    assert answer["ids"].shape == (1, 1, 2)


def row_of_tokens(text, do_lower_case):
    ids, mask, _ = Tokenizer(VOCABULARY, do_lower_case).encode(text, None, 12)
    return [VOCABULARY.tokens[number] if real else "" for number, real in zip(ids, mask, strict=True)]


def code_points(text):
    first, _, last = text.partition("-")
    return range(int(first[2:], 16), int((last or first)[2:], 16) + 1)


def test_the_card_of_the_exact_tokenizer(folder, tmp_path):
    assert beambert.main(["export", str(folder / "classification"), str(tmp_path / "saved")]) == 0
    record = json.loads((tmp_path / "saved" / "export.json").read_text(encoding="utf-8"))
    assert (record["tokenizer"]["name"], record["labels"]) == ("exact", list(LABELS))
    assert "differences" not in record["tokenizer"]
    assert "tensorflow-text" not in record["versions"]
    assert "tensorflow_text" not in (tmp_path / "saved" / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", ["onnx", "litert"])
def test_other_formats_have_no_tokenizer(folder, tmp_path, capsys, kind):
    command = ["export", str(folder / "classification"), str(tmp_path / "out"), "--to", kind]
    assert beambert.main([*command, "--tokenizer", "tensorflow_text"]) == 1
    error = capsys.readouterr().err
    assert f"--tokenizer tensorflow_text requires --to savedmodel; a model of --to {kind} takes token ids" in error
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_an_unsupported_vocabulary_is_one_line(folder, tmp_path, capsys):
    vocabulary = Vocabulary((*VOCABULARY.tokens[:-1], "a" * 300))
    (tmp_path / "vocab.txt").write_bytes(vocabulary.to_bytes())
    command = ["export", str(folder / "classification"), str(tmp_path / "out"), "--tokenizer", "tensorflow_text"]
    assert beambert.main([*command, "--vocab_file", str(tmp_path / "vocab.txt")]) == 1
    error = capsys.readouterr().err
    assert "not supported by tensorflow_text" in error
    assert error.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["vocab.txt"]


def test_without_the_package(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_text", None)
    command = ["export", str(folder / "classification"), str(tmp_path / "out"), "--tokenizer", "tensorflow_text"]
    assert beambert.main(command) == 1
    assert "pip install 'beambert[tensorflow-text]'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_package_for_another_tensorflow_is_one_line(folder, tmp_path, capsys, monkeypatch):
    """TensorFlow cannot load the libraries of such a package."""
    package = tmp_path / "tensorflow_text"
    package.mkdir()
    (package / "operations.so").write_bytes(b"not a library")
    code = "import pathlib, tensorflow\n"
    code += "tensorflow.load_op_library(str(pathlib.Path(__file__).with_name('operations.so')))\n"
    (package / "__init__.py").write_text(code)
    monkeypatch.delitem(sys.modules, "tensorflow_text")
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "models").mkdir()
    destination = tmp_path / "models" / "out"
    command = ["export", str(folder / "classification"), str(destination), "--tokenizer", "tensorflow_text"]
    assert beambert.main(command) == 1
    error = capsys.readouterr().err
    assert "tensorflow-text cannot be loaded with TensorFlow" in error
    assert "install the tensorflow-text of the same minor version" in error
    assert error.count("\n") == 1
    assert list((tmp_path / "models").iterdir()) == []


def test_an_interrupt_during_the_comparison_leaves_nothing(folder, tmp_path):
    command = ["export", folder / "classification", tmp_path / "out", "--tokenizer", "tensorflow_text"]
    with subprocess.Popen(
        [sys.executable, "-m", "beambert", *command],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # A shell that starts the tests in the background lets them ignore SIGINT.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        lines = []
        for line in process.stdout:
            lines.append(line)
            if line.startswith("Comparing"):
                process.send_signal(signal.SIGINT)
    assert process.returncode == 130, lines
    assert "interrupted" in lines[-1]
    assert list(tmp_path.iterdir()) == []
