"""Define `beambert features`, which writes hidden states of texts (extract_features.py of the released code)."""

import argparse
import itertools
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np

from beambert.common.command_line import options
from beambert.common.command_line.flags import in_quotes, whole_number
from beambert.common.command_line.options import BatchSize, Flag, SequenceLength
from beambert.common.command_line.path_flags import ANY_OUTPUT_FILE, ANY_PATH
from beambert.common.progress import TextProgress
from beambert.pipelines.io.output_file import check_output_file
from beambert.trainers.backends.startup import choose_backend, start_backend
from beambert.trainers.data.text_encoding import UnknownTokens, encode_texts
from beambert.trainers.errors import TrainingError
from beambert.trainers.inference import model_loading
from beambert.trainers.inference.feature_writers import FORMATS, Features, FeatureWriter, Layout, format_of
from beambert.trainers.inference.model_loading import check_model, load_model
from beambert.trainers.inference.tokenization import LINES_A_CHUNK, TextLines, open_texts, split_pair
from beambert.trainers.monitoring.training_progress import warn
from beambert.trainers.options import InferenceOptions

DESCRIPTION = """Extract hidden states for every line of a text file.

The output has a vector per token, as extract_features.py of the released code, or per text with --pooling. A line
'TEXT ||| TEXT' is a pair of texts."""
EXAMPLE = """beambert features --input_file texts.txt --output_file features.jsonl --init_checkpoint run
beambert features --input_file texts.txt --output_file vectors.npz --init_checkpoint run --pooling mean"""
COMMON_FLAGS = (
    "--input_file",
    "--output_file",
    "--init_checkpoint",
    "--pooling",
    "--layers",
    "--max_seq_length",
    "--format",
    "--batch_size",
)
DEFAULT_LAYERS = (-1, -2, -3, -4)
DEFAULT_MAX_SEQ_LENGTH = 128
# Maximum size of the results that are buffered to restore the input order.
BYTES_A_WINDOW = 2**28


@dataclass(frozen=True, kw_only=True)
class FeaturesOptions(InferenceOptions):
    """The options of `beambert features`.

    Attributes:
        input_file: Text file with one text or pair per line; - reads stdin.
        output_file: Output file, written atomically.
        overwrite: Replace an existing --output_file.
        format: Output format (default: by the extension of --output_file).
        init_checkpoint: A model: the --output of `beambert pretrain`, a TF1 checkpoint or a Hugging Face directory.
        layers: Encoder layers, from 0 for the first or from -1 for the last (default: -1,-2,-3,-4, fewer in a smaller
            model; -1 with --pooling).
        pooling: Pooling over the tokens of a text: none, a vector per token; cls, the vector of [CLS]; mean, the mean
            of all token vectors.
        max_seq_length: Maximum sequence length in tokens; longer texts are truncated (default: 128, or the model's
            limit if it is shorter).
        batch_size: Maximum batch size in texts (default: 2,048 tokens per batch on a CPU, otherwise 32 texts).
    """

    input_file: Annotated[str, Flag("input", required=True, type=ANY_PATH, metavar="FILE")]
    output_file: Annotated[str, Flag("output", required=True, type=ANY_OUTPUT_FILE, metavar="FILE")]
    overwrite: Annotated[bool, Flag("output")] = False
    format: Annotated[str | None, Flag("output", choices=FORMATS)] = None
    init_checkpoint: Annotated[str, Flag("model", required=True, type=ANY_PATH, metavar="DIR")]
    layers: Annotated[str | None, Flag("predictions", metavar="N,N")] = None
    pooling: Annotated[Literal["none", "cls", "mean"], Flag("predictions")] = "none"
    max_seq_length: Annotated[SequenceLength | None, Flag("predictions")] = None
    batch_size: Annotated[BatchSize | None, Flag("predictions")] = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    # argparse accepts "-1" as a value, but would take "-1,-2" for a flag.
    parser._negative_number_matcher = re.compile(r"-\d[-,\d]*$")
    options.add_groups(parser, "input", "output", "model", "predictions", "numerics", "devices")
    options.add_arguments(parser, FeaturesOptions)


def configure(args: argparse.Namespace) -> FeaturesOptions:
    """Return the options of parsed flags."""
    return options.from_args(FeaturesOptions, args)


def run(config: FeaturesOptions) -> int:
    """Extract features and write them to a file.

    Raises:
        CheckpointError, ConfigError, OutputFileError, TrainingError, VocabularyError: a one-line message.
    """
    output = Path(config.output_file)
    kind = config.format or format_of(output)
    inputs = [("--input_file", config.input_file), ("--init_checkpoint", config.init_checkpoint)]
    inputs += config.model_paths
    check_output_file("--output_file", config.output_file, inputs, overwrite=config.overwrite)
    layers = None if config.layers is None else parse_layers(config.layers)
    source = open_texts(config.input_file)
    size = Path(config.input_file).stat().st_size if config.input_file != "-" else None
    backend = choose_backend(config.backend)
    check_model(Path(config.init_checkpoint), **config.model_options)
    start_backend(backend)
    with source, TextProgress(size) as progress:
        extractor = FeatureExtractor(
            Path(config.init_checkpoint),
            layers,
            config.pooling,
            config.max_seq_length,
            config.batch_size,
            precision=config.precision,
            **config.model_options,
        )
        lines = TextLines(source)
        with FeatureWriter(output, kind, extractor.layout, overwrite=config.overwrite) as writer:
            for features in extractor.extract(lines):
                writer.write(features)
                progress.add(len(features.token_splits) - 1, lines.bytes_read)
        progress.finish(f"Wrote {output}: {writer.count:,} texts, {writer.tokens:,} tokens")
    if (line := extractor.unknown.warning("the texts")) is not None:
        warn(line)
    for count, problem in (
        (extractor.cut, f"exceeded --max_seq_length {extractor.max_seq_length} and were truncated"),
        (lines.corrupt, "were not valid UTF-8; the invalid bytes were dropped"),
    ):
        if count:
            print(f"{count:,} of {writer.count:,} texts {problem}", file=sys.stderr)
    return 0


