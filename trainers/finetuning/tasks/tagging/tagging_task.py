"""The task `ner`: named entity recognition on CoNLL column files (paper, section 5.3)."""

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from beambert.common.local_files import write_atomic
from beambert.tokenizer.tokenizer import Tokenizer
from beambert.trainers.errors import TaskDataError
from beambert.trainers.finetuning.finetuning_task import DEV, TEST, TRAIN, Logits, Rows
from beambert.trainers.finetuning.options import FinetuneOptions
from beambert.trainers.finetuning.tasks.tagging import conll
from beambert.trainers.finetuning.tasks.tagging.conll import ConllFile, Layout
from beambert.trainers.finetuning.tasks.tagging.entity_scores import entity_scores
from beambert.trainers.finetuning.tasks.tagging.tag_schemes import (
    DEFAULT_SCHEME,
    IO,
    OUTSIDE,
    Entities,
    detect,
    entities_of,
    first_unknown,
    labels_of,
    scheme_of_labels,
    similar_tag,
    tags_of,
)
from beambert.trainers.finetuning.tasks.tagging.tagging_rows import tagging_rows, word_labels
from beambert.trainers.metrics.score_warnings import entity_warnings

DEFAULT_MAX_SEQ_LENGTH = 128
_SHOWN_SENTENCES = 30
_DETECT = "auto"


def open_task(config: FinetuneOptions, wanted: Collection[str], labels: tuple[str, ...] | None) -> "TaggingTask":
    """Read and validate the files.

    Args:
        config: `TaggingOptions`, and data_dir, max_train_samples, max_eval_samples, max_predict_samples.
        wanted: subset of "train", "dev" and "test".
        labels: labels of the model, which are tags including "O"; None for the tags of the whole training file.

    Raises:
        TaskDataError: a file is missing or invalid, or a tag is invalid or not among the labels.
    """
    layout = Layout(
        word_column=0 if config.word_column is None else config.word_column,
        tag_column=-1 if config.tag_column is None else config.tag_column,
        comment_prefix=config.comment_prefix or "",
    )
    file_scheme = None if config.file_tag_scheme in (None, _DETECT) else config.file_tag_scheme
    limits = {TRAIN: config.max_train_samples, DEV: config.max_eval_samples, TEST: config.max_predict_samples}
    files = {}
    whole_train: ConllFile | None = None
    for split in (TRAIN, DEV, TEST):
        if split in wanted:
            file = conll.read(conll.find(config.data_directory, split), layout, tags_needed=split != TEST)
            if split == TEST and config.test_without_tags:
                file = file.without_tags()
            if config.document_context and not file.document_marks:
                raise TaskDataError(
                    f"{file.path.name} has no {conll.DOCUMENT_MARK} line, which --document_context requires: omit the "
                    "flag, or add such a line before each document"
                )
            if split == TRAIN and labels is None:
                # All sentences define the labels, also where fewer are trained on.
                _check_tags(file, file_scheme)
                whole_train = file
            files[split] = file.first(limits[split])
    for file in files.values():
        _check_tags(file, file_scheme)

    scheme = config.tag_scheme or DEFAULT_SCHEME
    if labels is not None:
        known = scheme_of_labels(labels)
        if known is None:
            raise TaskDataError(
                f"the labels of the model ({', '.join(labels[:4])}...) are not tags: use a model without labels"
            )
        scheme = config.tag_scheme or known
    elif whole_train is not None:
        kinds = entities_of(whole_train.tags or (), whole_train.sentence_splits, file_scheme).types.tolist()
        if not kinds:
            raise TaskDataError(
                f"{whole_train.path.name} has no entity, since every tag is O: use a file with entities"
            )
        if scheme == IO and "" in kinds:
            raise TaskDataError(
                f"{whole_train.path.name} has entities without a type, which --tag_scheme io requires: add types, or "
                "use another scheme"
            )
        labels = labels_of(set(kinds), scheme)
    else:
        raise TaskDataError("the model has no labels: train it first with --do_train")
    head = "token_classification_bilstm" if config.feature_based else "token_classification"
    return TaggingTask(head, labels, scheme, files, file_scheme, bool(config.document_context))


