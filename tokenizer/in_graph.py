"""The tokenizer as core TensorFlow operations, for models that take raw strings; the one file here with TensorFlow.

A SavedModel of it loads with `tf.saved_model.load` alone: no tensorflow_text, no custom operation, no Python code. It
knows the Unicode of the Python that made it.
"""

import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tokenizer.normalization import is_cjk, split_words
from tokenizer.vocabulary import Vocabulary
from tokenizer.wordpiece import CONTINUATION, MAX_WORD_CHARACTERS

_CODE_POINTS = 0x110000
_PAGE_BITS = 8
# In an array of code points, the end of one of the texts.
_END_OF_TEXT = _CODE_POINTS
_CAPITAL_SIGMA, _FINAL_SIGMA = "\u03a3", "\u03c2"
# The kind of the capital sigma.
_SIGMA = 0

# What a character is to a sigma near it.
_OTHER, _SKIPPED, _CASED = 0, 1, 2
# In place of a combining class: what NFD moves no mark across, and what the rules remove.
_STARTER, _REMOVED = 0, 255
# Symbols: what the trie knows of a character. Those from _FIRST_LETTER on are the characters of the pieces.
_END, _SPACE, _FOREIGN, _FIRST_LETTER = 0, 1, 2, 3
# Nodes of the trie: before a piece at the start of a word, before one that continues it, and one that leads nowhere.
_START, _CONTINUED, _NOWHERE = 0, 1, -1
# In place of an id.
_NO_PIECE, _NO_SPELLING = -1, -2


