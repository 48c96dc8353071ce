"""Compare the hidden states of `beambert features` with those of transformers after `beambert convert`.

Both compute in float32. For a sample of the texts, transformers also computes in float64, and both are compared with
that.
"""

import bz2
import itertools
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.reproduction.commands import run_beambert

SENTENCES = 1000
LENGTH = 128
LAYERS = (-1, -2, -3, -4)
_BATCH_SIZE = 50
# Texts of the comparison with float64, at equal distances; the text with the largest difference is added.
_SAMPLE = 99


def paragraphs(data: Path, count: int) -> list[str]:
    """Return the first Wikipedia paragraphs of at least 30 characters."""
    found: list[str] = []
    for path in sorted(data.glob("wiki-extracted/*.bz2")):
        lines = bz2.decompress(path.read_bytes()).decode("utf-8").splitlines()
        found += [line for line in lines if len(line) >= 30 and not line.startswith("<")]
        if len(found) >= count:
            break
    return found[:count]


def run(model: Path, data: Path, work: Path) -> list[list[str]]:
    """Return the rows of the table; files are written to `work`."""
    texts = [re.split(r"(?<=[a-z][.!?]) ", paragraph)[0] for paragraph in paragraphs(data, SENTENCES)]
    name = f"hidden states of the last {len(LAYERS)} layers, {len(texts):,} sentences of Wikipedia"
    return rows(name, model, texts, work)


def rows(name: str, model: Path, texts: Sequence[str], work: Path) -> list[list[str]]:
    """Compare the hidden states and token ids of texts, and return the rows of the table."""
    ours = _states_of_beambert(model, texts, work)

    import torch
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(work / "huggingface")
    theirs = transformers.BertModel.from_pretrained(work / "huggingface").eval()
    differences = []
    for first in range(0, len(texts), _BATCH_SIZE):
        chosen = texts[first : first + _BATCH_SIZE]
        batch = tokenizer(chosen, truncation=True, max_length=LENGTH, padding=True, return_tensors="pt")
        with torch.inference_mode():
            states = _states_of_batch(theirs, batch)
        for index, text in enumerate(chosen):
            ids, values = ours[first + index]
            if batch["input_ids"][index, : len(ids)].tolist() != ids.tolist():
                sys.exit(f"other token ids than transformers: {text}")
            differences.append(float(np.abs(states[:, index, : len(ids)] - values).max()))
    largest_value = max(float(np.abs(values).max()) for _, values in ours)
    num_tokens = sum(len(ids) for ids, _ in ours)
    largest = [
        name,
        "transformers",
        f"largest difference {max(differences):.1e}",
        f"the same {num_tokens:,} token ids; largest value {largest_value:.1f}",
    ]
    worst = int(np.argmax(differences))
    sample = sorted({worst, *np.linspace(0, len(texts) - 1, min(_SAMPLE, len(texts))).astype(int).tolist()})
    errors = _errors(theirs, tokenizer, [(texts[number], ours[number][1]) for number in sample])
    of_worst = errors[:, sample.index(worst)]
    return [
        largest,
        [
            f"{len(sample)} of these texts in float64",
            "transformers in float64",
            f"largest difference: beambert {errors[0, :, 0].max():.1e}, transformers {errors[1, :, 0].max():.1e}",
            f"root mean square {_root_mean(errors[0]):.1e} and {_root_mean(errors[1]):.1e}; beambert is nearer for "
            f"{int((errors[0, :, 1] < errors[1, :, 1]).sum())} texts; where both differ most: "
            f"{of_worst[0, 0]:.1e} and {of_worst[1, 0]:.1e}",
        ],
    ]


def _states_of_beambert(model: Path, texts: Sequence[str], work: Path) -> list[tuple[np.ndarray, np.ndarray]]:
    """Convert the model, and return token ids [T] and states [layers, T, H] of each text from `beambert features`."""
    work.mkdir(parents=True, exist_ok=True)
    (work / "texts.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    converted = work / "huggingface"
    if not converted.is_dir():
        run_beambert("convert", str(model), str(converted), "--to", "huggingface")
    features = ["features", "--input_file", str(work / "texts.txt"), "--init_checkpoint", str(model)]
    features += ["--output_file", str(work / "features.npz"), "--overwrite", "--max_seq_length", str(LENGTH)]
    run_beambert(*features)
    with np.load(work / "features.npz") as arrays:
        splits, ids = arrays["row_splits"], arrays["input_ids"]
        states = np.stack([arrays[f"layer_{layer}"] for layer in LAYERS])
    return [(ids[start:end], states[:, start:end]) for start, end in itertools.pairwise(splits)]


def _states_of_batch(model: Any, batch: Any) -> np.ndarray:
    """Return the states of a model of transformers: [layers, B, T, H]."""
    states = model(**batch, output_hidden_states=True).hidden_states
    return np.stack([states[layer].numpy() for layer in LAYERS])


def _errors(model: Any, tokenizer: Any, sample: Sequence[tuple[str, np.ndarray]]) -> np.ndarray:
    """Return the errors of beambert's float32 states and of transformers' to those in float64; `model` is changed.

    Args:
        model: the model of transformers in float32.
        tokenizer: its tokenizer.
        sample: N texts, with beambert's states [layers, T, H].

    Returns:
        [2, N, 2] for beambert and transformers: the largest difference of a text and the mean of its squares.
    """
    import torch

    batches = [tokenizer(text, truncation=True, max_length=LENGTH, return_tensors="pt") for text, _ in sample]
    with torch.inference_mode():
        single = [_states_of_batch(model, batch)[:, 0] for batch in batches]
        model.double()
        double = [_states_of_batch(model, batch)[:, 0] for batch in batches]
    differences = [
        [values - expected for values, expected in zip(states, double, strict=True)]
        for states in ([values for _, values in sample], single)
    ]
    return np.array(
        [[(np.abs(values).max(), np.mean(values**2)) for values in of_library] for of_library in differences]
    )


def _root_mean(errors: np.ndarray) -> float:
    return float(np.sqrt(errors[:, 1].mean()))
