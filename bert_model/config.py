"""`bert_config.json`: the shape of a model, with the keys of the released BERT.

This file imports neither Keras nor TensorFlow, so that checking a command's options stays instant.
"""

import dataclasses
import difflib
import json
from pathlib import Path
from typing import Any

# Layers and hidden size of the published models (paper, section 3; the smaller ones: Turc et al. 2019, table 1).
PRESETS: dict[str, tuple[int, int]] = {
    "tiny": (2, 128),
    "mini": (4, 256),
    "small": (4, 512),
    "medium": (8, 512),
    "base": (12, 768),
    "large": (24, 1024),
}
HIDDEN_PER_HEAD = 64

# Keys that released config files carry and that change nothing in the model built here.
_IGNORED_KEYS = frozenset(
    {
        "architectures",
        "attn_implementation",
        "bos_token_id",
        "classifier_dropout",
        "directionality",
        "eos_token_id",
        "gradient_checkpointing",
        "id2label",
        "label2id",
        "model_type",
        "num_labels",
        "output_past",
        "pad_token_id",
        "pooler_fc_size",
        "pooler_num_attention_heads",
        "pooler_num_fc_layers",
        "pooler_size_per_head",
        "pooler_type",
        "problem_type",
        "torch_dtype",
        "transformers_version",
        "use_cache",
    }
)
# Keys that would change the model: accepted only at the one value that BERT has.
_FIXED_KEYS: dict[str, Any] = {
    "is_decoder": False,
    "layer_norm_eps": 1e-12,
    "position_embedding_type": "absolute",
}


class ConfigError(ValueError):
    """A model configuration or an option that cannot work; the message is one line that says what to change."""


@dataclasses.dataclass(frozen=True)
class BertConfig:
    """Shape and regularisation of a BERT; field names are the keys of the released `bert_config.json`.

    Attributes:
        vocab_size: number of WordPiece pieces.
        hidden_size: width H of the encoder; a multiple of num_attention_heads.
        num_hidden_layers: Transformer layers L.
        num_attention_heads: attention heads A of each layer.
        intermediate_size: width of the feed-forward layer, 4 * H in every published model.
        hidden_act: "gelu", in the tanh form that the released code computes; the only activation known.
        hidden_dropout_prob: dropout of embeddings and sublayer outputs, in [0, 1).
        attention_probs_dropout_prob: dropout of attention probabilities, in [0, 1).
        max_position_embeddings: longest sequence the model can read.
        type_vocab_size: number of segment ids.
        initializer_range: standard deviation of the truncated normal that weights start from.

    Raises:
        ConfigError: a value out of range.
    """

    vocab_size: int
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    initializer_range: float = 0.02

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.type is int and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                raise ConfigError(f"{field.name} is {value!r}; give a whole number of at least 1")
            if field.type is float and (not isinstance(value, int | float) or isinstance(value, bool)):
                raise ConfigError(f"{field.name} is {value!r}; give a number")
        for name in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; give a probability of at least 0 and below 1")
        if not 0 < self.initializer_range < float("inf"):
            raise ConfigError(f"initializer_range is {self.initializer_range}; give a number above 0, such as 0.02")
        if self.hidden_size % self.num_attention_heads:
            raise ConfigError(
                f"hidden_size {self.hidden_size} is not a multiple of num_attention_heads {self.num_attention_heads}; "
                f"published models have one head to {HIDDEN_PER_HEAD} of hidden_size"
            )
        # "gelu_new" is what Hugging Face calls the tanh form.
        if self.hidden_act not in ("gelu", "gelu_new"):
            raise ConfigError(f'hidden_act is {self.hidden_act!r}; the only activation of BERT is "gelu"')

    @classmethod
    def preset(cls, name: str, vocab_size: int) -> "BertConfig":
        """The published model of that name, for a vocabulary of `vocab_size` pieces.

        Raises:
            ConfigError: no published model has that name.
        """
        if name not in PRESETS:
            nearest = _nearest(name, PRESETS)
            known = ", ".join(PRESETS)
            raise ConfigError(f"no model is called {name!r}{nearest}; choose from {known}, or give a FILE.json")
        layers, hidden = PRESETS[name]
        return cls(
            vocab_size=vocab_size,
            hidden_size=hidden,
            num_hidden_layers=layers,
            num_attention_heads=hidden // HIDDEN_PER_HEAD,
            intermediate_size=4 * hidden,
        )

    def to_json(self) -> str:
        """Serialises to the text of a `bert_config.json`, keys sorted."""
        return json.dumps(dataclasses.asdict(self), indent=2, sort_keys=True) + "\n"

    @classmethod
    def from_json(cls, text: str, origin: str = "bert_config.json") -> "BertConfig":
        """Parses the text of a `bert_config.json`, as released by Google or by Hugging Face.

        Args:
            text: the JSON text.
            origin: the file it came from, for messages.

        Raises:
            ConfigError: not JSON, a key that is missing or not known, or a value out of range.
        """
        try:
            content = json.loads(text)
        except json.JSONDecodeError as error:
            raise ConfigError(f"{origin} is not valid JSON ({error}); give a bert_config.json") from error
        if not isinstance(content, dict):
            raise ConfigError(f"{origin} holds no JSON object; give a bert_config.json")
        for key, value in _FIXED_KEYS.items():
            if content.get(key, value) != value:
                raise ConfigError(f"{origin} sets {key} to {content[key]!r}; BERT has {value!r} and nothing else")
        known = {field.name for field in dataclasses.fields(cls)}
        for key in sorted(content.keys() - known - _IGNORED_KEYS - _FIXED_KEYS.keys()):
            raise ConfigError(f"{origin} has a key {key!r} that BERT does not know{_nearest(key, known)}; remove it")
        if "vocab_size" not in content:
            raise ConfigError(f"{origin} has no vocab_size; add the number of pieces of the vocabulary")
        try:
            return cls(**{key: value for key, value in content.items() if key in known})
        except ConfigError as error:
            raise ConfigError(f"{origin}: {error}") from error

    @classmethod
    def load(cls, path: str | Path) -> "BertConfig":
        """Reads a `bert_config.json`.

        Raises:
            ConfigError: the file cannot be read or is not a configuration of BERT.
        """
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ConfigError(f"{path} cannot be read ({reason}); give the path of a bert_config.json") from error
        return cls.from_json(text, origin=str(path))


def resolve(model: str, vocab_size: int) -> BertConfig:
    """The configuration that `--model` names: a preset, or a file whose name ends in `.json`.

    Args:
        model: "tiny", "mini", "small", "medium", "base", "large", or the path of a `bert_config.json`.
        vocab_size: number of pieces in the vocabulary of the data.

    Raises:
        ConfigError: no such preset or file, or the file's vocab_size is not that of the data.
    """
    if not model.endswith(".json"):
        return BertConfig.preset(model, vocab_size)
    config = BertConfig.load(model)
    if config.vocab_size != vocab_size:
        raise ConfigError(
            f"{model} has vocab_size {config.vocab_size}, the data's vocab.txt has {vocab_size} pieces; "
            f"set vocab_size to {vocab_size} in {model}, or build the data with the model's vocabulary"
        )
    return config


def _nearest(word: str, known: "set[str] | dict[str, tuple[int, int]]") -> str:
    matches = difflib.get_close_matches(word, sorted(known), n=1)
    return f" (did you mean {matches[0]!r}?)" if matches else ""
