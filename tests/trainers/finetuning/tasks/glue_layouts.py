"""Small files in the published layout of each task of GLUE and of XNLI, for tests."""

import dataclasses
from pathlib import Path

from beambert.tokenizer.vocabulary import Vocabulary
from beambert.trainers.finetuning.tasks.text import glue
from beambert.trainers.finetuning.tasks.text.text_task import TextTask
from tests.trainers.finetuning.tasks.parsed_options import parse_options

_MNLI_TEXTS = (
    "index promptID pairID genre sentence1_binary_parse sentence2_binary_parse sentence1_parse sentence2_parse "
    "sentence1 sentence2"
)
_XNLI = (
    "language gold_label sentence1_binary_parse sentence2_binary_parse sentence1_parse sentence2_parse sentence1 "
    "sentence2 promptID pairID genre label1 label2 label3 label4 label5 sentence1_tokenized sentence2_tokenized match"
)
_STSB = "index genre filename year old_index source1 source2 sentence1 sentence2"

# Columns of every file, with "+" for a space in a name; None where the file has no header. `write_table` writes "x" in
# fields without a value.
HEADERS = {
    "cola": {"train.tsv": None, "dev.tsv": None, "test.tsv": "index sentence"},
    "sst2": {"train.tsv": "sentence label", "dev.tsv": "sentence label", "test.tsv": "index sentence"},
    "mrpc": {
        "train.tsv": "Quality #1+ID #2+ID #1+String #2+String",
        "dev.tsv": "Quality #1+ID #2+ID #1+String #2+String",
        "test.tsv": "index #1+ID #2+ID #1+String #2+String",
    },
    "stsb": {"train.tsv": f"{_STSB} score", "dev.tsv": f"{_STSB} score", "test.tsv": _STSB},
    "qqp": {
        "train.tsv": "id qid1 qid2 question1 question2 is_duplicate",
        "dev.tsv": "id qid1 qid2 question1 question2 is_duplicate",
        "test.tsv": "id question1 question2",
    },
    "mnli": {
        "train.tsv": f"{_MNLI_TEXTS} label1 gold_label",
        "dev_matched.tsv": f"{_MNLI_TEXTS} label1 label2 label3 label4 label5 gold_label",
        "dev_mismatched.tsv": f"{_MNLI_TEXTS} label1 label2 label3 label4 label5 gold_label",
        "test_matched.tsv": _MNLI_TEXTS,
        "test_mismatched.tsv": _MNLI_TEXTS,
        "diagnostic.tsv": "index sentence1 sentence2",
    },
    "qnli": {
        "train.tsv": "index question sentence label",
        "dev.tsv": "index question sentence label",
        "test.tsv": "index question sentence",
    },
    "rte": {
        "train.tsv": "index sentence1 sentence2 label",
        "dev.tsv": "index sentence1 sentence2 label",
        "test.tsv": "index sentence1 sentence2",
    },
    "wnli": {
        "train.tsv": "index sentence1 sentence2 label",
        "dev.tsv": "index sentence1 sentence2 label",
        "test.tsv": "index sentence1 sentence2",
    },
    "xnli": {
        "multinli/multinli.train.zh.tsv": "premise hypo label",
        "xnli.dev.tsv": _XNLI,
        "xnli.test.tsv": _XNLI,
    },
}
COLA_COLUMNS = "source label mark sentence"
FIRST = {"#1 String", "sentence1", "question1", "question", "premise"}
SECOND = {"#2 String", "sentence2", "question2", "hypo"}
LABEL = {"Quality", "label", "score", "is_duplicate", "gold_label"}
LABELS = {
    "mnli": ("contradiction", "entailment", "neutral"),
    "xnli": ("contradiction", "entailment", "neutral"),
    "qnli": ("entailment", "not_entailment"),
    "rte": ("entailment", "not_entailment"),
    "stsb": ("0.000", "2.500", "5.000"),
}
SINGLE = ("cola", "sst2")
VOCABULARY = Vocabulary(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "one", "two", "ends", "never"))


def examples(task: str) -> list[tuple[str, str, str]]:
    """Return the texts and labels of every file, with quotation marks and other characters that are hard to parse."""
    labels = LABELS.get(task, ("0", "1"))
    texts = [('"Never', "ends"), ("a\u2028b\x85c\x0bd", '""'), ("Ein «Satz».", "第二"), ("one", "two' \""), ("e", "f")]
    return [(first, second, labels[number % len(labels)]) for number, (first, second) in enumerate(texts)]


def write_table(path: Path, header: str | None, rows: list[dict[str, str]], names: str | None = None) -> None:
    """Write a file; `names` are the columns of a file without a header."""
    columns = [name.replace("+", " ") for name in (header or names or "").split()]
    lines = ["\t".join(columns)] if header else []
    lines += ["\t".join(row.get(name, "x") for name in columns) for row in rows]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8", newline="")


def write_task(directory: Path, task: str) -> None:
    """Write all files of a task, with `examples` in each; indices start at 100."""
    for name, header in HEADERS[task].items():
        second_texts = {"sentence"} if task == "qnli" else SECOND
        first_texts = {"sentence"} if task in SINGLE else FIRST
        rows = [
            {
                **dict.fromkeys(first_texts, first),
                **dict.fromkeys(second_texts, second),
                **dict.fromkeys(LABEL, label),
                "index": str(100 + number),
                "id": str(100 + number),
                "language": "zh",
            }
            for number, (first, second, label) in enumerate(examples(task))
        ]
        write_table(directory / name, header, rows, COLA_COLUMNS)


def open_glue(
    task: str, directory: Path, *wanted: str, labels: tuple[str, ...] | None = None, most: int | None = None, flags=()
) -> TextTask:
    """Open a task as the command does."""
    limits = dict.fromkeys(("max_train_samples", "max_eval_samples", "max_predict_samples"), most)
    config = dataclasses.replace(parse_options(task, "--data_dir", directory, *flags), **limits)
    return glue.open_task(config, wanted, labels)
