"""Tests of processes without a shared disk that train, resume, evaluate and predict: only the chief has the files."""

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from bert_model.checkpoints import native
from bert_model.checkpoints.stored_tensors import CheckpointError
from tests.conftest import ROOT
from tests.trainers.backends.device_runs import free_address
from tests.trainers.backends.pretraining_cluster import variables
from tests.trainers.finetuning.task_files import write_pairs
from tests.trainers.pretraining_shards import SMALLEST, write_dataset
from tests.trainers.random_models import write_model
from trainers.config.pretrain_config import PretrainConfig
from trainers.errors import StorageError, TrainingError
from trainers.optimization.schedule import Stage
from trainers.pretraining import prepare
from trainers.training.chief_checkpoints import decided_by_chief
from trainers.training.process_agreement import check_agreement
from trainers.training.run_manifest import RunRecord

PRETRAIN = ["pretrain", "--backend", "jax", "--data", "data", "--init_checkpoint", "initial"]
PRETRAIN += ["--output", "run", "--num_train_steps", "60", "--train_batch_size", "8"]
PRETRAIN += ["--save_checkpoints_steps", "30", "--eval_batch_size", "4", "--eval_steps", "20"]
FINETUNE = ["finetune", "rte", "--backend", "jax", "--data_dir", "rte", "--init_checkpoint", "pretrained"]
FINETUNE += ["--output", "model", "--max_seq_length", "60", "--train_batch_size", "4", "--num_train_epochs", "2"]
FINETUNE += ["--eval_steps", "4", "--early_stopping", "2", "--do_train", "--do_eval", "--do_predict"]


@pytest.fixture(scope="module")
def hosts(tmp_path_factory):
    """Directories of two hosts with the same inputs, except for the initial weights, which the chief sends."""
    first, second = (tmp_path_factory.mktemp(f"host{number}") for number in range(2))
    write_dataset(first / "data")
    write_models(first, seed=0)
    (first / "rte").mkdir()
    write_pairs(first / "rte", ("sentence1", "sentence2"), ["not_entailment", "entailment"], ("train", "dev", "test"))
    shutil.copytree(first, second, dirs_exist_ok=True)
    for name in ("initial", "pretrained"):
        shutil.rmtree(second / name)
    write_models(second, seed=1)
    return first, second


def write_models(host, seed):
    """Write the initial models of both commands."""
    write_model(host / "pretrained", seed=seed)
    write_model(host / "initial", config=SMALLEST, seed=seed)
    shutil.copy(host / "data" / native.VOCAB_FILE_NAME, host / "initial")


def start(hosts, command):
    """Start a command on every host; return the processes and their logs."""
    address = free_address()
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    logs = [host / f"{command[0]}-{time.time_ns()}.log" for host in hosts]
    processes = []
    for index, (host, path) in enumerate(zip(hosts, logs, strict=True)):
        group = ["--coordinator_address", address, "--num_processes", str(len(hosts)), "--process_id", str(index)]
        with path.open("w") as log:
            processes.append(
                subprocess.Popen(
                    [sys.executable, "-m", "beambert", *command, *group],
                    cwd=host,
                    stdout=log,
                    stderr=log,
                    env=environment,
                )
            )
    return processes, logs


def run(hosts, command):
    """Run a command on every host; return the logs of a success."""
    processes, logs = start(hosts, command)
    assert [process.wait(300) for process in processes] == [0, 0], [log.read_text() for log in logs]
    return [log.read_text() for log in logs]


def test_pretraining_resumes_and_evaluates_with_the_files_of_the_chief(hosts):
    run(hosts, PRETRAIN)
    assert not (hosts[1] / "run/checkpoints").exists()
    expected = variables(hosts[0] / "run", 60)
    scores = (hosts[0] / "run/eval_results.txt").read_text()
    shutil.rmtree(hosts[0] / "run")

    processes, logs = start(hosts, PRETRAIN)
    while not (hosts[0] / "run/checkpoints/model.ckpt-20.index").exists():
        assert processes[0].poll() is None, logs[0].read_text()
        time.sleep(0.02)
    processes[1].send_signal(signal.SIGTERM)
    assert [process.wait(300) for process in processes] == [128 + signal.SIGTERM] * 2, logs[0].read_text()
    printed = run(hosts, PRETRAIN)
    assert all("Resuming run from step" in text for text in printed)
    resumed = variables(hosts[0] / "run", 60)
    for name, value in expected.items():
        assert resumed[name].tobytes() == value.tobytes(), name
    assert (hosts[0] / "run/eval_results.txt").read_text() == scores

    (hosts[0] / "run/eval_results.txt").unlink()
    run(hosts, PRETRAIN)  # Training is complete, so this only evaluates.
    assert (hosts[0] / "run/eval_results.txt").read_text() == scores


