"""Artifacts that the cases corrupt: small inputs, a corpus, datasets, models, each written once by the commands."""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.fuzz.process import Child, Outcome

DOCUMENTS = 12
_SYLLABLES = ["ba", "ke", "li", "mo", "nu", "ra", "se", "ti", "vo", "zu"]
# Printed times, speeds and sizes, and lines of progress, whose number depends on time.
_PROGRESS = r"^(?:step|Corpus|Vocabulary|Pretraining data) [\d.,]+(?:/| of ).*\n"
_TIMES = re.compile(rf"\d[\d.,]*\s?(?:s|ms|min|h|GB|MB|KB|kB|bytes|texts/s|examples/s)\b|{_PROGRESS}", re.MULTILINE)


def marker(number: int) -> str:
    """Return a word that occurs in one document only."""
    return "".join(_SYLLABLES[int(digit)] for digit in f"{number * 7919 % 10_000:04d}")


def document(number: int) -> list[str]:
    """Return the sentences of a document, with its marker in each."""
    word = marker(number)
    return [f"The {word} river rose in the cold night.", f"All houses of {word} were wet that day."]


# Files that contain times.
_VARIABLE = ("report.html", "logs/", "metrics.jsonl", "README.md", "unfinished/")


class Base:
    """A folder with one artifact of each kind, created on first use, and the results of undisturbed commands."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._results: dict[str, dict[str, str]] = {}
        self._made: dict[str, str] = {}

    def artifact(self, name: str) -> Path:
        """Return the directory or file of an artifact."""
        path = self.folder / "artifacts" / name
        if not path.exists():
            self._make(name, path)
        return path

    def _make(self, name: str, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        if name == "inputs":
            _write_inputs(path)
            self._note(path)
            return
        # The artifacts have the same names as in all cases, so that the names in manifests agree.
        folder = self.folder / f"making-{name}"
        folder.mkdir()
        command, needs, output = MADE_BY[name]
        for needed in needs:
            place(self.artifact(needed), folder / needed)
        outcome = Child([*command.split(), *([output] if output else [])], folder).wait()
        if outcome.code:
            raise AssertionError(f"{command}: exit {outcome.code}\n{outcome.stdout}{outcome.stderr}")
        shutil.move(folder / name, path)
        shutil.rmtree(folder)
        self._note(path)

    def _note(self, path: Path) -> None:
        files = [file for file in path.rglob("*") if file.is_file()]
        self._made |= {str(file.relative_to(self.folder)): _sha256(file) for file in files}

    def expected(self, key: str, prepare: Callable[[Path], Sequence[str]], written: str = "out*") -> dict[str, str]:
        """Return the result of a command on unchanged files.

        Args:
            key: name of the command and its files.
            prepare: puts the files into a folder and returns the command.
            written: as in `result_of`.
        """
        if key not in self._results:
            folder = self.folder / f"clean-{len(self._results)}"
            folder.mkdir()
            outcome = Child(prepare(folder), folder).wait()
            if outcome.code:
                raise AssertionError(f"{key}: exit {outcome.code}\n{outcome.stdout}{outcome.stderr}")
            self._results[key] = result_of(outcome, written)
            shutil.rmtree(folder)
        return self._results[key]

    def changed(self) -> list[str]:
        """Return the files of the artifacts that have changed since their creation; no command may change its input."""
        return sorted(name for name, digest in self._made.items() if _sha256(self.folder / name) != digest)


_TEXT = "--input inputs/text.txt --input_format sentences --vocab_size 80 --validation_fraction 0.2"
_STEPS = "--train_batch_size 4 --max_seq_length 32"
# Command, required artifacts and last argument, by the name of the artifact.
MADE_BY = {
    "corpus": (f"corpus {_TEXT} --output", ("inputs",), "corpus"),
    "data": (
        "pretraining-data --input corpus --max_seq_length 32 --dupe_factor 1 --output",
        ("corpus",),
        "data",
    ),
    "packed": (
        "pretraining-data --input corpus --max_seq_length 32 --dupe_factor 1 --pack --compression gzip --output",
        ("corpus",),
        "packed",
    ),
    "columns": (
        "pretraining-data --input corpus --max_seq_length 32 --dupe_factor 1 --format parquet --output",
        ("corpus",),
        "columns",
    ),
    "run": (
        "pretrain --data data --model tiny --num_train_steps 2 --train_batch_size 4 --output",
        ("data",),
        "run",
    ),
    "finetuned": (
        f"finetune rte --data_dir inputs/RTE --init_checkpoint run --num_train_epochs 1 {_STEPS} --output",
        ("inputs", "run"),
        "finetuned",
    ),
    "squad": (
        f"finetune squad --data_dir inputs/squad --init_checkpoint run --num_train_epochs 1 {_STEPS} --output",
        ("inputs", "run"),
        "squad",
    ),
    "ner": (
        f"finetune ner --data_dir inputs/ner --init_checkpoint run --num_train_epochs 1 {_STEPS} --output",
        ("inputs", "run"),
        "ner",
    ),
    "quality.model": (
        "quality train --good inputs/good.txt --bad inputs/bad.txt --input_format sentences --output",
        ("inputs",),
        "quality.model",
    ),
    "native": ("convert --to native run", ("run",), "native"),
    "hugging_face": ("convert --to huggingface run", ("run",), "hugging_face"),
    "tf1": ("convert --to tf1 run", ("run",), "tf1"),
}


def place(source: Path, target: Path, copied: bool = False) -> None:
    """Put an artifact into a case's folder, as hard links because its files are large, or as copies."""
    shutil.copytree(source, target, copy_function=shutil.copyfile if copied else os.link)


