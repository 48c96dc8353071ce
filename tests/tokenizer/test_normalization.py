"""Test the blocks of ideographs, the preparation of chunks, and the name of the rules."""

import hashlib

import pytest

from beambert.common.word_rules import WordRules
from beambert.tokenizer.normalization import (
    CHARACTER_RULES,
    is_cjk,
    prepare_chunks,
    replace_character,
)


def test_cjk_blocks_end_where_the_released_code_ends_them() -> None:
    # First code point inside, and first after; three blocks from U+2A700 on follow each other without a gap.
    edges = [0x3400, 0x4DC0, 0x4E00, 0xA000, 0xF900, 0xFB00, 0x20000, 0x2A6E0, 0x2A700, 0x2CEB0, 0x2F800, 0x2FA20]
    inside = False
    for code in range(0x110000):
        inside ^= code in edges
        assert is_cjk(chr(code)) == inside, hex(code)


def test_chunks() -> None:
    texts = ["a\u535a\u63a8b", "c\x0bd\x85 e,\u2028f\u200b", "", "g\tH"]
    chunks = [["a", "\u535a", "\u63a8", "b"], ["cd", "e,", "f\u200b"], [], ["g", "H"]]
    assert [text.split() for text in prepare_chunks(texts)] == chunks


@pytest.mark.slow
@pytest.mark.parametrize("do_lower_case", [True, False], ids=["uncased", "cased"])
def test_the_name_of_the_rules_identifies_them(do_lower_case: bool) -> None:
    """Compare the replacements of all code points with those recorded from Python 3.11.7, 3.12.1 and 3.13.0."""
    recorded = {
        ("Unicode 14.0.0", True): "b2e8886e43bdf3be",
        ("Unicode 14.0.0", False): "437882233c395ce8",
        ("Unicode 15.0.0", True): "4dbbf118226b89fb",
        ("Unicode 15.0.0", False): "47ecfa38067b09e3",
    }
    lines = ["\t".join(map(str, replace_character(code, WordRules(do_lower_case)))) for code in range(0x110000)]
    digest = hashlib.sha256("\n".join(lines).encode("utf-8", "surrogatepass")).hexdigest()
    assert digest[:16] == recorded[CHARACTER_RULES, do_lower_case]
