import bz2
import json
import pickle
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from beambert.common.word_rules import WordRules
from beambert.tokenizer.normalization import split_words
from beambert.tokenizer.tokenizer import Tokenizer, truncated_lengths
from beambert.tokenizer.vocabulary import SPECIAL_TOKENS, Vocabulary, VocabularyError
from beambert.tokenizer.wordpiece import split_word
from tests.pipelines.instances import reference_instances

SMALL = Vocabulary((*SPECIAL_TOKENS, "want", "##want", "##ed", "wa", "un", "runn", "##ing", ",", "low", "##est"))


@pytest.fixture(scope="module")
def released(shared_data: Path) -> Vocabulary:
    return Vocabulary.load(shared_data / "tokenizer/bert-base-uncased-vocab.txt")


@pytest.fixture(scope="module")
def sentences(shared_data: Path) -> list[str]:
    """Sentences of about 2 MB of English Wikipedia."""
    with bz2.open(shared_data / "wiki-extracted/enwiki-2015-00.bz2", "rt", encoding="utf-8") as file:
        text = file.read(2_000_000)
    paragraphs = [line for line in text.split("\n") if line and not line.startswith("<")]
    return [sentence for paragraph in paragraphs for sentence in paragraph.split(". ")]


def reference_ids(text: str, vocabulary: Vocabulary, do_lower_case: bool) -> list[int]:
    words = split_words(text, WordRules(do_lower_case))
    return [vocabulary.ids[piece] for word in words for piece in split_word(word, vocabulary.ids)]


def rows(ids: np.ndarray, row_splits: np.ndarray) -> list[list[int]]:
    return [ids[start:end].tolist() for start, end in pairwise(row_splits)]


@pytest.fixture(params=[False, True], ids=["Python", "compiled"])
def compiled(request: pytest.FixtureRequest, encoders: list[bool]) -> bool:
    """Whether a test uses the compiled encoder; such tests are skipped if it was not built."""
    if request.param not in encoders:
        pytest.skip("beambert.tokenizer._native was not built: no C compiler when beambert was installed")
    return request.param


def test_batch_types_and_empty_texts(compiled: bool) -> None:
    tokenizer = Tokenizer(SMALL, compiled=compiled)
    ids, row_splits = tokenizer.encode_batch(["", "running", " \u200b ", "un, \x0b\u0301", ""])
    assert (ids.dtype, row_splits.dtype) == (np.int32, np.int64)
    assert rows(ids, row_splits) == [[], [10, 11], [], [9, 12], []]
    ids[0] = 7  # The array belongs to the caller and is writable.
    assert tokenizer.tokenize("running") == ["runn", "##ing"]
    ids, row_splits = tokenizer.encode_batch([])
    assert (ids.dtype, ids.tolist(), row_splits.dtype, row_splits.tolist()) == (np.int32, [], np.int64, [0])
    ids, row_splits, offsets = tokenizer.encode_batch_with_offsets([])
    assert (ids.dtype, row_splits.tolist(), offsets.dtype, offsets.shape) == (np.int32, [0], np.int32, (0, 2))
    with pytest.raises(TypeError, match="texts must be a sequence of str"):
        tokenizer.encode_batch("running")
    with pytest.raises(TypeError):
        tokenizer.encode_batch(["running", None])


@pytest.mark.parametrize("do_lower_case", [True, False], ids=["uncased", "cased"])
def test_real_text_with_released_vocabulary(
    released: Vocabulary, sentences: list[str], do_lower_case: bool, compiled: bool
) -> None:
    expected = [reference_ids(text, released, do_lower_case) for text in sentences]
    assert rows(*Tokenizer(released, do_lower_case, compiled=compiled).encode_batch(sentences)) == expected