def damage(path: Path, content: bytes) -> None:
    """Replace a file that may be a hard link."""
    path.unlink()
    path.write_bytes(content)


def result_of(outcome: Outcome, written: str = "out*") -> dict[str, str]:
    """Return the result of a command: the text on its standard output, and the digests of the files that it wrote.

    Args:
        outcome: outcome of the command.
        written: pattern of the paths that it writes. Standard output is compared only for new outputs.
    """
    result = {"stdout": _TIMES.sub("#", outcome.stdout)} if written == "out*" else {}
    for out in sorted(outcome.folder.glob(written)):
        for path in [out] if out.is_file() else sorted(path for path in out.rglob("*") if path.is_file()):
            name = str(path.relative_to(outcome.folder))
            if not any(word in name for word in _VARIABLE):
                result[name] = _digest(path, outcome.folder)
    return result


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else ""


def _digest(path: Path, folder: Path) -> str:
    content = path.read_bytes()
    if path.suffix == ".json":
        content = _without_times(content).replace(str(folder).encode(), b"<folder>")
    return hashlib.sha256(content).hexdigest()


def _without_times(content: bytes) -> bytes:
    """Return a manifest without times."""
    content = re.sub(rb'"[^"]*(?:seconds|time|date|per_second|bytes|parent|source)[^"]*": [^\n]*', b"", content)
    # The modification time in an entry (file, size, modification time, weight).
    return re.sub(rb"\b1[0-9]{9}\.[0-9]+\b", b"", content)


def _write_inputs(path: Path) -> None:
    path.mkdir()
    documents = [document(number) for number in range(DOCUMENTS)]
    (path / "text.txt").write_text(
        "\n\n".join("\n".join(sentences) for sentences in documents) + "\n", encoding="utf-8"
    )
    (path / "lines.txt").write_text("".join(f"{sentences[0]}\n" for sentences in documents[:4]), encoding="utf-8")
    for name, numbers in (("good", range(24)), ("bad", range(24, 48))):
        texts = ("\n".join(document(number)) for number in numbers)
        (path / f"{name}.txt").write_text("\n\n".join(texts), encoding="utf-8")
    rows = [f"{n}\t{a}\t{b}\t{'not_' * (n % 2)}entailment" for n, (a, b) in enumerate(documents[:6])]
    _write_splits(path / "RTE", "tsv", "\n".join(["index\tsentence1\tsentence2\tlabel", *rows]) + "\n")
    tagged = ["\n".join(f"{word}\tO" for word in first.split()) for first, _ in documents[:6]]
    tagged = [text.replace("river\tO", "river\tB-LOC") for text in tagged]
    _write_splits(path / "ner", "txt", "\n\n".join(tagged) + "\n")
    (path / "squad").mkdir()
    for name in ("train", "dev"):
        paragraphs = [
            {
                "context": f"{a} {b}",
                "qas": [
                    {
                        "id": str(n),
                        "question": "What rose?",
                        "answers": [{"text": "river", "answer_start": a.find("river")}],
                    }
                ],
            }
            for n, (a, b) in enumerate(documents[:6])
        ]
        content = {"version": "1.1", "data": [{"title": "Rivers", "paragraphs": paragraphs}]}
        (path / "squad" / f"{name}-v1.1.json").write_text(json.dumps(content), encoding="utf-8")


def _write_splits(folder: Path, suffix: str, text: str) -> None:
    folder.mkdir()
    for name in ("train", "dev", "test"):
        (folder / f"{name}.{suffix}").write_text(text, encoding="utf-8")
