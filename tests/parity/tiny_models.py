"""Tiny models of transformers with random weights, and inputs for them; requires PyTorch and transformers."""

from pathlib import Path

import numpy as np
import torch
import transformers

# By our task: transformers' class, its configuration, and the storage of the weights in the fixture. Each class and
# storage occurs at least once.
MODELS = {
    "pretraining_erf": ("BertForPreTraining", {"hidden_act": "gelu"}, "safetensors"),
    "pretraining_tanh": ("BertForPreTraining", {"hidden_act": "gelu_new"}, "pytorch_model.bin"),
    "classification": ("BertForSequenceClassification", {"id2label": {0: "no", 1: "maybe", 2: "yes"}}, "sharded"),
    "regression": ("BertForSequenceClassification", {"num_labels": 1}, "float16"),
    "span": ("BertForQuestionAnswering", {"layer_norm_eps": 1e-5}, "safetensors"),
    "token_classification": ("BertForTokenClassification", {"num_labels": 5}, "bfloat16"),
    "multiple_choice": ("BertForMultipleChoice", {}, "bfloat16 pytorch_model.bin"),
}
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz", *(f"##{c}" for c in "aeiounrst")]
LENGTH = 14


def random_model(name: str) -> transformers.BertPreTrainedModel:
    """Return a model in evaluation mode; its weights vary widely, so that a misplaced weight changes the outputs."""
    kind, changes, _ = MODELS[name]
    config = transformers.BertConfig(
        vocab_size=len(PIECES),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=24,
        max_position_embeddings=LENGTH + 4,
        **changes,
    )
    torch.manual_seed(sum(name.encode()))
    model = getattr(transformers, kind)(config)
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            parameter.normal_(1.0 if "LayerNorm.weight" in key else 0.0, 0.5)
    return model.eval()


def random_inputs(name: str) -> dict[str, np.ndarray]:
    """Return input_ids, input_mask and segment_ids: int32 [3, S], or [3, 2, S] for multiple choice.

    The last row has no padding.
    """
    generator = np.random.default_rng(0)
    shape = (3, 2, LENGTH) if name == "multiple_choice" else (3, LENGTH)
    lengths = np.broadcast_to(np.array([5, 9, LENGTH]).reshape(-1, *[1] * (len(shape) - 2)), shape[:-1])[..., None]
    positions = np.broadcast_to(np.arange(LENGTH), shape)
    mask = positions < lengths
    return {
        "input_ids": np.where(mask, generator.integers(5, len(PIECES), shape), 0).astype(np.int32),
        "input_mask": mask.astype(np.int32),
        "segment_ids": (mask & (positions >= 4)).astype(np.int32),
    }


def outputs(model: transformers.BertPreTrainedModel, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the outputs of a model by their names in transformers; a model without heads has two."""
    names = {"input_ids": "input_ids", "attention_mask": "input_mask", "token_type_ids": "segment_ids"}
    with torch.no_grad():
        results = model(**{theirs: torch.from_numpy(inputs[ours]).long() for theirs, ours in names.items()})
    return {name: value.numpy() for name, value in results.items()}


def write_vocabulary(directory: Path) -> None:
    """Write vocab.txt."""
    (directory / "vocab.txt").write_text("".join(f"{piece}\n" for piece in PIECES), encoding="utf-8")
