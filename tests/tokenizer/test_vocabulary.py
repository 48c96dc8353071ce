import hashlib
import pickle
import re
from pathlib import Path

import numpy as np
import pytest

from beambert.tokenizer.vocabulary import SPECIAL_TOKENS, Vocabulary, VocabularyError

PLAIN = b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\n##s\n"


def test_plain_file() -> None:
    vocabulary = Vocabulary.from_bytes(PLAIN, "v.txt")
    assert vocabulary.tokens == (*SPECIAL_TOKENS, "the", "##s")
    assert vocabulary.ids["##s"] == 6
    assert len(vocabulary) == 7
    assert vocabulary.to_bytes() == PLAIN
    assert vocabulary.sha256 == hashlib.sha256(PLAIN).hexdigest()
    assert pickle.loads(pickle.dumps(vocabulary)) == vocabulary


def test_special_pieces_anywhere() -> None:
    vocabulary = Vocabulary(("a", "[unused7]", "[MASK]", "[SEP]", "[unusedx]", "[CLS]", "[UNK]", "[PAD]", "[unused10]"))
    ids = (vocabulary.pad_id, vocabulary.unk_id, vocabulary.cls_id, vocabulary.sep_id, vocabulary.mask_id)
    assert ids == (7, 6, 5, 3, 2)
    special = vocabulary.special_ids()
    assert special.dtype == np.int32
    assert special.tolist() == [1, 2, 3, 5, 6, 7, 8]


@pytest.mark.parametrize(
    "data",
    [
        b"\xef\xbb\xbf" + PLAIN,
        PLAIN.replace(b"\n", b"\r\n"),
        PLAIN.removesuffix(b"\n"),
        PLAIN + b"\n \r\n\n",
        PLAIN.replace(b"the", b" the\t"),
    ],
    ids=["byte-order mark", "CRLF", "no newline at the end", "blank lines at the end", "spaces around a piece"],
)
def test_repaired(data: bytes) -> None:
    vocabulary = Vocabulary.from_bytes(data, "v.txt")
    assert vocabulary.to_bytes() == PLAIN
    assert vocabulary.sha256 == hashlib.sha256(PLAIN).hexdigest()


def test_only_newlines_end_a_piece() -> None:
    odd = ("\u2028", "a\x85b", "\u3000", "\x0b")
    vocabulary = Vocabulary((*SPECIAL_TOKENS, *odd))
    assert Vocabulary.from_bytes(vocabulary.to_bytes(), "v.txt").tokens[5:] == odd


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            PLAIN.replace(b"[MASK]\n", b"").replace(b"[CLS]\n", b""),
            r"v\.txt: missing special tokens \[CLS\], \[MASK\] \(5 tokens\); .*",
        ),
        (b"", r"v\.txt: missing special tokens \[PAD\], \[UNK\], \[CLS\], \[SEP\], \[MASK\] \(0 tokens\); .*"),
        (PLAIN + b"a\nthe\nthe\n", r"v\.txt: line 9 repeats token 'the' of line 6; .*"),
        (PLAIN + b"\n\t\na\n", r"v\.txt: line 8 is blank, .*"),
        (PLAIN + b"gr\xfcn\n", r"v\.txt: line 8 is not UTF-8; .*"),
    ],
)
def test_refused(data: bytes, message: str) -> None:
    with pytest.raises(VocabularyError) as error:
        Vocabulary.from_bytes(data, "v.txt")
    # The message is one line, since `.` matches no newline.
    assert re.fullmatch(message, str(error.value))


def test_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(VocabularyError, match=r"no\.txt: No such file.*--vocab_file"):
        Vocabulary.load(tmp_path / "no.txt")
    with pytest.raises(VocabularyError, match=r"Is a directory.*--vocab_file"):
        Vocabulary.load(tmp_path)


def test_released_vocabulary(shared_data: Path) -> None:
    path = shared_data / "tokenizer/bert-base-uncased-vocab.txt"
    vocabulary = Vocabulary.load(path)
    assert len(vocabulary) == 30522
    ids = (vocabulary.pad_id, vocabulary.unk_id, vocabulary.cls_id, vocabulary.sep_id, vocabulary.mask_id)
    assert ids == (0, 100, 101, 102, 103)
    assert len(vocabulary.special_ids()) == 5 + 994
    assert vocabulary.to_bytes() == path.read_bytes()
