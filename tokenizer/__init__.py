"""WordPiece tokenization compatible with google-research/bert, and WordPiece vocabulary learning.

The package requires numpy only. `in_graph.py`, the tokenizer as a TensorFlow graph, also requires TensorFlow, and
`tensorflow_text_tokenizer.py` tensorflow_text.
"""

from beambert.tokenizer.tokenizer import Tokenizer
from beambert.tokenizer.vocabulary import Vocabulary, VocabularyError

__all__ = ["Tokenizer", "Vocabulary", "VocabularyError"]
