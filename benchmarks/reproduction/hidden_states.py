"""Compare the hidden states of `beambert features` with those of transformers after `beambert convert`."""

import bz2
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.reproduction.commands import run_beambert

SENTENCES = 1000
LENGTH = 128
LAYERS = (-1, -2, -3, -4)
_BATCH_SIZE = 50


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
    """Return the row of the table; files are written to `work`."""
    texts = [re.split(r"(?<=[a-z][.!?]) ", paragraph)[0] for paragraph in paragraphs(data, SENTENCES)]
    name = f"hidden states of the last {len(LAYERS)} layers, {len(texts):,} sentences of Wikipedia"
    return [row(name, model, texts, work)]


def row(name: str, model: Path, texts: Sequence[str], work: Path) -> list[str]:
    """Compare the hidden states and token ids of texts, and return the row of the table."""
    work.mkdir(parents=True, exist_ok=True)
    (work / "texts.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    converted = work / "huggingface"
    if not converted.is_dir():
        run_beambert("convert", str(model), str(converted), "--to", "huggingface")
    features = ["features", "--input_file", str(work / "texts.txt"), "--init_checkpoint", str(model)]
    features += ["--output_file", str(work / "features.npz"), "--overwrite", "--max_seq_length", str(LENGTH)]
    run_beambert(*features)

    import torch
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(converted)
    theirs = transformers.BertModel.from_pretrained(converted).eval()
    with np.load(work / "features.npz") as ours:
        splits, ids = ours["row_splits"], ours["input_ids"]
        layers = {layer: ours[f"layer_{layer}"] for layer in LAYERS}
    largest, largest_value = 0.0, 0.0
    for first in range(0, len(texts), _BATCH_SIZE):
        chosen = texts[first : first + _BATCH_SIZE]
        batch = tokenizer(chosen, truncation=True, max_length=LENGTH, padding=True, return_tensors="pt")
        with torch.inference_mode():
            states = theirs(**batch, output_hidden_states=True).hidden_states
        for index in range(len(chosen)):
            start, end = splits[first + index], splits[first + index + 1]
            if batch["input_ids"][index, : end - start].tolist() != ids[start:end].tolist():
                sys.exit(f"other token ids than transformers: {chosen[index]}")
            for layer, values in layers.items():
                difference = np.abs(states[layer][index, : end - start].numpy() - values[start:end]).max()
                largest = max(largest, float(difference))
                largest_value = max(largest_value, float(np.abs(values[start:end]).max()))
    return [
        name,
        "transformers",
        f"largest difference {largest:.1e}",
        f"the same {int(splits[-1]):,} token ids; largest value {largest_value:.1f}",
    ]
