import bz2
import pickle
import unicodedata
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tokenizer.tokenizer
from tokenizer.normalization import split_words
from tokenizer.tokenizer import Tokenizer
from tokenizer.vocabulary import SPECIAL_TOKENS, Vocabulary, VocabularyError
from tokenizer.wordpiece import split_word

SMALL = Vocabulary((*SPECIAL_TOKENS, "want", "##want", "##ed", "wa", "un", "runn", "##ing", ",", "low", "##est"))


@pytest.fixture(scope="module")
def released(shared_data: Path) -> Vocabulary:
    return Vocabulary.load(shared_data / "tokenizer/bert-base-uncased-vocab.txt")


@pytest.fixture(scope="module")
def sentences(shared_data: Path) -> list[str]:
    """Some 2 MB of English Wikipedia."""
    with bz2.open(shared_data / "wiki-extracted/enwiki-2015-00.bz2", "rt", encoding="utf-8") as file:
        text = file.read(2_000_000)
    paragraphs = [line for line in text.split("\n") if line and not line.startswith("<")]
    return [sentence for paragraph in paragraphs for sentence in paragraph.split(". ")]


def reference_ids(text: str, vocabulary: Vocabulary, do_lower_case: bool) -> list[int]:
    words = split_words(text, do_lower_case)
    return [vocabulary.ids[piece] for word in words for piece in split_word(word, vocabulary.ids)]


def rows(ids: np.ndarray, row_splits: np.ndarray) -> list[list[int]]:
    return [ids[start:end].tolist() for start, end in pairwise(row_splits)]


def test_released_cases() -> None:
    tokenizer = Tokenizer(SMALL)
    assert tokenizer.tokenize("UNwant\u00e9d,running") == ["un", "##want", "##ed", ",", "runn", "##ing"]
    assert tokenizer.tokenize("lowest unwantedX running") == ["low", "##est", "[UNK]", "runn", "##ing"]
    assert Tokenizer(SMALL, do_lower_case=False).tokenize("UNwant running") == ["[UNK]", "runn", "##ing"]


def test_batch_types_and_empty_texts() -> None:
    tokenizer = Tokenizer(SMALL)
    ids, row_splits = tokenizer.encode_batch(["", "running", " \u200b ", "un, \x0b\u0301", ""])
    assert (ids.dtype, row_splits.dtype) == (np.int32, np.int64)
    assert rows(ids, row_splits) == [[], [10, 11], [], [9, 12], []]
    ids[0] = 7  # The caller's own, to be written to.
    assert tokenizer.tokenize("running") == ["runn", "##ing"]
    ids, row_splits = tokenizer.encode_batch([])
    assert (ids.dtype, ids.tolist(), row_splits.dtype, row_splits.tolist()) == (np.int32, [], np.int64, [0])
    with pytest.raises(TypeError, match="sequence of texts"):
        tokenizer.encode_batch("running")


@pytest.mark.parametrize("do_lower_case", [True, False], ids=["uncased", "cased"])
def test_real_text_with_released_vocabulary(released: Vocabulary, sentences: list[str], do_lower_case: bool) -> None:
    expected = [reference_ids(text, released, do_lower_case) for text in sentences]
    assert rows(*Tokenizer(released, do_lower_case).encode_batch(sentences)) == expected


@given(texts=st.lists(st.text(st.sampled_from("wanted,un. \u535a\u00e9"), max_size=90)))
def test_generated_text(texts: list[str]) -> None:
    assert rows(*Tokenizer(SMALL).encode_batch(texts)) == [reference_ids(text, SMALL, True) for text in texts]


