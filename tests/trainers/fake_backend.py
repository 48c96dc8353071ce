"""A backend that trains output biases only, in numpy: runs of the loop, its files and reports without compilation.

The logits are the output bias of each head, so that losses, metrics and gradients are exact: the masked-LM loss falls
to that of the token frequencies, a classification loss to that of the label frequencies. Checkpoints have all variables
and slots. Forward passes for samples and predictions run the real model, operation by operation.
"""

import contextlib
import sys
from collections.abc import Iterator

import numpy as np
import pytest
from keras import ops

from beambert.trainers.backends.backend import MakeBatches, RunSteps, StepResults
from beambert.trainers.backends.tensorflow import runtime
from beambert.trainers.backends.tensorflow.distribution import Distribution
from beambert.trainers.data.pipeline import InputShard
from beambert.trainers.objective import NOT_FINITE, compute_metrics
from beambert.trainers.optimization.optimizers import Optimizer

MASKED_LM, NEXT_SENTENCE = "cls/predictions/output_bias", "cls/seq_relationship/output_bias"
HEADS = ("output_bias", "cls/squad/output_bias")


class FakeTrainer:
    """An implementation of `beambert.trainers.backends.backend.Trainer`.

    Attributes:
        nonfinite_steps: steps with a non-finite loss.
    """

    nonfinite_steps: frozenset[int] = frozenset()

    def __init__(self, objective, config, distribution=None):
        self.objective, self.config = objective, config
        self.distribution = distribution or Distribution()
        self.optimizer = Optimizer(objective.variables, config, objective.vocab_size)

    @property
    def saved_variables(self):
        return {**self.objective.frozen, **self.objective.variables, **self.optimizer.slots}

    def checkpoint_values(self):
        return self.saved_variables

    @contextlib.contextmanager
    def make_steps(self, make: MakeBatches) -> Iterator[RunSteps]:
        batches = iter(make(InputShard()))

        def run(first_step: int, count: int, stop_vote: int) -> StepResults:
            totals: dict[str, tuple[float, float]] = {}
            first_nonfinite = -1
            for step in range(first_step, first_step + count):
                sums = self._step(step, next(batches))
                if sums[NOT_FINITE][0] and first_nonfinite < 0:
                    first_nonfinite = step
                for name, pair in sums.items():
                    totals[name] = tuple(np.add(totals.get(name, (0.0, 0.0)), pair).tolist())
            return StepResults(totals, first_nonfinite, 0.0, 0.0, stop_vote)

        yield run

    def _step(self, step: int, batch) -> dict[str, tuple[float, float]]:
        rate = float(self.config.rate_at(step))
        with np.errstate(all="ignore"):
            sums, gradients = sums_and_gradients(self.objective, batch)
        losses = [pair for name, pair in sums.items() if name.endswith("loss")]
        loss = sum(numerator / denominator for numerator, denominator in losses if denominator)
        if step in self.nonfinite_steps or not np.isfinite(loss):
            return {NOT_FINITE: (1.0, 1.0)}
        for name, gradient in gradients.items():
            self._update(name, gradient, rate)
        norm = float(np.sqrt(sum((gradient**2).sum() for gradient in gradients.values())))
        of_step = {"loss": loss, "gradient_norm": norm, "learning_rate": rate, NOT_FINITE: 0.0}
        return {**{name: (value, 1.0) for name, value in of_step.items()}, **sums}

    def _update(self, name: str, gradient: np.ndarray, rate: float) -> None:
        """Apply a step of BERT's Adam, whose slots a resumed run needs for the same weights."""
        options, variable = self.config, self.objective.variables[name]
        m, v = self.optimizer.slots_of(name)
        m.assign(options.adam_beta1 * m.numpy() + (1 - options.adam_beta1) * gradient)
        v.assign(options.adam_beta2 * v.numpy() + (1 - options.adam_beta2) * gradient**2)
        variable.assign(variable.numpy() - rate * m.numpy() / (np.sqrt(v.numpy()) + options.adam_epsilon))


def sums_and_gradients(objective, batch):
    """Return the metric sums of a batch and the gradients of the biases, numpy float32."""
    variables, terms = {**objective.frozen, **objective.variables}, objective.weights(batch)
    rows = batch.get("example_weights", np.ones(len(batch["input_ids"]), np.float32))
    sums, gradients = {}, {}

    def add(bias: str, loss: str, accuracy: str, labels, weights):
        logits = variables[bias].numpy().astype(np.float64)
        probabilities = np.exp(logits - logits.max())
        probabilities /= probabilities.sum()
        labels, weights = np.ravel(labels), np.ravel(weights).astype(np.float64)
        total = weights.sum()
        sums[loss] = (float(-(weights * np.log(probabilities[labels])).sum()), float(total))
        sums[accuracy] = (float((weights * (labels == logits.argmax())).sum()), float(total))
        counts = np.bincount(labels, weights, len(logits))
        gradients[bias] = ((probabilities * total - counts) / max(total, 1e-9)).astype(np.float32)

    if "masked_lm_ids" in batch:
        weights = batch["masked_lm_weights"] * rows[:, None]
        add(MASKED_LM, "masked_lm_loss", "masked_lm_accuracy", batch["masked_lm_ids"], weights)
        if "next_sentence_loss" in terms:
            labels = batch["next_sentence_labels"]
            weights = batch.get("next_sentence_weights", np.ones_like(labels)) * rows.reshape(
                -1, *[1] * (labels.ndim - 1)
            )
            add(NEXT_SENTENCE, "next_sentence_loss", "next_sentence_accuracy", labels, weights)
        return sums, gradients
    head = next(name for name in HEADS if name in variables)
    if variables[head].shape[0] > 1 and "label_ids" in batch:
        labels = batch["label_ids"]
        weights = rows.reshape(-1, *[1] * (labels.ndim - 1)) * (labels >= 0)
        add(head, "task_loss", "accuracy", np.maximum(labels, 0), weights)
    else:  # Regression, spans, choices and several labels: the bias moves toward 0.
        bias = variables[head].numpy()
        sums["task_loss"] = (float((bias**2).sum() * rows.sum()), float(rows.sum()))
        gradients[head] = 2 * bias
    return sums, gradients


def evaluation_of(objective, distribution=None):
    def evaluate(make: MakeBatches) -> dict[str, float]:
        return compute_metrics(sums_and_gradients(objective, batch)[0] for batch in make(InputShard()))

    return evaluate


def outputs_of(function, variables, distribution):
    def run(make: MakeBatches):
        for batch in make(InputShard()):
            output = function({name: ops.convert_to_tensor(values) for name, values in batch.items()})
            yield np.asarray(output)

    return run


def compiled(function, variables, *, once=False):
    return runtime.compiled(function, variables, once=True)


open_distribution = Distribution.open
make_trainer = FakeTrainer


def install(patch: pytest.MonkeyPatch) -> None:
    """Train with this backend in place of TensorFlow until the patch is undone."""
    patch.setitem(sys.modules, "beambert.trainers.backends.tensorflow.runtime", sys.modules[__name__])
