"""Split text into tokens of a WordPiece vocabulary, and learn such a vocabulary from text.

Only numpy is needed, except for `in_graph.py`, the tokenizer as a TensorFlow graph.
"""

from tokenizer.tokenizer import Tokenizer
from tokenizer.vocabulary import Vocabulary, VocabularyError

__all__ = ["Tokenizer", "Vocabulary", "VocabularyError"]
