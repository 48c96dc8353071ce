"""Train and evaluate masked-LM models on the same masked words, independently of their vocabularies.

A row is a fixed number of words. All tokens of a masked word are masked, and the loss of a word is the sum over its
tokens. So losses by word and by character of models with different vocabularies can be compared. The number of [MASK]
tokens shows a model how many tokens a word has, which favors vocabularies that split more words.

    B rows, S positions, P masked positions
"""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from beambert.tokenizer.vocabulary import Vocabulary
from beambert.tokenizer.wordpiece import split_word

MASKED_FRACTION = 0.15


@dataclasses.dataclass(frozen=True)
class MaskedRows:
    """Rows of words.

    Attributes:
        words: the words of each row.
        masked: whether each word is masked, by row.
    """

    words: list[list[str]]
    masked: list[np.ndarray]

    def __getitem__(self, rows: slice) -> "MaskedRows":
        return MaskedRows(self.words[rows], self.masked[rows])

    def masked_words(self) -> list[str]:
        """Return the masked words of all rows."""
        return [
            word
            for row, masked in zip(self.words, self.masked, strict=True)
            for word in itertools.compress(row, masked)
        ]


def masked_rows(words: Sequence[str], words_per_row: int, rows: int, seed: int) -> MaskedRows:
    """Return rows at random places of a text with random masks."""
    generator = np.random.default_rng(seed)
    starts = generator.integers(0, len(words) - words_per_row, rows)
    masks = [generator.random(words_per_row) < MASKED_FRACTION for _ in range(rows)]
    return MaskedRows([list(words[start : start + words_per_row]) for start in starts], masks)


def features_of(rows: MaskedRows, vocabulary: Vocabulary, length: int, predictions: int) -> dict[str, np.ndarray]:
    """Return the features of rows; tokens beyond the length and predictions beyond their number are cut off.

    Args:
        rows: B rows.
        vocabulary: vocabulary of the model.
        length: S.
        predictions: P.
    """
    size = len(rows.words)
    features = {
        "input_ids": np.full((size, length), vocabulary.pad_id, np.int32),
        "input_mask": np.zeros((size, length), np.int32),
        "segment_ids": np.zeros((size, length), np.int32),
        "masked_lm_positions": np.zeros((size, predictions), np.int32),
        "masked_lm_ids": np.zeros((size, predictions), np.int32),
        "masked_lm_weights": np.zeros((size, predictions), np.float32),
    }
    for number, (words, masked) in enumerate(zip(rows.words, rows.masked, strict=True)):
        ids, positions, labels = [vocabulary.cls_id], [], []
        for word, is_masked in zip(words, masked, strict=True):
            tokens = [vocabulary.ids[token] for token in split_word(word, vocabulary.ids)]
            if is_masked:
                positions += range(len(ids), len(ids) + len(tokens))
                labels += tokens
            ids += [vocabulary.mask_id] * len(tokens) if is_masked else tokens
        ids = [*ids[: length - 1], vocabulary.sep_id]
        kept = min(predictions, sum(position < length - 1 for position in positions))
        features["input_ids"][number, : len(ids)] = ids
        features["input_mask"][number, : len(ids)] = 1
        features["masked_lm_positions"][number, :kept] = positions[:kept]
        features["masked_lm_ids"][number, :kept] = labels[:kept]
        features["masked_lm_weights"][number, :kept] = 1
    return features


