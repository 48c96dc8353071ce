"""Exports with the tokenizer of tensorflow_text."""

import json
import pickle
import subprocess
import sys

import pytest

from beambert import cli
from beambert.tokenizer.tokenizer import Tokenizer
from beambert.tokenizer.vocabulary import Vocabulary
from tests.trainers.random_models import VOCABULARY

tensorflow_text = pytest.importorskip("tensorflow_text", exc_type=ImportError)

LOADING = """
import pickle, sys
import tensorflow as tf
folder, texts = pickle.load(sys.stdin.buffer)
try:
    tf.saved_model.load(folder)
except Exception as error:
    assert "Op type not registered 'FastBertNormalize'" in str(error)
else:
    raise AssertionError("the operations of tensorflow_text are not required")
import tensorflow_text
outputs = tf.saved_model.load(folder).signatures["serving_default"](text=tf.constant(texts))
ours = {"beambert"}
assert not ours & {name.split(".")[0] for name in sys.modules}
sys.stdout.buffer.write(pickle.dumps({name: value.numpy() for name, value in outputs.items()}))
"""


@pytest.fixture(scope="module")
def exported(models, tmp_path_factory):
    """The SavedModel of a tagger, written by `beambert export`."""
    saved = tmp_path_factory.mktemp("tensorflow_text") / "saved"
    argv = ["export", str(models / "token_classification"), str(saved), "--tokenizer", "tensorflow_text"]
    assert cli.main(argv) == 0
    return saved


@pytest.mark.slow
def test_a_process_with_the_package_loads_the_model(exported, served):
    texts = ["All human beings.", "rights"]
    result = subprocess.run(
        [sys.executable, "-c", LOADING],
        input=pickle.dumps((str(exported), texts)),
        capture_output=True,
        cwd=exported,
        check=False,
    )
    assert result.returncode == 0, result.stderr.decode()
    found, wanted = pickle.loads(result.stdout), served.ask("token_classification", "serving_default", text=texts)
    assert found.keys() == wanted.keys()
    assert found["labels"].tolist() == wanted["labels"].tolist()


@pytest.mark.slow
def test_the_command_reports_and_records_the_differences(exported):
    record = json.loads((exported / "export.json").read_text(encoding="utf-8"))
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
    card = (exported / "README.md").read_text(encoding="utf-8")
    assert f"{len(codes):,} of 1,112,064 code points differ" in card
    assert "\u03c2" in card
    assert "`import tensorflow_text`" in card
    assert "`export.json` lists the code points" in card
    assert "| `serving_default` | `text` | `tokens`, `labels`" in card


@pytest.mark.slow
def test_the_command_with_cased_text_and_other_flags(models, tmp_path):
    import tensorflow as tf

    command = ["export", str(models / "pretraining"), str(tmp_path / "saved"), "--tokenizer", "tensorflow_text"]
    flags = ["--do_lower_case", "false", "--max_seq_length", "12", "--top_k", "2", "--task", "pretraining"]
    assert cli.main([*command, *flags]) == 0
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


def test_other_formats_have_no_tokenizer(models, tmp_path, capsys):
    command = ["export", str(models / "classification"), str(tmp_path / "out"), "--to", "onnx"]
    assert cli.main([*command, "--tokenizer", "tensorflow_text"]) == 1
    error = capsys.readouterr().err
    assert "--tokenizer tensorflow_text requires --to savedmodel" in error
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_an_unsupported_vocabulary_is_one_line(models, tmp_path, capsys):
    vocabulary = Vocabulary((*VOCABULARY.tokens[:-1], "a" * 300))
    (tmp_path / "vocab.txt").write_bytes(vocabulary.to_bytes())
    command = ["export", str(models / "classification"), str(tmp_path / "out"), "--tokenizer", "tensorflow_text"]
    assert cli.main([*command, "--vocab_file", str(tmp_path / "vocab.txt")]) == 1
    error = capsys.readouterr().err
    assert "not supported by tensorflow_text" in error
    assert error.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["vocab.txt"]


def test_without_the_package(models, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_text", None)
    command = ["export", str(models / "classification"), str(tmp_path / "out"), "--tokenizer", "tensorflow_text"]
    assert cli.main(command) == 1
    assert "pip install 'beambert[tensorflow-text]'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_package_for_another_tensorflow_is_one_line(models, tmp_path, capsys, monkeypatch):
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
    command = ["export", str(models / "classification"), str(destination), "--tokenizer", "tensorflow_text"]
    assert cli.main(command) == 1
    error = capsys.readouterr().err
    assert "tensorflow-text cannot be loaded with TensorFlow" in error
    assert "install the tensorflow-text of the same minor version" in error
    assert error.count("\n") == 1
    assert list((tmp_path / "models").iterdir()) == []
