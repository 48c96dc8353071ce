"""Measure a training step against KerasHub's BertMaskedLM and Hugging Face's BertForPreTraining, on this machine.

Each library trains a model of the same shape, with random weights on random examples, in a separate process with the
same number of threads. The libraries take turns, so changes of the machine's speed affect all of them. beambert runs
the complete step: next-sentence head, dropout, deterministic operations, clipping, BERT's optimizer. KerasHub has no
next-sentence head and no clipping. Hugging Face has no clipping and, as in normal use, logits at every position. Both
use Adam with weight decay. KerasHub runs with and without XLA, and the faster result counts. Base takes gigabytes of
memory, so only two libraries run at a time, without XLA.

The machine's share is relative to the rate of large matrix products of the same type in TensorFlow, measured in the
same run. Positions that beambert's last layer does not compute are not counted as work.

    PYTHONPATH=. python benchmarks/training.py mini small base
    PYTHONPATH=. python benchmarks/training.py --precision bfloat16 --rounds 9 small
    PYTHONPATH=. python benchmarks/training.py --only "beambert, JAX" -- tiny mini small base
"""

import argparse
import contextlib
import itertools
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

from benchmarks.random_rows import random_features

VOCAB_SIZE, BATCH_SIZE, LENGTH, PREDICTIONS = ROWS = 30_522, 32, 128, 20
MATRIX = 2048
Step = Callable[[], object]
# Contexts that stay open until the process ends.
OPEN = contextlib.ExitStack()


def start_tensorflow(threads: int) -> None:
    """Start TensorFlow with N threads."""
    os.environ["KERAS_BACKEND"] = "tensorflow"
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)


def tensorflow_step(size: str, threads: int, precision: str, xla: bool = False) -> Step:
    """Return a step of `beambert pretrain` with TensorFlow, with metrics and input pipeline."""
    start_tensorflow(threads)
    import tensorflow as tf

    tf.config.experimental.enable_op_determinism()
    return our_step(size, precision, xla)


def jax_step(size: str, threads: int, precision: str) -> Step:
    """Return a step of `beambert pretrain` with JAX, which takes the number of threads from the processors."""
    os.environ["KERAS_BACKEND"] = "jax"
    if threads != len(os.sched_getaffinity(0)):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    return our_step(size, precision)


def our_step(size: str, precision: str, xla: bool = False) -> Step:
    """Return a step of `beambert pretrain` with the backend that was started."""
    import keras

    from beambert.bert_model.config import BertConfig
    from beambert.bert_model.pretraining import BertForPretraining
    from beambert.trainers.backends.backend import active_backend
    from beambert.trainers.data.pipeline import Batches
    from beambert.trainers.options import TrainingOptions
    from beambert.trainers.pretraining.pretraining_objective import pretraining_objective

    keras.mixed_precision.set_dtype_policy("float32" if precision == "float32" else "mixed_bfloat16")
    model = BertForPretraining(BertConfig.preset(size, vocab_size=VOCAB_SIZE))
    config = TrainingOptions(
        num_train_steps=10_000, num_warmup_steps=100, learning_rate=1e-4, seed=0, xla="on" if xla else "off"
    )
    backend = active_backend()
    trainer = backend.make_trainer(pretraining_objective(model), config, backend.open_distribution("auto"))
    features = random_features(*ROWS)
    shapes = {name: (values.shape, values.dtype) for name, values in features.items()}
    batches = Batches(1 << 30, shapes, lambda _: itertools.repeat(features))
    run = OPEN.enter_context(trainer.make_steps(lambda _: batches))
    return lambda: run(0, 1, 0).sums["loss"][0]


