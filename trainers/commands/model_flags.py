"""Define the model flags that `convert`, `export`, `features`, `fill-mask` and `predict` share."""

import argparse
import dataclasses
from dataclasses import dataclass
from typing import Any

from beambert.common.command_line.flags import FlagConfig, add_added_tokens_argument, add_word_rule_arguments
from beambert.common.command_line.path_flags import ANY_PATH
from beambert.common.word_rules import WordRuleFlags


@dataclass(frozen=True, kw_only=True)
class ModelConfig(WordRuleFlags, FlagConfig):
    """Files and properties of a model that its directory may lack; None takes those of the directory."""

    vocab_file: str | None = None
    added_tokens: str | None = None
    bert_config_file: str | None = None

    @property
    def model_options(self) -> dict[str, Any]:
        """Return the keyword arguments for `load_model`."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(ModelConfig)}

    @property
    def model_paths(self) -> list[tuple[str, str]]:
        """Return (flag, path) for each file that is set."""
        paths = {
            "--vocab_file": self.vocab_file,
            "--added_tokens": self.added_tokens,
            "--bert_config_file": self.bert_config_file,
        }
        return [(flag, path) for flag, path in paths.items() if path]


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags that `load_model` may need."""
    group = parser.add_argument_group("model")
    group.add_argument(
        "--vocab_file", type=ANY_PATH, metavar="FILE", help="Vocabulary file (default: vocab.txt of the model)"
    )
    add_added_tokens_argument(group)
    add_word_rule_arguments(group)
    group.add_argument(
        "--bert_config_file",
        type=ANY_PATH,
        metavar="FILE",
        help="Model configuration file (default: bert_config.json next to the checkpoint)",
    )
