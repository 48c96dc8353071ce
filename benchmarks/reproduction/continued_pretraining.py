"""Continue the pretraining of a released model on novels, and measure what it learns and what it forgets.

The text is of Tolstoy (translated), Doyle, Twain and Jerome. Measured is the masked-LM loss on novels of other
authors, Austen and Wilde, and on Wikipedia, before and after.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from beambert.common.local_files import write_atomic
from benchmarks.reproduction.commands import run_beambert
from benchmarks.reproduction.hidden_states import paragraphs
from benchmarks.reproduction.precision import fastest_precision

TRAINED = ("1399-0.txt", "pg1661.txt", "pg74.txt", "ttalk10.txt")
HELD_OUT = ("pg1342.txt", "pg174.txt")
STEPS = 60
# Evaluation batches of 32 sequences of 128 tokens, the same ones for all recipes.
EVALUATION_STEPS = 10
_WIKIPEDIA_PARAGRAPHS = 20_000


class Recipe(NamedTuple):
    """A learning rate and the number of warm-up steps."""

    learning_rate: str
    warmup: int


RECIPES = (Recipe("2e-5", 6), Recipe("5e-5", 6), Recipe("1e-4", 6), Recipe("5e-5", 0))
_FLAGS = ("--no_next_sentence", "--train_batch_size", "32", "--keep_checkpoint_max", "1")


def run(model: Path, data: Path, work: Path) -> list[list[str]]:
    """Return a row of the table for each recipe; data, runs and evaluations are kept in `work`."""
    work.mkdir(parents=True, exist_ok=True)
    flags = (*_FLAGS, "--precision", fastest_precision())
    vocabulary = ["--vocab_file", str(model / "assets" / "vocab.txt"), "--objective", "mlm", "--max_seq_length", "128"]
    novels = ["--input_format", "gutenberg", "--document_unit", "chapter"]
    texts = work / "wikipedia.txt"
    if not texts.is_file():
        write_atomic(texts, ("\n\n".join(paragraphs(data, _WIKIPEDIA_PARAGRAPHS)) + "\n").encode())
    inputs = {
        "train": [*(str(data / "gutenberg" / name) for name in TRAINED), *novels],
        "held-out": [*(str(data / "gutenberg" / name) for name in HELD_OUT), *novels, "--validation_fraction", "0.9"],
        "wikipedia": [str(texts), "--input_format", "sentences", "--validation_fraction", "0.9"],
    }
    for name, sources in inputs.items():
        run_beambert("build", "--input", *sources, "--output", str(work / name), *vocabulary)
    before = _losses(model, flags, work, "before")
    rows = [_row("before", before, before)]
    for recipe in RECIPES:
        name = f"rate-{recipe.learning_rate}-warmup-{recipe.warmup}"
        output = work / name
        rates = ["--learning_rate", recipe.learning_rate, "--num_warmup_steps", str(recipe.warmup)]
        steps = ["--num_train_steps", str(STEPS), "--do_train"]
        run_beambert(
            *("pretrain", "--data", str(work / "train"), "--output", str(output), "--init_checkpoint", str(model)),
            *(*flags, *rates, *steps),
        )
        title = f"rate {recipe.learning_rate}, {recipe.warmup} warm-up steps of {STEPS}"
        rows.append(_row(title, _losses(output, flags, work, name), before))
    return rows


def _losses(model: Path, flags: Sequence[str], work: Path, name: str) -> dict[str, tuple[float, float]]:
    """Return the masked-LM loss and accuracy of a model on both texts."""
    found = {}
    for text in ("held-out", "wikipedia"):
        output = work / f"{name}-{text}"
        path = output / "eval_results.json"
        # A step with rate 0, because an evaluation needs a checkpoint of a run. It is not repeated when a part resumes.
        if not path.is_file():
            steps = ("--num_train_steps", "1", "--learning_rate", "1e-30", "--max_eval_steps", str(EVALUATION_STEPS))
            data = ("--data", str(work / text), "--output", str(output))
            run_beambert("pretrain", *data, "--init_checkpoint", str(model), *flags, *steps)
        results = json.loads(path.read_text(encoding="utf-8"))
        found[text] = results["masked_lm_loss"], results["masked_lm_accuracy"]
    return found


def _row(name: str, found: dict[str, tuple[float, float]], before: dict[str, tuple[float, float]]) -> list[str]:
    (loss, accuracy), (other_loss, other_accuracy) = found["held-out"], found["wikipedia"]
    change = other_loss - before["wikipedia"][0]
    return [
        f"continued pretraining on novels, {name}",
        "",
        f"held-out authors: loss {loss:.3f}, accuracy {accuracy:.3f}",
        f"Wikipedia: loss {other_loss:.3f} ({change:+.3f}), accuracy {other_accuracy:.3f}",
    ]