def keras_hub_step(size: str, threads: int, precision: str, xla: bool = False) -> Step:
    """Return `train_on_batch` of KerasHub's masked language model."""
    start_tensorflow(threads)
    import keras
    import keras_hub

    from beambert.bert_model.config import BertConfig

    keras.mixed_precision.set_dtype_policy("float32" if precision == "float32" else "mixed_bfloat16")
    config = BertConfig.preset(size, vocab_size=VOCAB_SIZE)
    backbone = keras_hub.models.BertBackbone(
        vocabulary_size=VOCAB_SIZE,
        num_layers=config.num_hidden_layers,
        num_heads=config.num_attention_heads,
        hidden_dim=config.hidden_size,
        intermediate_dim=config.intermediate_size,
        dropout=config.hidden_dropout_prob,
        max_sequence_length=config.max_position_embeddings,
    )
    model = keras_hub.models.BertMaskedLM(backbone, preprocessor=None)
    model.compile(optimizer=keras.optimizers.AdamW(1e-4, weight_decay=0.01), jit_compile=xla)
    features = random_features(*ROWS)
    inputs = {
        "token_ids": features["input_ids"],
        "padding_mask": features["input_mask"],
        "segment_ids": features["segment_ids"],
        "mask_positions": features["masked_lm_positions"],
    }
    return lambda: model.train_on_batch(inputs, features["masked_lm_ids"], features["masked_lm_weights"])


def hugging_face_step(size: str, threads: int, precision: str) -> Step:
    """Return forward pass, backward pass and AdamW of Hugging Face's model with both heads."""
    import torch
    from transformers import BertConfig as HuggingFaceConfig
    from transformers import BertForPreTraining

    from beambert.bert_model.config import BertConfig

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    config = BertConfig.preset(size, vocab_size=VOCAB_SIZE)
    model = BertForPreTraining(
        HuggingFaceConfig(
            vocab_size=VOCAB_SIZE,
            hidden_size=config.hidden_size,
            num_hidden_layers=config.num_hidden_layers,
            num_attention_heads=config.num_attention_heads,
            intermediate_size=config.intermediate_size,
        )
    ).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01)
    features = {name: torch.from_numpy(values) for name, values in random_features(*ROWS).items()}
    labels = torch.full((BATCH_SIZE, LENGTH), -100)  # position without prediction
    labels.scatter_(1, features["masked_lm_positions"].long(), features["masked_lm_ids"].long())

    def step() -> float:
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
            loss = model(
                input_ids=features["input_ids"].long(),
                attention_mask=features["input_mask"],
                token_type_ids=features["segment_ids"].long(),
                labels=labels,
                next_sentence_label=features["next_sentence_labels"][:, 0].long(),
            ).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def tensorflow_product(_: str, threads: int, precision: str) -> Step:
    """Return a product of two square matrices in TensorFlow."""
    start_tensorflow(threads)
    import tensorflow as tf

    matrix = tf.cast(tf.random.stateless_normal((MATRIX, MATRIX), (0, 1)), precision)
    return lambda: tf.linalg.matmul(matrix, matrix)[0, 0].numpy()


def torch_product(_: str, threads: int, precision: str) -> Step:
    """Return a product of two square matrices in PyTorch."""
    import torch

    torch.set_num_threads(threads)
    matrix = torch.randn((MATRIX, MATRIX), dtype=getattr(torch, precision))
    return lambda: (matrix @ matrix)[0, 0].item()


WORKERS: dict[str, Callable[..., Step]] = {
    "beambert": tensorflow_step,
    "beambert, XLA": lambda *arguments: tensorflow_step(*arguments, xla=True),
    "beambert, JAX": jax_step,
    "KerasHub": keras_hub_step,
    "KerasHub, XLA": lambda *arguments: keras_hub_step(*arguments, xla=True),
    "Hugging Face": hugging_face_step,
    "product in TensorFlow": tensorflow_product,
    "product in PyTorch": torch_product,
}


def serve(name: str, size: str, threads: int, precision: str) -> None:
    """Run in a worker: for each number on standard input, run that many steps and print the seconds."""
    # Output of the libraries must not be read as an answer.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    start = time.perf_counter()
    step = WORKERS[name](size, threads, precision)
    step()
    print(time.perf_counter() - start, file=answers)
    for line in sys.stdin:
        start = time.perf_counter()
        for _ in range(int(line)):
            step()
        print(time.perf_counter() - start, file=answers)


