"""Test every JSON file that beambert reads back, with a corrupt value at every path.

The error is one line with the file, the field and the remedy.
"""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from beambert.bert_model.checkpoints import hugging_face_config, native
from beambert.bert_model.checkpoints.reader import open_checkpoint
from beambert.bert_model.checkpoints.stored_tensors import CheckpointError
from beambert.bert_model.config import BertConfig
from beambert.pipelines import dataset
from beambert.pipelines.corpus import corpus_manifest
from beambert.tokenizer.tokenizer import Tokenizer
from beambert.trainers.checkpoints import checkpoint_manager
from beambert.trainers.finetuning import sweep
from beambert.trainers.monitoring.training_monitor import MonitorState
from beambert.trainers.training import run_manifest
from tests.damaged_json import FILES, damages, write_damaged


def read_hugging_face(directory: Path) -> object:
    return hugging_face_config.describe(directory), hugging_face_config.word_rules(directory)


def read_tokenizer(directory: Path) -> object:
    return Tokenizer.load(directory).rules, hugging_face_config.word_rules(directory)


READERS: dict[str, Callable[[Path], Any]] = {
    "corpus/corpus.json": lambda directory: corpus_manifest.load(str(directory)),
    "dataset/dataset.json": dataset.load,
    "run/run.json": run_manifest.load,
    "finetuned/run.json": run_manifest.load,
    "runs/runs.json": sweep.recorded_outcomes,
    "run/beambert.json": native.load,
    "finetuned/beambert.json": native.load,
    "converted/beambert.json": native.load,
    "run/bert_config.json": lambda directory: BertConfig.load(directory / "bert_config.json"),
    "hugging_face/config.json": read_hugging_face,
    "hugging_face/tokenizer_config.json": read_tokenizer,
    "run/checkpoints/best.json": checkpoint_manager.best,
    "run/checkpoints/model.ckpt-2.state.json": lambda directory: checkpoint_manager.state_of(
        checkpoint_manager.Checkpoint(2, directory / "model.ckpt-2"), MonitorState
    ),
}
# Values that a reader may accept: null for an optional value, a negative metric, fields of other programs, and the
# options of the corpus in dataset.json, which are those of corpus.json.
_UNREAD = re.compile(
    r"^(model_max_length|(cls|sep|pad|unk|mask)_token|tokenizer_class|torch_dtype|pad_token_id|metrics\..*|value|metric_sums"
    r"|files\.\d+\.[23]|.*\.null_score_diff_threshold|seed-\d+\.(problem|contents\.\w+|metrics\..*)"
    r"|counts\.validation|options\.corpus\..*)$"
)
# No field is named: the file is not valid JSON, and the error has the byte or the repeated name.
_BY_PLACE = ("@nested", "twice", "@nan", "@infinite", "@digits")
_OPTIONAL = {"null", "missing", "@long", '{"@": []}'}


@pytest.mark.parametrize("name", READERS)
def test_a_corrupt_value_is_a_one_line_error_with_file_and_field(outputs, tmp_path, name):
    directory, file = _copy(outputs, tmp_path, name)
    content = json.loads(file.read_text(encoding="utf-8"))
    READERS[name](directory)
    wrong = []
    for damage, path, text in damages(content):
        write_damaged(file, text)
        place = ".".join(map(str, path))
        try:
            READERS[name](directory)
        except ValueError as error:
            line = str(error).replace(str(directory), "DIR")
            names_field = damage in _BY_PLACE or str(path[-1]) in line or isinstance(path[-1], int) or "[...]" in line
            is_header = path[0] in ("format", "format_version")
            if not (_is_line(error, line, file.name) and (names_field or is_header)):
                wrong.append((damage, place, repr(error)[:300]))
        except Exception as error:
            wrong.append((damage, place, repr(error)[:300]))
        else:
            if damage not in _OPTIONAL and not _UNREAD.match(place):
                wrong.append((damage, place, "accepted"))
    assert not wrong, f"{len(wrong)}: {wrong[:20]}"


@pytest.mark.parametrize("name", READERS)
def test_a_corrupt_file_is_a_one_line_error_with_the_file_name(outputs, tmp_path, name):
    directory, file = _copy(outputs, tmp_path, name)
    cut = file.read_bytes()[:-9]
    for damage, text in {**FILES, "cut": cut}.items():
        write_damaged(file, text)
        if damage == "another object" and "tokenizer_config" in name:
            continue
        with pytest.raises(ValueError) as caught:
            READERS[name](directory)
        line = str(caught.value).replace(str(directory), "DIR")
        assert _is_line(caught.value, line, file.name), (damage, line)
    file.unlink()
    file.mkdir()
    with pytest.raises(ValueError) as caught:
        READERS[name](directory)
    assert _is_line(caught.value, str(caught.value).replace(str(directory), "DIR"), file.name)


