"""Outputs of every kind, the command lines that write them, and what is in them."""

import hashlib
import json
import os
from pathlib import Path

import pyarrow.parquet

from beambert import cli

FOREIGN = {
    "README.md": "# My project\n",
    "vocab.txt": "mine\n",
    "report.html": "<p>mine</p>\n",
    "corpus/mine-of-mine.parquet": "mine",
    "shards/train.tfrecord": "mine",
    "unfinished/essay.txt": "mine",
    "build.lock": "mine",
}
# A command that writes each kind of output, in an order in which they can run.
MADE_BY = {
    "dataset": "build",
    "corpus": "corpus",
    "run": "pretrain",
    "converted": "convert native",
    "hugging_face": "convert huggingface",
    "tf1": "convert tf1",
    "finetuned": "finetune",
    "runs": "seeds",
}
# The umask with which the outputs are written; see test_file_modes.py.
UMASK = 0o027
_MODEL = {
    "vocab_size": 60,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 128,
}


def make_outputs(folder: Path) -> None:
    """Write one output of each kind, by name, and `inputs` for the commands."""
    inputs = folder / "inputs"
    inputs.mkdir()
    (inputs / "model.json").write_text(json.dumps(_MODEL), encoding="utf-8")
    documents = "\n".join(f"Day {n} was wet and cold.\nThe river rose {n} feet that day.\n" for n in range(30))
    (inputs / "text.txt").write_text(documents, encoding="utf-8")
    (inputs / "new_words.txt").write_text("Riverday roseriver riverday.\n", encoding="utf-8")
    (inputs / "lines.txt").write_text("The river rose.\nDay 3 was wet.\n", encoding="utf-8")
    (inputs / "RTE").mkdir()
    rows = "".join(f"{n}\tDay {n} was wet.\tIt rained.\t{'not_' * (n % 2)}entailment\n" for n in range(8))
    header = "index\tsentence1\tsentence2\tlabel\n"
    for name in ("train", "dev"):
        (inputs / "RTE" / f"{name}.tsv").write_text(header + rows, encoding="utf-8")
    unlabelled = [row.rpartition("\t")[0] for row in (header + rows).splitlines()]
    (inputs / "RTE" / "test.tsv").write_text("\n".join(unlabelled) + "\n", encoding="utf-8")
    before = os.umask(UMASK)
    try:
        for name, command in MADE_BY.items():
            assert cli.main(command_of(command, folder, folder / name)) == 0, name
    finally:
        os.umask(before)
    for name, text in FOREIGN.items():
        path = folder / "foreign" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def command_of(command: str, folder: Path, output: Path) -> list[str]:
    """Return the command line of a command that writes `output`."""
    inputs = folder / "inputs"
    text = ["--input", str(inputs / "text.txt"), "--input_format", "sentences", "--vocab_size", "60"]
    finetune = ["rte", "--data_dir", str(inputs / "RTE"), "--init_checkpoint", str(folder / "run")]
    finetune += ["--max_seq_length", "32"]
    train = [*finetune, "--train_batch_size", "4", "--num_train_epochs", "1"]
    return {
        "build": ["build", *text, "--validation_fraction", "0.2", "--dupe_factor", "1", "--output"],
        "corpus": ["corpus", *text, "--validation_fraction", "0.2", "--output"],
        "pretraining-data": ["pretraining-data", "--dupe_factor", "1", "--input", str(folder / "corpus"), "--output"],
        "vocab": ["vocab", *text, "--output"],
        "pretrain": [
            *["pretrain", "--data", str(folder / "dataset"), "--model", str(inputs / "model.json")],
            *["--num_train_steps", "2", "--train_batch_size", "4", "--output"],
        ],
        "finetune": ["finetune", *train, "--output"],
        "seeds": ["finetune", *train, "--seeds", "2", "--output"],
        "tune": [
            *["tune", *finetune, "--train_batch_sizes", "4", "--learning_rates", "1e-4", "--epochs", "1", "--output"]
        ],
        "predict": ["predict", str(folder / "finetuned"), "a ||| b", "--output_file"],
        "features": [
            *[
                "features",
                "--init_checkpoint",
                str(folder / "run"),
                "--input_file",
                str(inputs / "lines.txt"),
                "--layers=-1",
            ],
            "--output_file",
        ],
        "evaluate": ["evaluate", str(folder / "run"), "--texts", str(inputs / "lines.txt"), "--output"],
        "export": ["export", str(folder / "run")],
        "extend-vocab": [
            *["extend-vocab", str(folder / "run"), "--input", str(inputs / "new_words.txt"), "--num_tokens", "1"],
            *["--min_count", "1", "--output"],
        ],
        "convert native": ["convert", "--to", "native", str(folder / "run")],
        "convert tf1": ["convert", "--to", "tf1", str(folder / "run")],
        "convert huggingface": ["convert", "--to", "huggingface", str(folder / "run")],
    }[command] + [str(output)]


def corpus_rows(output: Path, split: str = "") -> list[dict]:
    """Return the documents of a corpus, or of one split, in the order of its shards."""
    files = sorted(output.glob(f"corpus/{split}*"))
    return [row for file in files for row in pyarrow.parquet.read_table(file).to_pylist()]


def rejected(output: Path) -> list[dict]:
    """Return the list of rejected documents and removed paragraphs of a corpus."""
    return [json.loads(line) for file in sorted(output.glob("rejected/*")) for line in file.read_text().splitlines()]


def digests(folder: Path, *patterns: str) -> dict[str, str]:
    """Return the SHA-256 of the files that match, by path."""
    files = sorted(file for pattern in patterns for file in folder.glob(pattern))
    assert files
    return {str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def tree_of(path: Path, leave: tuple[str, ...] = ()) -> dict[str, str]:
    """Return the SHA-256 of every file below a path, or of the path itself if it is a file.

    A file is excluded if its name or the name of one of its folders starts with an item of `leave`.
    """
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    names = {str(file.relative_to(path)): file for file in files}
    return {
        name: hashlib.sha256(file.read_bytes()).hexdigest()
        for name, file in sorted(names.items())
        if not name.startswith(leave) and not any(f"/{left}" in name for left in leave)
    }
