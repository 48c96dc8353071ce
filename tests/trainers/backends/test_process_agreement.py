"""Test what the processes of a run agree on: values that the chief decides, and equal inputs."""

import dataclasses

import numpy as np
import pytest

from beambert.bert_model.checkpoints.stored_tensors import CheckpointError
from beambert.trainers import training_plan
from beambert.trainers.backends.jax import startup
from beambert.trainers.backends.jax.distribution import check_equal_devices
from beambert.trainers.commands import pretrain
from beambert.trainers.errors import StorageError, TrainingError
from beambert.trainers.optimization.schedule import Stage
from beambert.trainers.pretraining.options import PretrainOptions
from beambert.trainers.training.run_manifest import RunRecord
from beambert.trainers.training.several_processes import check_agreement, decided_by_chief
from tests.trainers.pretraining_shards import SMALLEST, write_dataset


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

    def gather_from_processes(self, values):
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


def test_a_host_without_the_run_cannot_evaluate(tmp_path, monkeypatch):
    write_dataset(tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(training_plan, "choose_backend", lambda name: name)
    group = {"coordinator_address": "localhost:1", "num_processes": 2, "process_id": 1}
    config = PretrainOptions(output="absent", data=("data",), backend="jax", do_eval=True, **group)
    with pytest.raises(
        TrainingError, match=r"no run to evaluate on this machine: copy run\.json, bert_config\.json and "
    ):
        pretrain.run(config)
    assert not (tmp_path / "absent").exists()


def test_processes_with_different_numbers_of_devices_are_refused():
    check_equal_devices([0, 0, 1, 1])
    with pytest.raises(TrainingError, match=r"^process 0 has 1 device, process 1 has 3: start every process with the "):
        check_equal_devices([0, 1, 1, 1])


@pytest.mark.parametrize(
    ("address", "message"),
    [("localhost", "must be HOST:PORT"), ("localhost:a", "must be HOST:PORT"), ("localhost:1", "does not answer")],
)
def test_a_coordinator_that_cannot_be_reached(address, message, monkeypatch):
    monkeypatch.setattr(startup, "_CONNECT_SECONDS", -1)
    with pytest.raises(TrainingError, match=f"--coordinator_address {address}.* {message}"):
        startup._wait_for(address)
