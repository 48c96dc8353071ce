"""Write small data files for every task, of a few dozen rows: real data where available, made-up data elsewhere."""

import itertools
import json
import shutil
from pathlib import Path

TEXTS = [
    "The ferry left the island before noon.",
    "Nobody had counted the apples in the cellar.",
    "She reads the map and he drives.",
    "A quiet town by the river, they said.",
    "The bridge was closed after the storm.",
    "He paints doors, windows and fences.",
    "Two goats ate the neighbour's roses.",
    "Winter came early to the hills.",
]
ROWS = 24


def pair(number: int) -> tuple[str, str]:
    """Return two sentences; the pairs of the numbers 0 to 55 are distinct."""
    pairs = list(itertools.permutations(TEXTS, 2))
    return pairs[number % len(pairs)]


def write_tsv(path: Path, header: list[str], rows: list[list[str]]) -> None:
    """Write a header and rows as tab-separated lines."""
    path.write_text("".join("\t".join(row) + "\n" for row in [header, *rows]), encoding="utf-8")


def write_pairs(directory: Path, columns: tuple[str, str], labels: list[str], names: tuple[str, ...]) -> None:
    """Write the files of a GLUE task of text pairs; files whose name starts with "test" have no labels."""
    for name in names:
        test = name.startswith("test")
        header = ["index", *columns] + ([] if test else ["label"])
        rows = [
            [str(number), *pair(number)] + ([] if test else [labels[number % len(labels)]]) for number in range(ROWS)
        ]
        write_tsv(directory / f"{name}.tsv", header, rows)


def first_lines(source: Path, destination: Path, count: int) -> None:
    """Copy the first lines of a file."""
    with source.open(encoding="utf-8", newline="") as lines:
        destination.write_text("".join(itertools.islice(lines, count)), encoding="utf-8", newline="")


def write_task(task: str, directory: Path, shared_data: Path) -> list[str]:
    """Write the files of a task into a new directory, and return the flags that it requires besides --data_dir."""
    directory.mkdir()
    if task in ("cola", "mrpc", "sst2"):
        source = shared_data / "glue" / {"cola": "CoLA", "mrpc": "MRPC", "sst2": "SST-2"}[task]
        for path in source.glob("*.tsv"):
            first_lines(path, directory / path.name, ROWS + 1)
        if task == "sst2":
            write_tsv(directory / "test.tsv", ["index", "sentence"], [[str(i), text] for i, text in enumerate(TEXTS)])
    elif task == "stsb":
        write_pairs(directory, ("sentence1", "sentence2"), ["0.0", "2.500", "5.0"], ("train", "dev", "test"))
    elif task == "qqp":
        write_pairs(directory, ("question1", "question2"), ["0", "1"], ("train", "dev", "test"))
    elif task == "qnli":
        write_pairs(directory, ("question", "sentence"), ["entailment", "not_entailment"], ("train", "dev", "test"))
    elif task == "rte":
        write_pairs(directory, ("sentence1", "sentence2"), ["not_entailment", "entailment"], ("train", "dev", "test"))
    elif task == "wnli":
        write_pairs(directory, ("sentence1", "sentence2"), ["0", "1"], ("train", "dev", "test"))
    elif task == "mnli":
        names = ("train", "dev_matched", "dev_mismatched", "test_matched", "test_mismatched")
        write_pairs(directory, ("sentence1", "sentence2"), ["neutral", "entailment", "contradiction"], names)
    elif task == "xnli":
        labels = ["neutral", "entailment", "contradiction"]
        rows = [[*pair(number), labels[number % 3].replace("ion", "ory")] for number in range(ROWS)]
        write_tsv(directory / "multinli.train.en.tsv", ["premise", "hypo", "label"], rows)
        for name in ("dev", "test"):
            rows = [["en", labels[number % 3], *pair(number)] for number in range(ROWS)]
            header = ["language", "gold_label", "sentence1", "sentence2"]
            write_tsv(directory / f"xnli.{name}.tsv", header, rows)
        return ["--xnli_language", "en"]
    elif task == "csv":
        for name in ("train", "dev", "test"):
            lines = ["text,label", *(f'"{text}",{"AB"[number % 2]}' for number, text in enumerate(TEXTS * 3))]
            (directory / f"{name}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    elif task == "swag":
        for name in ("train", "dev", "test"):
            rows = [
                {"context": text, "choices": [*TEXTS[:3], text], "label": number % 4}
                for number, text in enumerate(TEXTS * 2)
            ]
            lines = "".join(json.dumps(row) + "\n" for row in rows)
            (directory / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    elif task == "ner":
        lines = ["-DOCSTART- -X- O O", ""]
        for number, text in enumerate(TEXTS * 2):
            for place, word in enumerate(text.rstrip(".").split()):
                tag = ("B-PER", "I-PER")[place] if place < 2 and number % 2 else "O"
                lines.append(f"{word} NN O {tag}")
            lines += [". . O O", ""]
        for name in ("train", "dev", "test"):
            (directory / f"{name}.txt").write_text("\n".join(lines), encoding="utf-8")
    else:
        assert task == "squad"
        content = json.loads((shared_data / "squad" / "xquad.en.json").read_text(encoding="utf-8"))
        content["data"] = content["data"][:1]
        content["data"][0]["paragraphs"] = content["data"][0]["paragraphs"][:2]
        text = json.dumps(content)
        for name in ("train-v1.1.json", "dev-v1.1.json"):
            (directory / name).write_text(text, encoding="utf-8")
        return ["--doc_stride", "32", "--max_query_length", "24"]
    return []


def copied(directory: Path, to: Path) -> Path:
    """Copy a directory, so that a test can change the copy, and return the path of the copy."""
    shutil.copytree(directory, to)
    return to
