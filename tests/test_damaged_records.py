"""Test corrupt internal files of jobs and runs, and corrupt files of models.

Files that can be written again are ignored; for others, the error is one line.
"""

import json
import math
import struct

import pytest

from beambert import cli
from beambert.bert_model.checkpoints import hugging_face, native, safetensors
from beambert.bert_model.checkpoints.stored_tensors import CheckpointError
from beambert.bert_model.config import BertConfig, ConfigError
from beambert.pipelines.cleaning.decontamination import read_evaluation_texts
from beambert.pipelines.corpus import blocks
from beambert.pipelines.documents import Document
from beambert.pipelines.errors import SourceError
from beambert.pipelines.io import atomic_files, output_directory
from beambert.tokenizer.vocabulary import SPECIAL_TOKENS, Vocabulary, VocabularyError
from beambert.trainers.errors import TrainingError
from beambert.trainers.finetuning import sweep
from beambert.trainers.monitoring import metrics_jsonl
from beambert.trainers.training.run_manifest import RecordedOptions
from tests.damaged_json import FILES, damages


def test_a_corrupt_completion_marker_is_ignored(tmp_path):
    """Test other files, every truncation and every flipped bit; the content of a valid marker is its own."""
    path = tmp_path / "marker.json"
    content = [["train", 0], {"documents": 2, "words": "über"}, [1, 2.5]]
    marker = tuple[tuple[str, int], dict, list[float]]
    atomic_files.write_marker(str(path), content)
    whole = path.read_bytes()
    expected = atomic_files.read_marker(str(path), marker)
    assert expected == (("train", 0), {"documents": 2, "words": "über"}, [1, 2.5])
    assert atomic_files.read_marker(str(path), tuple[str, str]) is None
    flipped = [whole[:i] + bytes([whole[i] ^ 1 << bit]) + whole[i + 1 :] for i in range(len(whole)) for bit in range(8)]
    for text in [*FILES.values(), *(whole[:size] for size in range(len(whole))), *flipped]:
        path.write_bytes(text)
        assert atomic_files.read_marker(str(path), marker) is None, text[:2000]


def test_a_corrupt_block_file_is_ignored_or_reported(tmp_path):
    path = str(tmp_path / "unit")
    document = Document(["A sentence."], "t", "s", language="en", id="0a" * 16)
    places = blocks.write_block_file(path, [(("train", n), blocks.to_block([document])) for n in range(2)])
    blocks.write_block_marker(path, places, {"documents": 2})
    content = (tmp_path / "unit").read_bytes()
    for other in (content[:-1], content + b"0"):
        (tmp_path / "unit").write_bytes(other)
        assert blocks.read_block_marker(path) is None
    (tmp_path / "unit").write_bytes(b"noise" * 200)
    with pytest.raises(SourceError, match="unit is corrupt; delete it and run the same command again"):
        list(blocks.read_blocks(place for _, place in places))


def test_other_content_is_not_a_lock():
    assert output_directory.is_lock(b"")
    assert output_directory.is_lock(output_directory.lock_content().encode())
    for text in (content for name, content in FILES.items() if name != "empty"):
        # Only the first 10,000 bytes of a lock are read.
        assert not output_directory.is_lock(text[:10_000])
        assert (
            str(output_directory.in_use_error("out", text[:10_000], "wait")) == "out is in use by another process; wait"
        )


def test_evaluation_files_that_are_not_json_are_named(tmp_path):
    for name in ("texts.json", "texts.jsonl"):
        for text in (b"[" * 100_000, b"9" * 5000, b'{"a": "\xff"}', b"{"):
            (tmp_path / name).write_bytes(text)
            with pytest.raises(SourceError, match=f"--decontaminate .*{name} cannot be read") as caught:
                list(read_evaluation_texts(str(tmp_path / name)))
            assert len(str(caught.value)) - len(str(tmp_path)) < 300
    # A Unicode line separator within a string does not end a line.
    (tmp_path / "texts.jsonl").write_text('{"a": "one\u2028two"}\n{"a": "three"}\n', encoding="utf-8")
    assert list(read_evaluation_texts(str(tmp_path / "texts.jsonl"))) == ["one\u2028two", "three"]


def test_a_corrupt_log_line_is_reported_and_a_torn_last_line_ignored(tmp_path):
    path = tmp_path / "metrics.jsonl"
    line = {"split": "train", "step": 5, "loss": 1.5, "mlm_samples": ["a"]}
    whole = json.dumps(line) + "\n"
    path.write_text(whole + whole[:-9])
    assert metrics_jsonl.read(path) == [line]
    path.write_bytes(whole.encode() + b"\0" * 50)
    assert metrics_jsonl.read(path) == [line]
    texts = [text for name, text in FILES.items() if name not in ("UTF-16", "noise")]
    for text in [*texts, *(text for damage, _, text in damages(line) if damage not in ("null", "-1", "missing"))]:
        path.write_bytes(whole.encode() + text + b"\n" + whole.encode())
        with pytest.raises(TrainingError, match=r"metrics\.jsonl, line 2: .*; remove the line") as caught:
            metrics_jsonl.read(path)
        assert len(str(caught.value)) - len(str(tmp_path)) < 400


