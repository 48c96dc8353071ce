"""Test runs of `beambert pretrain`: files, resuming, refused options, evaluation; `test_tensorflow_runs.py` trains."""

import argparse
import dataclasses
import json

import numpy as np
import pytest

from beambert.bert_model.config import PRESETS, BertConfig, ConfigError
from beambert.pipelines.dataset import load
from beambert.pipelines.errors import DatasetError, OutputError
from beambert.tokenizer.vocabulary import Vocabulary
from beambert.trainers.checkpoints import checkpoint_manager
from beambert.trainers.commands import pretrain
from beambert.trainers.commands.pretrain import add_arguments
from beambert.trainers.errors import TrainingError
from beambert.trainers.monitoring import metrics_jsonl
from beambert.trainers.pretraining.options import default_learning_rate, default_warmup_steps
from tests.trainers import fake_backend
from tests.trainers.checkpoints.saved_checkpoints import variables
from tests.trainers.pretraining_shards import LENGTH, OPTIONS, VOCABULARY, write_dataset

pytestmark = pytest.mark.usefixtures("numpy_backend")


def assert_equal(first, second):
    assert first.keys() == second.keys()
    for name in first:
        np.testing.assert_array_equal(first[name], second[name], err_msg=name)


def test_a_run_writes_all_its_files(tmp_path, options, capsys):
    assert pretrain.run(options()) == 0
    output = tmp_path / "output"
    files = {
        str(path.relative_to(output)) for path in output.rglob("*") if path.is_file() and "events" not in path.name
    }
    assert files == {
        "vocab.txt",
        "bert_config.json",
        "run.json",
        "baselines.json",
        "beambert.json",
        "README.md",
        "checkpoints/model.ckpt-6.index",
        "checkpoints/model.ckpt-6.data-00000-of-00001",
        "checkpoints/model.ckpt-6.state.json",
        "checkpoints/best.json",
        "metrics.jsonl",
        "report.html",
        "eval_results.txt",
        "eval_results.json",
    }
    assert {path.parent.name for path in output.rglob("*events*")} == {"train", "validation"}
    assert (output / "vocab.txt").read_bytes() == VOCABULARY.to_bytes()
    assert BertConfig.load(output / "bert_config.json").hidden_size == 32
    record = json.loads((output / "run.json").read_text(encoding="utf-8"))
    assert record["do_lower_case"] is True
    assert record["options"]["num_train_steps"] == 6
    results = json.loads((output / "eval_results.json").read_text(encoding="utf-8"))
    names = [
        "global_step",
        "loss",
        "masked_lm_accuracy",
        "masked_lm_accuracy_most_frequent_token",
        "masked_lm_loss",
        "masked_lm_predictions",
        "next_sentence_accuracy",
        "next_sentence_accuracy_majority_class",
        "next_sentence_loss",
        "next_sentence_pairs",
    ]
    lines = (output / "eval_results.txt").read_text(encoding="utf-8").splitlines()
    assert lines == [f"{name} = {results[name]}" for name in names]
    assert results["global_step"] == 6
    assert results["loss"] == pytest.approx(results["masked_lm_loss"] + results["next_sentence_loss"])
    said = capsys.readouterr().out
    assert "beambert fill-mask" in said
    assert str(output / "checkpoints" / "model.ckpt-6") in said
    names = set(variables(output, 6))
    assert "bert/encoder/layer_1/attention/self/query/kernel" in names
    assert "bert/embeddings/word_embeddings/adam_m" in names
    assert "cls/predictions/output_bias/adam_v" in names
    # 46 variables of a model with two layers, two optimizer slots for each, and global_step.
    assert len(names) == 46 * 3 + 1


def test_finished_run_is_evaluated_and_a_longer_one_resumes(tmp_path, options, capsys):
    pretrain.run(options("--do_train"))
    capsys.readouterr()
    assert pretrain.run(options()) == 0
    assert "already trained to step 6" in capsys.readouterr().out
    assert (tmp_path / "output" / "eval_results.txt").exists()
    assert pretrain.run(options("--num_train_steps", "8")) == 0
    said = capsys.readouterr().out
    assert "from step 6 of 8" in said
    assert "Changed training options: num_train_steps 6 to 8" in said


