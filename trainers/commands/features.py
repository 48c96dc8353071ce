"""`beambert features`: what a model makes of texts, for use elsewhere (extract_features.py of the released code)."""

import argparse
import itertools
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from beambert_common.command_line.flags import batch_size, sequence_length, shortened, whole_number
from beambert_common.command_line.path_flags import LOCAL_OUTPUT_FILE, LOCAL_PATH
from pipelines.io.output_file import check_output_file
from tokenizer.tokenizer import Tokenizer
from trainers.backends.tensorflow.startup import start_tensorflow
from trainers.commands.model_flags import ModelConfig, add_model_arguments
from trainers.data.text_encoding import encode_texts
from trainers.errors import TrainingError
from trainers.inference import model_loading
from trainers.inference.feature_writers import FORMATS, Features, FeatureWriter, Layout, format_of
from trainers.inference.model_loading import InferenceModel, check_model, load_model
from trainers.inference.tokenization import (
    LINES_A_CHUNK,
    TextLines,
    batches_by_length,
    model_inputs,
    open_texts,
    split_pair,
)
from trainers.monitoring.training_progress import TextProgress

DESCRIPTION = (
    "Writes the hidden states of a model for every line of a text file: each token's, as extract_features.py of the "
    "released code does, or one vector a text with --pooling. 'A text ||| another' is a pair."
)
EXAMPLE = "beambert features --init_checkpoint run --input_file lines.txt --output_file features.jsonl"
COMMON_FLAGS = ("--init_checkpoint", "--input_file", "--output_file", "--pooling", "--max_seq_length")
POOLINGS = ("none", "cls", "mean")
DEFAULT_LAYERS = (-1, -2, -3, -4)
# Results that may wait until all of them are in order again.
BYTES_A_WINDOW = 2**28


