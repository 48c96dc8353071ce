"""The interface of the tokenizers that run in a TensorFlow graph, and the parts that they share."""

import abc

import tensorflow as tf

from beambert.tokenizer.vocabulary import Vocabulary

MASK = "[MASK]"


class GraphTokenizer(tf.Module, metaclass=abc.ABCMeta):
    """A tokenizer that runs in a TensorFlow graph.

    Args:
        vocabulary: The vocabulary.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        super().__init__()
        self._mask_id = vocabulary.mask_id
        self._special_ids = (vocabulary.cls_id, vocabulary.sep_id, vocabulary.pad_id)

    @abc.abstractmethod
    def __call__(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Return the token ids of N texts, without [CLS] and [SEP].

        Args:
            texts: string [N], UTF-8.

        Returns:
            int32 [N, (T)].
        """

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def with_masks(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Return the token ids of N texts, keeping "[MASK]" whole, as `Tokenizer(never_split=["[MASK]"])` does.

        Args:
            texts: string [N], UTF-8.

        Returns:
            int32 [N, (T)].
        """
        with tf.device("CPU:0"):
            parts = tf.strings.split(texts, sep=MASK)  # [N, (P)], the text before, between and after masks
            tokens = self(parts.flat_values)  # [P, (T)]
            # A mask follows every part except the last of a text.
            last = parts.row_limits()[:, None] - 1  # [N, 1]
            followed = tf.tensor_scatter_nd_update(
                tf.ones_like(parts.flat_values, tf.int64), last, tf.zeros_like(last[:, 0])
            )
            masks = tf.RaggedTensor.from_row_lengths(tf.fill([tf.reduce_sum(followed)], self._mask_id), followed)
            return parts.with_flat_values(tf.concat([tokens, masks], axis=1)).merge_dims(1, 2)

    def encode(
        self,
        texts: tf.Tensor,
        pairs: tf.Tensor | None = None,
        max_seq_length: int | None = None,
        *,
        keep_masks: bool = False,
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Return N texts or text pairs as model inputs: [CLS] text [SEP], or [CLS] text [SEP] pair [SEP].

        Truncation, padding and segment ids are those of `Tokenizer.encode`.

        Args:
            texts: string [N], UTF-8.
            pairs: string [N], or None for single texts.
            max_seq_length: Number of positions S. None disables truncation and pads to the longest row of the batch.
            keep_masks: Whether to keep "[MASK]" whole, as `with_masks` does.

        Returns:
            input_ids, input_mask, segment_ids: each int32 [N, S].

        Raises:
            ValueError: max_seq_length is less than 2, or less than 3 with pairs (even if all pairs are empty, which is
                unknown when the graph is built).
            tf.errors.InvalidArgumentError: The numbers of texts and pairs differ.
        """
        special = 2 if pairs is None else 3
        if max_seq_length is not None and max_seq_length < special:
            raise ValueError(f"invalid max_seq_length {max_seq_length}: must be at least {special} ([CLS] and [SEP])")
        number = tf.size(texts)
        if pairs is not None:
            tf.debugging.assert_equal(tf.size(pairs), number, "texts and pairs must have the same length")
        tokenize = self.with_masks if keep_masks else self
        tokens = tokenize(texts if pairs is None else tf.concat([texts, pairs], axis=0))
        starts = tf.cast(tokens.row_starts(), tf.int32)
        lengths = tf.cast(tokens.row_lengths(), tf.int32)
        first_start, first = starts[:number, None], lengths[:number, None]  # [N, 1]
        if pairs is None:
            second_start = second = tf.zeros_like(first)
        else:
            second_start, second = starts[number:, None], lengths[number:, None]
        if max_seq_length is not None:
            # Truncating the longer text token by token (the pair on ties) leaves each text half of the room, the odd
            # token to the first, or all that the other text does not use.
            room = max_seq_length - 2 - tf.cast(second > 0, tf.int32)
            first, second = (
                tf.minimum(first, tf.maximum((room + 1) // 2, room - second)),
                tf.minimum(second, tf.maximum(room // 2, room - first)),
            )
        # Positions of the first and of the last [SEP], which are equal for a single text.
        separator = 1 + first
        last = separator + tf.where(second > 0, second + 1, 0)
        length = tf.reduce_max(tf.concat([last[:, 0] + 1, [2]], axis=0)) if max_seq_length is None else max_seq_length
        position = tf.range(length)[None, :]  # [1, S]
        second_source = second_start + position - separator - 1
        source = tf.where(position < separator, first_start + position - 1, second_source)  # [N, S]
        total = tf.size(tokens.flat_values)
        source = tf.where(position == 0, total, source)
        source = tf.where((position == separator) | (position == last), total + 1, source)
        source = tf.where(position > last, total + 2, source)
        input_ids = tf.gather(tf.concat([tokens.flat_values, self._special_ids], axis=0), source)
        input_mask = tf.cast(position <= last, tf.int32)
        return input_ids, input_mask, tf.cast(position > separator, tf.int32) * input_mask
