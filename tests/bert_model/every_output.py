"""Compute all outputs of the models with the active Keras backend."""

import keras
import numpy as np

from beambert.bert_model.checkpoints.variable_names import TASKS
from beambert.bert_model.finetuning_models import BertForTask
from beambert.bert_model.heads import cls_embedding, mean_embedding
from beambert.bert_model.pretraining import BertForPretraining, pretraining_losses
from tests.bert_model.small_models import CONFIG, encoder_inputs, packed_inputs, randomise


def every_output() -> dict[str, np.ndarray]:
    """Return all outputs as arrays by name."""
    outputs = {}

    def add(name, values):
        values = values if isinstance(values, tuple | list) else [values]
        for index, value in enumerate(values):
            outputs[f"{name}/{index}"] = keras.ops.convert_to_numpy(value)

    inputs = encoder_inputs((4, 16))
    labels = {
        "masked_lm_positions": np.array([[1, 3, 5]] * 4),
        "masked_lm_ids": np.array([[7, 8, 9]] * 4),
        "masked_lm_weights": np.array([[1, 1, 0]] * 4),
    }
    # All inputs have equal shapes, because JAX compiles every operation again for each shape.
    row = {name: np.repeat(values, 4, axis=0) for name, values in packed_inputs([5, 6, 4], row_length=16)[0].items()}
    pairs = {"next_sentence_labels": np.array([[0, 1, 1]] * 4), "next_sentence_weights": np.array([[1, 1, 0]] * 4)}
    paired = {**inputs, **labels, "next_sentence_labels": np.array([[0], [1], [1], [0]])}
    packed = {**row, **pairs, **labels}
    for name, options, features in (
        ("pairs", {}, paired),
        ("mlm", {}, {**inputs, **labels}),
        ("packed", {}, packed),
        ("padded", {"pad_vocabulary": True}, paired),
        ("causal_attention", {"causal_attention": True}, packed),
    ):
        model = BertForPretraining(CONFIG, **options)
        randomise(model)
        logits = model(features)
        add(f"{name}/logits", list(logits))
        add(f"{name}/losses", [loss for loss in pretraining_losses(logits, features) if loss is not None])
    hidden = list(model.encoder.hidden_states(**inputs))
    add("hidden", hidden)
    add("maps", model.encoder.attention_maps(**inputs))
    add("pooled", [model.encoder.pooled_output(**inputs)])
    add("embeddings", [cls_embedding(hidden[-1]), mean_embedding(hidden[-1], inputs["input_mask"])])
    for task, number in TASKS.items():
        model = BertForTask(CONFIG, task, number or 4)
        randomise(model)
        add(f"task/{task}", model(encoder_inputs((2, 2, 16) if task == "multiple_choice" else (4, 16))))
    return outputs
