"""Test each reader of manifests and logs with a file of an older version, without a build or a run."""

import copy
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from beambert.bert_model.checkpoints import native
from beambert.common.renamed_fields import inverse, with_new_names, with_old_names
from beambert.pipelines import dataset
from beambert.pipelines.corpus import corpus_manifest
from beambert.pipelines.io.manifest_schemas import RENAMED_CORPUS_FIELDS, RENAMED_DATASET_FIELDS
from beambert.trainers.checkpoints import checkpoint_manager
from beambert.trainers.config.finetune_config import FinetuneConfig
from beambert.trainers.config.pretrain_config import PretrainConfig
from beambert.trainers.finetuning import run_outcomes
from beambert.trainers.monitoring import metrics_jsonl
from beambert.trainers.monitoring.training_monitor import MonitorState
from beambert.trainers.run_report.finished_run import read_run
from beambert.trainers.run_report.task_sections import sections
from beambert.trainers.training import run_manifest

STORED = Path(__file__).parent / "fixtures" / "format_versions"
# Names that no current field has.
OLD_FIELDS = {
    *("parts", "bucket", "buckets", "num_buckets", "learnt_from", "held_out", "running_words", "duplicate", "marks"),
    *("files_mostly_lost", "pieces", "whole", "instances_labelled_1", "masked_as_other", "masked_as_same"),
    *("distinct_words_left_out", "running_words_left_out", "characters_left_out", "limit_that_would_do"),
    *("running_words_outside", "left_to_right", "recompute", "on_corrupt", "on_not_finite", "dev_share"),
    *("skipped_updates", "sums", "filled_masks", "data_wait_share", "masked_lm_accuracy_commonest_token"),
    *("mistakes", "where"),
}

# Options that the stored records do not have.
NEWER_OPTIONS = {"backend", "coordinator_address", "num_processes", "process_id", "shard_optimizer_state"}
NEWER_OPTIONS |= {"added_tokens", "mask_rate_schedule", "max_train_time", "strip_accents", "tokenize_chinese_chars"}


def stored(name: str) -> Any:
    return json.loads((STORED / name).read_text(encoding="utf-8"))


def directory_with(tmp_path: Path, **files: str) -> Path:
    """Copy stored files to a directory under the names that commands use; `_json` stands for `.json`."""
    for name, source in files.items():
        shutil.copy(STORED / source, tmp_path / name.replace("_json", ".json"))
    return tmp_path


def keys_of(value: Any) -> set[str]:
    if isinstance(value, dict):
        return set(value).union(*map(keys_of, value.values()))
    return set().union(*map(keys_of, value)) if isinstance(value, list) else set()


def test_a_corpus_of_version_2(tmp_path):
    old = stored("corpus.2.json")
    corpus = corpus_manifest.load(str(directory_with(tmp_path, corpus_json="corpus.2.json")))
    assert [shard.partition for shard in corpus.shards] == [part["bucket"] for part in old["parts"]]
    assert [shard.partitions for shard in corpus.shards] == [part["buckets"] for part in old["parts"]]
    there, now = old["vocab"], corpus.vocab
    assert now["learned_from"]["words"] == there["learnt_from"]["running_words"] > 0
    assert now["learned_from"]["words_excluded"] == there["learnt_from"]["running_words_left_out"]
    written = json.loads(corpus.to_json())
    # "duplicate" is also a rule by which documents are rejected.
    assert not keys_of(written) & (OLD_FIELDS - {"duplicate"})
    # Only names have changed.
    assert with_new_names(written, inverse(RENAMED_CORPUS_FIELDS[2])) == {**old, "format_version": 3}


