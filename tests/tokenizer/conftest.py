import os

import pytest

from tokenizer import tokenizer


@pytest.fixture(scope="session")
def encoders() -> list[bool]:
    """What `compiled` can be here: the Python encoder always, the compiled one where it was built."""
    if tokenizer._native is None and os.environ.get("BEAMBERT_REQUIRE_COMPILED") == "1":
        pytest.fail("tokenizer._native was not built")
    return [False] if tokenizer._native is None else [False, True]
