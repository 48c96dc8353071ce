import numpy as np
import pytest
import tensorflow as tf

from beambert.bert_model.finetuning_models import BertForTask
from beambert.trainers.backends.tensorflow.train_step import Trainer, _Replicas
from beambert.trainers.finetuning.batches import features_of
from beambert.trainers.finetuning.finetuning_objective import finetuning_objective
from tests.trainers.finetuning.rows_of_random_text import CONFIG, LABELS, random_rows
from tests.trainers.small_runs import for_all, repeated, settings

KERNEL = "bert/encoder/layer_0/intermediate/dense/kernel"


@pytest.fixture(scope="module")
def run():
    """A trainer of a small classifier, and its function that runs steps."""
    model = BertForTask(CONFIG, "classification", LABELS)
    task = finetuning_objective(model)
    trainer = Trainer(task, settings())
    rows = random_rows("classification")
    features = features_of(rows, model.head, np.arange(10), CONFIG.max_position_embeddings)
    with trainer.make_steps(for_all(repeated([features]))) as run_steps:
        run_steps(0, 1, 0)
        yield trainer, run_steps


def _address(variable):
    """Return the address of a variable's values in memory."""
    return np.from_dlpack(variable.value.read_value()).ctypes.data


def test_a_step_writes_into_the_buffers_of_the_variables(run):
    trainer, run_steps = run
    variables = [trainer.objective.variables[KERNEL], *trainer.optimizer.slots_of(KERNEL)]
    before = [(_address(variable), variable.numpy()) for variable in variables]
    run_steps(1, 3, 0)
    for variable, (address, values) in zip(variables, before, strict=True):
        assert _address(variable) == address
        assert not np.array_equal(variable.numpy(), values)


def test_a_step_does_not_change_values_read_before(run):
    trainer, run_steps = run
    variable = trainer.objective.variables[KERNEL]
    tensor = variable.value.read_value()
    copy = variable.numpy().copy()
    run_steps(4, 1, 0)
    assert not np.array_equal(variable.numpy(), copy)
    np.testing.assert_array_equal(tensor.numpy(), copy)


@pytest.mark.parametrize("shape", [(3,), (128,), (50_000,), (128, 512), (3_000, 768)], ids=str)
def test_the_norm_is_exact_to_float32(shape):
    gradients = {
        str(seed): tf.constant(np.random.default_rng(seed).normal(0, 10.0**-seed, shape), tf.float32)
        for seed in range(3)
    }
    exact = sum(float(np.sum(np.square(gradient.numpy().astype(np.float64)))) for gradient in gradients.values())
    assert tf.function(_Replicas(1).norm)(gradients).numpy() == pytest.approx(exact**0.5, rel=1e-6)
