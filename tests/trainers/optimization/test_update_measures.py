"""Test that the measured update is the difference of the weights before and after a step, for every optimizer."""

import dataclasses

import numpy as np
import pytest

from beambert.bert_model.pretraining import BertForPretraining
from beambert.trainers.optimization import update_rules
from beambert.trainers.optimization.optimizers import Optimizer
from beambert.trainers.optimization.update_measures import measured_matrices, update_measures
from beambert.trainers.optimization.update_rules import UpdateRule
from beambert.trainers.options import OptimizerOptions
from beambert.trainers.pretraining.pretraining_objective import pretraining_objective
from tests.trainers.optimization.optimizer_steps import OPTIMIZERS, make_step
from tests.trainers.pretraining_shards import SMALLEST

CONFIG = dataclasses.replace(SMALLEST, num_hidden_layers=3)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_measured_update_is_that_of_the_last_step(name):
    variables = pretraining_objective(BertForPretraining(CONFIG)).variables
    optimizer = Optimizer(variables, OptimizerOptions(optimizer=name, layerwise_lr_decay=0.5))
    names = measured_matrices(variables)
    assert sorted(matrix.split("/")[2] for matrix in names) == ["layer_0", "layer_0", "layer_2", "layer_2"]
    generator = np.random.default_rng(0)
    for step, rate in enumerate((0.0, 0.01, 0.02)):
        change = square = count = 0.0
        for matrix in names:
            before = variables[matrix].numpy()
            gradient = generator.normal(0, 0.1, before.shape).astype(np.float32)
            make_step(optimizer, {matrix: gradient}, rate, step)
            after = variables[matrix].numpy()
            change += float(np.square(before - after).sum())
            square, count = square + float(np.square(after).sum()), count + after.size
        measures = update_measures(optimizer, rate, step)
        if update_rules.OPTIMIZERS[name].last_direction is UpdateRule.last_direction:
            assert measures is None
            continue
        assert measures.weight_rms == pytest.approx((square / count) ** 0.5, rel=1e-5)
        assert measures.ratio == pytest.approx((change / square) ** 0.5, rel=0.02)
    assert measures is None or measures.ratio > 1e-3


def test_nothing_is_measured_of_weights_that_are_not_finite():
    variables = pretraining_objective(BertForPretraining(CONFIG)).variables
    optimizer = Optimizer(variables, OptimizerOptions())
    variable = variables[measured_matrices(variables)[0]]
    variable.assign(np.full(variable.shape, np.nan, np.float32))
    assert update_measures(optimizer, 0.1, 0) is None


class GradientDescent(UpdateRule):
    slots = ()

    def update(self, slots, gradient, step, part):
        return gradient, ()


def test_nothing_is_measured_where_the_update_depends_on_the_gradient(monkeypatch):
    monkeypatch.setitem(update_rules.OPTIMIZERS, "muon", GradientDescent)
    variables = pretraining_objective(BertForPretraining(CONFIG)).variables
    assert update_measures(Optimizer(variables, OptimizerOptions(optimizer="muon")), 0.1, 0) is None