class MaskedWordTrainer:
    """Train a model on masked rows and evaluate it, in one process.

    Args:
        config: configuration of the model.
        weights: initial weights by TF1 name; variables without one keep their random initialization.
        vocabulary: vocabulary of the model.
        length: positions of a row.
        batch_size: rows of a step.
        num_train_steps: number of steps.
        learning_rate: peak learning rate; the first tenth of the steps is the warm-up.
    """

    def __init__(
        self,
        config,
        weights: Mapping[str, np.ndarray],
        vocabulary: Vocabulary,
        length: int,
        batch_size: int,
        num_train_steps: int,
        learning_rate: float,
    ) -> None:
        import keras

        from beambert.bert_model.pretraining import BertForPretraining, pretraining_losses
        from beambert.bert_model.size import with_padding
        from beambert.bert_model.variable_names import variables_by_tf1_name
        from beambert.trainers.backends.backend import active_backend
        from beambert.trainers.options import TrainingOptions
        from beambert.trainers.pretraining.pretraining_objective import pretraining_task

        keras.utils.set_random_seed(0)
        model = BertForPretraining(config)
        self.variables = variables_by_tf1_name(model)
        for name, value in weights.items():
            self.variables[name].assign(with_padding(name, value, self.variables[name].shape))
        self.vocabulary, self.length, self.batch_size = vocabulary, length, batch_size
        # Twice the expected number of masked tokens, if words have up to 1.3 tokens.
        self.predictions = int(2 * MASKED_FRACTION * length)
        backend = active_backend()
        distribution = backend.open_distribution("auto")
        self._outputs = backend.outputs_of(
            lambda features: pretraining_losses(model(features), features).masked_lm_per_position,
            list(self.variables.values()),
            distribution,
        )
        train = TrainingOptions(
            num_train_steps=num_train_steps,
            num_warmup_steps=max(1, num_train_steps // 10),
            learning_rate=learning_rate,
            seed=0,
        )
        self._trainer = backend.make_trainer(pretraining_task(model, next_sentence=False), train, distribution)

    def train(self, rows: MaskedRows, evaluate_at: Sequence[int]) -> Iterator[int]:
        """Train on the rows in order; yield the number of steps whenever it is one of `evaluate_at`."""
        batches = self._batches(rows)
        if 0 in evaluate_at:
            yield 0
        with self._trainer.make_steps(lambda _: batches) as run:
            done = 0
            for step in sorted(set(evaluate_at) - {0}):
                run(done, step - done, 0)
                done = step
                yield step

    def evaluate(self, rows: MaskedRows) -> dict[str, float]:
        """Return the loss in nats by token, by word and by character of the masked words."""
        losses = np.concatenate(list(self._outputs(lambda _: self._batches(rows))))
        batches = list(self._batches(rows))
        weights = np.concatenate([batch["masked_lm_weights"] for batch in batches])
        total = float((losses[: len(weights)] * weights).sum())
        words = rows.masked_words()
        return {
            "token": total / float(weights.sum()),
            "word": total / len(words),
            "character": total / sum(map(len, words)),
        }

    def _batches(self, rows: MaskedRows):
        from beambert.trainers.data.pipeline import Batches

        count = len(rows.words) // self.batch_size

        def features(index: int) -> dict[str, np.ndarray]:
            part = rows[index * self.batch_size : (index + 1) * self.batch_size]
            return features_of(part, self.vocabulary, self.length, self.predictions)

        shapes = {name: (values.shape, values.dtype) for name, values in features(0).items()}
        return Batches(count, shapes, lambda first: (features(index) for index in range(first, count)))


def words_of(paths: Sequence[str], do_lower_case: bool) -> list[str]:
    """Return the running words of text files."""
    from beambert.pipelines.formats.input_format import ReadOptions
    from beambert.pipelines.sources.readers import read_file
    from beambert.tokenizer.normalization import split_words

    documents = (document for path in paths for document in read_file(path, ReadOptions()))
    return [word for d in documents for paragraph in d.paragraphs for word in split_words(paragraph, do_lower_case)]


def weights_of(model: str) -> tuple:
    """Return the configuration, the vocabulary and the weights by TF1 name of a model."""
    from pathlib import Path

    from beambert.bert_model.checkpoints.reader import open_checkpoint
    from beambert.trainers.checkpoints.vocabulary_check import vocabulary_of

    with open_checkpoint(Path(model)) as checkpoint:
        values = {name: tensor.read().astype(np.float32) for name, tensor in checkpoint.tensors.items()}
        return checkpoint.config, vocabulary_of(checkpoint), values
