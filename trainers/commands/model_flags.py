"""The flags about a model that `convert`, `export`, `features`, `fill-mask` and `predict` share."""

import argparse
import dataclasses
from dataclasses import dataclass
from typing import Any

from beambert_common.command_line.flag_config import FlagConfig
from beambert_common.command_line.flags import boolean
from beambert_common.command_line.path_flags import LOCAL_PATH


@dataclass(frozen=True, kw_only=True)
class ModelConfig(FlagConfig):
    """Files and properties of a model that its own directory may lack; None where it has them."""

    vocab_file: str | None = None
    do_lower_case: bool | None = None
    bert_config_file: str | None = None

    @property
    def model_options(self) -> dict[str, Any]:
        """Return the options as arguments of `load_model`."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(ModelConfig)}

    @property
    def model_paths(self) -> list[tuple[str, str]]:
        """Return (flag, path) of each file that is set."""
        paths = {"--vocab_file": self.vocab_file, "--bert_config_file": self.bert_config_file}
        return [(flag, path) for flag, path in paths.items() if path]


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags that `load_model` may need."""
    parser.add_argument(
        "--vocab_file", type=LOCAL_PATH, metavar="FILE", help="the vocabulary, where the model has no vocab.txt"
    )
    parser.add_argument(
        "--do_lower_case",
        type=boolean,
        metavar="true|false",
        help="whether text is lower-cased (default: what the model says, else whether its vocabulary lacks capitals)",
    )
    parser.add_argument(
        "--bert_config_file",
        type=LOCAL_PATH,
        metavar="FILE",
        help="the model's bert_config.json, where a TF1 checkpoint has none beside it",
    )
