"""Write tests/fixtures/optimizers.json: results of other implementations of the optimizers on optimizer_problem.py.

bert_adam is `create_optimizer` of the released BERT code; adamw and lamb are composed of optax's own functions.
It requires TensorFlow, `pip install optax`, and the path of optimization.py of google-research/bert:
python tests/parity/record_optimizers.py FILE
"""

import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import optax
import tensorflow as tf

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.trainers.optimization.optimizer_problem import (
    DECAYED,
    PEAK_RATE,
    SHAPES,
    STEPS,
    UNUSED,
    WARMUP_STEPS,
    gradients,
    initial_weights,
    rates,
)

RECORDED = (1, 2, 3, 7, 20)  # numbers of steps
Weights = dict[str, np.ndarray]


def released(path: Path) -> dict[int, Weights]:
    """Run the released code in a TF1 graph, with a loss whose gradients are those of the problem."""
    sys.modules["tensorflow"] = tf.compat.v1
    spec = importlib.util.spec_from_file_location("released_optimization", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    tf1 = tf.compat.v1
    recorded = {}
    with tf1.Graph().as_default(), tf1.Session() as session:
        variables = {name: tf1.get_variable(name, initializer=value) for name, value in initial_weights().items()}
        fed = {name: tf1.placeholder(tf.float32, shape) for name, shape in SHAPES.items() if name != UNUSED}
        loss = tf.add_n([tf.reduce_sum(fed[name] * variables[name]) for name in fed])
        update = module.create_optimizer(loss, PEAK_RATE, STEPS, WARMUP_STEPS, use_tpu=False)
        session.run(tf1.global_variables_initializer())
        for step in range(STEPS):
            session.run(update, {fed[name]: gradient for name, gradient in gradients(step).items()})
            if step + 1 in RECORDED:
                recorded[step + 1] = session.run(variables)
    return recorded


def of_optax(make: Callable[[float, dict[str, bool]], optax.GradientTransformation]) -> dict[int, Weights]:
    """Run an optax optimizer, after optax's clipping, on the variables that have gradients."""
    weights = {name: jnp.asarray(value) for name, value in initial_weights().items() if name != UNUSED}
    decayed = {name: name in DECAYED for name in weights}
    optimizer = optax.inject_hyperparams(lambda rate: optax.chain(optax.clip_by_global_norm(1.0), make(rate, decayed)))(
        rate=0.0
    )
    state = optimizer.init(weights)
    recorded = {}
    for step, rate in enumerate(rates()):
        state.hyperparams["rate"] = jnp.float32(rate)
        updates, state = optimizer.update(gradients(step), state, weights)
        weights = optax.apply_updates(weights, updates)
        if step + 1 in RECORDED:
            recorded[step + 1] = dict(weights)
    return recorded


def adamw(rate: float, decayed: dict[str, bool]) -> optax.GradientTransformation:
    """Return optax's AdamW."""
    return optax.adamw(rate, b1=0.9, b2=0.999, eps=1e-6, weight_decay=0.01, mask=decayed)


def lamb(rate: float, decayed: dict[str, bool]) -> optax.GradientTransformation:
    """Return optax's LAMB, with the trust ratio for decayed variables only, as in the authors' implementation."""
    return optax.chain(
        optax.scale_by_adam(b1=0.9, b2=0.999, eps=1e-6),
        optax.add_decayed_weights(0.01, decayed),
        optax.masked(optax.scale_by_trust_ratio(), decayed),
        optax.scale_by_learning_rate(rate),
    )


def main() -> None:
    """Write the fixture."""
    trajectories = {"bert_adam": released(Path(sys.argv[1])), "adamw": of_optax(adamw), "lamb": of_optax(lamb)}
    text = json.dumps(
        {
            name: {
                str(step): {
                    variable: [float(f"{x:.9g}") for x in np.ravel(value).astype(float)]
                    for variable, value in weights.items()
                }
                for step, weights in trajectory.items()
            }
            for name, trajectory in trajectories.items()
        }
    )
    path = Path(__file__).parent.parent / "fixtures" / "optimizers.json"
    path.write_text(text.replace('}, "', '},\n"') + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
