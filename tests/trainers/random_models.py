"""Write models with every head, with random weights and a vocabulary of about thirty scripts."""

from pathlib import Path

import numpy as np

from beambert.bert_model.checkpoints import native, tf1
from beambert.bert_model.checkpoints.stored_tensors import StoredTensor
from beambert.bert_model.config import BertConfig
from beambert.bert_model.heads import ALL_HEADS
from beambert.common.word_rules import WordRules
from beambert.tokenizer.normalization import split_words
from beambert.tokenizer.vocabulary import SPECIAL_TOKENS, Vocabulary
from beambert.tokenizer.wordpiece import CONTINUATION
from tests.tokenizer.mixed_scripts import ARTICLE_1

TEXTS = list(ARTICLE_1.values())
_CHARACTERS = sorted({c for text in TEXTS for word in split_words(text, WordRules()) for c in word} - set("qz"))
VOCABULARY = Vocabulary(
    (*SPECIAL_TOKENS, *_CHARACTERS, *(CONTINUATION + c for c in _CHARACTERS), "all", "human", "##ings", "rights")
)
CONFIG = BertConfig(
    vocab_size=len(VOCABULARY),
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=64,
)


def write_model(
    directory: Path,
    head: str = "pretraining",
    labels: tuple[str, ...] | None = None,
    without: tuple[str, ...] = (),
    causal_attention: bool = False,
    config: BertConfig = CONFIG,
    nan_in: str | None = None,
    seed: int = 0,
) -> Path:
    """Write a native model.

    Args:
        directory: directory to create.
        head: name of the head, one of `ALL_HEADS`.
        labels: names of the classes.
        without: prefixes of the TF1 names of weights to leave out.
        causal_attention: as for `ModelRecord`.
        config: configuration of the model.
        nan_in: TF1 name of a weight whose first element is NaN.
        seed: seed of the weights.
    """
    directory.mkdir()
    generator = np.random.default_rng(seed)
    num_labels = len(labels) if labels else None
    tensors = {}
    for name in ALL_HEADS[head].variable_names(config, num_labels):
        value = generator.normal(0, 0.5, name.shape).astype(np.float32)
        if name.tf1 == nan_in:
            value.flat[0] = np.nan
        if not name.tf1.startswith(without or ("-",)):
            tensors[name.tf1] = StoredTensor(name.shape, "float32", lambda value=value: value)
    tf1.write(directory / native.CHECKPOINT_NAME, tensors)
    record = native.ModelRecord(
        **ALL_HEADS[head].recorded,
        num_labels=num_labels,
        labels=labels,
        do_lower_case=True,
        causal_attention=causal_attention,
    )
    (directory / native.CONFIG_FILE_NAME).write_text(config.to_json(), encoding="utf-8")
    (directory / native.FILE_NAME).write_text(record.to_json(), encoding="utf-8")
    (directory / native.VOCAB_FILE_NAME).write_bytes(VOCABULARY.to_bytes())
    return directory
