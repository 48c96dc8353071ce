"""Define recipes, named sets of flags for `beambert pretrain --recipe NAME`, with their price and their results.

This file imports neither Keras nor TensorFlow.
"""

import argparse
import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from beambert.bert_model.config import RELEASED_VOCABULARIES, BertConfig
from beambert.bert_model.size import training_flops_per_token
from beambert.common.formatting import format_duration
from beambert.trainers.optimization.schedule import Stage, plan_stages


class Hardware(NamedTuple):
    """The machine that a recipe targets.

    Attributes:
        name: name of the machine.
        peak_tflops: dense peak of the whole machine, in TFLOP/s.
        utilization: assumed model FLOPs utilization (MFU), from 0 to 1.
    """

    name: str
    peak_tflops: float
    utilization: float


class Recipe(NamedTuple):
    """A set of flags.

    Attributes:
        summary: description in one line.
        row_lengths: max_seq_length of each --data directory.
        hardware: target hardware.
        results: scores of a complete run, or "never run".
        flags: values as typed on the command line, by flag without its dashes.
    """

    summary: str
    row_lengths: tuple[int, ...]
    hardware: Hardware
    results: str
    flags: Mapping[str, str]


class RunCost(NamedTuple):
    """The size of a run.

    Attributes:
        updates: number of training steps.
        sequences: number of sequences read.
        positions: number of tokens read, padding included.
        flops: floating-point operations of the forward and backward passes (`bert_model/size.py`).
    """

    updates: int
    sequences: int
    positions: int
    flops: float


# Dense bfloat16 peak of NVIDIA's data sheet. The utilization is a target, not a measurement.
H100 = Hardware("one NVIDIA H100 (SXM)", 989.5, 0.45)
# `make bench-train` for tiny: the rate of matrix products, and 161 sequences a second with 30,522 tokens at 32 x 128.
# The utilization counts the last of the two layers fully, although it computes only the masked positions.
TWO_CORES = Hardware("2 CPU cores (AMD EPYC)", 0.211, 0.63)

# Paper, appendix A.2: 256 sequences, 1,000,000 steps, learning rate 1e-4, warm-up 10,000, decay to 0, weight decay
# 0.01; 90 % of the steps at 128 positions, the others at 512.
_PAPER = {
    "num_train_steps": "1000000",
    "num_warmup_steps": "10000",
    "learning_rate": "1e-4",
    "train_batch_size": "256",
    "schedule": "128x0.9,512x0.1",
    "precision": "bfloat16",
    "save_checkpoints_steps": "5000",
    "eval_steps": "50000",
}

RECIPES: dict[str, Recipe] = {
    "paper-base": Recipe(
        "BERT base as published (Devlin et al. 2018, appendix A.2)",
        (128, 512),
        H100,
        "never run",
        {"model": "base", **_PAPER, "gradient_accumulation_steps": "4"},
    ),
    "paper-large": Recipe(
        "BERT large as published",
        (128, 512),
        H100,
        "never run",
        {"model": "large", **_PAPER, "gradient_accumulation_steps": "8"},
    ),
    # Large batches, short sequences for nine tenths of the steps, and a matching learning rate, as in "24-hour BERT"
    # (Izsak et al. 2021: 4,096 sequences of 128) and "Cramming" (Geiping and Goldstein 2022: 1,536 to 4,096 sequences
    # of 128, one GPU).
    # Both moved layer normalization before the sublayers, so that Adam tolerates such rates. BERT normalizes after
    # them, for which LAMB was designed: the learning rate and the warm-up fraction for 4,096 sequences are those of the
    # table of untuned LAMB of You et al. 2019, 5 / (2^1.5 * 1000) and 1/40. The second phase has as many tokens per
    # step as the first.
    "one-day": Recipe(
        "BERT base in a day on one modern accelerator: batches of 4096, LAMB",
        (128, 512),
        H100,
        "never run",
        {
            "model": "base",
            "optimizer": "lamb",
            "num_train_steps": "120000",
            "num_warmup_steps": "3000",
            "learning_rate": "1.77e-3",
            "train_batch_size": "4096",
            "schedule": "128x0.9@4096,512x0.1@1024",
            "gradient_accumulation_steps": "16",
            "precision": "bfloat16",
            "save_checkpoints_steps": "2000",
            "eval_steps": "10000",
        },
    ),
    "tiny-cpu": Recipe(
        "a model of two layers for a complete trial on a laptop",
        (128,),
        TWO_CORES,
        "speed measured, complete run not recorded",
        {
            "model": "tiny",
            "num_train_steps": "12000",
            "train_batch_size": "32",
            "save_checkpoints_steps": "1000",
            "eval_steps": "2000",
        },
    ),
}