def test_without_validation_examples_a_warning_and_no_results(tmp_path, data, options, capsys):
    write_dataset(data, {("train", 0): [5]})
    assert pretrain.run(options()) == 0
    assert "warning: " in capsys.readouterr().err
    assert not (tmp_path / "output" / "eval_results.txt").exists()


def test_evaluation_during_training_needs_validation_examples(tmp_path, data, options):
    write_dataset(data, {("train", 0): [10]})
    with pytest.raises(
        TrainingError, match="invalid --eval_steps 2: every --data directory must have a validation split"
    ):
        pretrain.run(options("--eval_steps", "2"))
    assert not (tmp_path / "output").exists()


def test_another_run_in_the_output_is_refused(tmp_path, data, options):
    pretrain.run(options("--num_train_steps", "1", "--do_train"))
    output = tmp_path / "output"
    before = (output / "run.json").read_bytes()
    with pytest.raises(TrainingError, match=r"in the batch size at step 0 \(4 before, 2 now\), --seed \(12345 before"):
        pretrain.run(options("--seed", "7", "--train_batch_size", "2"))
    with pytest.raises(TrainingError, match=r"model hidden_size \(32 before, 128 now\)"):
        pretrain.run(options("--model", "tiny"))
    write_dataset(data, seed=5)
    with pytest.raises(TrainingError, match=r"the data at step 0 \("):
        pretrain.run(options())
    assert (output / "run.json").read_bytes() == before


def test_a_run_without_checkpoints_restricts_no_options(tmp_path, options):
    pretrain.run(options("--num_train_steps", "1", "--do_train"))
    output, name = tmp_path / "output", "bert/embeddings/word_embeddings"
    first = variables(output, 1)[name]
    for path in (output / "checkpoints").iterdir():
        path.unlink()
    assert pretrain.run(options("--num_train_steps", "1", "--do_train", "--seed", "7")) == 0
    assert not np.array_equal(first, variables(output, 1)[name])


def test_evaluation_alone(tmp_path, options):
    with pytest.raises(TrainingError, match="contains no run to evaluate"):
        pretrain.run(options("--do_eval"))
    pretrain.run(options("--do_train"))
    assert not (tmp_path / "output" / "eval_results.txt").exists()
    config = dataclasses.replace(options("--do_eval"), model=None)
    assert pretrain.run(config) == 0
    assert (tmp_path / "output" / "eval_results.txt").exists()


def test_evaluation_alone_keeps_the_log_after_an_earlier_checkpoint(tmp_path, options):
    output = tmp_path / "output"
    pretrain.run(options("--do_train", "--save_checkpoints_steps", "3"))
    for path in (output / "checkpoints").glob("model.ckpt-6.*"):
        path.unlink()
    before = metrics_jsonl.read(output / "metrics.jsonl")
    assert pretrain.run(options("--do_eval")) == 0
    lines = metrics_jsonl.read(output / "metrics.jsonl")
    assert [line for line in lines if line["split"] == "train"] == before
    assert [(line["split"], line["step"]) for line in lines][2:4] == [("train", 3), ("validation", 3)]
    assert all(line.get("lost_seconds", 0) == 0 for line in lines)


def test_evaluation_on_other_data_needs_the_same_vocabulary(tmp_path, options):
    pretrain.run(options("--num_train_steps", "1", "--do_train"))
    other = tmp_path / "other"
    write_dataset(other, seed=3)
    assert pretrain.run(options("--do_eval", "--data", str(other))) == 0
    pieces = Vocabulary((*VOCABULARY.tokens[:-1], "!"))
    manifest = dataclasses.replace(load(other), vocab_sha256=pieces.sha256)
    (other / "dataset.json").write_text(manifest.to_json(), encoding="utf-8")
    (other / "vocab.txt").write_bytes(pieces.to_bytes())
    with pytest.raises(TrainingError, match="have different vocabularies"):
        pretrain.run(options("--do_eval", "--data", str(other)))


