"""The flags about a model that `convert`, `export`, `features`, `fill-mask` and `predict` share."""

import argparse
from typing import Any

from beambert_common.flags import boolean
from beambert_common.path_flags import LOCAL_PATH


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


def model_options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the values of the flags of `add_model_arguments`, as arguments of `load_model`."""
    return {name: getattr(args, name) for name in ("vocab_file", "do_lower_case", "bert_config_file")}


def model_paths(args: argparse.Namespace) -> list[tuple[str, str]]:
    """Return (flag, path) of the files that the flags of `add_model_arguments` name."""
    paths = {"--vocab_file": args.vocab_file, "--bert_config_file": args.bert_config_file}
    return [(flag, path) for flag, path in paths.items() if path]