def test_cache_is_bounded_and_has_no_effect(
    released: Vocabulary, sentences: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Tokenizer(released).encode_batch(sentences)
    monkeypatch.setattr("beambert.tokenizer.tokenizer.MAX_CHUNKS", 1000)
    bounded = Tokenizer(released, compiled=False)
    caches = (bounded._encoder._encoder._chunk, bounded._encoder._encoder._word)
    bounded.encode_batch(["z" * 70])
    assert not any(cache.cache_info().currsize for cache in caches)
    parts = []
    for start in range(0, len(sentences), 50):
        batch = sentences[start : start + 50]
        # A long chunk that is never repeated, and one with more words than the cache can contain.
        parts.append(bounded.encode_batch([f"http://{start}" * 20 + "z" * 70, *batch, f",{start}a" * 1200]))
        assert all(cache.cache_info().currsize <= 1000 for cache in caches)
    together = [row for part in parts for row in rows(*part)[1:-1]]
    assert together == rows(*whole)


def test_pickles_without_its_cache() -> None:
    tokenizer = Tokenizer(SMALL, do_lower_case=False)
    empty = len(pickle.dumps(tokenizer))
    tokenizer.encode_batch([f"{i} un" for i in range(10_000)])
    copy = pickle.loads(pickle.dumps(tokenizer))
    assert len(pickle.dumps(tokenizer)) < empty + 1000
    assert copy.tokenize("UN un") == ["[UNK]", "un"]


def test_offsets_by_hand(compiled: bool) -> None:
    tokenizer = Tokenizer(SMALL, compiled=compiled)

    def places(text: str) -> list[tuple[str, str]]:
        ids, _, offsets = tokenizer.encode_batch_with_offsets([text])
        return [(SMALL.tokens[i], text[start:end]) for i, (start, end) in zip(ids, offsets, strict=True)]

    assert places("UNw\u00c1nt\u00c9d, lowest") == [
        ("un", "UN"),
        ("##want", "w\u00c1nt"),
        ("##ed", "\u00c9d"),
        (",", ","),
        ("low", "low"),
        ("##est", "est"),
    ]
    # Accents belong to the character that they follow, also at the end. Removed characters are covered only inside a
    # token.
    assert places("u\u0301n\u0301\u0327 \u200bw\u00ada\u200b,\u0301") == [
        ("un", "u\u0301n\u0301\u0327"),
        ("wa", "w\u00ada"),
        (",", ",\u0301"),
    ]
    # [UNK] covers the whole word: without matching tokens, too long, or with characters that NFD reordered.
    assert places("low\u00cb\u0301 x" + "y" * 300 + " z") == [
        ("[UNK]", "low\u00cb\u0301"),
        ("[UNK]", "x" + "y" * 300),
        ("[UNK]", "z"),
    ]
    assert places("un \u302e\U00016ff0un un") == [("un", "un"), ("[UNK]", "\u302e\U00016ff0un"), ("un", "un")]
    assert places("\u302e" * 100 + "\U00016ff0" * 101) == [("[UNK]", "\u302e" * 100 + "\U00016ff0" * 101)]


def test_never_split(compiled: bool) -> None:
    tokenizer = Tokenizer(SMALL, never_split=("[MASK]", "[SEP]"), compiled=compiled)
    assert tokenizer.tokenize("un[MASK]ed [sep] [SEP]") == ["un", "[MASK]", "[UNK]", *["[UNK]"] * 3, "[SEP]"]
    texts = ["[MASK]", "", "un [MASK][SEP] un", "un", "[SEP]low[MASK]"]
    ids, row_splits, offsets = tokenizer.encode_batch_with_offsets(texts)
    assert rows(ids, row_splits) == [[4], [], [9, 4, 3, 9], [9], [3, 13, 4]]
    assert [a.tolist() for a in tokenizer.encode_batch(texts)] == [ids.tolist(), row_splits.tolist()]
    assert [offsets.dtype, ids.dtype, row_splits.dtype] == [np.int32, np.int32, np.int64]
    slices = [
        text[start:end]
        for text, (first, last) in zip(texts, pairwise(row_splits), strict=True)
        for start, end in offsets[first:last]
    ]
    assert slices == ["[MASK]", "un", "[MASK]", "[SEP]", "un", "un", "[SEP]", "low", "[MASK]"]
    assert [part.size for part in tokenizer.encode_batch_with_offsets([])] == [0, 1, 0]
    assert pickle.loads(pickle.dumps(tokenizer)).tokenize("[MASK]") == ["[MASK]"]
    # By default, the published rules apply.
    assert Tokenizer(SMALL, compiled=compiled).tokenize("[MASK]") == ["[UNK]"] * 3
    with pytest.raises(VocabularyError, match=r"invalid never_split token '\[X\]': it is not in vocabulary"):
        Tokenizer(SMALL, never_split=("[X]",), compiled=compiled)


def test_align_words() -> None:
    """Align the example of google-research/bert's README, and a word of which normalization leaves nothing."""
    vocabulary = Vocabulary((*SPECIAL_TOKENS, "john", "johan", "##son", "'", "s", "house"))
    ids, orig_to_tok_map = Tokenizer(vocabulary).align_words(["John", "Johanson", "'s", "\u200b", "house"])
    assert [vocabulary.tokens[i] for i in ids] == ["john", "johan", "##son", "'", "s", "house"]
    assert (orig_to_tok_map.dtype, orig_to_tok_map.tolist()) == (np.int64, [0, 1, 3, -1, 5])
    ids, orig_to_tok_map = Tokenizer(vocabulary).align_words([])
    assert (ids.tolist(), orig_to_tok_map.tolist()) == ([], [])


def test_load(tmp_path: Path) -> None:
    uncased, cased = (*SPECIAL_TOKENS, "un"), (*SPECIAL_TOKENS, "UN", "un")
    (tmp_path / "vocab.txt").write_bytes(Vocabulary(uncased).to_bytes())
    assert Tokenizer.load(tmp_path).tokenize("UN") == ["un"]
    assert Tokenizer.load(tmp_path / "vocab.txt").tokenize("UN") == ["un"]
    assert Tokenizer.load(tmp_path, do_lower_case=False).tokenize("UN") == ["[UNK]"]
    assert Tokenizer.load(tmp_path, never_split=["[MASK]"]).tokenize("[MASK]") == ["[MASK]"]
    (tmp_path / "vocab.txt").write_bytes(Vocabulary(cased).to_bytes())
    assert Tokenizer.load(tmp_path).tokenize("UN") == ["UN"]
    # The file that Hugging Face writes has precedence over the tokens of the vocabulary.
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True}))
    assert Tokenizer.load(tmp_path).tokenize("UN") == ["un"]
    (tmp_path / "tokenizer_config.json").write_text("{}")
    assert Tokenizer.load(tmp_path).tokenize("UN") == ["UN"]
    for content, message in (
        ("{", "not valid JSON"),
        ('{"do_lower_case": "yes"}', 'do_lower_case is "yes": expected bool'),
    ):
        (tmp_path / "tokenizer_config.json").write_text(content)
        with pytest.raises(VocabularyError, match=f"tokenizer_config.json.*{message}"):
            Tokenizer.load(tmp_path)
    with pytest.raises(VocabularyError, match=r"contains no vocab\.txt or tokenizer\.json; give a BERT model's"):
        Tokenizer.load(tmp_path / "..")