def test_evaluation_alone_needs_the_model_configuration_of_the_run(tmp_path, options):
    pretrain.run(options("--num_train_steps", "1", "--do_train"))
    config = BertConfig.load(tmp_path / "model.json")
    # The weights have the same shapes with another number of heads.
    other = tmp_path / "other.json"
    other.write_text(dataclasses.replace(config, num_attention_heads=4).to_json(), encoding="utf-8")
    with pytest.raises(TrainingError, match=r"differs in model num_attention_heads \(2 before, 4 now\); omit --model"):
        pretrain.run(options("--do_eval", "--model", str(other)))
    assert not (tmp_path / "output" / "eval_results.txt").exists()


def test_evaluation_alone_uses_the_recorded_steps_and_objective(tmp_path, options, capsys):
    pretrain.run(options("--do_train", "--no_next_sentence"))
    capsys.readouterr()
    assert pretrain.run(dataclasses.replace(options("--do_eval"), num_train_steps=None)) == 0
    assert "step 6/6  validation" in capsys.readouterr().out
    results = json.loads((tmp_path / "output" / "eval_results.json").read_text(encoding="utf-8"))
    assert "masked_lm_loss" in results
    assert not [name for name in results if name.startswith("next_sentence")]


@pytest.mark.parametrize(
    "flags", [("--best_metric", "dev_accuracy"), ("--best_metric", "next_sentence_loss", "--no_next_sentence")]
)
def test_a_best_metric_that_no_evaluation_has_is_an_error_before_training(tmp_path, options, flags):
    with pytest.raises(
        TrainingError, match=f"invalid --best_metric {flags[1]}: not a metric of the evaluation; choose from loss, mask"
    ):
        pretrain.run(options(*flags))
    assert not (tmp_path / "output" / "checkpoints").exists()


def test_init_checkpoint_takes_the_weights_alone(tmp_path, options, capsys):
    first, second = tmp_path / "first", tmp_path / "second"
    pretrain.run(options("--output", str(first), "--do_train"))
    # Step 0 of a run with warm-up has learning rate 0, so its one step changes no weight.
    flags = ("--num_train_steps", "1", "--num_warmup_steps", "1", "--do_train", "--init_checkpoint", str(first))
    pretrain.run(options("--output", str(second), *flags))
    assert f"Weights loaded from {first}: loaded 46\n" in capsys.readouterr().out
    trained, continued = variables(first, 6), variables(second, 1)
    names = [name for name in trained if not name.endswith(("adam_m", "adam_v", "global_step"))]
    assert_equal({name: trained[name] for name in names}, {name: continued[name] for name in names})
    assert continued["global_step"] == 1
    (first / "vocab.txt").write_bytes(VOCABULARY.to_bytes() + b"more\n")
    with pytest.raises(TrainingError, match=r"first/vocab.txt, but --data has another vocabulary"):
        pretrain.run(options("--output", str(tmp_path / "third"), *flags))


def test_errors_before_anything_is_written(tmp_path, data, options):
    output = tmp_path / "output"
    with pytest.raises(DatasetError, match=r"is not a dataset \(dataset.json is missing\)"):
        pretrain.run(options("--data", str(tmp_path)))
    write_dataset(data, max_seq_length=LENGTH + 1)
    with pytest.raises(
        ConfigError, match=rf"max_seq_length {LENGTH + 1} of .* exceeds max_position_embeddings {LENGTH} "
    ):
        pretrain.run(options())
    dataset = write_dataset(data)
    (data / "vocab.txt").write_bytes(VOCABULARY.to_bytes() + b"more\n")
    with pytest.raises(DatasetError, match=rf"has {len(VOCABULARY) + 1} tokens .* records {len(VOCABULARY)}"):
        pretrain.run(options())
    write_dataset(data)
    wrong = dataclasses.replace(BertConfig.preset("tiny", dataset.vocab_size + 1))
    (tmp_path / "wrong.json").write_text(wrong.to_json(), encoding="utf-8")
    with pytest.raises(ConfigError, match=rf"vocab_size {dataset.vocab_size + 1}, but vocab.txt of the data has"):
        pretrain.run(options("--model", str(tmp_path / "wrong.json")))
    assert not output.exists()
    output.write_text("x")
    with pytest.raises(OutputError, match=r"output is a file; choose another directory"):
        pretrain.run(options())


