"""The tokenizer in core TensorFlow operations, for models with string inputs.

A SavedModel with `InGraphTokenizer` loads with `tf.saved_model.load` alone: it requires no tensorflow_text, custom ops
or Python code. Its Unicode version is that of the Python that created it. `GraphTokenizer` has the parts that it shares
with the tokenizer of tensorflow_text.
"""

import abc

import numpy as np
import tensorflow as tf

from beambert.common.word_rules import WordRules
from beambert.tokenizer.in_graph_tables import (
    CASED,
    CONTINUED,
    END,
    END_OF_TEXT,
    FINAL_SIGMA,
    FIRST_LETTER,
    FOREIGN,
    NO_SPELLING,
    NO_TOKEN,
    NOWHERE,
    PAGE_BITS,
    SIGMA,
    SKIPPED,
    START,
    STARTER,
    build_trie,
    character_kinds,
    character_rules,
)
from beambert.tokenizer.vocabulary import Vocabulary
from beambert.tokenizer.wordpiece import MAX_WORD_CHARACTERS

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
            # As `beambert.tokenizer.tokenizer.truncated_lengths`.
            room = max_seq_length - 2 - tf.cast(second > 0, tf.int32)
            second = tf.minimum(second, tf.maximum(room - first, room // 2))
            first = tf.minimum(first, room - second)
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


class InGraphTokenizer(GraphTokenizer):
    """Tokenize in a TensorFlow graph, with the same ids as `tokenizer.tokenizer.Tokenizer` for every UTF-8 text.

    Two rules depend on neighboring characters; both are implemented. Lower-casing makes a capital sigma (U+03A3) at the
    end of a word U+03C2. Stripping accents sorts the combining marks that are not accents (U+302E, U+1D165, ...).

    The only differences concern input that is not valid UTF-8. `Tokenizer` accepts surrogates (U+D800 to U+DFFF) in a
    Python string, which UTF-8 cannot encode. Invalid bytes are decoded as U+FFFD and removed, as after decoding with
    `errors="replace"`.

    Construction applies the rules to every character, which takes one to two seconds.

    Args:
        vocabulary: The vocabulary.
        do_lower_case: Whether to lower-case text, as uncased models require.
        strip_accents: Whether to strip accents; None for uncased text only.
        tokenize_chinese_chars: Whether each CJK ideograph is a word.
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
        self._rules = WordRules(do_lower_case, strip_accents, tokenize_chinese_chars)
        self._unk_id = vocabulary.unk_id
        trie = build_trie(vocabulary.tokens)
        characters = character_kinds(character_rules(self._rules), trie.symbols)
        kinds = characters.kinds
        pages, page_of_code = np.unique(characters.of_code.reshape(-1, 2**PAGE_BITS), axis=0, return_inverse=True)
        self._page_starts = tf.constant(page_of_code.ravel() << PAGE_BITS, tf.int32)
        self._pages = tf.constant(pages.ravel(), tf.int32)
        self._symbols = tf.ragged.constant([kind.symbols for kind in kinds], tf.int32)
        self._sigma_contexts = tf.constant([kind.sigma_context for kind in kinds], tf.int32)
        self._combining_classes = tf.constant([kind.combining_class for kind in kinds], tf.int32)
        self._is_accent = tf.constant([kind.is_accent for kind in kinds], tf.bool)
        self._parts = tf.constant(characters.parts, tf.int32)
        self._first_composed, self._first_plain = characters.first_composed, characters.first_plain
        self._final_sigma = int(characters.of_code[ord(FINAL_SIGMA)])
        self._symbol_count = FIRST_LETTER + len(trie.symbols)
        self._token_of_node = tf.constant(trie.token_of_node, tf.int32)
        self._children = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(
                tf.constant([node * self._symbol_count + symbol for node, symbol in trie.children], tf.int64),
                tf.constant(list(trie.children.values()), tf.int64),
            ),
            default_value=-1,
        )

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def __call__(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Return the token ids of N texts, without [CLS] and [SEP].

        Args:
            texts: string [N], UTF-8.

        Returns:
            int32 [N, (T)]; row i equals the ids of text i from `Tokenizer.encode_batch`.
        """
        # Small string operations, for which transfers to a GPU would cost more than they save.
        with tf.device("CPU:0"):
            characters = tf.strings.unicode_decode(texts, "UTF-8", errors="replace")  # [N, (C)]
            return self._tokens(self._kinds_of(characters))[0]

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def with_offsets(self, texts: tf.Tensor) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Return the token ids of N texts and the byte offsets of each token in its text.

        Args:
            texts: string [N], UTF-8.

        Returns:
            ids: int32 [N, (T)].
            starts, ends: int32 [N, (T)]; the offsets of `Tokenizer.encode_batch_with_offsets`, in bytes, the default
                unit of `tf.strings.substr`.
        """
        with tf.device("CPU:0"):
            # [N, (C)]
            characters, byte_offsets = tf.strings.unicode_decode_with_offsets(texts, "UTF-8", errors="replace")
            kinds = self._kinds_of(characters)  # [C], including the end of every text
            lengths = tf.cast(tf.strings.length(texts), tf.int64)[:, None]
            byte_of_character = tf.cast(tf.concat([byte_offsets, lengths], axis=1).flat_values, tf.int32)  # [C]
            ids, is_token, sources = self._tokens(kinds)
            # A token extends to the next token or to the end of its word; NFD may have reordered its characters.
            token_of_symbol = tf.boolean_mask(tf.cumsum(tf.cast(is_token, tf.int32)) - 1, sources >= 0)
            sources = tf.boolean_mask(sources, sources >= 0)
            first = tf.math.segment_min(sources, token_of_symbol)  # [T]
            last = tf.math.segment_max(sources, token_of_symbol)  # [T]
            # Accents after the last character are part of it.
            no_accents = tf.cast(tf.where(~tf.gather(self._is_accent, kinds))[:, 0], tf.int32)
            after = tf.gather(no_accents, tf.searchsorted(no_accents, last + 1))  # [T]
            starts, ends = tf.gather(byte_of_character, first), tf.gather(byte_of_character, after)
            return ids, ids.with_flat_values(starts), ids.with_flat_values(ends)

    def _kinds_of(self, characters: tf.RaggedTensor) -> tf.Tensor:
        """Return the kind of every character of all texts, each text followed by END_OF_TEXT: int32 [C]."""
        ends = tf.fill([characters.nrows(), 1], END_OF_TEXT)
        codes = tf.concat([characters, ends], axis=1).flat_values  # [C]
        page = tf.gather(self._page_starts, tf.bitwise.right_shift(codes, PAGE_BITS))
        return tf.gather(self._pages, page + tf.bitwise.bitwise_and(codes, 2**PAGE_BITS - 1))

    def _tokens(self, kinds: tf.Tensor) -> tuple[tf.RaggedTensor, tf.Tensor, tf.Tensor]:
        """Return the tokens of N texts.

        Args:
            kinds: int32 [C], from `_kinds_of`.

        Returns:
            ids: int32 [N, (T)].
            is_token: bool [S], whether a token starts at a symbol.
            sources: int32 [S], the index in kinds of the source of each symbol; -1 between words.
        """
        sources = tf.range(tf.size(kinds))
        is_sigma = kinds == SIGMA
        is_movable = (kinds < self._first_plain) & ~is_sigma
        if self._rules.do_lower_case:
            kinds = tf.cond(tf.reduce_any(is_sigma), lambda: self._lower_sigmas(kinds), lambda: kinds)
        if self._rules.strips_accents:
            kinds, sources = tf.cond(
                tf.reduce_any(is_movable), lambda: self._sort_marks(kinds), lambda: (kinds, sources)
            )
        symbols_of_kinds = tf.gather(self._symbols, kinds)
        symbols = symbols_of_kinds.flat_values  # [S]
        ids = self._spell(symbols)
        is_token = ids >= 0
        tokens = tf.where(is_token)[:, 0]  # [T]
        row_limits = tf.searchsorted(tokens, tf.where(symbols == END)[:, 0], out_type=tf.int64)
        sources = tf.where(symbols < FOREIGN, -1, tf.gather(sources, symbols_of_kinds.value_rowids()))
        return tf.RaggedTensor.from_row_limits(tf.gather(ids, tokens), row_limits, validate=False), is_token, sources

    def _lower_sigmas(self, kinds: tf.Tensor) -> tf.Tensor:
        """Return the kinds with capital sigmas made final where a cased letter precedes and none follows: int32 [C].

        As in `str.lower` (Final_Sigma in The Unicode Standard, section 3.13), case-ignorable characters are skipped.
        Characters that normalization removes before lower-casing are also skipped.
        """
        contexts = tf.gather(self._sigma_contexts, kinds)
        skipped = contexts == SKIPPED
        cased = tf.concat([[False], tf.boolean_mask(contexts, ~skipped) == CASED, [False]], axis=0)
        # Index in `cased` of each character that is not skipped.
        index = tf.cumsum(tf.cast(~skipped, tf.int32))
        sigmas = tf.where(kinds == SIGMA)
        index = tf.gather_nd(index, sigmas)
        final = tf.gather(cased, index - 1) & ~tf.gather(cased, index + 1)
        return tf.tensor_scatter_nd_update(kinds, sigmas, tf.where(final, self._final_sigma, SIGMA))

    def _sort_marks(self, kinds: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Decompose characters whose marks are not accents, and sort marks by combining class, as NFD does.

        This is the Canonical Ordering Algorithm of The Unicode Standard, section 3.11.

        Returns:
            kinds: int32 [C'], C' >= C.
            sources: int32 [C'], the index in the argument of the source of each.
        """
        composed = (kinds >= self._first_composed) & (kinds < self._first_plain)
        parts = tf.gather(self._parts, tf.where(composed, kinds - self._first_composed, 0))  # [C, P]
        unchanged = tf.pad(kinds[:, None], [[0, 0], [0, self._parts.shape[1] - 1]], constant_values=-1)
        decomposed = tf.where(composed[:, None], parts, unchanged)  # [C, P]
        exists = decomposed >= 0
        kinds = tf.boolean_mask(decomposed, exists)  # [C']
        sources = tf.cast(tf.where(exists)[:, 0], tf.int32)  # [C']
        classes = tf.cast(tf.gather(self._combining_classes, kinds), tf.int64)
        # A run is a starter and the marks after it.
        run = tf.cumsum(tf.cast(classes == STARTER, tf.int64))
        order = tf.argsort(run * 256 + classes, stable=True)
        return tf.gather(kinds, order), tf.gather(sources, order)

    def _spell(self, symbols: tf.Tensor) -> tf.Tensor:
        """Return the id of each token at its first symbol and a negative number elsewhere: int32 [S]."""
        gap = symbols < FOREIGN
        after_gap = tf.concat([[True], gap[:-1]], axis=0)
        starts = tf.where(~gap & after_gap)[:, 0]  # [W]
        stops = tf.where(gap & ~after_gap)[:, 0]  # [W]

        # One cursor per word, A of them active, descends the trie. At a dead end it emits the longest token on its
        # path and restarts after that token.
        def step(
            ids: tf.Tensor,
            node: tf.Tensor,
            position: tf.Tensor,
            token_start: tf.Tensor,
            token: tf.Tensor,
            stop: tf.Tensor,
        ) -> tuple[tf.Tensor, ...]:
            edge = node * self._symbol_count + tf.cast(tf.gather(symbols, position), tf.int64)
            child = self._children.lookup(edge)  # [A]
            has_child = child >= 0
            dead_end = tf.where(~has_child)
            ids = tf.tensor_scatter_nd_update(ids, tf.gather(token_start, dead_end), tf.gather_nd(token, dead_end))
            active = has_child | ((token >= 0) & ~tf.gather(gap, stop))
            node = tf.where(has_child, child, CONTINUED)
            position = tf.where(has_child, position + 1, stop)
            token_start = tf.where(has_child, token_start, stop)
            token_here = tf.where(has_child, tf.gather(self._token_of_node, node), NO_SPELLING)
            is_longer = token_here != NO_TOKEN
            token = tf.where(is_longer, token_here, token)
            stop = tf.where(is_longer, position, stop)
            remaining = tf.where(active)[:, 0]
            return ids, *(tf.gather(state, remaining) for state in (node, position, token_start, token, stop))

        ids = tf.fill(tf.shape(symbols), NO_TOKEN)
        nodes = tf.where(stops - starts > MAX_WORD_CHARACTERS, tf.constant(NOWHERE, tf.int64), START)
        no_token = tf.fill(tf.shape(starts), NO_SPELLING)
        ids, *_ = tf.while_loop(
            lambda *state: tf.size(state[1]) > 0,
            step,
            (ids, nodes, starts, starts, no_token, starts),
            shape_invariants=(tf.TensorShape([None]),) * 6,
            parallel_iterations=1,
        )
        # A word that cannot be tokenized to its end becomes [UNK]; the tokens found so far are discarded.
        word = tf.searchsorted(starts, tf.where(ids == NO_SPELLING)[:, 0], side="right") - 1
        unknown_starts = tf.gather(starts, word)
        inside = tf.ragged.range(unknown_starts, tf.gather(stops, word)).flat_values[:, None]
        ids = tf.tensor_scatter_nd_update(ids, inside, tf.fill(tf.shape(inside)[:1], NO_TOKEN))
        unknown = tf.fill(tf.shape(unknown_starts), self._unk_id)
        return tf.tensor_scatter_nd_update(ids, unknown_starts[:, None], unknown)