def run_cost(
    config: BertConfig, stages: Sequence[Stage], row_lengths: Sequence[int], predictions: Sequence[int]
) -> RunCost:
    """Return the steps, the input and the floating-point operations of a run.

    Args:
        config: configuration of the model.
        stages: all stages of training.
        row_lengths: max_seq_length of each --data directory.
        predictions: max_predictions_per_seq of each directory.
    """
    sequences = [0] * len(row_lengths)
    for stage in stages:
        sequences[stage.data] += stage.batch_size * (stage.end_step - stage.first_step)
    positions = [count * length for count, length in zip(sequences, row_lengths, strict=True)]
    flops = sum(
        count * training_flops_per_token(config, length, predicted)
        for count, length, predicted in zip(positions, row_lengths, predictions, strict=True)
    )
    return RunCost(stages[-1].end_step, sum(sequences), sum(positions), flops)


def recipe_cost(name: str, vocab_size: int = RELEASED_VOCABULARIES["uncased"].vocab_size) -> RunCost:
    """Return the cost of a recipe with the vocabulary size of the released uncased models and 15 % predictions."""
    recipe = RECIPES[name]
    flags = recipe.flags
    stages = plan_stages(
        int(flags["num_train_steps"]),
        recipe.row_lengths,
        flags.get("schedule"),
        int(flags["train_batch_size"]),
        flags.get("batch_ramp"),
    )
    predictions = [math.ceil(0.15 * length) for length in recipe.row_lengths]
    return run_cost(BertConfig.preset(flags["model"], vocab_size), stages, recipe.row_lengths, predictions)


def expected_hours(cost: RunCost, hardware: Hardware) -> float:
    """Return the estimated training time in hours, without startup, evaluation and saving."""
    return cost.flops / (hardware.peak_tflops * 1e12 * hardware.utilization) / 3600


def summary() -> str:
    """Return a paragraph for each recipe, for a terminal of 80 columns."""
    lines = ["recipes (--recipe NAME sets these flags; flags on the command line override them):"]
    for name, recipe in RECIPES.items():
        cost = recipe_cost(name)
        size = f"{cost.updates:,} steps, {rounded(cost.sequences)} sequences, {rounded(cost.positions)} tokens"
        fields = {"time": estimated_time(name), "results": recipe.results, "size": size}
        lines += ["", f"  {name}: {recipe.summary}", f"    {command(name)}"]
        lines += [f"    {field:9}{value}" for field, value in fields.items()]
        flags = " ".join(words(recipe.flags))
        lines += textwrap.wrap(
            flags,
            80,
            initial_indent="    flags    ",
            subsequent_indent=" " * 13,
            break_long_words=False,
            break_on_hyphens=False,
        )
    return "\n".join(lines)


def estimated_time(name: str) -> str:
    """Return the estimated time of a recipe, its machine and the assumed rate of the machine."""
    hardware = RECIPES[name].hardware
    time = format_duration(3600 * expected_hours(recipe_cost(name), hardware))
    return f"{time} on {hardware.name}, estimated at {hardware.utilization:.0%} of {hardware.peak_tflops:g} TFLOP/s"


def command(name: str) -> str:
    """Return the command of a recipe, with a dataset of each sequence length."""
    data = " ".join(f"data-{length}" for length in RECIPES[name].row_lengths)
    return f"beambert pretrain --recipe {name} --data {data} --output run"


def rounded(count: float) -> str:
    """Format a large number to three digits, such as "1.02 billion"."""
    for unit, name in ((1e9, "billion"), (1e6, "million")):
        if count >= unit:
            return f"{count / unit:.3g} {name}"
    return f"{count:,.0f}"


def words(flags: Mapping[str, str]) -> list[str]:
    """Return flags as command-line words."""
    return [f"--{name}={value}" for name, value in flags.items()]


def with_recipe(argv: Sequence[str]) -> list[str]:
    """Return the arguments with the flags of `--recipe NAME` first, so that the other flags override them.

    `--max_train_time` overrides the number of steps. The parser of the command reports an unknown name.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--recipe", nargs="?")
    parser.add_argument("--max_train_time", nargs="?", const="")
    known = parser.parse_known_args(argv)[0]
    if known.recipe not in RECIPES:
        return list(argv)
    flags = dict(RECIPES[known.recipe].flags)
    if known.max_train_time is not None:
        del flags["num_train_steps"]
    return [*words(flags), *argv]


class RecipeAction(argparse.Action):
    """Store the name of the recipe; without a name, print all recipes and exit."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: object, *_: object
    ) -> None:
        if values is None:
            print(summary())
            parser.exit(0)
        setattr(namespace, self.dest, values)
