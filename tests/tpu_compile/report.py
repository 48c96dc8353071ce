"""Compile complete steps for several TPUs and print a Markdown table: memory, collectives and faults of each program.

    python -m tests.tpu_compile.report
    python -m tests.tpu_compile.report --models base --topologies v5e:2x4 --steps train

A step of base takes about half a minute of CPU time, one of large two minutes and 7 GB. Every step is compiled in a
process of its own, which the compiler may end: large overflows its stack on tpu7x.
"""

import argparse
import importlib.metadata
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

import jax

from beambert.deploy.plan.tpu_compiler.compile_step import collectives, compile_program
from tests.tpu_compile.step_faults import faults
from tests.tpu_compile.steps import (
    Step,
    bert_config,
    bfloat16_objective,
    classification_objective,
    distribution_of,
    eval_step,
    finetuning_features,
    pretraining_features,
    train_step,
)

TOPOLOGIES = ("v5e:2x4", "v5e:4x4", "v5p:2x2x2", "v6e:4x4", "v6e:16x16", "tpu7x:2x2x2")
# Examples per chip in training and evaluation steps, by model.
EXAMPLES = {"base": 128, "large": 64}
LENGTH = 128


def step_of(kind: str, model: str, topology: str) -> Step:
    """Return a step of a model; `kind` is train, sharded (train with sharded optimizer state), eval or finetune."""
    config = bert_config(model)
    if kind == "finetune":
        objective, features = classification_objective(config), finetuning_features(2, LENGTH)
    else:
        objective, features = bfloat16_objective(config), pretraining_features(2, LENGTH)
    if kind == "eval":
        return eval_step(objective, topology, features, EXAMPLES[model])
    return train_step(objective, topology, features, EXAMPLES[model], shard_optimizer_state=kind == "sharded")


def row(kind: str, model: str, topology: str) -> str:
    """Return the row of the table for a step."""
    step = step_of(kind, model, topology)
    chips = distribution_of(topology).replicas
    start = f"| {model} | {kind} | {topology} | {chips} | {EXAMPLES[model]} |"
    try:
        program = compile_program(step.function, step.arguments)
    except jax.errors.JaxRuntimeError as error:
        return f"{start} - | - | - | - | {str(error).splitlines()[0][:80]} |"
    exchanged = sum(collective.bytes for collective in collectives(program))
    return (
        f"{start} {program.argument_bytes / 2**30:.2f} | {program.temporary_bytes / 2**30:.2f} "
        f"| {len(collectives(program))} | {exchanged / 2**20:.0f} | {'; '.join(faults(program, step)) or 'none'} |"
    )


def row_of_own_process(kind: str, model: str, topology: str) -> str:
    """Return the row of the table, even if the compiler ends the process that compiles the step."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        try:
            return pool.submit(row, kind, model, topology).result()
        except BrokenProcessPool:
            return f"| {model} | {kind} | {topology} | - | {EXAMPLES[model]} | - | - | - | - | the compiler crashed |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=list(EXAMPLES), default=list(EXAMPLES))
    parser.add_argument("--topologies", nargs="+", default=TOPOLOGIES)
    parser.add_argument(
        "--steps",
        nargs="+",
        choices=("train", "sharded", "eval", "finetune"),
        default=("train", "sharded", "eval", "finetune"),
    )
    options = parser.parse_args()
    print(f"JAX {jax.__version__}, libtpu {importlib.metadata.version('libtpu')}, length {LENGTH}, bfloat16\n")
    print(
        "| model | step | topology | chips | examples per chip | arguments, GiB | temporaries, GiB | collectives "
        "| exchanged, MiB | faults |"
    )
    print("|" + "---|" * 10, flush=True)
    for model in options.models:
        for kind in options.steps:
            for topology in options.topologies:
                print(row_of_own_process(kind, model, topology), flush=True)


if __name__ == "__main__":
    main()
