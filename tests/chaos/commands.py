"""The command lines under test, at the smallest sizes, and the directory that each one runs in.

A corpus records the absolute paths and the modification times of its input. Therefore, all cases of a slot run in a
directory of the same name, with files of the same time:

    inputs/   text, a fine-tuning task, the shape of a model
    given/    outputs of other commands that this one reads
    work/     the output, and one foreign file
    tmp/      TMPDIR
"""

import dataclasses
import gzip
import json
import os
import shutil
from pathlib import Path

# Modification time of all input, in seconds since 1970.
INPUT_TIME = 1_700_000_000
FOREIGN_FILE = "work/foreign.txt"
FOREIGN_TEXT = "A file that no command wrote.\n"
# Hidden files do not keep a command from writing into a directory.
FOREIGN_HIDDEN_NAME = ".keep"

_TEXT = (
    *("--input", "inputs/a.txt", "inputs/b.txt", "--input_format", "sentences"),
    *("--vocab_size", "60", "--validation_fraction", "0.2"),
)
_CRAWL = (
    *("--input", "inputs/crawl.warc.gz", "--vocab_size", "60", "--validation_fraction", "0.2"),
    *("--drop_domain_lines", "3", "--pii", "mask"),
)
_SHARDS = ("--dupe_factor", "2", "--max_seq_length", "32")
_TASK = ("rte", "--data_dir", "inputs/RTE", "--init_checkpoint", "given/pretrain", "--max_seq_length", "16")
_MODEL = {
    "attention_probs_dropout_prob": 0.1,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": 8,
    "initializer_range": 0.02,
    "intermediate_size": 16,
    "max_position_embeddings": 32,
    "num_attention_heads": 1,
    "num_hidden_layers": 1,
    "type_vocab_size": 2,
    "vocab_size": 60,
}


@dataclasses.dataclass(frozen=True)
class Command:
    """A command line under test.

    Attributes:
        name: unique name, which heads a column of the report.
        arguments: arguments after `beambert`.
        output: the file or directory that it writes, below `work/`.
        reads: globs of the files that a disturbance changes, truncates or deletes.
        needs: names of the commands whose outputs it reads in `given/`.
        manifests: files whose presence marks the output as complete.
        workers: whether it starts worker processes.
        resumes: whether the same command accepts its own complete output.
        takes_hidden_files: whether its output directory may contain a hidden file.
    """

    name: str
    arguments: tuple[str, ...]
    output: str
    reads: tuple[str, ...]
    needs: tuple[str, ...] = ()
    manifests: tuple[str, ...] = ()
    workers: bool = False
    resumes: bool = False
    takes_hidden_files: bool = False

    @property
    def is_file(self) -> bool:
        """Return whether the output is one file."""
        return bool(Path(self.output).suffix)


def _data(name: str, *arguments: str, workers: bool = False, needs: tuple[str, ...] = ()) -> Command:
    manifests = ("corpus.json",) if arguments[0] == "corpus" else ("dataset.json",)
    reads = tuple(f"given/{need}/corpus/*" for need in needs) or ("inputs/[ab].txt",)
    return Command(
        name,
        (*arguments, "--output", "work/out"),
        "work/out",
        reads,
        needs=needs,
        manifests=manifests,
        workers=workers,
        resumes=True,
        takes_hidden_files=True,
    )


def _training(name: str, *arguments: str, reads: tuple[str, ...], needs: tuple[str, ...], of: str = "") -> Command:
    return Command(
        name,
        (of or name, *arguments, "--output", "work/out"),
        "work/out",
        reads,
        needs,
        resumes=True,
        takes_hidden_files=True,
    )


def _conversion(kind: str, manifest: str) -> Command:
    return Command(
        f"convert-{kind}",
        ("convert", "--to", kind, "given/pretrain", "work/out"),
        "work/out",
        ("given/pretrain/*.json", "given/pretrain/vocab.txt", "given/pretrain/checkpoints/*"),
        needs=("pretrain",),
        manifests=(manifest,),
    )


