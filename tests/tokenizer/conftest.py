import os
from collections.abc import Iterator

import pytest

from tokenizer import normalization, tokenizer


@pytest.fixture(scope="session")
def encoders() -> list[bool]:
    """Possible values of `compiled`: always False (Python encoder), and True if the compiled encoder was built."""
    if tokenizer._native is None and os.environ.get("BEAMBERT_REQUIRE_COMPILED") == "1":
        pytest.fail("tokenizer._native was not built")
    return [False] if tokenizer._native is None else [False, True]


@pytest.fixture
def forgotten_characters() -> Iterator[None]:
    """Clear the tables of the rules after a test that processes every character."""
    yield
    for table in (
        *normalization._CLEANED.values(),
        normalization._WITHOUT_ACCENTS,
        normalization._WITH_SPACED_PUNCTUATION,
    ):
        table.clear()
