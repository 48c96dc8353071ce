"""The task ner: entities in sentences of CoNLL column files (paper, section 5.3)."""

import argparse
import hashlib
import json
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from beambert_common.atomic_files import write_atomic
from beambert_common.command_line.flags import WholeNumber, boolean
from tokenizer.tokenizer import Tokenizer
from trainers.config.finetune_config import FinetuneConfig
from trainers.errors import TaskDataError
from trainers.finetuning.finetuning_task import DEV, TEST, TRAIN, Logits, Rows
from trainers.finetuning.tasks.tagging import conll
from trainers.finetuning.tasks.tagging.conll import ConllFile, Layout
from trainers.finetuning.tasks.tagging.entity_scores import entity_scores
from trainers.finetuning.tasks.tagging.tag_schemes import (
    DEFAULT_SCHEME,
    IO,
    OUTSIDE,
    SCHEMES,
    Entities,
    detect,
    entities_of,
    first_unknown,
    labels_of,
    scheme_of_labels,
    tags_of,
)
from trainers.finetuning.tasks.tagging.tagging_rows import tagging_rows, word_labels
from trainers.metrics.score_warnings import entity_warnings

DEFAULT_MAX_SEQ_LENGTH = 128
_SHOWN_SENTENCES = 30
_DETECT = "auto"
_COLUMN = WholeNumber(-10_000, 10_000)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of this task."""
    group = parser.add_argument_group("ner")
    group.add_argument(
        "--word_column", type=_COLUMN, metavar="N", help="column of the words, 0 for the first (default: 0)"
    )
    group.add_argument(
        "--tag_column", type=_COLUMN, metavar="N", help="column of the tags, -1 for the last (default: -1)"
    )
    group.add_argument("--comment_prefix", metavar="TEXT", help='lines that start so are no words, such as "#"')
    group.add_argument(
        "--file_tag_scheme",
        choices=(_DETECT, *SCHEMES),
        help="how the files mark entities; io: each word has the bare type (default: auto, from the tags)",
    )
    group.add_argument(
        "--tag_scheme", choices=tuple(SCHEMES), help=f"how the model marks entities (default: {DEFAULT_SCHEME})"
    )
    group.add_argument(
        "--document_context",
        type=boolean,
        metavar="true|false",
        help="fill rows up to --max_seq_length with the sentences around, of the same document (-DOCSTART- lines)",
    )
    group.add_argument(
        "--test_without_tags",
        type=boolean,
        metavar="true|false",
        help="the test file's last column is no tag (default: false; a file of words alone needs no flag)",
    )
    group.add_argument(
        "--feature_based",
        type=boolean,
        metavar="true|false",
        help="leave BERT as it is and train a BiLSTM on its last four layers (paper, section 5.3)",
    )


def open_task(config: FinetuneConfig, wanted: Collection[str], labels: tuple[str, ...] | None) -> "TaggingTask":
    """Read and check the files.

    Args:
        config: of `add_arguments`, with data_dir, max_train_samples, max_eval_samples, max_predict_samples.
        wanted: of "train", "dev", "test".
        labels: classes of the model if it has some: tags, "O" among them; None to take those of the training file.

    Raises:
        TaskDataError: a file is missing or damaged, a tag is invalid or is not among the labels.
    """
    layout = Layout(
        word_column=0 if config.word_column is None else config.word_column,
        tag_column=-1 if config.tag_column is None else config.tag_column,
        comment_prefix=config.comment_prefix or "",
    )
    limits = {TRAIN: config.max_train_samples, DEV: config.max_eval_samples, TEST: config.max_predict_samples}
    files = {}
    for split in (TRAIN, DEV, TEST):
        if split in wanted:
            file = conll.read(conll.find(config.data_directory, split), layout, tags_needed=split != TEST)
            if split == TEST and config.test_without_tags:
                file = file.without_tags()
            if config.document_context and not file.document_marks:
                raise TaskDataError(
                    f"{file.path.name} has no line {conll.DOCUMENT_MARK}, which --document_context needs to know where "
                    "documents begin; leave the flag out, or put such a line before each document"
                )
            files[split] = file.first(limits[split])
    file_scheme = None if config.file_tag_scheme in (None, _DETECT) else config.file_tag_scheme
    for file in files.values():
        _check_tags(file, file_scheme)

    scheme = config.tag_scheme or DEFAULT_SCHEME
    if labels is not None:
        known = scheme_of_labels(labels)
        if known is None:
            raise TaskDataError(
                f"the classes of the model are {', '.join(labels[:4])}...: no tags; start from a model without classes"
            )
        scheme = config.tag_scheme or known
    elif TRAIN in files:
        tags = files[TRAIN].tags or ()
        kinds = entities_of(tags, files[TRAIN].sentence_splits, file_scheme).types.tolist()
        if not kinds:
            raise TaskDataError(f"{files[TRAIN].path.name} has no entity, every tag is O; give a file with entities")
        if scheme == IO and "" in kinds:
            raise TaskDataError(f"{files[TRAIN].path.name} has entities without a type; --tag_scheme io needs types")
        labels = labels_of(set(kinds), scheme)
    else:
        raise TaskDataError("the model has no classes to look for; train it first (--do_train)")
    head = "token_classification_bilstm" if config.feature_based else "token_classification"
    return TaggingTask(head, labels, scheme, files, file_scheme, bool(config.document_context))


class TaggingTask:
    """Tag words with entities; see `finetuning_task.FinetuningTask`.

    Args:
        head: "token_classification" or "token_classification_bilstm".
        labels: classes.
        scheme: that the labels are tags of.
        files: by split.
        file_scheme: that the files' tags are of; None to see it from each.
        document_context: whether rows have the sentences around.

    Raises:
        TaskDataError: a tag is not among the labels.
    """

    name = "ner"
    multi_label = False
    best_metric = "eval_f1"

    def __init__(
        self,
        head: str,
        labels: tuple[str, ...],
        scheme: str,
        files: dict[str, ConllFile],
        file_scheme: str | None,
        document_context: bool,
    ) -> None:
        self.head = head
        self.labels = labels
        self.splits = tuple(files)
        self.predict_splits = (TEST,) if TEST in files else ()
        # The test file is scored where it has tags, but never alone: training must not look at it.
        self.eval_splits = tuple(
            split for split in (DEV, TEST) if split in files and DEV in files and files[split].tags is not None
        )
        self._scheme = scheme
        self._files = files
        self._document_context = document_context
        self._true: dict[str, Entities] = {}
        self._label_ids: dict[str, np.ndarray] = {}
        seen: dict[str, str | None] = {}
        for split, file in files.items():
            if file.tags is not None:
                seen[split] = file_scheme or detect(file.tags, file.sentence_splits)
                self._true[split] = entities_of(file.tags, file.sentence_splits, file_scheme)
                self._label_ids[split] = self._encoded(split)
        # A file without entities is written as the others are.
        other = file_scheme or next((known for known in seen.values() if known), scheme)
        self._file_schemes = {split: seen.get(split) or other for split in files}

    def _encoded(self, split: str) -> np.ndarray:
        """Return the classes of the words, int32 [W]."""
        file = self._files[split]
        numbers = {label: number for number, label in enumerate(self.labels)}
        tags = tags_of(self._true[split], len(file.words), self._scheme)
        for word, (tag, own) in enumerate(zip(tags, file.tags or (), strict=True)):
            if tag not in numbers:
                known = ", ".join(self.labels[:8]) + (", ..." if len(self.labels) > 8 else "")
                as_label = "" if tag == own else f" ({tag} in {self._scheme})"
                remedy = ", or --test_without_tags true if the last column is no tag" if split == TEST else ""
                raise TaskDataError(
                    f"{file.where(word)}: the tag {own}{as_label} is none of the model's: {known}; give a file with "
                    f"the tags that it was trained on{remedy}"
                )
        return np.fromiter((numbers[tag] for tag in tags), np.int32, len(tags))

    def fingerprint(self, split: str) -> str:
        """Return a digest as `FinetuningTask.fingerprint` defines it."""
        file = self._files[split]
        digest = hashlib.blake2b(digest_size=16)
        documents = file.document_splits().tolist() if self._document_context else None
        content = ["tagging rows 1", self.labels, file.words, file.sentence_splits.tolist(), documents]
        digest.update(json.dumps(content).encode())
        if split in self._label_ids:
            digest.update(self._label_ids[split].tobytes())
        return digest.hexdigest()

    def rows(self, split: str, tokenizer: Tokenizer, max_seq_length: int) -> Rows:
        """Encode a split; see `tagging_rows`."""
        file = self._files[split]
        documents = file.document_splits() if self._document_context else None
        labels = self._label_ids.get(split)
        return tagging_rows(file.words, file.sentence_splits, documents, labels, tokenizer, max_seq_length)

    def metrics(self, split: str, rows: Rows, logits: Logits) -> dict[str, float]:
        """Return precision, recall and F1 of entities, F1 of each type, and the share of words with the right tag.

        Tags are compared as `write_predictions` writes them. The names begin with "test_" for the test file, else
        with "eval_".
        """
        predicted = self._predicted(split, rows, logits)
        scores, by_type = entity_scores(self._true[split], predicted)
        written = tags_of(predicted, len(self._files[split].words), self._file_schemes[split])
        right = sum(one == other for one, other in zip(written, self._files[split].tags or (), strict=True))
        prefix = "test" if split == TEST else "eval"
        return {
            f"{prefix}_precision": scores.precision,
            f"{prefix}_recall": scores.recall,
            f"{prefix}_f1": scores.f1,
            f"{prefix}_accuracy": right / len(written),
            **{f"{prefix}_f1_{kind or 'untyped'}": own.f1 for kind, own in by_type.items()},
        }

    def chance_levels(self, split: str, rows: Rows) -> dict[str, float]:  # noqa: ARG002
        """Return the scores of the most frequent tag for every word, and of no entity."""
        prefix = "test" if split == TEST else "eval"
        return {f"{prefix}_accuracy_majority_class": self._majority(split), f"{prefix}_f1_no_entity": 0.0}

    def _majority(self, split: str) -> float:
        """Return the share of the most frequent tag among the words of a split."""
        tags = Counter(self._files[split].tags or ())
        return max(tags.values(), default=0) / max(tags.total(), 1)

    def write_predictions(self, split: str, rows: Rows, logits: Logits, output: Path) -> list[Path]:
        """Write the file with a last column of predicted tags, in the file's own scheme."""
        file = self._files[split]
        tags = tags_of(self._predicted(split, rows, logits), len(file.words), self._file_schemes[split])
        path = output / f"{split}_predictions.txt"
        write_atomic(path, conll.with_predictions(file, tags).encode())
        return [path]

    def details(self, split: str, rows: Rows, logits: Logits) -> dict[str, Any]:
        """Return scores by type, and sentences: those with most mistakes, then right ones with entities."""
        file = self._files[split]
        predicted = self._predicted(split, rows, logits)
        scores, by_type = entity_scores(self._true[split], predicted)
        true, predicted_entities = (
            _by_sentence(entities, file.sentence_splits) for entities in (self._true[split], predicted)
        )
        wrong = np.array([len(set(one) ^ set(other)) for one, other in zip(true, predicted_entities, strict=True)])
        order = np.argsort(-wrong, kind="stable").tolist()
        shown = [sentence for sentence in order if wrong[sentence] or true[sentence]][:_SHOWN_SENTENCES]
        prefix = "test" if split == TEST else "eval"
        return {
            "warnings": entity_warnings(
                split,
                true=scores.true,
                predicted=len(predicted.starts),
                f1=scores.f1,
                accuracy=self.metrics(split, rows, logits)[f"{prefix}_accuracy"],
                majority=self._majority(split),
                words=len(file.words),
            ),
            "by_type": [
                {"type": kind, "precision": own.precision, "recall": own.recall, "f1": own.f1, "count": own.true}
                for kind, own in by_type.items()
            ],
            "entities": [
                {
                    "location": file.where(int(file.sentence_splits[sentence])),
                    "words": list(file.words[slice(*file.sentence_splits[sentence : sentence + 2].tolist())]),
                    "labels": [list(entity) for entity in true[sentence]],
                    "predictions": [list(entity) for entity in predicted_entities[sentence]],
                }
                for sentence in shown
            ],
        }

    def _predicted(self, split: str, rows: Rows, logits: Logits) -> Entities:
        best = word_labels(rows, logits, self.labels.index(OUTSIDE))
        tags = [self.labels[number] for number in best.tolist()]
        return entities_of(tags, self._files[split].sentence_splits, self._scheme)


def _check_tags(file: ConllFile, scheme: str | None) -> None:
    if file.tags is None:
        return
    word = first_unknown(file.tags, scheme)
    if word is not None:
        tag = file.tags[word]
        if scheme is not None:
            expected = f"of the scheme {scheme} (--file_tag_scheme)"
        else:
            expected = "such as O, B-PER or I-PER; give --tag_column, or --file_tag_scheme io for bare types"
        comment = '; if the line is a comment, give --comment_prefix "#"' if file.rows[word].startswith("#") else ""
        raise TaskDataError(f"{file.where(word)}: {tag!r} is no tag {expected}{comment}")


def _by_sentence(entities: Entities, sentence_splits: np.ndarray) -> list[list[tuple[int, int, str]]]:
    """Return by sentence each entity's first word, the word after its last, and type; words count per sentence."""
    sentences: list[list[tuple[int, int, str]]] = [[] for _ in sentence_splits[1:]]
    numbers = np.searchsorted(sentence_splits, entities.starts, side="right") - 1
    for number, start, end, kind in zip(numbers.tolist(), *(values.tolist() for values in entities), strict=True):
        first = int(sentence_splits[number])
        sentences[number].append((start - first, end - first, kind))
    return sentences
