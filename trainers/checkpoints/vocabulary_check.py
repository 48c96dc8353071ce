"""The vocabulary of an open checkpoint, and whether its text is lower-cased, which not every format records.

This file imports neither Keras nor TensorFlow.
"""

from bert_model.checkpoints.reader import Checkpoint, CheckpointFiles
from bert_model.checkpoints.stored_tensors import CheckpointError
from tokenizer.vocabulary import Vocabulary


def vocabulary_of(checkpoint: Checkpoint | CheckpointFiles, vocab_file: str | None = None) -> Vocabulary:
    """Return the checkpoint's vocabulary, or the one in `vocab_file`.

    Args:
        checkpoint: open, or its files, which need no TensorFlow.
        vocab_file: the value of --vocab_file, None to take the checkpoint's.

    Raises:
        CheckpointError: it is missing, or its number of tokens differs from the model's rows.
        VocabularyError: the file is no vocabulary.
    """
    path = vocab_file or checkpoint.vocab_file
    if path is None:
        raise CheckpointError(f"{checkpoint.path} has no vocab.txt; give the model's with --vocab_file")
    vocabulary = Vocabulary.load(path)
    rows = checkpoint.config.vocab_size
    # Some models at Hugging Face have rows that no token uses, to round their number up.
    if len(vocabulary) > rows or (len(vocabulary) < rows and checkpoint.kind != "huggingface"):
        raise CheckpointError(
            f"{path} has {len(vocabulary)} pieces, the model has vocab_size {rows}; give the model's own vocabulary"
        )
    return vocabulary


def lower_casing_of(checkpoint: Checkpoint, vocabulary: Vocabulary) -> bool:
    """Return whether text is lower-cased: by the checkpoint's record or, without one, by the vocabulary."""
    return not vocabulary.has_capitals() if checkpoint.do_lower_case is None else checkpoint.do_lower_case
