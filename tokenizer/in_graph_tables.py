"""Compute the tables of `in_graph.py` with numpy: kinds of characters and the trie of tokens."""

import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from beambert.common.word_rules import WordRules
from beambert.tokenizer.normalization import is_cjk, replace_character, split_words
from beambert.tokenizer.wordpiece import CONTINUATION

CODE_POINTS = 0x110000
PAGE_BITS = 8
# Marks the end of a text in an array of code points.
END_OF_TEXT = CODE_POINTS
CAPITAL_SIGMA, FINAL_SIGMA = "\u03a3", "\u03c2"
# The kind of the capital sigma.
SIGMA = 0

# Effect of a character on the lower case of a capital sigma nearby.
OTHER, SKIPPED, CASED = 0, 1, 2
# Pseudo combining classes: a character that NFD moves no mark across, and a character that normalization removes.
STARTER, REMOVED = 0, 255
# Symbols, the trie's numbering of characters. Symbols from FIRST_LETTER on are characters that occur in tokens.
END, SPACE, FOREIGN, FIRST_LETTER = 0, 1, 2, 3
# Nodes of the trie: the root for word starts, the root for continuations, and a node without children.
START, CONTINUED, NOWHERE = 0, 1, -1
# Pseudo token ids.
NO_TOKEN, NO_SPELLING = -1, -2


class CharacterRules(NamedTuple):
    """Normalization rules by code point; a code point that a dictionary does not contain has no such rule."""

    # Replacement of the character, including the spaces that separate it, if it changes.
    replacements: dict[int, str]
    # SKIPPED or CASED.
    sigma_contexts: dict[int, int]
    # Combining class of a mark that is not an accent, or REMOVED. NFD treats Mn of class 0 as a starter.
    combining_classes: dict[int, int]
    # NFD of a character composed with such a mark.
    composed: dict[int, str]
    # Characters that are part of the character before them.
    accents: set[int]


@lru_cache(maxsize=4)
def character_rules(word_rules: WordRules) -> CharacterRules:
    """Return the rules of all characters, derived from `split_words`; `unicodedata` gives combining classes only."""
    rules = CharacterRules({}, {}, {}, {}, set())
    for code in range(CODE_POINTS):
        character = chr(code)
        category = unicodedata.category(character)
        if category in ("Cn", "Co", "Cs") and not is_cjk(character):
            # Unassigned, private use or surrogate (six of seven code points): a letter without any rule.
            continue
        replacement = " ".join(split_words(f"a{character}b", word_rules))[1:-1]
        if replacement != character:
            rules.replacements[code] = replacement
        if word_rules.do_lower_case and split_words(f"a{character}{CAPITAL_SIGMA}", word_rules)[-1].endswith(
            FINAL_SIGMA
        ):
            cased = split_words(character + CAPITAL_SIGMA, word_rules)[-1].endswith(FINAL_SIGMA)
            rules.sigma_contexts[code] = CASED if cased else SKIPPED
        if not word_rules.strips_accents:
            continue
        if replace_character(code, word_rules)[1]:
            rules.accents.add(code)
        lowered = character.lower() if word_rules.do_lower_case else character
        decomposition = unicodedata.normalize("NFD", lowered)
        classes = list(map(unicodedata.combining, decomposition))
        if not replacement and (category != "Mn" or all(classes)):
            rules.combining_classes[code] = REMOVED
        elif len(classes) == 1 and classes[0]:
            rules.combining_classes[code] = classes[0]
        elif any(map(unicodedata.combining, replacement)):
            rules.composed[code] = decomposition
    return rules


class Kind(NamedTuple):
    """A class of code points that the tables treat the same way."""

    symbols: tuple[int, ...]
    sigma_context: int = OTHER
    combining_class: int = STARTER
    is_accent: bool = False


class CharacterKinds(NamedTuple):
    """All kinds and the kind of each code point.

    The first kinds are those whose result depends on neighboring characters, one code point each: the capital sigma,
    the marks that NFD may move, then the characters composed with these marks.
    """

    # int32 [CODE_POINTS + one page for END_OF_TEXT], the number of the kind.
    of_code: np.ndarray
    kinds: list[Kind]
    # For each composed kind, the kinds of its decomposition, padded with -1.
    parts: list[list[int]]
    first_composed: int
    first_plain: int


def character_kinds(rules: CharacterRules, symbols: dict[str, int]) -> CharacterKinds:
    """Return the kinds of all code points for a trie with these symbols."""

    def kind(code: int) -> Kind:
        replacement = rules.replacements.get(code, chr(code))
        return Kind(
            tuple(SPACE if character == " " else symbols.get(character, FOREIGN) for character in replacement),
            rules.sigma_contexts.get(code, OTHER),
            rules.combining_classes.get(code, STARTER),
            code in rules.accents,
        )

    movable = [code for code, combining_class in rules.combining_classes.items() if combining_class != REMOVED]
    contextual = [ord(CAPITAL_SIGMA), *movable, *rules.composed]
    kinds = [kind(code) for code in contextual]
    numbers: dict[Kind, int] = {}

    def number(kind: Kind) -> int:
        if kind not in numbers:
            numbers[kind] = len(kinds)
            kinds.append(kind)
        return numbers[kind]

    of_code = np.full(CODE_POINTS + 2**PAGE_BITS, number(Kind((FOREIGN,))), np.int32)
    special = {ord(" "), *rules.replacements, *rules.sigma_contexts, *rules.combining_classes, *rules.accents}
    special.update(map(ord, symbols))
    for code in sorted(special):
        of_code[code] = number(kind(code))
    of_code[contextual] = np.arange(len(contextual))
    of_code[END_OF_TEXT] = number(Kind((END,)))
    longest = max(map(len, rules.composed.values()), default=1)
    parts = [[int(of_code[ord(part)]) for part in nfd] + [-1] * (longest - len(nfd)) for nfd in rules.composed.values()]
    return CharacterKinds(of_code, kinds, parts, first_composed=1 + len(movable), first_plain=len(contextual))


class Trie(NamedTuple):
    """The trie of a vocabulary's tokens."""

    symbols: dict[str, int]
    # (node, symbol) -> child node.
    children: dict[tuple[int, int], int]
    # int32 [nodes], the id of the token that ends at the node, or NO_TOKEN.
    token_of_node: np.ndarray


def build_trie(tokens: Sequence[str]) -> Trie:
    """Return the trie of a vocabulary, given its tokens in id order."""
    symbols: dict[str, int] = {}
    children: dict[tuple[int, int], int] = {}
    token_of_node = [NO_TOKEN, NO_TOKEN]
    for token_id, token in enumerate(tokens):
        node = START
        if token.startswith(CONTINUATION) and token != CONTINUATION:
            node, token = CONTINUED, token.removeprefix(CONTINUATION)
        for character in token:
            symbol = symbols.setdefault(character, FIRST_LETTER + len(symbols))
            node = children.setdefault((node, symbol), len(token_of_node))
            if node == len(token_of_node):
                token_of_node.append(NO_TOKEN)
        token_of_node[node] = token_id
    return Trie(symbols, children, np.array(token_of_node, np.int32))