# The commands are ordered such that every command comes after those that it needs.
COMMANDS = (
    _data("build", "build", *_TEXT, *_SHARDS),
    _data("build-2", "build", *_TEXT, *_SHARDS, "--direct_num_workers", "2", workers=True),
    _data("corpus", "corpus", *_TEXT),
    _data("pretraining-data", "pretraining-data", "--input", "given/corpus", *_SHARDS, needs=("corpus",)),
    dataclasses.replace(
        _data("crawl", "corpus", *_CRAWL, "--direct_num_workers", "2", workers=True), reads=("inputs/crawl.warc.gz",)
    ),
    Command("vocab", ("vocab", *_TEXT[:-2], "--output", "work/out.txt"), "work/out.txt", ("inputs/[ab].txt",)),
    Command(
        "quality",
        (
            *("quality", "train", "--good", "inputs/a.txt", "--bad", "inputs/b.txt"),
            *("--input_format", "sentences", "--output", "work/out.model"),
        ),
        "work/out.model",
        ("inputs/[ab].txt",),
    ),
    _training(
        "pretrain",
        *("--data", "given/build", "--model", "inputs/model.json", "--num_train_steps", "6"),
        *("--train_batch_size", "4", "--save_checkpoints_steps", "2"),
        reads=("given/build/dataset.json", "given/build/vocab.txt", "given/build/shards/*"),
        needs=("build",),
    ),
    _training(
        "pretrain-jax",
        *("--data", "given/build", "--model", "inputs/model.json", "--num_train_steps", "6", "--backend", "jax"),
        *("--train_batch_size", "4", "--save_checkpoints_steps", "2"),
        reads=("given/build/dataset.json", "given/build/vocab.txt", "given/build/shards/*"),
        needs=("build",),
        of="pretrain",
    ),
    _training(
        "finetune",
        *(*_TASK, "--train_batch_size", "4", "--num_train_epochs", "2", "--save_checkpoints_steps", "2"),
        reads=("inputs/RTE/*", "given/pretrain/*.json", "given/pretrain/checkpoints/*"),
        needs=("pretrain",),
    ),
    _training(
        "seeds",
        *(*_TASK, "--train_batch_size", "4", "--num_train_epochs", "1", "--seeds", "2"),
        reads=("inputs/RTE/*", "given/pretrain/*.json", "given/pretrain/checkpoints/*"),
        needs=("pretrain",),
        of="finetune",
    ),
    _training(
        "tune",
        *(*_TASK, "--train_batch_sizes", "4", "--learning_rates", "1e-4,2e-4", "--epochs", "1"),
        reads=("inputs/RTE/*", "given/pretrain/*.json", "given/pretrain/checkpoints/*"),
        needs=("pretrain",),
    ),
    Command(
        "predict",
        ("predict", "given/finetune", "--input_file", "inputs/pairs.txt", "--output_file", "work/out.tsv"),
        "work/out.tsv",
        ("inputs/pairs.txt", "given/finetune/*.json", "given/finetune/checkpoints/*"),
        needs=("finetune",),
    ),
    Command(
        "features",
        (
            *("features", "--init_checkpoint", "given/pretrain", "--input_file", "inputs/lines.txt"),
            *("--layers=-1", "--max_seq_length", "16", "--output_file", "work/out.jsonl"),
        ),
        "work/out.jsonl",
        ("inputs/lines.txt", "given/pretrain/*.json", "given/pretrain/checkpoints/*"),
        needs=("pretrain",),
    ),
    Command(
        "evaluate",
        (
            *("evaluate", "given/pretrain", "--pairs", "inputs/pairs.tsv", "--texts", "inputs/lines.txt"),
            *("--output", "work/out.json"),
        ),
        "work/out.json",
        ("inputs/lines.txt", "inputs/pairs.tsv", "given/pretrain/*.json", "given/pretrain/checkpoints/*"),
        needs=("pretrain",),
    ),
    _conversion("native", "beambert.json"),
    _conversion("tf1", "bert_model.ckpt.index"),
    _conversion("huggingface", "model.safetensors"),
    Command(
        "extend-vocab",
        (
            *("extend-vocab", "given/pretrain", "--input", "inputs/lines.txt", "inputs/a.txt"),
            *("--num_tokens", "2", "--output", "work/out"),
        ),
        "work/out",
        (
            *("inputs/lines.txt", "given/pretrain/*.json", "given/pretrain/vocab.txt"),
            "given/pretrain/checkpoints/*",
        ),
        needs=("pretrain",),
        manifests=("beambert.json",),
    ),
    Command(
        "export",
        ("export", "given/pretrain", "work/out"),
        "work/out",
        ("given/pretrain/*.json", "given/pretrain/vocab.txt", "given/pretrain/checkpoints/*"),
        needs=("pretrain",),
        manifests=("saved_model.pb",),
    ),
)
BY_NAME = {command.name: command for command in COMMANDS}


