"""The record and the model card of an exported SavedModel: `export.json` and `README.md`."""

import dataclasses
import json
import platform
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from beambert.bert_model.checkpoints.model_card import model_card
from beambert.bert_model.checkpoints.native import MODEL_CARD_FILE_NAME, ModelRecord
from beambert.bert_model.heads.head import FinetuningHead, Inputs
from beambert.bert_model.size import parameter_counts
from beambert.common.imports import version
from beambert.common.word_rules import without_released_rules
from beambert.tokenizer.differences import CONTEXTS, SCALAR_VALUES, TokenizerDifferences
from beambert.tokenizer.wordpiece import MAX_WORD_CHARACTERS
from beambert.trainers.inference.model_loading import InferenceModel

RECORD_NAME = "export.json"
FORMAT = "beambert-export"
FORMAT_VERSION = 1
EXACT, TENSORFLOW_TEXT = "exact", "tensorflow_text"
TOKENIZERS = (EXACT, TENSORFLOW_TEXT)

# Maximum number of characters shown.
_SHOWN = 60

# Input and output names of a signature.
Names = tuple[Sequence[str], Sequence[str]]


def write_export_record(
    directory: Path,
    inference_model: InferenceModel,
    max_seq_length: int,
    signatures: Mapping[str, Names],
    differences: TokenizerDifferences | None,
) -> None:
    """Write `export.json` and `README.md`.

    Args:
        directory: directory of the SavedModel.
        inference_model: the model.
        max_seq_length: maximum sequence length in tokens.
        signatures: input and output names by signature.
        differences: differences of the tokenizer of tensorflow_text; None for the exact tokenizer.
    """
    record = export_record(inference_model, max_seq_length, signatures, differences)
    text = json.dumps(record, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    (directory / RECORD_NAME).write_text(text, encoding="utf-8")
    (directory / MODEL_CARD_FILE_NAME).write_text(_card(inference_model, record, differences), encoding="utf-8")


def export_record(
    inference_model: InferenceModel,
    max_seq_length: int,
    signatures: Mapping[str, Names],
    differences: TokenizerDifferences | None,
) -> dict[str, Any]:
    """Return the content of `export.json`; arguments as for `write_export_record`."""
    import tensorflow as tf

    versions = {"beambert": version(), "python": platform.python_version(), "tensorflow": tf.__version__}
    tokenizer: dict[str, Any] = {
        "name": EXACT,
        **without_released_rules(dataclasses.asdict(inference_model.word_rules)),
        "unicode_version": unicodedata.unidata_version,
    }
    if differences is not None:
        from beambert.tokenizer.tensorflow_text_tokenizer import MAX_WORD_BYTES, VERSION

        versions["tensorflow-text"] = VERSION
        tokenizer |= {
            "name": TENSORFLOW_TEXT,
            "max_word_bytes": MAX_WORD_BYTES,
            "differences": {
                "contexts": CONTEXTS.format("X").split(" "),
                "num_code_points_compared": SCALAR_VALUES,
                "num_code_points": len(differences.code_points),
                "num_assigned_code_points": differences.num_assigned,
                "code_points": code_point_ranges(differences.code_points),
                "code_points_in_vocabulary": code_point_ranges(differences.in_vocabulary),
                "num_mark_pairs_compared": differences.num_mark_pairs,
                "mark_pairs": [f"U+{first:04X} U+{second:04X}" for first, second in differences.mark_pairs],
                "tokens": list(differences.tokens),
            },
        }
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "task": inference_model.head.recorded_task,
        "labels": list(inference_model.labels),
        "max_seq_length": max_seq_length,
        "signatures": {
            name: {"inputs": list(inputs), "outputs": list(outputs)} for name, (inputs, outputs) in signatures.items()
        },
        "tokenizer": tokenizer,
        "versions": versions,
    }


def code_point_ranges(code_points: Iterable[int]) -> list[str]:
    """Return ranges of consecutive code points, such as "U+0000-U+0008"; the argument is ascending."""
    ranges: list[list[int]] = []
    for code in code_points:
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return [f"U+{first:04X}" if first == last else f"U+{first:04X}-U+{last:04X}" for first, last in ranges]