def test_load_what_hugging_face_saves(tmp_path: Path) -> None:
    """Load a file of Hugging Face's library `tokenizers`; newer transformers save it without a vocab.txt."""
    tokenizers = pytest.importorskip("tokenizers")
    pieces = (*SPECIAL_TOKENS, "un", "##want", "##ed", "\u00fcber")
    (tmp_path / "v.txt").write_bytes(Vocabulary(pieces).to_bytes())
    theirs = tokenizers.BertWordPieceTokenizer(str(tmp_path / "v.txt"), lowercase=True, strip_accents=False)
    theirs.add_tokens(["covid"])
    theirs.save(str(tmp_path / "tokenizer.json"))
    loaded = Tokenizer.load(tmp_path)
    assert loaded.vocabulary.tokens == (*pieces, "covid")
    assert loaded.tokenize("Unwanted covid") == ["un", "##want", "##ed", "covid"]
    (tmp_path / "tokenizer.json").write_text('{"model": {"type": "BPE", "continuing_subword_prefix": ""}}')
    with pytest.raises(VocabularyError, match=r"a BPE tokenizer, not a WordPiece tokenizer"):
        Tokenizer.load(tmp_path)
    model = {"type": "WordPiece", "continuing_subword_prefix": "##", "vocab": {"[PAD]": 0, "a": 2}}
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": model}))
    with pytest.raises(VocabularyError, match=r"token ids are not consecutive from 0"):
        Tokenizer.load(tmp_path)


def test_encode_single() -> None:
    tokenizer = Tokenizer(SMALL)
    assert tokenizer.encode("un running", max_seq_length=7) == (
        [2, 9, 10, 11, 3, 0, 0],
        [1, 1, 1, 1, 1, 0, 0],
        [0, 0, 0, 0, 0, 0, 0],
    )
    assert tokenizer.encode("un running", max_seq_length=4) == ([2, 9, 10, 3], [1] * 4, [0] * 4)
    assert tokenizer.encode("", max_seq_length=2) == ([2, 3], [1, 1], [0, 0])
    # A second text of which cleaning leaves nothing is omitted.
    assert tokenizer.encode("un", "\u200b", max_seq_length=3) == ([2, 9, 3], [1] * 3, [0] * 3)
    with pytest.raises(ValueError, match="invalid max_seq_length 1: must be at least 2 "):
        tokenizer.encode("un", max_seq_length=1)
    with pytest.raises(ValueError, match="invalid max_seq_length 2: must be at least 3 "):
        tokenizer.encode("un", "un", max_seq_length=2)


@pytest.mark.parametrize(
    ("first", "second", "max_seq_length", "kept"),
    [
        (3, 2, 9, (3, 2)),
        (3, 2, 8, (3, 2)),
        (3, 2, 7, (2, 2)),
        # Of two texts of equal length, the second is truncated.
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
    # A second text that truncation empties has no [SEP].
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
        with pytest.raises(VocabularyError, match=f"invalid token id {wrong}: vocabulary has 15 tokens"):
            tokenizer.decode([0, wrong])


def test_without_the_compiled_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("beambert.tokenizer.tokenizer._native", None)
    assert not Tokenizer(SMALL).compiled
    assert Tokenizer(SMALL).tokenize("running") == ["runn", "##ing"]
    with pytest.raises(ImportError, match="C compiler"):
        Tokenizer(SMALL, compiled=True)


def test_truncated_lengths_of_every_small_pair_at_once() -> None:
    first, second, room = (values.ravel() for values in np.mgrid[:9, :9, :20])
    kept = np.stack(truncated_lengths(first, second, room), axis=1)
    cases = zip(first, second, room, strict=True)
    assert kept.tolist() == [list(reference_instances.truncated_lengths(*case)) for case in cases]
    assert kept.dtype == np.int64
