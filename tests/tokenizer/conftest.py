import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from beambert.tokenizer import normalization, tokenizer


@pytest.fixture(scope="session")
def encoders() -> list[bool]:
    """Possible values of `compiled`: always False (Python encoder), and True if the compiled encoder was built."""
    if tokenizer._native is None and os.environ.get("BEAMBERT_REQUIRE_COMPILED") == "1":
        pytest.fail("beambert.tokenizer._native was not built")
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


@pytest.fixture(scope="session")
def real_texts(shared_data: Path) -> list[str]:
    """Paragraphs of German articles and of books, and texts in 23 languages."""
    german = json.loads((shared_data / "squad/xquad.de.json").read_text(encoding="utf-8"))
    texts = [paragraph["context"] for article in german["data"] for paragraph in article["paragraphs"]]
    for book in ("pg74.txt", "8isbl10.txt", "7hckb10.txt"):
        texts += (shared_data / "gutenberg" / book).read_bytes()[:200_000].decode("latin-1").split("\n\n")
    rules = (shared_data / "segmentation/golden_rules.jsonl").read_text(encoding="utf-8").splitlines()
    return texts + [json.loads(line)["text"] for line in rules]