def required(names: list[str]) -> list[Command]:
    """Return the commands with these names and all that they need, in an order in which they can run."""
    wanted = set(names)
    for command in reversed(COMMANDS):
        if command.name in wanted:
            wanted |= set(command.needs)
    return [command for command in COMMANDS if command.name in wanted]


def _response(number: int) -> str:
    """Return a WARC record with a page."""
    text = f"Day {number} was wet and cold. Write to day{number}@river.example. The river rose {number} feet that day."
    http = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<html><body><p>{text}</p><p>The menu.</p></body></html>"
    return (
        f"WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: https://river.example/{number}\r\n"
        f"Content-Type: application/http\r\nContent-Length: {len(http)}\r\n\r\n{http}\r\n\r\n"
    )


def write_inputs(directory: Path) -> None:
    """Write the folder `inputs` of a case."""
    inputs = directory / "inputs"
    (inputs / "RTE").mkdir(parents=True)
    days = "\n".join(f"Day {n} was wet and cold.\nThe river rose {n} feet that day.\n" for n in range(30))
    nights = "\n".join(f"Night {n} was dry and warm.\nThe river fell {n} feet that night.\n" for n in range(30))
    lines = "".join(f"The river rose {n} feet.\n" for n in range(16))
    rows = "".join(f"{n}\tDay {n} was wet.\tIt rained.\t{'not_' * (n % 2)}entailment\n" for n in range(8))
    table = "index\tsentence1\tsentence2\tlabel\n" + rows
    files = {
        "a.txt": days,
        "b.txt": nights,
        "lines.txt": lines,
        "pairs.txt": "".join(f"Day {n} was wet. ||| It rained.\n" for n in range(8)),
        "pairs.tsv": "".join(f"Day {n} was wet.\tDay {n} wet was.\tparadigm_{n % 2}\n" for n in range(8)),
        "model.json": json.dumps(_MODEL),
        "RTE/train.tsv": table,
        "RTE/dev.tsv": table,
    }
    contents = {name: text.encode() for name, text in files.items()}
    contents["crawl.warc.gz"] = b"".join(gzip.compress(_response(n).encode(), mtime=0) for n in range(30))
    for name, content in contents.items():
        (inputs / name).write_bytes(content)
        os.utime(inputs / name, (INPUT_TIME, INPUT_TIME))


def prepare(command: Command, directory: Path, references: Path, *, hidden_file: bool = False) -> None:
    """Create the directory of a case, with the inputs of a command.

    Args:
        command: the command of the case.
        directory: a new directory.
        references: the directory with one undisturbed case for each needed command, by its name.
        hidden_file: whether to put a hidden foreign file into the output directory.
    """
    directory.mkdir(parents=True)
    write_inputs(directory)
    (directory / "given").mkdir()
    for name in command.needs:
        shutil.copytree(references / name / BY_NAME[name].output, directory / "given" / name)
    (directory / "tmp").mkdir()
    (directory / "work").mkdir()
    write_foreign_files(command, directory, hidden_file=hidden_file)


def write_foreign_files(command: Command, directory: Path, *, hidden_file: bool) -> None:
    """Write the foreign files: one beside the output of a command, and optionally a hidden one in it."""
    (directory / FOREIGN_FILE).write_text(FOREIGN_TEXT, encoding="utf-8")
    if hidden_file and command.takes_hidden_files:
        (directory / command.output).mkdir()
        (directory / command.output / FOREIGN_HIDDEN_NAME).write_text(FOREIGN_TEXT, encoding="utf-8")
