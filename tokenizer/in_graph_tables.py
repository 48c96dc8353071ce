"""Tables of `in_graph.py`: the kinds of characters and the trie of tokens, as numpy arrays; no TensorFlow here."""

import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from tokenizer.normalization import is_cjk, replace_character, split_words
from tokenizer.wordpiece import CONTINUATION

CODE_POINTS = 0x110000
PAGE_BITS = 8
# In an array of code points, the end of one of the texts.
END_OF_TEXT = CODE_POINTS
CAPITAL_SIGMA, FINAL_SIGMA = "\u03a3", "\u03c2"
# The kind of the capital sigma.
SIGMA = 0

# What a character is to a sigma near it.
OTHER, SKIPPED, CASED = 0, 1, 2
# In place of a combining class: what NFD moves no mark across, and what the rules remove.
STARTER, REMOVED = 0, 255
# Symbols: the trie's numbers of characters. Those from FIRST_LETTER on are the characters of the tokens.
END, SPACE, FOREIGN, FIRST_LETTER = 0, 1, 2, 3
# Nodes of the trie: before a token at the start of a word, before one that continues it, and one that leads nowhere.
START, CONTINUED, NOWHERE = 0, 1, -1
# In place of an id.
NO_TOKEN, NO_SPELLING = -1, -2


class CharacterRules(NamedTuple):
    """The rules of each code point; one that a dictionary does not name has no rule."""

    # What becomes of a character among others, with the spaces that set it apart, unless it stays as it is.
    replacements: dict[int, str]
    # SKIPPED or CASED.
    sigma_contexts: dict[int, int]
    # The combining class of a mark that is no accent, or REMOVED. Mn of class 0 is a starter to NFD.
    combining_classes: dict[int, int]
    # The NFD of what is composed with such a mark.
    composed: dict[int, str]
    # What belongs to the character before it.
    accents: set[int]


@lru_cache(maxsize=2)
def character_rules(do_lower_case: bool) -> CharacterRules:
    """Compute the rules of every character from `split_words`; `unicodedata` gives only the order of marks."""
    rules = CharacterRules({}, {}, {}, {}, set())
    for code in range(CODE_POINTS):
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
        if split_words(f"a{character}{CAPITAL_SIGMA}", True)[-1].endswith(FINAL_SIGMA):
            cased = split_words(character + CAPITAL_SIGMA, True)[-1].endswith(FINAL_SIGMA)
            rules.sigma_contexts[code] = CASED if cased else SKIPPED
        if replace_character(code, True)[1]:
            rules.accents.add(code)
        decomposition = unicodedata.normalize("NFD", character.lower())
        classes = list(map(unicodedata.combining, decomposition))
        if not replacement and (category != "Mn" or all(classes)):
            rules.combining_classes[code] = REMOVED
        elif len(classes) == 1 and classes[0]:
            rules.combining_classes[code] = classes[0]
        elif any(map(unicodedata.combining, replacement)):
            rules.composed[code] = decomposition
    return rules


class Kind(NamedTuple):
    """A kind of code points: all those that the tables treat the same."""

    symbols: tuple[int, ...]
    sigma_context: int = OTHER
    combining_class: int = STARTER
    is_accent: bool = False


class CharacterKinds(NamedTuple):
    """The kinds, by number, and where they are met.

    First come the kinds that depend on the characters around them, of one code point each: the capital sigma, then
    the marks that NFD may move, then what is composed with them.
    """

    # int32 [code points and one page more, for END_OF_TEXT].
    of_code: np.ndarray
    kinds: list[Kind]
    # For each composed kind, the kinds it is composed of and -1 to fill up.
    parts: list[list[int]]
    first_composed: int
    first_plain: int


def character_kinds(rules: CharacterRules, symbols: dict[str, int]) -> CharacterKinds:
    """Return the kinds of all code points, for a trie of these symbols."""

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
    """The trie of a vocabulary's tokens, symbol by symbol."""

    symbols: dict[str, int]
    # From (node, symbol) to the next node.
    children: dict[tuple[int, int], int]
    # The id of the token that ends in a node, or NO_TOKEN; int32 [nodes].
    token_of_node: np.ndarray


def build_trie(tokens: Sequence[str]) -> Trie:
    """Return the trie of tokens in the order of their ids."""
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