def test_a_dataset_of_version_2_keeps_its_fingerprint(tmp_path):
    old = stored("dataset.2.json")
    manifest = dataset.load(directory_with(tmp_path, dataset_json="dataset.2.json"))
    train, before = manifest.counts["train"], old["counts"]["train"]
    assert train["masked_as_random"] == before["masked_as_other"] > 0
    assert train["masked_as_original"] == before["masked_as_same"] > 0
    # A run that an older version started on this dataset can be resumed.
    assert stored("run.3.json")["data_fingerprints"] == [run_manifest.fingerprint(manifest)]
    written = manifest.to_json()
    assert not keys_of(json.loads(written)) & (OLD_FIELDS - {"duplicate"})
    assert with_new_names(json.loads(written), inverse(RENAMED_DATASET_FIELDS[2])) == {**old, "format_version": 3}
    # Written again by this version, the manifest has the same fingerprint.
    again = dataset.Dataset.from_json(written)
    assert run_manifest.fingerprint(again) == run_manifest.fingerprint(manifest)


def test_runs_of_version_3(tmp_path):
    old = stored("run.3.json")
    record = run_manifest.load(directory_with(tmp_path, run_json="run.3.json"))
    options = record.options
    assert options["causal_attention"] is True
    assert options["activation_checkpointing"] == old["options"]["recompute"] == "layer"
    assert options["on_corrupt_record"] == options["on_nonfinite"] == "skip"
    assert record.data_fingerprints == tuple(old["data_fingerprints"])
    now = PretrainConfig(data=("data",), output="run", num_train_steps=4).to_json().keys()
    assert options.keys() == now - NEWER_OPTIONS
    assert json.loads(record.to_json())["format_version"] == 4
    assert not keys_of(json.loads(record.to_json())) & OLD_FIELDS
    record = run_manifest.load(directory_with(tmp_path, run_json="finetuned_run.3.json"))
    assert record.options["dev_fraction"] == stored("finetuned_run.3.json")["options"]["dev_share"] == 0.3
    assert record.options.keys() == FinetuneConfig(output="", task="").to_json().keys() - NEWER_OPTIONS


def test_runs_of_older_versions(tmp_path):
    outcomes = run_outcomes.recorded_outcomes(directory_with(tmp_path, runs_json="runs.json"))
    assert outcomes
    for name, outcome in stored("runs.json").items():
        asked = outcomes[name]["asked"]
        assert asked["activation_checkpointing"] == outcome["asked"]["recompute"] == "layer"
        assert asked.keys() <= FinetuneConfig(output="", task="").to_json().keys()


def test_a_model_of_version_1(tmp_path):
    old = stored("beambert.1.json")
    record = native.load(directory_with(tmp_path, beambert_json="beambert.1.json"))
    assert record.causal_attention is old["left_to_right"] is True
    level = old["metrics"]["masked_lm_accuracy_commonest_token"]
    assert record.metrics["masked_lm_accuracy_most_frequent_token"] == level
    written = json.loads(record.to_json())
    assert written["format_version"] == 2
    assert not keys_of(written) & OLD_FIELDS


def test_the_state_beside_an_old_checkpoint(tmp_path):
    shutil.copy(STORED / "model.ckpt-4.state.json", tmp_path)
    checkpoint = checkpoint_manager.Checkpoint(4, tmp_path / "model.ckpt-4")
    old = stored("model.ckpt-4.state.json")
    state = checkpoint_manager.state_of(checkpoint, MonitorState)
    assert state["skipped_steps"] == old["skipped_updates"]
    assert state["metric_sums"] == old["sums"]
    assert not keys_of(state) & OLD_FIELDS
    checkpoint.state_file.write_text(json.dumps({**old, "skipped_updates": "x"}), encoding="utf-8")
    with pytest.raises(ValueError, match="skipped_updates must be an integer"):
        checkpoint_manager.state_of(checkpoint, MonitorState)


