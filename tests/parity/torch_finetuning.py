"""Fine-tune in plain PyTorch: transformers' models and losses, with padding and optimizer steps without our code.

Only the rows, their order (`EpochOrder`) and the conversion of the weights are ours; test_parity.py tests the
conversion.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import transformers

from beambert import cli
from beambert.bert_model.heads import HEADS
from beambert.trainers.finetuning.batches import EpochOrder
from beambert.trainers.finetuning.finetuning_task import Rows
from tests.trainers.finetuning.trajectories import Case, Course, Trajectory

KINDS = {
    "classification": "BertForSequenceClassification",
    "multi_label": "BertForSequenceClassification",
    "regression": "BertForSequenceClassification",
    "multiple_choice": "BertForMultipleChoice",
    "span": "BertForQuestionAnswering",
    "token_classification": "BertForTokenClassification",
}
# The label that PyTorch's cross-entropy ignores.
IGNORED = -100
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
Batch = dict[str, torch.Tensor]


def converted_model(native: Path, directory: Path, case: Case) -> transformers.BertPreTrainedModel:
    """Convert a native model and return it as loaded by transformers, in training mode but without dropout.

    Args:
        native: directory of the native model.
        directory: new directory for the files that transformers reads.
        case: case of the model.
    """
    assert cli.main(["convert", str(native), str(directory), "--to", "huggingface"]) == 0
    model = getattr(transformers, KINDS[case.head]).from_pretrained(directory)
    assert model.config.problem_type == HEADS[case.head].problem_type
    return prepared(model)


def prepared(model: transformers.BertPreTrainedModel) -> transformers.BertPreTrainedModel:
    """Return a model in training mode, with its embedding of [PAD] trained like any other.

    The released code and ours train this embedding, which the loss of a span reaches through the padding after a row.
    transformers does not train it.
    """
    assert model.config.hidden_dropout_prob == model.config.attention_probs_dropout_prob == 0.0
    model.bert.embeddings.word_embeddings.padding_idx = None
    return model.train()


def batch_of(rows: Rows, case: Case, chosen: Sequence[int], width: int | None) -> Batch:
    """Return the input of transformers' models for some rows, padded row by row to the same width.

    Args:
        rows: all rows.
        case: case with the head of the rows.
        chosen: indices of B rows.
        width: number of positions; None for that of the longest row.
    """
    flat = [row * rows.choices + choice for row in chosen for choice in range(rows.choices)]
    parts = [slice(*rows.row_splits[row : row + 2]) for row in flat]
    width = width or max(part.stop - part.start for part in parts)

    def padded(values: np.ndarray, value: int = 0) -> torch.Tensor:
        lists = [values[part].tolist() for part in parts]
        return torch.tensor([each + [value] * (width - len(each)) for each in lists])

    batch = {
        "input_ids": padded(rows.ids),
        "attention_mask": padded(np.ones_like(rows.ids)),
        "token_type_ids": padded(rows.segment_ids),
    }
    if case.head == "multiple_choice":
        batch = {name: values.reshape(len(chosen), rows.choices, width) for name, values in batch.items()}
    for name, values in rows.targets.items():
        if case.head == "span":
            batch[name] = torch.tensor(values[list(chosen)].tolist())
        elif case.head == "token_classification":
            batch["labels"] = padded(np.where(values < 0, IGNORED, values), IGNORED)
        else:
            batch["labels"] = torch.from_numpy(values[list(chosen)])
            if values.dtype == np.int32:
                batch["labels"] = batch["labels"].long()
    return batch


class ReleasedAdam(torch.optim.Optimizer):
    """`AdamWeightDecayOptimizer` of optimization.py of google-research/bert: no bias correction."""

    def __init__(self, groups: list[dict], lr: float, eps: float) -> None:
        super().__init__(groups, {"lr": lr, "eps": eps})

    @torch.no_grad()
    def step(self) -> None:
        """Update the parameters."""
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter]
                for name in ("m", "v"):
                    state.setdefault(name, torch.zeros_like(parameter))
                state["m"].mul_(0.9).add_(parameter.grad, alpha=0.1)
                state["v"].mul_(0.999).addcmul_(parameter.grad, parameter.grad, value=0.001)
                update = state["m"] / (state["v"].sqrt() + group["eps"]) + group["weight_decay"] * parameter
                parameter.sub_(group["lr"] * update)


def optimizer_of(
    model: transformers.BertPreTrainedModel, course: Course
) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]:
    """Return the optimizer and its schedule; for adamw, those of PyTorch and transformers."""
    kept = ("bias", "LayerNorm.weight")
    named = list(model.named_parameters())
    groups = [
        {"params": [value for name, value in named if not name.endswith(kept)], "weight_decay": course.weight_decay},
        {"params": [value for name, value in named if name.endswith(kept)], "weight_decay": 0.0},
    ]
    steps, warmup = course.steps, course.warmup_steps
    if course.optimizer == "adamw":
        adamw = torch.optim.AdamW(groups, lr=course.learning_rate, eps=1e-6)
        return adamw, transformers.get_linear_schedule_with_warmup(adamw, warmup, steps)

    def factor(step: int) -> float:
        return step / warmup if step < warmup else 1.0 - step / steps

    released = ReleasedAdam(groups, course.learning_rate, 1e-6)
    return released, torch.optim.lr_scheduler.LambdaLR(released, factor)


def their_trajectory(
    model: transformers.BertPreTrainedModel,
    case: Case,
    course: Course,
    rows: Rows,
    answered: Rows,
    class_weights: Sequence[float] | None = None,
) -> Trajectory:
    """Train a model and return its losses, and its logits at the end.

    Args:
        model: model from `prepared`, which is changed.
        case: case of the model.
        course: hyperparameters.
        rows: rows to train on.
        answered: rows whose logits are returned.
        class_weights: class weights of PyTorch's cross-entropy, which then replaces transformers' loss.
    """
    order = EpochOrder(len(rows), course.seed)
    width = model.config.max_position_embeddings if case.head == "span" else None
    batches = [
        batch_of(rows, case, order.rows(update * course.batch_size, course.batch_size).tolist(), width)
        for update in range(course.steps)
    ]
    losses = train(model, course, batches, class_weights)
    return Trajectory(losses, logits_of(model, case, answered))


def train(
    model: transformers.BertPreTrainedModel,
    course: Course,
    batches: Sequence[Batch],
    class_weights: Sequence[float] | None = None,
) -> list[float]:
    """Train one step with every batch, and return the losses before the steps."""
    optimizer, schedule = optimizer_of(model, course)
    losses = []
    for batch in batches:
        outputs = model(**batch)
        loss = outputs.loss
        if class_weights is not None:
            criterion = torch.nn.CrossEntropyLoss(torch.tensor(class_weights), ignore_index=IGNORED)
            loss = criterion(outputs.logits.flatten(0, -2), batch["labels"].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), course.clip_norm)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return losses


def logits_of(model: transformers.BertPreTrainedModel, case: Case, rows: Rows) -> list[np.ndarray]:
    """Return logits as in `contract.Logits`, with every row computed separately."""
    model.eval()
    answers = []
    for row in range(len(rows)):
        batch = batch_of(rows, case, [row], None)
        with torch.no_grad():
            outputs = model(**{name: values for name, values in batch.items() if name in INPUTS})
        if case.head == "span":
            answers.append(torch.cat([outputs.start_logits, outputs.end_logits]).numpy())
        else:
            answers.append(outputs.logits[0].numpy())
    return [np.squeeze(answer) for answer in answers] if case.head == "regression" else answers
