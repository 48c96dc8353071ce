"""`bert_config.json`: the configuration of a model, with the keys of the released BERT.

This file imports neither Keras nor TensorFlow, so that commands validate their options quickly.
"""

import dataclasses
import difflib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from beambert.common.local_files import read_small
from beambert.common.typed_json import JsonError, decode, shorten

# Layers and hidden size of the published models (paper, section 3; the smaller ones: Turc et al. 2019, table 1).
PRESETS: dict[str, tuple[int, int]] = {
    "tiny": (2, 128),
    "mini": (4, 256),
    "small": (4, 512),
    "medium": (8, 512),
    "base": (12, 768),
    "large": (24, 1024),
}
# The 24 compact models of Turc et al. 2019, by the names of their archives; five of them are also presets.
COMPACT_MODELS: dict[str, tuple[int, int]] = {
    f"L-{layers}_H-{hidden}": (layers, hidden) for layers in (2, 4, 6, 8, 10, 12) for hidden in (128, 256, 512, 768)
}
HIDDEN_PER_HEAD = 64
# Multiples to which programs round the number of embedding rows up, for the matrix units of accelerators.
_ROW_MULTIPLES = (8, 64, 128)


def is_rounded_up(rows: int, tokens: int) -> bool:
    """Return whether a number of embedding rows is the number of tokens, rounded up to a usual multiple."""
    return any(-(-tokens // multiple) * multiple == rows for multiple in _ROW_MULTIPLES)


class ReleasedVocabulary(NamedTuple):
    """A vocabulary of a released model: its size, and whether text is lower-cased and stripped of accents."""

    vocab_size: int
    do_lower_case: bool


# Sizes of the released vocab.txt files; casing from `validate_case_matches_checkpoint` of the released tokenization.py.
RELEASED_VOCABULARIES: dict[str, ReleasedVocabulary] = {
    "uncased": ReleasedVocabulary(30_522, True),
    "cased": ReleasedVocabulary(28_996, False),
    "chinese": ReleasedVocabulary(21_128, True),
    "multilingual_uncased": ReleasedVocabulary(105_879, True),
    "multilingual_cased": ReleasedVocabulary(119_547, False),
}

ACTIVATIONS = ("gelu", "gelu_erf", "relu")
# Names of the tanh form in Hugging Face.
_TANH_GELU = ("gelu_new", "gelu_pytorch_tanh")
LAYER_NORM_EPS = 1e-12
# Far above every published model; a larger number is a mistake that would exhaust the memory.
_MOST = {"vocab_size": 2**31 - 1, "num_hidden_layers": 1_000}
_MOST_OF_OTHERS = 1 << 20

# Keys of released bert_config.json files without effect on the model.
_IGNORED_KEYS = frozenset(
    {
        "directionality",
        "pooler_fc_size",
        "pooler_num_attention_heads",
        "pooler_num_fc_layers",
        "pooler_size_per_head",
        "pooler_type",
    }
)
# Keys that identify Hugging Face's config.json, where some keys have another meaning.
_HUGGING_FACE_KEYS = frozenset({"architectures", "model_type", "transformers_version"})


class ConfigError(ValueError):
    """A model configuration or an option is invalid; the message is one line with a remedy."""


@dataclasses.dataclass(frozen=True)
class BertConfig:
    """Architecture and regularization of a BERT; field names are the keys of the released `bert_config.json`.

    Attributes:
        vocab_size: number of WordPiece tokens.
        hidden_size: hidden size H; a multiple of num_attention_heads.
        num_hidden_layers: number of Transformer layers, L.
        num_attention_heads: number of attention heads per layer, A.
        intermediate_size: size of the feed-forward layer, 4 * H in all published models.
        hidden_act: activation. "gelu" is the tanh form of the released code, which Hugging Face calls "gelu_new" or
            "gelu_pytorch_tanh"; both names are read as "gelu". "gelu_erf" is the exact form, which Hugging Face calls
            "gelu" and the released code does not have. "relu" is the third option.
        hidden_dropout_prob: dropout rate of embeddings and sublayer outputs, in [0, 1).
        attention_probs_dropout_prob: dropout rate of attention probabilities, in [0, 1).
        max_position_embeddings: maximum sequence length.
        type_vocab_size: number of segment ids.
        initializer_range: standard deviation of the truncated normal initializer.
        layer_norm_eps: epsilon of layer normalization; 1e-12 in BERT, whose file has no such key.

    Raises:
        ConfigError: a value is out of range.
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
    layer_norm_eps: float = LAYER_NORM_EPS

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.type is int and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                raise ConfigError(f"invalid {field.name} {shorten(repr(value))}: must be an integer of at least 1")
            if field.type is int and value > _MOST.get(field.name, _MOST_OF_OTHERS):
                most = _MOST.get(field.name, _MOST_OF_OTHERS)
                raise ConfigError(f"invalid {field.name} {shorten(repr(value))}: must be at most {most:,}")
            if field.type is float and (not isinstance(value, int | float) or isinstance(value, bool)):
                raise ConfigError(f"invalid {field.name} {shorten(repr(value))}: must be a number")
        for name in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(f"invalid {name} {getattr(self, name)}: must be at least 0 and less than 1")
        for name, example in (("initializer_range", 0.02), ("layer_norm_eps", LAYER_NORM_EPS)):
            if not 0 < getattr(self, name) < float("inf"):
                raise ConfigError(f"invalid {name} {getattr(self, name)}: must be greater than 0, such as {example}")
        if self.hidden_size % self.num_attention_heads:
            raise ConfigError(
                f"hidden_size {self.hidden_size} is not a multiple of num_attention_heads {self.num_attention_heads}; "
                f"published models have a head size of {HIDDEN_PER_HEAD}"
            )
        if self.hidden_act in _TANH_GELU:
            object.__setattr__(self, "hidden_act", "gelu")
        if self.hidden_act not in ACTIVATIONS:
            raise ConfigError(
                f"unknown hidden_act {shorten(repr(self.hidden_act))}; use one of {', '.join(ACTIVATIONS)}"
            )

    @classmethod
    def preset(cls, name: str, vocab_size: int) -> "BertConfig":
        """Return the configuration of a published model, for a vocabulary of `vocab_size` tokens.

        Args:
            name: key of `PRESETS` or `COMPACT_MODELS`, such as "base" or "L-4_H-256".
            vocab_size: number of tokens; `RELEASED_VOCABULARIES` has those of the released models.

        Raises:
            ConfigError: the name is unknown.
        """
        sizes = PRESETS | COMPACT_MODELS
        if name not in sizes:
            known = f"{', '.join(PRESETS)}, {next(iter(COMPACT_MODELS))} and the other compact models"
            raise ConfigError(
                f"unknown model {name!r}{_nearest(name, sizes)}; choose from {known}, or give a FILE.json"
            )
        layers, hidden = sizes[name]
        return cls(
            vocab_size=vocab_size,
            hidden_size=hidden,
            num_hidden_layers=layers,
            num_attention_heads=hidden // HIDDEN_PER_HEAD,
            intermediate_size=4 * hidden,
        )

    def to_json(self) -> str:
        """Serialize to the text of a `bert_config.json`, with sorted keys.

        The keys are those of the released files, and layer_norm_eps where it differs from BERT's.
        """
        content = dataclasses.asdict(self)
        if self.layer_norm_eps == LAYER_NORM_EPS:
            del content["layer_norm_eps"]
        return json.dumps(content, indent=2, sort_keys=True) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes, origin: str = "bert_config.json") -> "BertConfig":
        """Parse the text of a `bert_config.json`, as released by Google.

        Args:
            text: the JSON text.
            origin: path of the file, for messages.

        Raises:
            ConfigError: the text is not JSON, a key is missing or unknown, or a value is out of range.
        """
        try:
            content = decode(text.encode() if isinstance(text, str) else text, dict[str, Any])
        except JsonError as error:
            raise ConfigError(f"{origin}: {error}; use a bert_config.json") from error
        if content.keys() & _HUGGING_FACE_KEYS:
            raise ConfigError(
                f"{origin} is Hugging Face's config.json, whose hidden_act has another meaning; "
                "convert the model with `beambert convert`, or give a bert_config.json"
            )
        known = {field.name for field in dataclasses.fields(cls)}
        for key in sorted(content.keys() - known - _IGNORED_KEYS):
            raise ConfigError(f"{origin} has the unknown key {shorten(repr(key))}{_nearest(key, known)}; remove it")
        if "vocab_size" not in content:
            raise ConfigError(f"{origin} has no vocab_size; add the number of tokens in the vocabulary")
        try:
            return cls(**{key: value for key, value in content.items() if key in known})
        except ConfigError as error:
            raise ConfigError(f"{origin}: {error}") from error

    @classmethod
    def load(cls, path: str | Path) -> "BertConfig":
        """Load a `bert_config.json`.

        Args:
            path: path of the file.

        Raises:
            ConfigError: the file cannot be read, or is not a valid configuration.
        """
        try:
            text = read_small(Path(path))
        except OSError as error:
            reason = error.strerror or error
            raise ConfigError(f"{path} cannot be read ({reason}); give the path of a bert_config.json") from error
        return cls.from_json(text, origin=str(path))


def resolve(model: str, vocab_size: int) -> BertConfig:
    """Return the configuration of `--model`: a preset, or a file whose name ends in `.json`.

    Args:
        model: name for `BertConfig.preset`, or path of a `bert_config.json`.
        vocab_size: number of tokens in the vocabulary of the data.

    Raises:
        ConfigError: the preset or file does not exist, or the vocab_size of the file is not that of the data.
    """
    if not model.endswith(".json"):
        return BertConfig.preset(model, vocab_size)
    config = BertConfig.load(model)
    if config.vocab_size != vocab_size:
        raise ConfigError(
            f"{model} has vocab_size {config.vocab_size}, but vocab.txt of the data has {vocab_size} tokens; "
            f"set vocab_size to {vocab_size} in {model}, or build the data with the model's vocabulary"
        )
    return config


def _nearest(word: str, known: Iterable[str]) -> str:
    matches = difflib.get_close_matches(word, sorted(known), n=1)
    return f" (did you mean {matches[0]!r}?)" if matches else ""
