"""The interface of a head: all that distinguishes one head from another, from its variables to its predictions.

Importing this package imports neither Keras nor TensorFlow; the methods that compute tensors import them.

Letters in shapes: N rows, B rows of a batch, C choices of a row, S positions, S_i tokens of row i, H hidden size,
n labels.
"""

import abc
import enum
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from beambert.bert_model.config import BertConfig, ConfigError
from beambert.bert_model.variable_names import VariableName, encoder_variables, read_table

Tensor = Any
Features = Mapping[str, Tensor]
# Logits of N rows: an array [N, ...], or an array per row where the logits are those of its positions.
Logits = Sequence[np.ndarray] | np.ndarray
Shapes = Mapping[str, tuple[int, ...]]
# One prediction of `predict`, JSON-serializable.
Answer = dict[str, Any]

# The released code has no regression, multiple choice and token classification; they use the names of its classifier.
CLASSIFIER = """
linear.         -               classifier.

output_weights  output_weights  weight  n,H
output_bias     output_bias     bias    n
"""


class Head(abc.ABC):
    """The head of a model as checkpoints record it.

    Attributes:
        name: name, a value of `--task`.
        several_labels: whether a text may have several labels; `multi_label` in beambert.json.
        fixed_labels: the number of labels; None where it is given.
        hugging_face_classes: classes of transformers; empty where it has none.
        problem_type: `problem_type` in config.json of transformers; None for none.
        pipeline_tag: pipeline tag of Hugging Face, for the model card.
        reads_pooler: whether the logits depend on the pooler, which a model may otherwise lack.
        freezes_encoder: whether the encoder is not trained, and the head reads several of its layers.
        default_length: maximum sequence length of a model that records none, if the model allows it; None for no limit.
        exports_ids: whether onnxruntime and LiteRT can run the head.
    """

    name: ClassVar[str]
    several_labels: ClassVar[bool] = False
    fixed_labels: ClassVar[int | None] = None
    hugging_face_classes: ClassVar[tuple[str, ...]] = ()
    problem_type: ClassVar[str | None] = None
    pipeline_tag: ClassVar[str]
    reads_pooler: ClassVar[bool] = False
    freezes_encoder: ClassVar[bool] = False
    default_length: ClassVar[int | None] = None
    exports_ids: ClassVar[bool] = True

    @property
    def has_classes(self) -> bool:
        """Return whether the labels are classes, which may have names."""
        return self.fixed_labels is None

    @property
    def recorded_task(self) -> str:
        """Return `task` in beambert.json: the name, unless the head shares that of another."""
        return self.name

    @property
    def recorded(self) -> dict[str, Any]:
        """Return the fields of beambert.json that identify the head."""
        return {"task": self.recorded_task, "multi_label": self.several_labels}

    @abc.abstractmethod
    def own_variables(self, config: BertConfig, num_labels: int) -> list[VariableName]:
        """Return the variables of the head, in the order of the forward pass; the last has one element per label."""

    def variable_names(self, config: BertConfig, num_labels: int | None = None) -> list[VariableName]:
        """Return the variables of a model, in the order of the forward pass.

        The pretraining model of size base has 206: 5 of the embeddings, 16 per layer, 2 of the pooler, 5 of the
        masked-LM head and 2 of the next-sentence head. A fine-tuned model has 2 of its head instead of the last 7.

        Args:
            config: configuration of the model.
            num_labels: number of labels; None where it is fixed.

        Raises:
            ConfigError: num_labels is not valid for the head.
        """
        return [*encoder_variables(config), *self.own_variables(config, self.label_count(num_labels))]

    def label_count(self, num_labels: int | None = None) -> int:
        """Return the number of labels.

        Args:
            num_labels: requested number; None where it is fixed.

        Raises:
            ConfigError: num_labels is not valid for the head.
        """
        if num_labels is None and self.fixed_labels is not None:
            return self.fixed_labels
        if num_labels is None or num_labels < 1 or self.fixed_labels not in (None, num_labels):
            needed = "at least 1" if self.fixed_labels is None else f"{self.fixed_labels}, or None"
            raise ConfigError(f"invalid num_labels {num_labels} for head {self.name}: must be {needed}")
        return num_labels

    def hugging_face_class(self, tf1_names: Sequence[str]) -> str | None:
        """Return the class of transformers for a model with these weights; None where it has none."""
        return next(iter(self.hugging_face_classes), None)

    def matches_config(self, problem_type: str | None, num_labels: int | None) -> bool:
        """Return whether a config.json of one of `hugging_face_classes` may describe this head.

        Args:
            problem_type: its `problem_type`.
            num_labels: its number of labels, where it has them.
        """
        return True

    def matches_weights(self, shapes: Shapes) -> bool:
        """Return whether weights of which nothing records the head are probably those of this head.

        Args:
            shapes: shapes of all weights by TF1 name.
        """
        return False