@dataclass(frozen=True, kw_only=True)
class FeaturesConfig(ModelConfig):
    """What `beambert features` is configured with; the help of each flag says what it does."""

    input_file: str
    output_file: str
    init_checkpoint: str
    overwrite: bool = False
    format: str | None = None
    layers: str | None = None
    pooling: str = "none"
    max_seq_length: int = 128
    batch_size: int = 32


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    # "-1,-2" is a value, as "-1" is one to argparse, and not an option.
    parser._negative_number_matcher = re.compile(r"-\d[-,\d]*$")
    parser.add_argument(
        "--input_file", required=True, type=LOCAL_PATH, metavar="FILE", help="a text or a pair a line; - for stdin"
    )
    parser.add_argument(
        "--output_file", required=True, type=LOCAL_OUTPUT_FILE, metavar="FILE", help="a new file, written atomically"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace --output_file if it exists")
    parser.add_argument("--format", choices=FORMATS, help="of the output file (default: what the end of its name says)")
    parser.add_argument(
        "--init_checkpoint",
        required=True,
        type=LOCAL_PATH,
        metavar="DIR",
        help="a model of any kind: what `beambert pretrain` wrote, a TF1 release, a Hugging Face directory",
    )
    parser.add_argument(
        "--layers",
        metavar="N,N",
        help="layers counted from 0 for the first, or from -1 for the last down "
        f"(default: {_layers_text(DEFAULT_LAYERS)}, or as many as there are; with --pooling -1)",
    )
    parser.add_argument(
        "--pooling",
        choices=POOLINGS,
        default=FeaturesConfig.pooling,
        help="none: every token; cls: the vector of [CLS]; mean: the mean over all tokens of a text",
    )
    parser.add_argument(
        "--max_seq_length",
        type=sequence_length,
        default=FeaturesConfig.max_seq_length,
        metavar="N",
        help="longer texts are cut",
    )
    parser.add_argument(
        "--batch_size", type=batch_size, default=FeaturesConfig.batch_size, metavar="N", help="texts computed together"
    )
    add_model_arguments(parser)


def configure(args: argparse.Namespace) -> FeaturesConfig:
    """Return what the flags ask for."""
    return FeaturesConfig.from_args(args)


def run(config: FeaturesConfig) -> int:
    """Extract features.

    Raises:
        CheckpointError, ConfigError, OutputFileError, TrainingError, VocabularyError: one line for the user.
    """
    output = Path(config.output_file)
    kind = config.format or format_of(output)
    inputs = [("--input_file", config.input_file), ("--init_checkpoint", config.init_checkpoint)]
    inputs += config.model_paths
    check_output_file("--output_file", config.output_file, inputs, overwrite=config.overwrite)
    layers = None if config.layers is None else parse_layers(config.layers)
    if config.batch_size < 1:
        raise TrainingError(f"--batch_size is {config.batch_size}; give 1 or more")
    source = open_texts(config.input_file)
    size = Path(config.input_file).stat().st_size if config.input_file != "-" else None
    check_model(Path(config.init_checkpoint), **config.model_options)
    progress = TextProgress(size)
    start_tensorflow()
    with source:
        extractor = FeatureExtractor(
            Path(config.init_checkpoint),
            layers,
            config.pooling,
            config.max_seq_length,
            config.batch_size,
            **config.model_options,
        )
        lines = TextLines(source)
        with FeatureWriter(output, kind, extractor.layout, overwrite=config.overwrite) as writer:
            for features in extractor.extract(lines):
                writer.write(features)
                progress.update(len(features.token_splits) - 1, lines.bytes_read)
    progress.finish(f"{output} has {writer.count:,} texts, {writer.tokens:,} tokens")
    for count, what in (
        (extractor.cut, f"were longer than --max_seq_length {config.max_seq_length} and were cut"),
        (lines.damaged, "were not UTF-8; the bytes that are not were left out"),
    ):
        if count:
            print(f"{count:,} of {writer.count:,} texts {what}", file=sys.stderr)
    return 0


def parse_layers(text: str) -> list[int]:
    """Return the layers of `--layers`.

    Raises:
        TrainingError: not whole numbers between commas.
    """
    layers = [whole_number(number) for number in text.split(",")]
    if None in layers:
        raise TrainingError(f"--layers is {shortened(text)}; give whole numbers such as {_layers_text(DEFAULT_LAYERS)}")
    return [layer for layer in layers if layer is not None]


class FeatureExtractor:
    """Hidden states of texts.

    Args:
        path: a model of any kind.
        layers: which, from 0 for the first, or from -1 for the last down; layers above the last of them are not built.
            None for the last four or as many as there are, with pooling for the last.
        pooling: "none", "cls" or "mean".
        max_seq_length: maximum tokens of a text with [CLS] and [SEP]; pairs are cut at the longer text.
        batch_size: texts computed together.
        **options: vocab_file, do_lower_case, bert_config_file of `model_loading.load_model`.

    Attributes:
        cut: texts so far that were longer than max_seq_length.

    Raises:
        TrainingError: a layer or a length that the model does not have; further errors as of `load_model`.
    """

    def __init__(
        self,
        path: Path,
        layers: Sequence[int] | None = None,
        pooling: str = "none",
        max_seq_length: int = 128,
        batch_size: int = 32,
        **options: Any,
    ) -> None:
        if layers is None:
            opened = load_model(path, **options)
            layers = DEFAULT_LAYERS[: opened.config.num_hidden_layers if pooling == "none" else 1]
            counted = [layer % opened.config.num_hidden_layers for layer in layers]
        else:
            opened = load_model(path, layers=layers, **options)
            counted = list(opened.layers)
        model_loading.check_max_seq_length(max_seq_length, opened.config, least=3)
        self.max_seq_length, self.batch_size = max_seq_length, batch_size
        self.layout = Layout(layers, opened.config.hidden_size, opened.vocabulary.tokens, pooled=pooling != "none")
        self.vocabulary = opened.vocabulary
        self.tokenizer = Tokenizer(opened.vocabulary, opened.do_lower_case)
        self.cut = 0
        self._encode = _encoding_function(opened, counted, pooling)

    def extract(self, lines: Iterable[str]) -> Iterator[Features]:
        """Yield the features of texts in order, computed in batches.

        Args:
            lines: texts, or pairs separated by the last " ||| ".
        """
        count = 0
        remaining = iter(lines)
        while chunk := list(itertools.islice(remaining, LINES_A_CHUNK)):
            firsts, seconds = zip(*map(split_pair, chunk), strict=True)
            encoded = encode_texts(firsts, seconds, self.tokenizer, self.max_seq_length)
            rows, segments = encoded.by_row()
            self.cut += int(encoded.truncated.sum())
            # What is sorted together shall not be too large when it waits to be in order again.
            kept = np.array([1 if self.layout.pooled else len(row) for row in rows])
            size = np.cumsum(kept) * 4 * self.layout.hidden_size * len(self.layout.layers)  # bytes
            starts = np.unique(size // BYTES_A_WINDOW, return_index=True)[1].tolist()
            for start, end in itertools.pairwise([*starts, len(rows)]):
                yield self._window(count + start, rows[start:end], segments[start:end])
            count += len(rows)

    def _window(self, first: int, rows: list[np.ndarray], segments: list[np.ndarray]) -> Features:
        lengths = np.array([len(row) for row in rows])
        kept = np.ones_like(lengths) if self.layout.pooled else lengths
        row_splits = np.concatenate([[0], np.cumsum(kept)])
        shape = (int(row_splits[-1]), self.layout.hidden_size)
        values = [np.empty(shape, np.float32) for _ in self.layout.layers]  # [rows, H]
        for batch in batches_by_length(lengths.tolist(), self.batch_size):
            states = self._states([rows[i] for i in batch], [segments[i] for i in batch])
            for layer, state in zip(values, states, strict=True):
                for place, i in enumerate(batch):
                    layer[row_splits[i] : row_splits[i + 1]] = state[place, : kept[i]]
        tokens = np.concatenate(rows)
        return Features(first, tokens, np.concatenate([[0], np.cumsum(lengths)]), row_splits, values)

    def _states(self, rows: list[np.ndarray], segments: list[np.ndarray]) -> list[np.ndarray]:
        """Return the states of each layer, float32 [B, S, H], or [B, 1, H] with pooling."""
        inputs = model_inputs(rows, segments, self.vocabulary.pad_id, self.max_seq_length)
        return [state.numpy() for state in self._encode(*inputs)]


def _layers_text(layers: Sequence[int]) -> str:
    return ",".join(map(str, layers))


def _encoding_function(opened: InferenceModel, layers: Sequence[int], pooling: str) -> Callable[..., list[Any]]:
    """Return a function from input_ids, input_mask, segment_ids [B, S] to each layer's [B, S, H] ([B, 1, H] pooled)."""
    import tensorflow as tf

    from bert_model.heads import mean_embedding

    model = opened.model
    ids = tf.TensorSpec([None, None], tf.int32)

    @tf.function(input_signature=[ids, ids, ids])
    def encode(input_ids: Any, input_mask: Any, segment_ids: Any) -> list[Any]:
        output = model.encoder(
            input_ids,
            input_mask,
            segment_ids,
            causal_attention=model.causal_attention,
            all_hidden=True,
            output_range=1 if pooling == "cls" else None,
        )
        states = [output.all_hidden[1 + layer] for layer in layers]  # [B, S, H], the last [B, 1, H] for cls
        if pooling == "none":
            return states
        return [state[:, :1] if pooling == "cls" else mean_embedding(state, input_mask)[:, None] for state in states]

    return encode
