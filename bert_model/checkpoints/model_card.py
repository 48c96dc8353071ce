"""The model card: `README.md` in a model's directory, with front matter for Hugging Face."""

import dataclasses
import json

from beambert.bert_model.checkpoints.native import ModelRecord
from beambert.bert_model.config import BertConfig
from beambert.common.formatting import table_cell


def model_card(config: BertConfig, record: ModelRecord, parameters: int) -> str:
    """Return the text of a model card; it is deterministic for a model.

    Args:
        config: configuration of the model.
        record: content of beambert.json.
        parameters: number of parameters.
    """
    labels = ", ".join(record.labels) if record.labels else None
    facts = [
        ("Task", record.task),
        ("Classes", labels or record.num_labels),
        ("Labels per text", "any number" if record.multi_label else None),
        ("Input", _INPUTS[record.text_pairs]),
        ("Parameters", f"{parameters:,}"),
        ("Layers, hidden size, heads", _shape(config)),
        ("Vocabulary", f"{config.vocab_size:,} tokens, {record.word_rules.summary}"),
        ("Maximum sequence length", _lengths(config, record)),
        ("Attention", "causal" if record.causal_attention else None),
        ("Next-sentence prediction", None if record.next_sentence else "not trained"),
        ("Updates", None if record.steps is None else f"{record.steps:,}"),
        ("Data fingerprint (SHA-256)", record.data_fingerprint),
        ("Origin", record.origin),
    ]
    rows = [f"| {name} | {table_cell(str(value))} |" for name, value in facts if value is not None]
    metrics = [f"| {table_cell(name)} | {value:.6g} |" for name, value in sorted(record.metrics.items())]
    configuration = json.dumps(dataclasses.asdict(config), indent=2, sort_keys=True)
    lines = [
        "---",
        "tags:",
        "- bert",
        f"pipeline_tag: {record.head.pipeline_tag}",
        "---",
        "",
        "# BERT",
        "",
        "Before publishing this model, describe its intended use, its training text and its license here. beambert",
        "generated the rest of this card.",
        "",
        *("| | |", "|---|---|", *rows, ""),
        *(["## Evaluation", "", "| metric | value |", "|---|---|", *metrics, ""] if metrics else []),
        *("## Configuration", "", "```json", configuration, "```", ""),
    ]
    return "\n".join(lines)


_INPUTS = {True: "pairs of texts", False: "single texts", None: None}


def _shape(config: BertConfig) -> str:
    return f"{config.num_hidden_layers}, {config.hidden_size}, {config.num_attention_heads}"


def _lengths(config: BertConfig, record: ModelRecord) -> str:
    trained = f", trained on at most {record.max_seq_length}" if record.max_seq_length else ""
    return f"{config.max_position_embeddings}{trained}"