def _card(inference_model: InferenceModel, export: dict[str, Any], differences: TokenizerDifferences | None) -> str:
    """Return the text of `README.md` for the content of `export.json`."""
    model, head = inference_model.model, inference_model.head
    record = ModelRecord(
        **head.recorded,
        num_labels=len(inference_model.labels) or None,
        labels=inference_model.labels or None,
        **dataclasses.asdict(inference_model.word_rules),
        max_seq_length=inference_model.max_seq_length,
        causal_attention=model.causal_attention,
        text_pairs=inference_model.text_pairs,
    )
    parameters = parameter_counts(model.config, head, record.num_labels).total
    rows = [
        f"| `{name}` | {_code(names['inputs'])} | {_code(names['outputs'])} |"
        for name, names in sorted(export["signatures"].items())
    ]
    has_windows = isinstance(head, FinetuningHead) and head.inputs is Inputs.QUESTION
    truncation = "Contexts are read in windows of" if has_windows else "Texts are truncated at"
    lines = [
        "",
        "## Serving",
        "",
        f"This directory is a TensorFlow SavedModel. {truncation} {export['max_seq_length']} tokens.",
        "",
        *("| signature | inputs | outputs |", "|---|---|---|", *rows, ""),
        "## Tokenizer",
        "",
        *(_EXACT_TOKENIZER if differences is None else _tensorflow_text_lines(differences)),
        "",
        f"`{RECORD_NAME}` records the tokenizer, the signatures and the versions of the export.",
        "",
    ]
    return model_card(model.config, record, parameters) + "\n".join(lines)


_EXACT_TOKENIZER = (
    "The graph contains the tokenizer of the training in core TensorFlow operations. `tf.saved_model.load` and",
    "TensorFlow Serving need no further package.",
)


def _tensorflow_text_lines(differences: TokenizerDifferences) -> list[str]:
    from beambert.tokenizer.tensorflow_text_tokenizer import MAX_WORD_BYTES, VERSION

    return [
        f"The graph contains the tokenizer in operations of tensorflow_text {VERSION}. Run `import tensorflow_text`",
        "before `tf.saved_model.load`. TensorFlow Serving contains these operations.",
        "",
        "Some text has other ids than in training:",
        "",
        *(f"- {line}" for line in difference_lines(differences)),
        f"- `{RECORD_NAME}` lists the code points in `beambert.tokenizer.differences`.",
        f"- Words of more than {MAX_WORD_CHARACTERS} characters and at most {MAX_WORD_BYTES} bytes have tokens instead "
        "of `[UNK]`.",
        "- A word with bytes that are not UTF-8 becomes `[UNK]`; in training, these bytes are removed.",
        "",
        f"Each code point was compared in the words {_code(CONTEXTS.format('X').split(' '))}, where X is the code",
        "point and the vocabulary contains all characters of the model's vocabulary.",
    ]


def difference_lines(differences: TokenizerDifferences) -> list[str]:
    """Return the counts of the differences, for the terminal and the model card."""
    characters = "".join(map(chr, differences.in_vocabulary))
    lines = [
        f"{len(differences.code_points):,} of {SCALAR_VALUES:,} code points differ; "
        f"{differences.num_assigned:,} of them are assigned in Unicode {unicodedata.unidata_version}",
        f"{len(differences.in_vocabulary):,} of these occur in the vocabulary"
        + (f": {_shortened(characters)}" if characters else ""),
    ]
    if differences.mark_pairs:
        lines.append(
            f"{len(differences.mark_pairs):,} of {differences.num_mark_pairs:,} pairs of combining marks differ"
        )
    if differences.tokens:
        lines.append(f"{len(differences.tokens):,} tokens of the vocabulary differ as text")
    return lines


def _shortened(characters: str) -> str:
    # Control characters would change the line.
    shown = "".join(character if character.isprintable() else "\ufffd" for character in characters)
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]} and {len(shown) - _SHOWN} more"


def _code(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
