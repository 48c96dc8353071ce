"""Match a checkpoint with its vocabulary and word rules, which not every format records.

This file imports neither Keras nor TensorFlow.
"""

from collections.abc import Callable
from pathlib import Path

from beambert.bert_model.checkpoints.embedding_rows import with_first_rows
from beambert.bert_model.checkpoints.reader import Checkpoint, CheckpointFiles
from beambert.bert_model.checkpoints.stored_tensors import CheckpointError
from beambert.bert_model.config import is_rounded_up
from beambert.common.tokenizer_files import AddedToken
from beambert.common.word_rules import WordRuleFlags, WordRules
from beambert.tokenizer.vocabulary import Vocabulary, VocabularyError


def vocabulary_of(
    checkpoint: Checkpoint | CheckpointFiles,
    vocab_file: str | None = None,
    added_tokens: str | None = None,
    *,
    may_lack_rows: bool = False,
) -> Vocabulary:
    """Return the checkpoint's vocabulary, or the one in `vocab_file`.

    Args:
        checkpoint: an open checkpoint, or its files.
        vocab_file: value of --vocab_file; None takes the checkpoint's vocabulary.
        added_tokens: value of --added_tokens, a file of tokens in addition to the recorded added tokens; None for none.
        may_lack_rows: whether the last added tokens may have no embeddings.

    Raises:
        CheckpointError: the vocabulary is missing, or its size differs from the model's vocab_size, except for padding.
        VocabularyError: a file is not valid, or an added token is not in the vocabulary or has no embedding.
    """
    path = vocab_file or checkpoint.vocab_file
    if path is None:
        raise CheckpointError(f"{checkpoint.path} has no vocab.txt; give the model's with --vocab_file")
    vocabulary = Vocabulary.load(path)
    tokens, rows = len(vocabulary), checkpoint.config.vocab_size
    # transformers does not compare the numbers, so that its models may have any number of rows without tokens.
    padded = checkpoint.kind == "huggingface" or is_rounded_up(rows, tokens)
    if len(vocabulary.wordpieces) <= rows < tokens:
        if not may_lack_rows:
            raise VocabularyError(
                f"{checkpoint.path} has no embedding for its added token {vocabulary.tokens[rows]!r} (id {rows}, while "
                f"vocab_size is {rows}); add it with `beambert extend-vocab --added_tokens FILE`"
            )
    elif tokens > rows or (tokens < rows and not padded):
        raise CheckpointError(
            f"{path} has {tokens} tokens, but vocab_size of the model is {rows}; give the vocabulary of the model"
        )
    return vocabulary if added_tokens is None else with_added_tokens(vocabulary, added_tokens)


def with_added_tokens(vocabulary: Vocabulary, added_tokens: str) -> Vocabulary:
    """Return a vocabulary with the added tokens of --added_tokens. Raise VocabularyError as `vocabulary_of`."""
    return vocabulary.with_added_tokens(read_token_file(added_tokens), f"--added_tokens {added_tokens}")


def read_token_file(path: str) -> list[AddedToken]:
    """Return the tokens in a file of --added_tokens, one in each line that is not blank.

    Raises:
        VocabularyError: the file cannot be read, is not UTF-8, or has no tokens.
    """
    remedy = "give a UTF-8 file with one token per line"
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise VocabularyError(f"--added_tokens {path}: {error.strerror}; {remedy}") from error
    except UnicodeDecodeError as error:
        raise VocabularyError(f"--added_tokens {path} is not UTF-8; {remedy}") from error
    tokens = [AddedToken(line.strip(" \t\r")) for line in text.split("\n") if line.strip(" \t\r")]
    if not tokens:
        raise VocabularyError(f"--added_tokens {path} has no tokens; {remedy}")
    return tokens


def drop_unused_rows(
    checkpoint: Checkpoint, vocabulary: Vocabulary, show: Callable[[str], None] | None = None
) -> Checkpoint:
    """Return a checkpoint without the embedding rows that pad its vocabulary, which have no tokens.

    Args:
        checkpoint: an open checkpoint.
        vocabulary: its vocabulary, from `vocabulary_of`.
        show: called with a line to print if there are such rows.
    """
    tokens, rows = len(vocabulary), checkpoint.config.vocab_size
    if show is not None and tokens < rows:
        show(f"Note      {rows - tokens:,} embedding rows without tokens dropped, of {rows:,}")
    return with_first_rows(checkpoint, tokens)


def word_rules_of(checkpoint: Checkpoint, vocabulary: Vocabulary, flags: WordRuleFlags) -> WordRules:
    """Return the word rules of the flags, else as the checkpoint records, else as its vocabulary implies."""
    return flags.rules(checkpoint.word_rules, vocabulary.has_capitals())
