"""Return the vocabulary and the word rules of a checkpoint, which not every format records.

This file imports neither Keras nor TensorFlow.
"""

from beambert_common.command_line.word_rule_flags import WordRuleFlags
from beambert_common.word_rules import WordRules
from bert_model.checkpoints.checkpoint_files import CheckpointFiles
from bert_model.checkpoints.reader import Checkpoint
from bert_model.checkpoints.stored_tensors import CheckpointError
from tokenizer.vocabulary import Vocabulary


def vocabulary_of(checkpoint: Checkpoint | CheckpointFiles, vocab_file: str | None = None) -> Vocabulary:
    """Return the checkpoint's vocabulary, or the one in `vocab_file`.

    Args:
        checkpoint: an open checkpoint, or its files.
        vocab_file: value of --vocab_file; None takes the checkpoint's vocabulary.

    Raises:
        CheckpointError: the vocabulary is missing, or its size differs from the model's vocab_size.
        VocabularyError: the file is not a valid vocabulary.
    """
    path = vocab_file or checkpoint.vocab_file
    if path is None:
        raise CheckpointError(f"{checkpoint.path} has no vocab.txt; give the model's with --vocab_file")
    vocabulary = Vocabulary.load(path)
    rows = checkpoint.config.vocab_size
    # Some Hugging Face models have unused embedding rows, to round the vocabulary size up.
    if len(vocabulary) > rows or (len(vocabulary) < rows and checkpoint.kind != "huggingface"):
        raise CheckpointError(
            f"{path} has {len(vocabulary)} tokens, but vocab_size of the model is {rows}; give the vocabulary "
            "of the model"
        )
    return vocabulary


def word_rules_of(checkpoint: Checkpoint, vocabulary: Vocabulary, flags: WordRuleFlags) -> WordRules:
    """Return the word rules of the flags, else as the checkpoint records, else as its vocabulary implies."""
    return flags.rules(checkpoint.word_rules, vocabulary.has_capitals())
