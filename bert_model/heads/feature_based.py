"""The feature-based approach of the paper (section 5.3): token labels by a BiLSTM on the layers of a frozen BERT."""

from collections.abc import Sequence
from typing import Any, ClassVar

from beambert.bert_model.config import BertConfig
from beambert.bert_model.heads.head import CLASSIFIER, Shapes, Tensor, add_linear, head_seed
from beambert.bert_model.heads.token_classification import TokenClassification
from beambert.bert_model.variable_names import VariableName, read_table

FEATURE_LAYERS = 4
BILSTM_LAYERS = 2
# Names of this project only. Shapes: I inputs of the layer, G gates of a direction.
_BILSTM_LAYER = """
bilstm.layers.N.           bilstm/layer_N/            bilstm.layers.N.

forward.kernel             forward/kernel             forward.kernel             I,G
forward.recurrent_kernel   forward/recurrent_kernel   forward.recurrent_kernel   H,G
forward.bias               forward/bias               forward.bias               G
backward.kernel            backward/kernel            backward.kernel            I,G
backward.recurrent_kernel  backward/recurrent_kernel  backward.recurrent_kernel  H,G
backward.bias              backward/bias              backward.bias              G
"""


class FeatureBased(TokenClassification):
    """Logits [B, S, n] from every position, as those of token classification.

    The BiLSTM reads the concatenated hidden states of the last four layers, or of all if there are fewer. The encoder
    has neither gradient nor dropout.
    """

    name = "token_classification_bilstm"
    hugging_face_classes: ClassVar[tuple[str, ...]] = ()
    freezes_encoder = True
    exports_ids = False

    def matches_weights(self, shapes: Shapes) -> bool:
        """Return whether the weights have a BiLSTM."""
        return any(name.startswith("bilstm/") for name in shapes)

    def own_variables(self, config: BertConfig, num_labels: int) -> list[VariableName]:
        """Return the variables of the BiLSTM and of the linear layer."""
        hidden = config.hidden_size
        sizes = {"H": hidden, "G": 4 * hidden}
        layers = [
            name
            for index, size in enumerate(_input_sizes(config))
            for name in read_table(_BILSTM_LAYER, {**sizes, "I": size}, index)
        ]
        return [*layers, *read_table(CLASSIFIER, {"n": num_labels, "H": 2 * hidden})]

    def add_layers(self, model: Any) -> None:
        """Add the BiLSTM and the linear layer."""
        from beambert.bert_model.bilstm import Bilstm

        config = model.config
        model.bilstm = Bilstm(_input_sizes(config), config.hidden_size, config.hidden_dropout_prob, name="bilstm")
        add_linear(model, config.hidden_dropout_prob, 2 * config.hidden_size)

    def logits(self, model: Any, inputs: Sequence[Tensor], seed: Tensor | None, *, all_positions: bool) -> Tensor:
        """Return the logits, [B, S, n]."""
        from keras import ops

        from beambert.bert_model.ops import fold_in

        layers = list(model.encoder.hidden_states(*inputs))[1:][-FEATURE_LAYERS:]
        features = ops.stop_gradient(ops.concatenate(layers, axis=-1))  # [B, S, 4 H]
        first_seed = head_seed(model, seed)
        hidden = model.bilstm(features, inputs[1], first_seed)  # [B, S, 2 H]
        return model.linear(hidden, fold_in(first_seed, BILSTM_LAYERS))


def _input_sizes(config: BertConfig) -> list[int]:
    """Return the number of inputs of each layer of the BiLSTM."""
    features = min(FEATURE_LAYERS, config.num_hidden_layers) * config.hidden_size
    return [features, *[2 * config.hidden_size] * (BILSTM_LAYERS - 1)]