@pytest.mark.parametrize(
    ("name", "read", "remedy"),
    [
        ("corpus/corpus.json", '"beambert-corpus" 3', "build the corpus again into another directory"),
        ("dataset/dataset.json", '"beambert-pretraining-data" 3', "build the data again into another directory"),
        ("run/run.json", '"beambert-run" 4', "give another --output"),
        ("run/beambert.json", '"beambert-model" 2', "train or convert the model again"),
    ],
)
def test_another_version_is_named_with_the_one_that_is_read(outputs, tmp_path, name, read, remedy):
    directory, file = _copy(outputs, tmp_path, name)
    content = json.loads(file.read_text(encoding="utf-8"))
    for version in (-1, content["format_version"] - 1, content["format_version"] + 1, 99):
        # Version 0.1.0 has other fields, which must not be the error.
        write_damaged(file, json.dumps({"format": content["format"], "format_version": version}).encode())
        with pytest.raises(ValueError) as caught:
            READERS[name](directory)
        line = str(caught.value).replace(str(directory), "DIR")
        assert _is_line(caught.value, line, file.name)
        expected = f'has format "{content["format"]}" {version}, but this version of beambert reads {read}; {remedy}'
        assert expected in line


def test_the_weights_of_a_model_of_another_version_are_read_without_its_record(outputs, tmp_path):
    directory, file = _copy(outputs, tmp_path, "run/beambert.json")
    file.write_text('{"format": "beambert-model", "format_version": 1}', encoding="utf-8")
    with (
        pytest.raises(CheckpointError, match="remove this file from a copy of the directory"),
        open_checkpoint(directory),
    ):
        pass
    file.unlink()
    with open_checkpoint(directory) as checkpoint:
        assert not checkpoint.missing
        assert checkpoint.vocab_file == directory / "vocab.txt"


def test_plausible_numbers_that_contradict_each_other_are_found(outputs, tmp_path):
    directory, file = _copy(outputs, tmp_path, "corpus/corpus.json")
    content = json.loads(file.read_text())
    fewer = {**content, "shards": content["shards"][:1]}
    renamed = json.loads(json.dumps(content))
    renamed["shards"][0]["partitions"] = 3
    twice = {**content, "shards": [*content["shards"], content["shards"][0]]}
    problems = {
        "counts.documents.validation is 8, but the shards sum to 0": fewer,
        "shards[0].name is": renamed,
        "listed twice": twice,
    }
    for problem, changed_content in problems.items():
        write_damaged(file, json.dumps(changed_content).encode())
        with pytest.raises(ValueError, match=re.escape(problem)):
            corpus_manifest.load(str(directory))
    directory, file = _copy(outputs, tmp_path, "dataset/dataset.json")
    content = json.loads(file.read_text())
    del content["features"]["masked_lm_ids"]
    write_damaged(file, json.dumps(content).encode())
    # If it accepted this manifest, a trainer would mask tokens itself.
    with pytest.raises(ValueError, match=re.escape("features.masked_lm_ids is missing")):
        dataset.load(directory)


def test_other_fields_and_a_byte_order_mark_are_tolerated(outputs, tmp_path):
    for name, read in READERS.items():
        directory, file = _copy(outputs, tmp_path / name.replace("/", "-"), name)
        whole = read(directory)
        content = json.loads(file.read_text(encoding="utf-8"))
        if name not in ("runs/runs.json", "run/bert_config.json", "run/checkpoints/model.ckpt-2.state.json"):
            content["newer"] = {"a": [1, None]}
        write_damaged(file, b"\xef\xbb\xbf" + json.dumps(content).encode())
        assert str(read(directory)) == str(whole), name


def _copy(outputs: Path, tmp_path: Path, name: str) -> tuple[Path, Path]:
    """Copy the output that contains a file; return the directory of the copied file, and the file."""
    top, _, rest = name.partition("/")
    shutil.copytree(outputs / top, tmp_path / top)
    file = tmp_path / top / rest
    return file.parent, file


def _is_line(error: Exception, line: str, name: str) -> bool:
    """Return whether an error is beambert's own, one line of at most 400 characters, with the file's name."""
    ours = type(error).__module__.startswith("beambert.")
    return ours and "\n" not in line and len(line) <= 400 and name in line
