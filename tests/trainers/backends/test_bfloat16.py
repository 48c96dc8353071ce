import keras
import numpy as np

from beambert.bert_model.config import BertConfig
from beambert.bert_model.pretraining import BertForPretraining
from beambert.trainers.backends.tensorflow.train_step import Trainer
from beambert.trainers.options import TrainingOptions
from beambert.trainers.pretraining.pretraining_objective import pretraining_objective
from tests.trainers.pretraining_shards import VOCABULARY, random_features
from tests.trainers.small_runs import for_all, repeated

UPDATES = 50


def features():
    """Return a batch, the same every time, which the model memorizes."""
    return {
        name: values if values.dtype == np.float32 else values.astype(np.int32)
        for name, values in random_features(np.random.default_rng(0), 8).items()
    }


def losses(policy):
    """Return the loss of every step, and the dtypes of the saved variables."""
    before = keras.mixed_precision.dtype_policy()
    keras.mixed_precision.set_dtype_policy(policy)
    try:
        keras.utils.set_random_seed(0)
        model = BertForPretraining(BertConfig.preset("tiny", len(VOCABULARY)))
    finally:
        keras.mixed_precision.set_dtype_policy(before)
    trainer = Trainer(
        pretraining_objective(model),
        TrainingOptions(num_train_steps=UPDATES, num_warmup_steps=10, learning_rate=5e-4, seed=1),
    )
    with trainer.make_steps(for_all(repeated([features()]))) as run:
        found = [run(step, 1, 0).sums["loss"][0] for step in range(UPDATES)]
    return np.array(found), {variable.dtype for variable in trainer.saved_variables.values()}


def test_bfloat16_learns_as_float32_does():
    exact, _ = losses("float32")
    mixed, types = losses("mixed_bfloat16")
    assert types == {"float32"}
    assert exact[-1] < 0.8 * exact[0]
    # Both have the same dropout masks. By the end the batch is memorized, and how its small loss is rounded depends on
    # the processor.
    np.testing.assert_allclose(mixed, exact, rtol=0.03, atol=0.02)
    assert not np.array_equal(mixed, exact)