class InGraphTokenizer(tf.Module):
    """Texts to piece ids inside a graph: the ids of `tokenizer.tokenizer.Tokenizer`, for every text in UTF-8.

    The rules look beyond single characters twice, in uncased text, and both are followed: a capital sigma (U+03A3) at
    the end of a word becomes U+03C2, and NFD sorts those combining marks that are no accents (U+302E, U+1D165, ...).

    What remains is what UTF-8 cannot hold: the exact rules keep surrogates (U+D800 to U+DFFF), which a Python string
    may contain. Here they cannot be given, and bytes that are not UTF-8 are read as U+FFFD, which the rules remove, as
    if the text had been decoded with `errors="replace"`.

    Construction asks the rules about every character and takes a second or two.

    Args:
        vocabulary: the pieces.
        do_lower_case: True for uncased models: lower-case and strip accents.
    """

    def __init__(self, vocabulary: Vocabulary, do_lower_case: bool = True) -> None:
        super().__init__()
        self._do_lower_case = do_lower_case
        self._unk_id = vocabulary.unk_id
        self._special_ids = (vocabulary.cls_id, vocabulary.sep_id, vocabulary.pad_id)
        trie = _build_trie(vocabulary.pieces)
        characters = _character_kinds(_character_rules(do_lower_case), trie.symbols)
        kinds = characters.kinds
        pages, page_of_code = np.unique(characters.of_code.reshape(-1, 2**_PAGE_BITS), axis=0, return_inverse=True)
        self._page_starts = tf.constant(page_of_code.ravel() << _PAGE_BITS, tf.int32)
        self._pages = tf.constant(pages.ravel(), tf.int32)
        self._symbols = tf.ragged.constant([kind.symbols for kind in kinds], tf.int32)
        self._sigma_contexts = tf.constant([kind.sigma_context for kind in kinds], tf.int32)
        self._combining_classes = tf.constant([kind.combining_class for kind in kinds], tf.int32)
        self._parts = tf.constant(characters.parts, tf.int32)
        self._first_composed, self._first_plain = characters.first_composed, characters.first_plain
        self._final_sigma = int(characters.of_code[ord(_FINAL_SIGMA)])
        self._symbol_count = _FIRST_LETTER + len(trie.symbols)
        self._piece_of_node = tf.constant(trie.piece_of_node, tf.int32)
        self._children = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(
                tf.constant([node * self._symbol_count + symbol for node, symbol in trie.children], tf.int64),
                tf.constant(list(trie.children.values()), tf.int64),
            ),
            default_value=-1,
        )

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def __call__(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """The piece ids of N texts, without [CLS] and [SEP].

        Args:
            texts: string [N], UTF-8.

        Returns:
            int32 [N, (T)], row i as `Tokenizer.encode_batch` gives it for text i.
        """
        # Small operations around strings: a GPU would only be waited for.
        with tf.device("CPU:0"):
            characters = tf.strings.unicode_decode(texts, "UTF-8", errors="replace")  # [N, (C)]
            ends = tf.fill([tf.size(texts), 1], _END_OF_TEXT)
            codes = tf.concat([characters, ends], axis=1).flat_values  # [C], one text after the other
            page = tf.gather(self._page_starts, tf.bitwise.right_shift(codes, _PAGE_BITS))
            kinds = tf.gather(self._pages, page + tf.bitwise.bitwise_and(codes, 2**_PAGE_BITS - 1))
            if self._do_lower_case:
                is_sigma = kinds == _SIGMA
                is_movable = (kinds < self._first_plain) & ~is_sigma
                kinds = tf.cond(tf.reduce_any(is_sigma), lambda: self._lower_sigmas(kinds), lambda: kinds)
                kinds = tf.cond(tf.reduce_any(is_movable), lambda: self._sort_marks(kinds), lambda: kinds)
            symbols = tf.gather(self._symbols, kinds).flat_values  # [S]
            ids = self._spell(symbols)
            pieces = tf.where(ids >= 0)[:, 0]  # [T]
            row_limits = tf.searchsorted(pieces, tf.where(symbols == _END)[:, 0], out_type=tf.int64)
            return tf.RaggedTensor.from_row_limits(tf.gather(ids, pieces), row_limits, validate=False)

    def encode(
        self, texts: tf.Tensor, pairs: tf.Tensor | None = None, max_seq_length: int | None = None
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """N texts, or pairs of texts, as model inputs: [CLS] text [SEP], or [CLS] text [SEP] pair [SEP].

        Cut, padded and marked as `Tokenizer.encode` does it.

        Args:
            texts: string [N], UTF-8.
            pairs: string [N], or None for single texts.
            max_seq_length: S; None cuts nothing and takes the longest of the batch.

        Returns:
            input_ids, input_mask and segment_ids, each int32 [N, S].

        Raises:
            ValueError: max_seq_length leaves no room for [CLS] and [SEP]: less than 2, with pairs less than 3 (even
                if all pairs are empty, which a graph cannot know beforehand).
            tf.errors.InvalidArgumentError: not as many pairs as texts.
        """
        special = 2 if pairs is None else 3
        if max_seq_length is not None and max_seq_length < special:
            raise ValueError(f"max_seq_length {max_seq_length} has no room for [CLS] and [SEP]; use {special} or more")
        number = tf.size(texts)
        if pairs is not None:
            tf.debugging.assert_equal(tf.size(pairs), number, "give as many pairs as texts")
        pieces = self(texts if pairs is None else tf.concat([texts, pairs], axis=0))
        starts = tf.cast(pieces.row_starts(), tf.int32)
        lengths = tf.cast(pieces.row_lengths(), tf.int32)
        first_start, first = starts[:number, None], lengths[:number, None]  # [N, 1]
        if pairs is None:
            second_start = second = tf.zeros_like(first)
        else:
            second_start, second = starts[number:, None], lengths[number:, None]
        if max_seq_length is not None:
            # Taken from the longer, and from the pair of equals, until all fits: so a text keeps its half, the first
            # the larger one, or what the other leaves.
            room = max_seq_length - 2 - tf.cast(second > 0, tf.int32)
            first, second = (
                tf.minimum(first, tf.maximum((room + 1) // 2, room - second)),
                tf.minimum(second, tf.maximum(room // 2, room - first)),
            )
        # Positions of the first [SEP], and of the second or again the first.
        separator = 1 + first
        last = separator + tf.where(second > 0, second + 1, 0)
        length = tf.reduce_max(tf.concat([last[:, 0] + 1, [2]], axis=0)) if max_seq_length is None else max_seq_length
        place = tf.range(length)[None, :]  # [1, S]
        source = tf.where(place < separator, first_start + place - 1, second_start + place - separator - 1)  # [N, S]
        total = tf.size(pieces.flat_values)
        source = tf.where(place == 0, total, source)
        source = tf.where((place == separator) | (place == last), total + 1, source)
        source = tf.where(place > last, total + 2, source)
        input_ids = tf.gather(tf.concat([pieces.flat_values, self._special_ids], axis=0), source)
        input_mask = tf.cast(place <= last, tf.int32)
        return input_ids, input_mask, tf.cast(place > separator, tf.int32) * input_mask

    def _lower_sigmas(self, kinds: tf.Tensor) -> tf.Tensor:
        """Makes capital sigmas final where a cased letter precedes and none follows; int32 [C].

        As `str.lower` (Final_Sigma in The Unicode Standard, section 3.13): what is case-ignorable is skipped. So is
        what the rules remove before they lower-case.
        """
        contexts = tf.gather(self._sigma_contexts, kinds)
        skipped = contexts == _SKIPPED
        cased = tf.concat([[False], tf.boolean_mask(contexts, ~skipped) == _CASED, [False]], axis=0)
        # The sigma itself is the one at this place in `cased`.
        place = tf.cumsum(tf.cast(~skipped, tf.int32))
        sigmas = tf.where(kinds == _SIGMA)
        place = tf.gather_nd(place, sigmas)
        final = tf.gather(cased, place - 1) & ~tf.gather(cased, place + 1)
        return tf.tensor_scatter_nd_update(kinds, sigmas, tf.where(final, self._final_sigma, _SIGMA))

    def _sort_marks(self, kinds: tf.Tensor) -> tf.Tensor:
        """Takes apart what is composed with marks that stay, and sorts marks by combining class; int32 [C'], C' >= C.

        As NFD (Canonical Ordering Algorithm in The Unicode Standard, section 3.11).
        """
        composed = (kinds >= self._first_composed) & (kinds < self._first_plain)
        parts = tf.gather(self._parts, tf.where(composed, kinds - self._first_composed, 0))  # [C, P]
        itself = tf.pad(kinds[:, None], [[0, 0], [0, self._parts.shape[1] - 1]], constant_values=-1)
        kinds = tf.reshape(tf.where(composed[:, None], parts, itself), [-1])
        kinds = tf.boolean_mask(kinds, kinds >= 0)
        classes = tf.cast(tf.gather(self._combining_classes, kinds), tf.int64)
        # A run is a starter with the marks after it.
        run = tf.cumsum(tf.cast(classes == _STARTER, tf.int64))
        return tf.gather(kinds, tf.argsort(run * 256 + classes, stable=True))

    def _spell(self, symbols: tf.Tensor) -> tf.Tensor:
        """The id of each piece where the piece starts, a negative number elsewhere; int32 [S]."""
        gap = symbols < _FOREIGN
        after_gap = tf.concat([[True], gap[:-1]], axis=0)
        starts = tf.where(~gap & after_gap)[:, 0]  # [W]
        stops = tf.where(gap & ~after_gap)[:, 0]  # [W]

        # A walker a word, A of them alive, goes down the trie. Where there is no way on, the longest piece it has
        # passed is the one, and it starts again behind that.
        def step(
            ids: tf.Tensor, node: tf.Tensor, place: tf.Tensor, piece_start: tf.Tensor, piece: tf.Tensor, stop: tf.Tensor
        ) -> tuple[tf.Tensor, ...]:
            edge = node * self._symbol_count + tf.cast(tf.gather(symbols, place), tf.int64)
            child = self._children.lookup(edge)  # [A]
            on = child >= 0
            stuck = tf.where(~on)
            ids = tf.tensor_scatter_nd_update(ids, tf.gather(piece_start, stuck), tf.gather_nd(piece, stuck))
            alive = on | ((piece >= 0) & ~tf.gather(gap, stop))
            node = tf.where(on, child, _CONTINUED)
            place = tf.where(on, place + 1, stop)
            piece_start = tf.where(on, piece_start, stop)
            passed = tf.where(on, tf.gather(self._piece_of_node, node), _NO_SPELLING)
            better = passed != _NO_PIECE
            piece = tf.where(better, passed, piece)
            stop = tf.where(better, place, stop)
            chosen = tf.where(alive)[:, 0]
            return ids, *(tf.gather(state, chosen) for state in (node, place, piece_start, piece, stop))

        ids = tf.fill(tf.shape(symbols), _NO_PIECE)
        nodes = tf.where(stops - starts > MAX_WORD_CHARACTERS, tf.constant(_NOWHERE, tf.int64), _START)
        no_piece = tf.fill(tf.shape(starts), _NO_SPELLING)
        ids, *_ = tf.while_loop(
            lambda *state: tf.size(state[1]) > 0,
            step,
            (ids, nodes, starts, starts, no_piece, starts),
            shape_invariants=(tf.TensorShape([None]),) * 6,
            parallel_iterations=1,
        )
        # A word that cannot be spelt to its end is [UNK], without the pieces found before.
        word = tf.searchsorted(starts, tf.where(ids == _NO_SPELLING)[:, 0], side="right") - 1
        unknown_starts = tf.gather(starts, word)
        inside = tf.ragged.range(unknown_starts, tf.gather(stops, word)).flat_values[:, None]
        ids = tf.tensor_scatter_nd_update(ids, inside, tf.fill(tf.shape(inside)[:1], _NO_PIECE))
        unknown = tf.fill(tf.shape(unknown_starts), self._unk_id)
        return tf.tensor_scatter_nd_update(ids, unknown_starts[:, None], unknown)


class _CharacterRules(NamedTuple):
    """What the rules do to each code point; what a dictionary does not name is nothing special."""

    # What becomes of a character among others, with the spaces that set it apart, unless it stays as it is.
    replacements: dict[int, str]
    # _SKIPPED or _CASED.
    sigma_contexts: dict[int, int]
    # The combining class of a mark that is no accent, or _REMOVED. Mn of class 0 is a starter to NFD.
    combining_classes: dict[int, int]
    # The NFD of what is composed with such a mark.
    composed: dict[int, str]


@lru_cache(maxsize=2)
def _character_rules(do_lower_case: bool) -> _CharacterRules:
    """Asks `split_words` about every character, `unicodedata` only about the order of marks."""
    rules = _CharacterRules({}, {}, {}, {})
    for code in range(_CODE_POINTS):
        character = chr(code)
        category = unicodedata.category(character)
        if category in ("Cn", "Co", "Cs") and not is_cjk(character):
            # Unassigned, private or a surrogate: a letter without any property. Six of seven code points.
            continue
        replacement = " ".join(split_words(f"a{character}b", do_lower_case))[1:-1]
        if replacement != character:
            rules.replacements[code] = replacement
        if not do_lower_case:
            continue
        if split_words(f"a{character}{_CAPITAL_SIGMA}", True)[-1].endswith(_FINAL_SIGMA):
            cased = split_words(character + _CAPITAL_SIGMA, True)[-1].endswith(_FINAL_SIGMA)
            rules.sigma_contexts[code] = _CASED if cased else _SKIPPED
        decomposition = unicodedata.normalize("NFD", character.lower())
        classes = list(map(unicodedata.combining, decomposition))
        if not replacement and (category != "Mn" or all(classes)):
            rules.combining_classes[code] = _REMOVED
        elif len(classes) == 1 and classes[0]:
            rules.combining_classes[code] = classes[0]
        elif any(map(unicodedata.combining, replacement)):
            rules.composed[code] = decomposition
    return rules


class _Kind(NamedTuple):
    """Code points that nothing here tells apart are of one kind."""

    symbols: tuple[int, ...]
    sigma_context: int = _OTHER
    combining_class: int = _STARTER


class _CharacterKinds(NamedTuple):
    """The kinds, by number, and where they are met.

    First come the kinds that depend on the characters around them, of one code point each: the capital sigma, then
    the marks that NFD may move, then what is composed with them.
    """

    # int32 [code points and one page more, for _END_OF_TEXT].
    of_code: np.ndarray
    kinds: list[_Kind]
    # For each composed kind, the kinds it is composed of and -1 to fill up.
    parts: list[list[int]]
    first_composed: int
    first_plain: int


def _character_kinds(rules: _CharacterRules, symbols: dict[str, int]) -> _CharacterKinds:
    def kind(code: int) -> _Kind:
        replacement = rules.replacements.get(code, chr(code))
        return _Kind(
            tuple(_SPACE if character == " " else symbols.get(character, _FOREIGN) for character in replacement),
            rules.sigma_contexts.get(code, _OTHER),
            rules.combining_classes.get(code, _STARTER),
        )

    movable = [code for code, combining_class in rules.combining_classes.items() if combining_class != _REMOVED]
    contextual = [ord(_CAPITAL_SIGMA), *movable, *rules.composed]
    kinds = [kind(code) for code in contextual]
    numbers: dict[_Kind, int] = {}

    def number(kind: _Kind) -> int:
        if kind not in numbers:
            numbers[kind] = len(kinds)
            kinds.append(kind)
        return numbers[kind]

    of_code = np.full(_CODE_POINTS + 2**_PAGE_BITS, number(_Kind((_FOREIGN,))), np.int32)
    special = {ord(" "), *rules.replacements, *rules.sigma_contexts, *rules.combining_classes, *map(ord, symbols)}
    for code in sorted(special):
        of_code[code] = number(kind(code))
    of_code[contextual] = np.arange(len(contextual))
    of_code[_END_OF_TEXT] = number(_Kind((_END,)))
    longest = max(map(len, rules.composed.values()), default=1)
    parts = [[int(of_code[ord(part)]) for part in nfd] + [-1] * (longest - len(nfd)) for nfd in rules.composed.values()]
    return _CharacterKinds(of_code, kinds, parts, first_composed=1 + len(movable), first_plain=len(contextual))


class _Trie(NamedTuple):
    symbols: dict[str, int]
    # From (node, symbol) to the next node.
    children: dict[tuple[int, int], int]
    # The id of the piece that ends in a node, or _NO_PIECE; int32 [nodes].
    piece_of_node: np.ndarray


def _build_trie(pieces: Sequence[str]) -> _Trie:
    symbols: dict[str, int] = {}
    children: dict[tuple[int, int], int] = {}
    piece_of_node = [_NO_PIECE, _NO_PIECE]
    for piece_id, piece in enumerate(pieces):
        node = _START
        if piece.startswith(CONTINUATION) and piece != CONTINUATION:
            node, piece = _CONTINUED, piece.removeprefix(CONTINUATION)
        for character in piece:
            symbol = symbols.setdefault(character, _FIRST_LETTER + len(symbols))
            node = children.setdefault((node, symbol), len(piece_of_node))
            if node == len(piece_of_node):
                piece_of_node.append(_NO_PIECE)
        piece_of_node[node] = piece_id
    return _Trie(symbols, children, np.array(piece_of_node, np.int32))