class Worker:
    """Process that runs steps on request."""

    def __init__(self, name: str, size: str, threads: int, precision: str) -> None:
        arguments = [sys.executable, __file__, "--worker", name, "--threads", str(threads), "--precision", precision]
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "TF_CPP_MIN_LOG_LEVEL": "2"}
        self.process = subprocess.Popen(
            [*arguments, size],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        self.first = self._answer(name)
        self.name = name

    def seconds(self, steps: int) -> float:
        """Return the seconds of N steps."""
        assert self.process.stdin
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(f"{steps}\n")
            self.process.stdin.flush()
        return self._answer(self.name)

    def stop(self) -> None:
        """Stop the process."""
        assert self.process.stdin
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait()

    def _answer(self, name: str) -> float:
        assert self.process.stdout
        answer = self.process.stdout.readline()
        if not answer:
            if self.process.wait() == -signal.SIGKILL:
                sys.exit(f"{name} was killed, as for want of memory; compare fewer at a time, with --only")
            sys.exit(f"{name} failed; run it alone to see why: --worker {name!r}, which reads numbers of steps")
        return float(answer)


def flops_of_a_step(size: str) -> float:
    """Return the FLOPs of the matrix products in a step of beambert."""
    from beambert.bert_model.config import BertConfig
    from beambert.bert_model.size import skipped_training_flops_per_token, training_flops_per_token

    shape = BertConfig.preset(size, vocab_size=VOCAB_SIZE), LENGTH, PREDICTIONS
    return BATCH_SIZE * LENGTH * (training_flops_per_token(*shape) - skipped_training_flops_per_token(*shape))


def compare(size: str, names: list[str], rounds: int, seconds: float, threads: int, precision: str) -> None:
    """Measure one model and print a table."""
    workers = [Worker(name, size, threads, precision) for name in names]
    try:
        # Steps per turn that fit into the requested seconds.
        steps = [max(1, round(seconds / worker.seconds(1))) for worker in workers]
        turns = [[worker.seconds(n) / n for worker, n in zip(workers, steps, strict=True)] for _ in range(rounds)]
    finally:
        for worker in workers:
            worker.stop()
    by_name = {worker.name: [turn[index] for turn in turns] for index, worker in enumerate(workers)}
    ours = by_name["beambert"]
    print(f"\nBERT {size}, {precision}, {threads} threads, {rounds} rounds of {seconds:g} s in turns")
    print(f"{'':<24}{'first step':>12}{'s/step':>11}{'sequences/s':>13}{'we are':>9}")
    for worker in workers:
        times = by_name[worker.name]
        median = statistics.median(times)
        if worker.name.startswith("product"):
            rate = 2 * MATRIX**3 / median
            ideal = [flops_of_a_step(size) / (2 * MATRIX**3) * other for other in times]
            share = statistics.median(best / mine for best, mine in zip(ideal, ours, strict=True))
            print(f"{worker.name:<24}{rate / 1e9:>8.0f} GFLOP/s, beambert reaches {share:.0%}")
            continue
        ratios = [other / mine for mine, other in zip(ours, times, strict=True)]
        print(
            f"{worker.name:<24}{worker.first:>10.1f} s{median:>11.3f}{BATCH_SIZE / median:>13.1f}"
            f"{statistics.median(ratios):>7.2f} x   ({min(ratios):.2f} to {max(ratios):.2f})"
        )


def main() -> None:
    """Measure the models named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", nargs="+", help="presets: mini, small, base")
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="threads of every library")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0, help="seconds of each library in a round")
    parser.add_argument("--only", nargs="+", choices=list(WORKERS), help="libraries to compare beambert with")
    parser.add_argument("--worker", choices=list(WORKERS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        serve(options.worker, options.sizes[0], options.threads, options.precision)
        return
    print(f"batch {BATCH_SIZE} x {LENGTH}, {PREDICTIONS} predictions, {VOCAB_SIZE:,} tokens, dropout 0.1")
    for size in options.sizes:
        if options.only:
            together = [options.only]
        elif size == "base":
            together = [[library, "product in TensorFlow"] for library in ("KerasHub", "Hugging Face")]
        else:
            together = [[name for name in WORKERS if name != "beambert"]]
        for others in together:
            compare(size, ["beambert", *others], options.rounds, options.seconds, options.threads, options.precision)


if __name__ == "__main__":
    main()
