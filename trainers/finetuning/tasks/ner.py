"""The task `ner`: named entity recognition on CoNLL column files (paper, section 5.3).

As in the paper, the first token of a word represents it, and the rest of a row is filled with context from the
document.

Letters in shapes: W words, N sentences, T tokens of all rows.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from beambert.bert_model.heads import HEADS
from beambert.bert_model.heads.head import FinetuningHead, Logits
from beambert.common.local_files import write_atomic
from beambert.pipelines.instances.instances import ranges
from beambert.tokenizer.tokenizer import Tokenizer
from beambert.trainers.errors import TaskDataError
from beambert.trainers.finetuning.finetuning_task import DEV, TEST, TRAIN, Rows, metric_prefix, sample_limits
from beambert.trainers.finetuning.options import FinetuneOptions
from beambert.trainers.finetuning.tasks import conll
from beambert.trainers.finetuning.tasks.conll import ConllFile
from beambert.trainers.finetuning.tasks.tag_schemes import (
    DEFAULT_SCHEME,
    IO,
    OUTSIDE,
    Entities,
    detect,
    entities_of,
    entity_scores,
    first_unknown,
    labels_of,
    scheme_of_labels,
    similar_tag,
    tags_of,
)
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
    word_column, comment_prefix = config.word_column or 0, config.comment_prefix or ""
    tag_column = -1 if config.tag_column is None else config.tag_column
    file_scheme = None if config.file_tag_scheme in (None, _DETECT) else config.file_tag_scheme
    limits = sample_limits(config)
    files = {}
    whole_train: ConllFile | None = None
    for split in (TRAIN, DEV, TEST):
        if split in wanted:
            file = conll.read(
                conll.find(config.data_directory, split),
                word_column=word_column,
                tag_column=tag_column,
                comment_prefix=comment_prefix,
                tags_needed=split != TEST,
            )
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
    head = HEADS["token_classification_bilstm" if config.feature_based else "token_classification"]
    return TaggingTask(head, labels, scheme, files, file_scheme, bool(config.document_context))


class TaggingTask:
    """Named entity recognition; see `finetuning_task.FinetuningTask`.

    Args:
        head: a head that labels positions.
        labels: labels of the model, in the order of the logits.
        scheme: tag scheme of the labels.
        files: CoNLL files by split.
        file_scheme: tag scheme of the files; None to detect it for each file.
        document_context: whether rows include neighboring sentences.

    Raises:
        TaskDataError: a tag is not among the labels.
    """

    name = "ner"
    best_metric = "eval_f1"

    def __init__(
        self,
        head: FinetuningHead,
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
        prefix = metric_prefix(split)
        return {
            f"{prefix}_precision": scores.precision,
            f"{prefix}_recall": scores.recall,
            f"{prefix}_f1": scores.f1,
            f"{prefix}_accuracy": right / len(written),
            **{f"{prefix}_f1_{kind or 'untyped'}": own.f1 for kind, own in by_type.items()},
        }

    def chance_levels(self, split: str, rows: Rows) -> dict[str, float]:  # noqa: ARG002
        """Return the scores of predicting the most frequent tag for every word, and of predicting no entity."""
        prefix = metric_prefix(split)
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
        prefix = metric_prefix(split)
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


# In Rows.extras: int64 [W], index in Rows.ids of the first token of each word, -1 for a word without tokens.
FIRST_TOKENS = "first_pieces"


def tagging_rows(
    words: Sequence[str],
    sentence_splits: np.ndarray,
    document_splits: np.ndarray | None,
    label_ids: np.ndarray | None,
    tokenizer: Tokenizer,
    max_seq_length: int,
) -> Rows:
    """Return the rows of a split.

    A sentence is a row. A sentence that is longer than a row is split over several rows: each row labels a range of its
    words, with context on both sides, so that every word is labeled once. Words without tokens are in no row.

    Args:
        words: W words.
        sentence_splits: int64 [N + 1], offsets of words.
        document_splits: int64 [D + 1], offsets of sentences, to fill rows with neighboring sentences of the same
            document; None for no document context.
        label_ids: int32 [W], or None for a split without labels.
        tokenizer: tokenizer of the model.
        max_seq_length: maximum length of a row in tokens, including [CLS] and [SEP].

    Returns:
        Rows with the target `label_ids` and the extra `FIRST_TOKENS`; `truncated` counts the sentences that are longer
        than a row, `empty` are the words without tokens.

    Raises:
        TaskDataError: max_seq_length is less than 3.
    """
    room = max_seq_length - 2
    if room < 1:
        raise TaskDataError(f"invalid --max_seq_length {max_seq_length}: must be at least 3 ([CLS] token [SEP])")
    tokens, token_splits = tokenizer.encode_batch(words)  # [P], [W + 1]
    stretches, truncated = _stretches(sentence_splits, token_splits, room)  # words [R + 1]
    rows = len(stretches) - 1
    starts, ends = token_splits[stretches[:-1]], token_splits[stretches[1:]]  # [R], tokens
    ends = np.minimum(ends, starts + room)  # A single word may be too long.

    # Range of the context: the sentence, or the document.
    outer = sentence_splits if document_splits is None else sentence_splits[document_splits]
    outer_index = np.searchsorted(outer, stretches[:-1], side="right") - 1
    first, last = token_splits[outer[outer_index]], token_splits[outer[outer_index + 1]]
    spare = room - (ends - starts)
    left = np.minimum(starts - first, spare // 2)
    right = np.minimum(last - ends, spare - left)
    left = np.minimum(starts - first, spare - right)

    lengths = left + (ends - starts) + right
    row_splits = np.concatenate([[0], np.cumsum(lengths + 2)]).astype(np.int64)
    within = ranges(row_splits[:-1] + 1, lengths)  # Positions in the rows other than [CLS] and [SEP].
    vocabulary = tokenizer.vocabulary
    ids = np.full(row_splits[-1], vocabulary.cls_id, np.int32)
    ids[row_splits[1:] - 1] = vocabulary.sep_id
    ids[within] = tokens[ranges(starts - left, lengths)]

    row_of_word = np.repeat(np.arange(rows), np.diff(stretches))  # [W]
    in_row = row_splits[row_of_word] + 1 + left[row_of_word] + token_splits[:-1] - starts[row_of_word]
    first_tokens = np.where(token_splits[1:] > token_splits[:-1], in_row, -1)  # [W]
    targets = {}
    if label_ids is not None:
        labels = np.full(len(ids), -1, np.int32)
        labels[first_tokens[first_tokens >= 0]] = label_ids[first_tokens >= 0]
        targets["label_ids"] = labels
    return Rows(
        ids=ids,
        segment_ids=np.zeros(len(ids), np.int32),
        row_splits=row_splits,
        targets=targets,
        truncated=truncated,
        empty=np.flatnonzero(first_tokens < 0),
        extras={FIRST_TOKENS: first_tokens},
    )


def word_labels(rows: Rows, logits: Logits, without_tokens: int) -> np.ndarray:
    """Return the predicted label of each word, int64 [W].

    Args:
        rows: rows of `tagging_rows`.
        logits: logits of each row, float32 [S_i, n].
        without_tokens: label of a word without tokens.
    """
    best = np.concatenate([np.argmax(values, axis=-1) for values in logits])  # [T]
    first_tokens = rows.extras[FIRST_TOKENS]
    return np.where(first_tokens >= 0, best[first_tokens], without_tokens)


def _stretches(sentence_splits: np.ndarray, token_splits: np.ndarray, room: int) -> tuple[np.ndarray, int]:
    """Return the first word of each row's range, followed by W, and the number of sentences with several ranges.

    Ranges of a sentence that is too long have half the length of a row, which leaves room for context.
    """
    lengths = np.diff(token_splits[sentence_splits])  # [N], tokens
    # A single word cannot be split.
    long = np.flatnonzero((lengths > room) & (np.diff(sentence_splits) > 1))
    inner = []
    for sentence in long.tolist():
        start, end = sentence_splits[sentence : sentence + 2].tolist()
        while True:
            # The first word that ends beyond half the row starts the next range.
            fit = int(np.searchsorted(token_splits, token_splits[start] + max(room // 2, 1), side="right")) - 1
            start = max(fit, start + 1)
            if start >= end:
                break
            inner.append(start)
    return np.sort(np.concatenate([sentence_splits, np.array(inner, np.int64)])), int((lengths > room).sum())
