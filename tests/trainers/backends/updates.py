"""Steps of a small model with the active backend: weights, slots and metrics.

As a program, it calls `save_cases` with a JSON object; KERAS_BACKEND must name the backend.

Keys of a case:
    batch_size, steps: 32 examples and 3 steps by default.
    devices: "mirrored" for all devices of the process, the default, or "single".
    accumulation, clip, xla, dropout, optimizer, packed, no_next_sentence: options of training.
    dynamic: whether masks are dynamic.
    checkpointing: activation checkpointing.
    padded: whether the vocabulary is padded.
    head: for fine-tuning.
    shard_optimizer_state: true or false. With either, the result has `slot_bytes`, the memory of the slots on a device.
    unsharded_steps: number of first steps without sharded optimizer state; the others resume from their checkpoint.
    steps_made: number of steps that are made; all of them by default.
    skipped_step: number of a step that is skipped, since the last of its examples has a weight that is not a number.
    evaluation: whether the result has the metrics of an evaluation.
"""

import dataclasses
import json
import sys
import tempfile
from pathlib import Path

import numpy as np

from beambert.bert_model.config import BertConfig
from beambert.bert_model.finetuning_models import BertForTask
from beambert.bert_model.heads import HEADS
from beambert.bert_model.pretraining import BertForPretraining
from beambert.trainers.backends.backend import Distribution, active_backend
from beambert.trainers.backends.startup import start_backend
from beambert.trainers.checkpoints import checkpoint_manager
from beambert.trainers.data.dynamic_masking import DynamicMasking, mask_batch
from beambert.trainers.data.example_order import stateless_hash
from beambert.trainers.data.pipeline import Batches, InputShard
from beambert.trainers.finetuning.batches import features_of as features_of_rows
from beambert.trainers.finetuning.finetuning_objective import finetuning_objective
from beambert.trainers.objective import Objective
from beambert.trainers.options import TrainingOptions
from beambert.trainers.pretraining.pretraining_objective import pretraining_objective
from tests.trainers.finetuning.rows_of_random_text import CONFIG as FINETUNING_CONFIG
from tests.trainers.finetuning.rows_of_random_text import LABELS, random_rows
from tests.trainers.pretraining_shards import LENGTH, PREDICTIONS, VOCABULARY, random_features, unmasked_ids


def features_of(case: dict, count: int) -> dict[str, np.ndarray]:
    """Return examples with one to four masked tokens, so that the parts of a batch have different weights."""
    if head := case.get("head"):
        rows = random_rows(head, count, seed=3)
        return features_of_rows(rows, HEADS[head], np.arange(count), FINETUNING_CONFIG.max_position_embeddings)
    features = random_features(np.random.default_rng(3), count, instances=2 if case.get("packed") else 1)
    features = {
        name: values if values.dtype == np.float32 else values.astype(np.int32) for name, values in features.items()
    }
    if case.get("dynamic"):
        rates = {"masked_lm_prob": 0.15, "mask_rate": 0.8, "random_rate": 0.1}
        ids = {"mask_id": VOCABULARY.mask_id, "cls_id": VOCABULARY.cls_id, "sep_id": VOCABULARY.sep_id}
        masking = DynamicMasking(**rates, **ids, replacement_ids=VOCABULARY.text_ids())
        features["input_ids"] = unmasked_ids(features).astype(np.int32)
        features = mask_batch(features, masking, PREDICTIONS, stateless_hash(7, np.arange(count)))
    return features


def objective_of(case: dict) -> Objective:
    """Return the objective of a small model with random weights, equal under every backend."""
    rates = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), case.get("dropout", 0.0))
    shape = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    if head := case.get("head"):
        longest = FINETUNING_CONFIG.max_position_embeddings
        config = BertConfig(FINETUNING_CONFIG.vocab_size, **shape, max_position_embeddings=longest, **rates)
        model = BertForTask(config, head, HEADS[head].fixed_labels or LABELS)
        task = finetuning_objective(model)
    else:
        # With a padded vocabulary, devices have rows of tokens, rows of both kinds, and rows of padding.
        vocab_size = 50 if case.get("padded") else len(VOCABULARY)
        config = BertConfig(vocab_size, **shape, max_position_embeddings=LENGTH, **rates)
        model = BertForPretraining(config, pad_vocabulary=case.get("padded", False))
        task = pretraining_objective(model, next_sentence=not case.get("no_next_sentence", False))
    model.encoder.set_activation_checkpointing(case.get("checkpointing", "none"))
    generator = np.random.default_rng(1)
    for variable in [*task.variables.values(), *task.frozen.values()]:
        variable.assign(generator.normal(0, 0.3, variable.shape))
    return task