def test_a_run_outside_the_directory_of_the_runs_is_refused(tmp_path):
    outcome = {"options": {}, "metrics": {"eval_f1": 0.5}, "problem": None, "asked": {}, "contents": {}}
    for name in ("../other", "/other", "a/b", "."):
        (tmp_path / "runs.json").write_text(json.dumps({name: outcome}))
        with pytest.raises(TrainingError, match=r"runs\.json: .* is not a valid run name; move"):
            sweep.recorded_outcomes(tmp_path)


def test_metrics_that_are_not_finite_are_read_back(tmp_path):
    outcome = {"options": {}, "problem": None, "asked": {}, "contents": {}}
    outcome["metrics"] = {"eval_loss": math.inf, "eval_f1": 0.5}
    sweep.write_outcomes(tmp_path, {"seed-1": outcome})
    json.loads((tmp_path / "runs.json").read_text(), parse_constant=lambda name: pytest.fail(name))
    assert math.isnan(sweep.recorded_outcomes(tmp_path)["seed-1"]["metrics"]["eval_loss"])
    record = native.ModelRecord("pretraining", metrics={"loss": math.inf, "accuracy": 0.5})
    (tmp_path / native.FILE_NAME).write_text(record.to_json())
    assert native.load(tmp_path).metrics == {"accuracy": 0.5}


def test_a_damaged_header_of_safetensors_is_named(tmp_path):
    path = tmp_path / "model.safetensors"
    header = {"a": {"dtype": "F32", "shape": [2, 1], "data_offsets": [0, 8]}, "__metadata__": {"format": "pt"}}

    def write(text: bytes) -> None:
        path.write_bytes(struct.pack("<Q", len(text)) + text + b"\0" * 8)

    write(json.dumps(header).encode())
    assert safetensors.read(path)["a"].shape == (2, 1)
    tensor = {"a": header["a"]}
    texts = [text for name, text in FILES.items() if name != "UTF-16"]
    texts += [text for damage, place, text in damages(tensor) if damage not in ('{"@": []}', "missing")]
    for text in texts:
        write(text)
        with pytest.raises(CheckpointError, match=r"model\.safetensors .*; copy it again") as caught:
            safetensors.read(path)
        assert len(str(caught.value)) - len(str(tmp_path)) < 300


def test_a_damaged_tokenizer_json_is_named(tmp_path):
    path = tmp_path / "tokenizer.json"
    vocabulary = {piece: number for number, piece in enumerate([*SPECIAL_TOKENS, "a"])}
    model = {"type": "WordPiece", "continuing_subword_prefix": "##", "vocab": vocabulary}
    content = {"model": model, "added_tokens": [{"id": 6, "content": "b"}]}
    path.write_text(json.dumps(content))
    assert Vocabulary.load(path).tokens == (*SPECIAL_TOKENS, "a", "b")
    cases = [(name, (), text) for name, text in FILES.items()] + list(damages(content))
    for damage, place, text in cases:
        path.write_bytes(text)
        if damage in ("missing", "@long", "[]") and place[:1] == ("added_tokens",):
            continue
        with pytest.raises(VocabularyError, match=r"tokenizer\.json") as caught:
            Vocabulary.load(path)
        assert len(str(caught.value)) - len(str(tmp_path)) < 300, (damage, place)


def test_a_damaged_index_of_weights_is_named(tmp_path):
    path = tmp_path / "model.safetensors.index.json"
    cases = [*FILES.values(), b'{"weight_map": {"a": "../b"}}', b'{"weight_map": {"a": 1}}', b'{"weight_map": []}']
    for text in cases:
        path.write_bytes(text)
        with pytest.raises(CheckpointError, match=r"model\.safetensors\.index\.json"):
            hugging_face.read(tmp_path)


def test_a_configuration_with_huge_sizes_is_refused():
    for name, value in (("num_hidden_layers", 10**18), ("hidden_size", 10**9), ("vocab_size", 2**31)):
        with pytest.raises(ConfigError, match=f"invalid {name} {value}: must be at most"):
            BertConfig.from_json(json.dumps({"vocab_size": 9, name: value}))


def test_the_recorded_options_are_those_of_the_commands():
    names = {
        action.dest
        for command in ("pretrain", "finetune")
        for action in cli.make_parser(command)[0]._actions
        if action.dest != "help"
    }
    assert RecordedOptions.__annotations__.keys() == names