class Inputs(enum.Enum):
    """What `predict` and `export` read for one prediction."""

    TEXT = "a text or a pair of texts"
    CHOICES = "a text and its choices"
    QUESTION = "a question and a context, which is read in windows"
    WORDS = "a text, whose words are labeled"


class AnswerLimits(NamedTuple):
    """The maximum number of labels of a text, and the lowest probability where a text may have several."""

    top_k: int
    threshold: float


class FinetuningHead(Head):
    """A head of fine-tuning: its layers, loss, rows, predictions and export.

    The defaults are those of a linear layer on the pooled output, trained with the cross-entropy of one label per row.

    Attributes:
        inputs: what `predict` and `export` read.
        input_example: argument of `predict` for the command that a run prints; None as for a text or a pair.
        labels_positions: whether the targets label positions: label_ids int32 of all tokens, -1 for no label.
        loss_reads_padding: whether the loss depends on padding, so that training rows have a fixed width.
        groups_by_length: default of --group_by_length.
    """

    inputs: ClassVar[Inputs] = Inputs.TEXT
    input_example: ClassVar[str | None] = None
    reads_pooler: ClassVar[bool] = True
    labels_positions: ClassVar[bool] = False
    loss_reads_padding: ClassVar[bool] = False
    groups_by_length: ClassVar[bool] = True

    def own_variables(self, config: BertConfig, num_labels: int) -> list[VariableName]:
        """Return weights and bias of the linear layer."""
        return read_table(CLASSIFIER, {"n": num_labels, "H": config.hidden_size})

    def add_layers(self, model: Any) -> None:
        """Add the layers of the head to a `BertForTask`, which has its encoder, configuration and number of labels."""
        add_linear(model, model.config.hidden_dropout_prob)

    def logits(self, model: Any, inputs: Sequence[Tensor], seed: Tensor | None, *, all_positions: bool) -> Tensor:
        """Return the logits of a batch, float32.

        Args:
            model: the `BertForTask`.
            inputs: input_ids, input_mask, segment_ids int [B, S].
            seed: int32 [2] or [B, 2], seed of the dropout; None for none.
            all_positions: whether the last layer computes positions that the logits do not depend on.

        Returns:
            [B, n] from the pooled output.
        """
        pooled = model.encoder(*inputs, seed)[1] if all_positions else model.encoder.pooled_output(*inputs, seed)
        return model.linear(pooled, head_seed(model, seed))

    def losses(self, features: Features, logits: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the loss of each prediction and, where defined, its accuracy (1 or 0), float32 [B] or [B, S].

        The default is the cross-entropy against label_ids, int [B] or [B, S].
        """
        from keras import ops

        labels = ops.maximum(features["label_ids"], 0)
        return cross_entropy(logits, labels), ops.cast(ops.equal(ops.argmax(logits, -1), labels), "float32")

    def weights(self, features: Features) -> Tensor:
        """Return the weight of each prediction in the loss, float32: 1 for every row [B] or labeled position [B, S]."""
        from keras import ops

        if self.labels_positions:
            return ops.cast(features["label_ids"] >= 0, "float32")
        return ops.ones(ops.shape(features["input_ids"])[:1], "float32")

    def initial_bias(self, targets: Mapping[str, np.ndarray]) -> np.ndarray | None:
        """Return the initial bias of the linear layer, [n], for the targets of the training rows; None for zeros."""
        return None

    def rows_of_batch(self, logits: Sequence[np.ndarray], lengths: Sequence[int]) -> Logits:
        """Return the logits of N rows from those of padded batches.

        Args:
            logits: logits of each row, with those of padding where they are of positions.
            lengths: number of tokens S_i of each row.
        """
        return np.stack(logits)

    def evaluation_loss(self, targets: Mapping[str, np.ndarray], logits: Logits) -> float | None:
        """Return the mean loss over the predictions, equal to the training loss without class weights.

        Args:
            targets: targets of the rows.
            logits: logits of the rows.

        Returns:
            The loss; None where it depends on padding, whose logits are not available.
        """
        return mean_cross_entropy(np.asarray(logits, np.float64), targets["label_ids"])

    def probabilities(self, logits: np.ndarray) -> np.ndarray:
        """Return the probabilities of the labels, or else the scores, float64 [N, ...]."""
        return softmax(logits)

    def answer(self, logits: np.ndarray, labels: Sequence[str], limits: AnswerLimits) -> Answer:
        """Return one prediction; the default is the most probable label.

        Args:
            logits: logits of a text or word, [n], or of a regression [].
            labels: names of the labels.
            limits: limits of the labels.
        """
        (probabilities,) = self.probabilities(logits[None])
        best = int(probabilities.argmax())
        return {"label": labels[best], "probability": rounded(probabilities[best])}

    def outputs(self, logits: Tensor) -> dict[str, Tensor]:
        """Return the outputs of an exported model by name."""
        from keras import ops

        return {"probabilities": ops.softmax(logits)}


def add_linear(model: Any, dropout_rate: float, input_size: int | None = None) -> None:
    """Add the linear layer that computes the logits to a `BertForTask`; arguments as for `LinearHead`."""
    from beambert.bert_model.head_layers import LinearHead

    model.linear = LinearHead(model.config, model.num_labels, dropout_rate, input_size, name="head")


def head_seed(model: Any, seed: Tensor | None) -> Tensor | None:
    """Return the first dropout seed after those of the encoder."""
    from beambert.bert_model.ops import fold_in

    return fold_in(seed, model.encoder.dropout_sites)


def hidden_states(model: Any, inputs: Sequence[Tensor], seed: Tensor | None) -> Tensor:
    """Return the hidden states of the last layer, [B, S, H]; arguments as for `FinetuningHead.logits`."""
    hidden, _ = model.encoder(*inputs, seed)
    return hidden


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the cross-entropy in nats, float32 [...], of logits [..., n] and labels int [...] in [0, n)."""
    from keras import ops

    return ops.sparse_categorical_crossentropy(labels, logits, from_logits=True)


def mean_cross_entropy(scores: np.ndarray, labels: np.ndarray) -> float:
    """Return the mean cross-entropy of logits float [N, n] against labels int [N]; 0 for N = 0."""
    if not len(labels):
        return 0.0
    scores = scores.astype(np.float64) - scores.max(axis=1, keepdims=True)
    return float(np.mean(np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(len(labels)), labels]))


def softmax(logits: np.ndarray) -> np.ndarray:
    """Return the probabilities of exclusive classes, float64 [N, n]; logits float [N, n]."""
    exponentials = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
    return exponentials / exponentials.sum(axis=1, keepdims=True)


def rounded(value: float) -> float:
    """Return a number of a prediction, with six decimals."""
    return round(float(value), 6)