def run_case(case: dict, distribution: Distribution) -> dict[str, np.ndarray]:
    """Run the steps of a case; return weights, slots and metrics by name."""
    backend = active_backend()
    batch_size, steps = case.get("batch_size", 32), case.get("steps", 3)
    with distribution.scope():
        task = objective_of(case)
    config = TrainingOptions(
        num_train_steps=steps,
        num_warmup_steps=1,
        learning_rate=1e-2 if steps < 10 else 1e-3,
        seed=5,
        gradient_accumulation_steps=case.get("accumulation", 1),
        clip=case.get("clip", "global"),
        xla=case.get("xla", "off"),
        on_nonfinite="skip" if "skipped_step" in case else "stop",
        shard_optimizer_state=case.get("shard_optimizer_state", False),
        optimizer=case.get("optimizer", "bert_adam"),
    )
    features = features_of(case, batch_size * steps)
    if "skipped_step" in case:
        features["masked_lm_weights"][(case["skipped_step"] + 1) * batch_size - 1, 0] = np.nan
    first_step = 0

    def batches(share: InputShard) -> Batches:
        part = batch_size // share.replicas
        parts = [
            {name: values[first : first + part] for name, values in features.items()}
            for first in range(0, batch_size * steps, part)
        ]
        own = [
            values
            for number, values in enumerate(parts)
            if 0 <= number % share.replicas - share.first_replica < share.local_replicas
        ]
        own = own[first_step * share.local_replicas :]
        shapes = {name: (values.shape, values.dtype) for name, values in parts[0].items()}
        return Batches(len(own), shapes, lambda index: iter(own[index:]))

    if unsharded_steps := case.get("unsharded_steps"):
        trainer = backend.make_trainer(task, dataclasses.replace(config, shard_optimizer_state=False), distribution)
        with trainer.make_steps(batches) as run_steps:
            run_steps(0, unsharded_steps, 0)
        first_step, task = unsharded_steps, objective_of(case)
        with tempfile.TemporaryDirectory() as directory:
            saved = checkpoint_manager.save(Path(directory), first_step, trainer.checkpoint_values(), task.vocab_size)
            trainer = backend.make_trainer(task, config, distribution)
            checkpoint_manager.restore(saved.prefix, trainer.saved_variables, task.vocab_size)
    else:
        trainer = backend.make_trainer(task, config, distribution)
    with trainer.make_steps(batches) as run_steps:
        results = run_steps(first_step, case.get("steps_made", steps) - first_step, 0)
    assert results.first_nonfinite == case.get("skipped_step", -1)
    assert results.seconds_waiting >= 0
    values = trainer.checkpoint_values()
    if case.get("shard_optimizer_state") and not distribution.is_chief:
        # Only the chief has the complete values of variables that are sharded over processes.
        values = task.variables
    result = {name: value if isinstance(value, np.ndarray) else value.numpy() for name, value in values.items()}
    if "shard_optimizer_state" in case:
        slots = [slot.value.addressable_data(0) for slot in trainer.optimizer.slots.values()]
        result["slot_bytes"] = np.array(sum(slot.nbytes for slot in slots))
    result |= {f"metric/{name}": np.array(ratio) for name, ratio in results.sums.items()}
    if case.get("evaluation"):
        for name, value in backend.evaluation_of(task, distribution)(batches).items():
            result[f"evaluation/{name}"] = np.array(value)
    return result


def save_cases(arguments: dict) -> None:
    """Save the results of cases by number and name, with all devices of the started backend or the first one.

    Keys of the argument:
        backend: the backend.
        devices: number of logical CPU devices.
        output: an .npz file.
        cases: the cases.
    """
    start_backend(arguments["backend"], arguments["devices"])
    everything = active_backend().open_distribution("auto")
    assert everything.replicas == arguments["devices"]
    results = {}
    for number, case in enumerate(arguments["cases"]):
        is_single = case.get("devices") == "single"
        distribution = active_backend().open_distribution("single") if is_single else everything
        results |= {f"{number}:{name}": value for name, value in run_case(case, distribution).items()}
    np.savez(arguments["output"], **results)


if __name__ == "__main__":
    save_cases(json.loads(sys.argv[1]))
