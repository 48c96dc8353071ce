"""Compute outputs and gradients of an encoder under JAX in bfloat16, with and without the attention kernel."""

import jax
import jax.numpy as jnp
import keras
import numpy as np

from bert_model.config import BertConfig
from bert_model.encoder import BertEncoder
from bert_model.jax_dropout import example_seeds
from tests.bert_model.small_models import encoder_inputs

CONFIG = BertConfig(
    vocab_size=50,
    hidden_size=64,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=80,
    max_position_embeddings=64,
)


def outputs_and_gradients(fused: bool) -> dict[str, np.ndarray]:
    encoder = BertEncoder(CONFIG, fused_attention=fused)
    generator = np.random.default_rng(0)
    for variable in encoder.trainable_variables:
        variable.assign(generator.normal(0, 0.3, variable.shape))
    inputs = encoder_inputs((3, 64), CONFIG)
    seeds = example_seeds(5, 7, 0, 3)

    def loss(weights):
        (hidden, pooled), _ = encoder.stateless_call(weights, [], **inputs, seed=seeds)
        return jnp.sum(jnp.sin(hidden)) + jnp.sum(pooled.astype(jnp.float32)), hidden

    weights = [variable.value for variable in encoder.trainable_variables]
    uses_kernel = "pallas_call" in str(jax.make_jaxpr(loss)(weights))
    assert uses_kernel == fused
    gradients, hidden = jax.jit(jax.grad(loss, has_aux=True))(weights)
    return {"hidden": hidden, **{f"gradient_{index}": values for index, values in enumerate(gradients)}}


def fused_outputs() -> dict[str, np.ndarray]:
    """Return the results without the kernel, "<name>/False", and with it, "<name>/True"; change the dtype policy."""
    keras.config.set_dtype_policy("mixed_bfloat16")
    return {
        f"{name}/{fused}": values for fused in (False, True) for name, values in outputs_and_gradients(fused).items()
    }