def test_corrupt_records_are_skipped_and_counted_on_request(tmp_path, data, options, capsys):
    for name in ("train-0-0.tfrecord", "validation-0-0.tfrecord"):
        content = bytearray((data / name).read_bytes())
        content[20] ^= 1
        (data / name).write_bytes(content)
    # The corrupt training shard is read once: 8 steps of 4 read the 17 examples of one copy and 15 of the other.
    assert pretrain.run(options("--num_train_steps", "8", "--on_corrupt_record", "skip")) == 0
    said = capsys.readouterr()
    lines = [json.loads(line) for line in (tmp_path / "output/metrics.jsonl").read_text().splitlines()]
    assert [line for line in lines if line["split"] == "train"][-1]["corrupt_records"] == 1
    assert "corrupt 1" in said.out + said.err
    assert "1 corrupt validation examples" in said.out + said.err


def test_nonfinite_steps_stop_the_run_or_are_skipped_and_counted(tmp_path, options, monkeypatch):
    monkeypatch.setattr(fake_backend.FakeTrainer, "nonfinite_steps", frozenset({4}))
    with pytest.raises(TrainingError, match=r"not finite at step 4; the last checkpoint is .*model.ckpt-3; "):
        pretrain.run(options("--save_checkpoints_steps", "3"))
    assert pretrain.run(options("--on_nonfinite", "skip")) == 0
    lines = metrics_jsonl.read(tmp_path / "output" / "metrics.jsonl")
    assert [line for line in lines if line["split"] == "train"][-1]["skipped_steps"] == 1


def test_little_space_is_one_warning(options, capsys, monkeypatch):
    monkeypatch.setattr(checkpoint_manager, "_free_bytes", lambda directory: 100)
    assert pretrain.run(options("--num_train_steps", "1", "--do_train")) == 0
    said = capsys.readouterr()
    assert (said.out + said.err).count("needs space for up to") == 1


def test_corrupt_validation_examples_are_counted_for_each_dataset(tmp_path, data, options, capsys):
    short = tmp_path / "short"
    write_dataset(short, max_seq_length=LENGTH // 2, options=dataclasses.replace(OPTIONS, max_seq_length=LENGTH // 2))
    content = bytearray((short / "validation-0-0.tfrecord").read_bytes())
    content[20] ^= 1
    (short / "validation-0-0.tfrecord").write_bytes(content)
    phases = ("--data", str(short), str(data), "--schedule", f"{LENGTH // 2}x0.5,{LENGTH}x0.5", "--eval_steps", "2")
    assert pretrain.run(options(*phases, "--on_corrupt_record", "skip")) == 0
    said = capsys.readouterr()
    assert f"1 corrupt validation examples in {short} were" in said.out + said.err
    assert f"corrupt validation examples in {data} were" not in said.out + said.err


@pytest.mark.parametrize(
    ("steps", "expected"), [(5, 2), (1000, 500), (5000, 1000), (20_000, 2000), (100_000, 10_000), (1_000_000, 10_000)]
)
def test_default_warmup(steps, expected):
    assert default_warmup_steps(steps) == expected


def test_default_learning_rates():
    rates = [default_learning_rate(BertConfig.preset(name, 9)) for name in PRESETS]
    assert dict(zip(PRESETS, rates, strict=True)) == {
        "tiny": 1e-3,
        "mini": 5e-4,
        "small": 2e-4,
        "medium": 2e-4,
        "base": 1e-4,
        "large": 1e-4,
    }


@pytest.mark.parametrize(
    "flags", [["--num_train_steps", "0"], ["--learning_rate", "-1"], ["--seed", "-1"], ["--seed", str(2**31)]]
)
def test_bad_numbers_are_refused_by_the_parser(flags, capsys):
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    with pytest.raises(SystemExit):
        parser.parse_args(["--data", "x", "--output", "y", *flags])
    assert flags[0] in capsys.readouterr().err