def test_memory_is_bounded_and_has_no_influence(
    released: Vocabulary, sentences: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Tokenizer(released).encode_batch(sentences)
    monkeypatch.setattr(tokenizer.tokenizer, "MAX_CHUNKS", 1000)
    bounded = Tokenizer(released)
    parts = []
    for start in range(0, len(sentences), 50):
        batch = sentences[start : start + 50]
        # A long chunk that never comes again, and one with more words than the memory holds.
        parts.append(bounded.encode_batch([f"http://{start}" * 20 + "z" * 70, *batch, f",{start}a" * 1200]))
        assert len(bounded._chunks) <= 1000
        assert len(bounded._chunks.words) <= 1000
        assert not any(len(chunk) > 64 for chunk in (*bounded._chunks, *bounded._chunks.words))
    together = [row for part in parts for row in rows(*part)[1:-1]]
    assert together == rows(*whole)


def test_pickles_without_its_memory() -> None:
    tokenizer = Tokenizer(SMALL, do_lower_case=False)
    empty = len(pickle.dumps(tokenizer))
    tokenizer.encode_batch([f"{i} un" for i in range(1000)])
    copy = pickle.loads(pickle.dumps(tokenizer))
    assert len(pickle.dumps(tokenizer)) < empty + 1000
    assert copy.tokenize("UN un") == ["[UNK]", "un"]


def test_encode_single() -> None:
    tokenizer = Tokenizer(SMALL)
    assert tokenizer.encode("un running", max_seq_length=7) == (
        [2, 9, 10, 11, 3, 0, 0],
        [1, 1, 1, 1, 1, 0, 0],
        [0, 0, 0, 0, 0, 0, 0],
    )
    assert tokenizer.encode("un running", max_seq_length=4) == ([2, 9, 10, 3], [1] * 4, [0] * 4)
    assert tokenizer.encode("", max_seq_length=2) == ([2, 3], [1, 1], [0, 0])
    # A pair of which nothing is left after cleaning is none.
    assert tokenizer.encode("un", "\u200b", max_seq_length=3) == ([2, 9, 3], [1] * 3, [0] * 3)
    with pytest.raises(ValueError, match="max_seq_length 1 "):
        tokenizer.encode("un", max_seq_length=1)
    with pytest.raises(ValueError, match="max_seq_length 2 "):
        tokenizer.encode("un", "un", max_seq_length=2)


@pytest.mark.parametrize(
    ("first", "second", "max_seq_length", "kept"),
    [
        (3, 2, 9, (3, 2)),
        (3, 2, 8, (3, 2)),
        (3, 2, 7, (2, 2)),
        # As long as each other: the second is cut.
        (2, 2, 6, (2, 1)),
        (5, 1, 6, (2, 1)),
        (1, 5, 6, (1, 2)),
        (2, 2, 4, (1, 0)),
        (2, 2, 3, (0, 0)),
    ],
)
def test_encode_pair(first: int, second: int, max_seq_length: int, kept: tuple[int, int]) -> None:
    tokenizer = Tokenizer(SMALL)
    ids, mask, segments = tokenizer.encode("un " * first, "low " * second, max_seq_length)
    # A second text that the cut emptied leaves no [SEP] behind.
    second_segment = [*[13] * kept[1], 3] if kept[1] else []
    whole = [2, *[9] * kept[0], 3, *second_segment]
    padding = [0] * (max_seq_length - len(whole))
    assert ids == whole + padding
    assert mask == [1] * len(whole) + padding
    assert segments == [0] * (kept[0] + 2) + [1] * len(second_segment) + padding


def test_decode() -> None:
    tokenizer = Tokenizer(SMALL)
    assert tokenizer.decode([2, 9, 6, 7, 12, 1, 4, 3, 0]) == "[CLS] unwanted , [UNK] [MASK] [SEP] [PAD]"
    assert tokenizer.decode(tokenizer.encode_batch(["running, lowest"])[0]) == "running , lowest"
    assert tokenizer.decode([]) == ""
    # Sampled or masked ids can start with a continuation.
    assert tokenizer.decode([6, 7]) == "##wanted"
    for wrong in (-1, len(SMALL)):
        with pytest.raises(VocabularyError, match=f"id {wrong} is not in vocabulary, which has 15 pieces"):
            tokenizer.decode([0, wrong])


def test_against_tensorflow_text(released: Vocabulary, sentences: list[str]) -> None:
    """An independent library; it folds case and compatibility characters, which the released rules do not."""
    tensorflow_text = pytest.importorskip("tensorflow_text", exc_type=ImportError)
    ordinary = [
        text
        for text in sentences
        if unicodedata.normalize("NFKD", text.casefold()) == unicodedata.normalize("NFD", text.lower())
    ]
    assert len(ordinary) > 0.95 * len(sentences)
    assert sum(not text.isascii() for text in ordinary) > 500
    theirs = tensorflow_text.FastBertTokenizer(list(released.pieces), lower_case_nfd_strip_accents=True)
    ids, row_splits = Tokenizer(released).encode_batch(ordinary)
    assert rows(ids, row_splits) == theirs.tokenize(ordinary).to_list()