def test_the_log_of_an_old_run_is_read_and_continued(tmp_path):
    shutil.copy(STORED / "metrics.jsonl", tmp_path)
    old = [json.loads(line) for line in (STORED / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    assert {"data_wait_share", "filled_masks", "masked_lm_accuracy_commonest_token"} <= keys_of(old)
    lines = metrics_jsonl.read(tmp_path / "metrics.jsonl")
    assert not keys_of(lines) & OLD_FIELDS
    for line, before in zip(lines, old, strict=True):
        assert len(line) == len(before)
        assert line.get("mlm_samples") == before.get("filled_masks")
        assert line.get("data_wait_fraction") == before.get("data_wait_share")
    log = metrics_jsonl.MetricsLog(tmp_path / "metrics.jsonl", step=old[-1]["step"])
    log.write("train", old[-1]["step"] + 1, {"loss": 1.0})
    log.close()
    text = (tmp_path / "metrics.jsonl").read_text(encoding="utf-8")
    assert "mlm_samples" in text
    assert not any(f'"{name}"' in text for name in OLD_FIELDS)


def test_the_report_of_an_old_run(tmp_path):
    run = read_run(directory_with(tmp_path, eval_results_json="eval_results.json", evaluation_json="evaluation.json"))
    assert "masked_lm_accuracy_most_frequent_token" in run.results
    shown = {name: text for name, _, text in sections(run.evaluation, run.results)}
    assert "dev.tsv, row" in shown["errors"]


def test_a_damaged_old_manifest_names_the_field_that_it_has():
    corpus, manifest = stored("corpus.2.json"), stored("dataset.2.json")
    corpus["parts"][0]["bucket"] = "x"
    with pytest.raises(ValueError, match=r'parts\[0\]\.bucket must be an integer, not "x"'):
        corpus_manifest.parse(json.dumps(corpus).encode(), "corpus.json")
    manifest["shards"][1]["duplicate"] = None
    with pytest.raises(ValueError, match=r"shards\[1\]\.duplicate must be an integer, not null"):
        dataset.Dataset.from_json(json.dumps(manifest).encode())


@pytest.mark.parametrize(
    ("name", "load", "readable"),
    [
        ("corpus.2.json", lambda folder: corpus_manifest.load(str(folder)), (2, 3)),
        ("dataset.2.json", dataset.load, (2, 3)),
        ("run.3.json", run_manifest.load, (2, 3, 4)),
        ("beambert.1.json", native.load, (1, 2)),
    ],
)
def test_other_versions_are_refused(tmp_path, name, load, readable):
    for version in sorted({*range(-1, 6), 99} - {*readable}):
        content = json.dumps({**stored(name), "format_version": version})
        (tmp_path / f"{name.partition('.')[0]}.json").write_text(content, encoding="utf-8")
        with pytest.raises(ValueError, match=r"incompatible version|has format"):
            load(tmp_path)


def test_names_are_changed_where_the_table_says_and_nowhere_else():
    names = {"a": "b", "a.*.c": "d", "e.f": "g"}
    old = {"a": [{"c": 1, "a": 2}, 3], "e": {"f": None, "c": 4}, "f": 5, "c": {"a": 6}}
    before = copy.deepcopy(old)
    new = with_new_names(old, names)
    assert new == {"b": [{"d": 1, "a": 2}, 3], "e": {"g": None, "c": 4}, "f": 5, "c": {"a": 6}}
    assert old == before
    assert inverse(names) == {"b": "a", "b.*.d": "c", "e.g": "f"}
    assert with_new_names(new, inverse(names)) == old
    # A field of the older version takes precedence over a field that the older version does not define.
    assert with_new_names({"a": 1, "b": 2}, names) == with_new_names({"b": 2, "a": 1}, names) == {"b": 1}
    for value in (None, 1, "x", [], [[1]], {"a": None}, {"a": {"c": 1}}, {"e": []}):
        with_new_names(value, names)
    assert with_old_names("b[12].d must be 3, not b", names) == "a[12].c must be 3, not b"
    assert with_old_names("e.g is missing", names) == "e.f is missing"
    assert with_old_names("the file is empty", names) == "the file is empty"