def test_fine_tuning_ends_with_the_best_checkpoint_of_the_chief(hosts):
    run(hosts, FINETUNE)
    assert not (hosts[1] / "model/checkpoints").exists()
    assert not list((hosts[1] / "model").glob("*.tsv"))
    results = json.loads((hosts[0] / "model/eval_results.json").read_text())
    single = [flag if flag != "model" else "single" for flag in FINETUNE]
    log = subprocess.run(
        [sys.executable, "-m", "beambert", *single],
        cwd=hosts[0],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert log.returncode == 0, log.stderr
    expected = json.loads((hosts[0] / "single/eval_results.json").read_text())
    assert results["global_step"] == expected["global_step"]
    assert results["eval_loss"] == pytest.approx(expected["eval_loss"], rel=1e-3)
    predictions = [(hosts[0] / name / "RTE.tsv").read_text().splitlines() for name in ("model", "single")]
    assert len(predictions[0]) == len(predictions[1]) > 10
    step = results["global_step"]
    first, second = (variables(hosts[0] / name, step) for name in ("model", "single"))
    for name, value in second.items():
        np.testing.assert_allclose(first[name], value, rtol=1e-3, atol=1e-4, err_msg=name)


class Process:
    """The chief, or another process, which receives the values that the chief sent."""

    several_processes = True

    def __init__(self, sent=None):
        self.is_chief = sent is None
        self.sent = [] if sent is None else list(sent)

    def from_chief(self, values):
        if self.is_chief:
            self.sent.append(values)
            return values
        received = self.sent.pop(0)
        assert (values.shape, values.dtype) == (received.shape, received.dtype)
        return received


@pytest.mark.parametrize("value", [None, 7, {"step": 3, "seconds": 0.1}, "\u00e9" * 70_000, True])
def test_all_processes_get_the_value_of_the_chief(value):
    chief = Process()
    assert decided_by_chief(chief, lambda: value) == value
    assert decided_by_chief(Process(chief.sent), lambda: pytest.fail("called")) == value


@pytest.mark.parametrize("kind", [TrainingError, StorageError, CheckpointError])
def test_an_error_of_the_chief_is_raised_everywhere(kind):
    def fail():
        raise kind("checkpoint x cannot be read")

    chief = Process()
    with pytest.raises(kind, match=r"^checkpoint x cannot be read$"):
        decided_by_chief(chief, fail)
    with pytest.raises(TrainingError, match=r"^checkpoint x cannot be read$"):
        decided_by_chief(Process(chief.sent), fail)


def test_a_single_process_decides_itself():
    process = Process()
    process.several_processes = False
    assert decided_by_chief(process, lambda: 5) == 5
    assert process.sent == []


class Processes:
    """Two processes, of which the first one calls first."""

    several_processes = True

    def __init__(self):
        self.first = None

    def gathered(self, values):
        self.first = values if self.first is None else self.first
        return np.stack((self.first, values))


RECORD = RunRecord(("a" * 64,), "b" * 64, True, 32, (Stage(0, 8, 0, 3000, 0),), {"seed": 1}, {"python": "3.12"})
# A process that does not find the run in --output measures the speed again, and takes the default model.
PROVISIONAL = dataclasses.replace(RECORD, stages=(Stage(0, 8, 0, 1_000_000, 0),), options={"seed": 1, "steps": 10**6})
OTHER_SIZE = dataclasses.replace(SMALLEST, hidden_size=128)


@pytest.mark.parametrize(
    ("record", "model", "causal", "message"),
    [
        (dataclasses.replace(RECORD, data_fingerprints=("c" * 64,)), SMALLEST, False, "data: copy the same data"),
        (
            PROVISIONAL,
            SMALLEST,
            False,
            "steps: give the same flags .*, give the --num_train_steps recorded in its run.",
        ),
        (PROVISIONAL, OTHER_SIZE, False, "model: give the same --model to every process, also to resume a run"),
        (RECORD, SMALLEST, True, "model: "),
        (dataclasses.replace(RECORD, options={"seed": 2}), SMALLEST, False, "options: give the same flags"),
    ],
)
def test_a_difference_between_processes_is_named(record, model, causal, message):
    processes = Processes()
    check_agreement(processes, RECORD, SMALLEST, causal_attention=False)
    check_agreement(processes, RECORD, SMALLEST, causal_attention=False)
    with pytest.raises(TrainingError, match=f"^process 1 and process 0 differ in {message}"):
        check_agreement(processes, record, model, causal_attention=causal)


def test_a_host_without_the_run_cannot_evaluate(hosts, monkeypatch):
    monkeypatch.chdir(hosts[1])
    monkeypatch.setattr(prepare, "choose_backend", lambda name: name)
    group = {"coordinator_address": "localhost:1", "num_processes": 2, "process_id": 1}
    config = PretrainConfig(output="absent", data=("data",), backend="jax", do_eval=True, **group)
    with pytest.raises(
        TrainingError, match=r"no run to evaluate on this machine: copy run\.json, bert_config\.json and "
    ):
        prepare.run_pretraining(config)
    assert not (hosts[1] / "absent").exists()
