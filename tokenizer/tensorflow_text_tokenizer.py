"""The tokenizer in operations of tensorflow_text: faster in a graph than `in_graph.py`, with other ids for rare text.

A SavedModel with this tokenizer requires the operations of tensorflow_text. `differences.py` counts the code points for
which the ids differ.
"""

import numpy as np
import tensorflow as tf
import tensorflow_text

from beambert.common.word_rules import WordRules
from beambert.tokenizer.in_graph import GraphTokenizer
from beambert.tokenizer.vocabulary import Vocabulary, VocabularyError
from beambert.tokenizer.wordpiece import MAX_WORD_CHARACTERS

VERSION: str = tensorflow_text.__version__
# tensorflow_text limits bytes, not characters. With this limit, no word that `Tokenizer` spells becomes [UNK].
MAX_WORD_BYTES = 4 * MAX_WORD_CHARACTERS
# Characters of an error of tensorflow_text in a message; it may contain the token.
_SHOWN = 120


class TensorFlowTextTokenizer(GraphTokenizer):
    """Tokenize in a TensorFlow graph with `FastBertNormalizer` and `FastWordpieceTokenizer` of tensorflow_text.

    The methods are those of `InGraphTokenizer`. The ids equal those of `beambert.tokenizer.tokenizer.Tokenizer`, except
    where:

    - a text has a code point that `beambert.tokenizer.differences` lists,
    - a word has more than 200 characters and at most 800 bytes: `Tokenizer` returns [UNK],
    - bytes are not UTF-8: their word becomes [UNK].

    Args:
        vocabulary: The vocabulary.
        do_lower_case: Whether to lower-case text and strip accents, as uncased models require.
        strip_accents, tokenize_chinese_chars: As for `InGraphTokenizer`; only the released rules are supported.

    Raises:
        VocabularyError: tensorflow_text does not support the vocabulary or the rules.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        do_lower_case: bool = True,
        *,
        strip_accents: bool | None = None,
        tokenize_chinese_chars: bool = True,
    ) -> None:
        super().__init__(vocabulary)
        rules = WordRules(do_lower_case, strip_accents, tokenize_chinese_chars)
        if rules != WordRules(do_lower_case):
            raise VocabularyError(
                f"--tokenizer tensorflow_text does not support the rules of the model ({rules.summary}): "
                "FastBertNormalizer strips accents exactly if it lower-cases; use --tokenizer exact"
            )
        self._normalizer = tensorflow_text.FastBertNormalizer(lower_case_nfd_strip_accents=do_lower_case)
        try:
            self._wordpiece = tensorflow_text.FastWordpieceTokenizer(
                list(vocabulary.tokens), max_bytes_per_word=MAX_WORD_BYTES, token_out_type=tf.int32
            )
        except RuntimeError as error:
            raise VocabularyError(
                f"{vocabulary.origin}: not supported by tensorflow_text ({str(error)[:_SHOWN]}); use --tokenizer exact"
            ) from error

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def __call__(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Return the token ids of N texts, without [CLS] and [SEP].

        Args:
            texts: string [N], UTF-8.

        Returns:
            int32 [N, (T)].
        """
        with tf.device("CPU:0"):
            return self._wordpiece.tokenize(self._normalizer.normalize(texts))

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def with_offsets(self, texts: tf.Tensor) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Return the token ids of N texts and the byte offsets of each token in its text.

        Args:
            texts: string [N], UTF-8.

        Returns:
            ids: int32 [N, (T)].
            starts, ends: int32 [N, (T)]. Characters after a token that normalization removes are part of it.
        """
        with tf.device("CPU:0"):
            # [N, (C)], the source of each byte of a normalized text and of its end.
            normalized, sources = self._normalizer.normalize_with_offsets(texts)
            ids, starts, ends = self._wordpiece.tokenize_with_offsets(normalized)  # Of normalized texts.
            byte_sources = tf.cast(sources.flat_values, tf.int32)  # [C]
            first_byte = tf.gather(sources.row_starts(), ids.value_rowids())  # [T]
            start = tf.gather(byte_sources, first_byte + starts.flat_values)
            # Several bytes may have one source, as those of a decomposed syllable: a token extends to the next source.
            is_first = tf.ones_like(byte_sources[:1], tf.bool)
            is_new = tf.concat([is_first, byte_sources[1:] != byte_sources[:-1]], axis=0)
            group = tf.cumsum(tf.cast(is_new, tf.int32)) - 1  # [C]
            next_group = tf.gather(group, first_byte + ends.flat_values - 1) + 1
            end = tf.gather(tf.boolean_mask(byte_sources, is_new), next_group)
            return ids, ids.with_flat_values(start), ids.with_flat_values(end)

    def encode_batch(self, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return the token ids of N texts as `Tokenizer.encode_batch` does: ids int32 [T], row splits int64 [N + 1]."""
        tokens = self(tf.constant(texts, tf.string))
        return tokens.flat_values.numpy(), tokens.row_splits.numpy()