def parse_layers(text: str) -> list[int]:
    """Return the layers of `--layers`.

    Raises:
        TrainingError: the text is not a list of comma-separated integers.
    """
    layers = [whole_number(number) for number in text.split(",")]
    if None in layers:
        raise TrainingError(
            f"invalid --layers {in_quotes(text)}: must be integers such as {_layers_text(DEFAULT_LAYERS)}"
        )
    return [layer for layer in layers if layer is not None]


class FeatureExtractor:
    """Compute hidden states of texts.

    Args:
        path: a model of any format.
        layers: encoder layers, from 0 for the first or from -1 for the last; higher layers are not built. None takes
            the last four, or all of a smaller model, and with pooling the last.
        pooling: "none", "cls" or "mean".
        max_seq_length: maximum sequence length in tokens, including [CLS] and [SEP]; of a pair, the longer text is
            truncated. None: 128, or max_position_embeddings if it is less.
        batch_size: maximum batch size in texts; None as for `TextForward`.
        **options: vocab_file, word rules, bert_config_file, backend and precision of `model_loading.load_model`.

    Attributes:
        max_seq_length: maximum sequence length of the texts.
        cut: number of texts so far that were truncated.
        unknown: the [UNK] tokens of all texts so far.

    Raises:
        TrainingError: the model has no such layer or a smaller length limit; further errors as of `load_model`.
    """

    def __init__(
        self,
        path: Path,
        layers: Sequence[int] | None = None,
        pooling: str = "none",
        max_seq_length: int | None = None,
        batch_size: int | None = None,
        **options: Any,
    ) -> None:
        from beambert.trainers.inference.forward import TextForward

        if layers is None:
            inference_model = load_model(path, **options)
            layers = DEFAULT_LAYERS[: inference_model.config.num_hidden_layers if pooling == "none" else 1]
            counted = [layer % inference_model.config.num_hidden_layers for layer in layers]
        else:
            inference_model = load_model(path, layers=layers, **options)
            counted = list(inference_model.layers)
        if max_seq_length is None:
            max_seq_length = min(DEFAULT_MAX_SEQ_LENGTH, inference_model.config.max_position_embeddings)
        model_loading.check_max_seq_length(max_seq_length, inference_model.config, least=3)
        self.max_seq_length = max_seq_length
        self.layout = Layout(
            layers, inference_model.config.hidden_size, inference_model.vocabulary.tokens, pooled=pooling != "none"
        )
        self.tokenizer = inference_model.tokenizer()
        self.cut = 0
        self.unknown = UnknownTokens(self.tokenizer)
        states_of = hidden_states(inference_model.model, counted, pooling)
        self._forward = TextForward(inference_model, states_of, max_seq_length, batch_size)

    def extract(self, lines: Iterable[str]) -> Iterator[Features]:
        """Yield the features of texts in the order of the texts.

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
            self.unknown.add(rows, [*firsts, *(text for text in seconds if text)])
            # Texts are sorted by length within a window; its results are buffered to restore the order.
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
        for batch, states in self._forward.batches(rows, segments):
            for layer, state in zip(values, states, strict=True):
                for index, i in enumerate(batch):
                    layer[row_splits[i] : row_splits[i + 1]] = state[index, : kept[i]]
        tokens = np.concatenate(rows)
        return Features(first, tokens, np.concatenate([[0], np.cumsum(lengths)]), row_splits, values)


def _layers_text(layers: Sequence[int]) -> str:
    return ",".join(map(str, layers))


def hidden_states(model: Any, layers: Sequence[int], pooling: str) -> Callable[[dict[str, Any]], list[Any]]:
    """Return a function of features [B, S] to the hidden states of layers, [B, S, H] each, or pooled [B, 1, H]."""
    from keras import ops

    from beambert.bert_model.head_layers import mean_embedding

    def states_of(features: dict[str, Any]) -> list[Any]:
        input_mask = features["input_mask"]
        cls_position = ops.zeros((ops.shape(input_mask)[0], 1), "int32") if pooling == "cls" else None
        every_layer = list(
            model.encoder.hidden_states(
                features["input_ids"], input_mask, features["segment_ids"], last_positions=cls_position
            )
        )
        states = [every_layer[1 + layer] for layer in layers]  # [B, S, H], the last [B, 1, H] for cls
        if pooling == "none":
            return states
        return [state[:, :1] if pooling == "cls" else mean_embedding(state, input_mask)[:, None] for state in states]

    return states_of