class TaggingTask:
    """Named entity recognition; see `finetuning_task.FinetuningTask`.

    Args:
        head: "token_classification" or "token_classification_bilstm".
        labels: labels of the model, in the order of the logits.
        scheme: tag scheme of the labels.
        files: CoNLL files by split.
        file_scheme: tag scheme of the files; None to detect it for each file.
        document_context: whether rows include neighboring sentences.

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
        # A test file with tags is scored too, but never alone, since training must not depend on it.
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
        # A file without entities has the scheme of the other files.
        other = file_scheme or next((known for known in seen.values() if known), scheme)
        self._file_schemes = {split: seen.get(split) or other for split in files}

    def _encoded(self, split: str) -> np.ndarray:
        """Return the label ids of the words, int32 [W]."""
        file = self._files[split]
        numbers = {label: number for number, label in enumerate(self.labels)}
        tags = tags_of(self._true[split], len(file.words), self._scheme)
        for word, (tag, own) in enumerate(zip(tags, file.tags or (), strict=True)):
            if tag not in numbers:
                meant = next((label for label in self.labels if label.upper() == tag.upper()), None)
                similar = f"did you mean {meant}? Use" if meant else "use"
                known = ", ".join(self.labels[:8]) + (", ..." if len(self.labels) > 8 else "")
                as_label = "" if tag == own else f" ({tag} in {self._scheme})"
                remedy = ", or --test_without_tags true if the last column is no tag" if split == TEST else ""
                raise TaskDataError(
                    f"{file.where(word)}: tag {own}{as_label} is not a label of the model ({known}): {similar} a file "
                    f"with the tags of the training data{remedy}"
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

    def truncation(self, split: str, rows: Rows, max_seq_length: int) -> str:
        """Return the number of sentences that were split over several rows."""
        sentences = len(self._files[split].sentence_splits) - 1
        return (
            f"{rows.truncated} of {sentences} {split} sentences exceed --max_seq_length {max_seq_length} and were "
            "split between words; only longer words were truncated"
        )

    def emptiness(self, split: str, rows: Rows) -> str:
        """Return the number of words without tokens, and the location of the first."""
        file = self._files[split]
        return (
            f"{len(rows.empty)} of {len(file.words)} {split} words have no tokens and are in no row, the first in "
            f"{file.where(int(rows.empty[0]))}; check its characters"
        )

    def texts(self, split: str) -> Sequence[str]:
        """Return all words."""
        return self._files[split].words

    def metrics(self, split: str, rows: Rows, logits: Logits) -> dict[str, float]:
        """Return precision, recall and F1 of entities, F1 of each type, and the accuracy over words.

        Tags are compared as `write_predictions` writes them. Names have the prefix "test_" for the test file, else
        "eval_".
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
        """Return the scores of predicting the most frequent tag for every word, and of predicting no entity."""
        prefix = "test" if split == TEST else "eval"
        return {f"{prefix}_accuracy_majority_class": self._majority(split), f"{prefix}_f1_no_entity": 0.0}

    def _majority(self, split: str) -> float:
        """Return the fraction of the words of a split that have the most frequent tag."""
        tags = Counter(self._files[split].tags or ())
        return max(tags.values(), default=0) / max(tags.total(), 1)

    def write_predictions(self, split: str, rows: Rows, logits: Logits, output: Path) -> list[Path]:
        """Write the file with predicted tags as the last column, in the scheme of the file."""
        file = self._files[split]
        tags = tags_of(self._predicted(split, rows, logits), len(file.words), self._file_schemes[split])
        path = output / f"{split}_predictions.txt"
        write_atomic(path, conll.with_predictions(file, tags).encode())
        return [path]

    def details(self, split: str, rows: Rows, logits: Logits) -> dict[str, Any]:
        """Return scores by type, and sentences: those with the most errors, then correct ones with entities."""
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
        if (similar := similar_tag(tag, scheme)) is not None:
            expected = f"a valid tag: did you mean {similar!r}? Correct the tags of the file"
        elif scheme is not None:
            expected = f"a tag of scheme {scheme} (--file_tag_scheme)"
        else:
            expected = "a valid tag such as O, B-PER or I-PER: set --tag_column, or --file_tag_scheme io for bare types"
        comment = ': for a comment use --comment_prefix "#"' if file.rows[word].startswith("#") else ""
        raise TaskDataError(f"{file.where(word)}: {tag!r} is not {expected}{comment}")


def _by_sentence(entities: Entities, sentence_splits: np.ndarray) -> list[list[tuple[int, int, str]]]:
    """Return the (first word, word after the last, type) of the entities of each sentence, counted per sentence."""
    sentences: list[list[tuple[int, int, str]]] = [[] for _ in sentence_splits[1:]]
    numbers = np.searchsorted(sentence_splits, entities.starts, side="right") - 1
    for number, start, end, kind in zip(numbers.tolist(), *(values.tolist() for values in entities), strict=True):
        first = int(sentence_splits[number])
        sentences[number].append((start - first, end - first, kind))
    return sentences
