"""Compare tokens that are kept whole with Hugging Face's `tokenizers`, and read the files that record them."""

import json
import pickle
import random
from pathlib import Path
from typing import Any

import pytest

from beambert.common.tokenizer_files import AddedToken
from beambert.common.word_rules import WordRules
from beambert.tokenizer.tokenizer import Tokenizer
from beambert.tokenizer.vocabulary import SPECIAL_TOKENS, Vocabulary, VocabularyError

BASE = (
    *(*SPECIAL_TOKENS, "[unused1]", "[", "]", "e", "##1", "1", "co", "##vid", "##19", "covid", "##84", "new", "york"),
    *("un", "##s", "s", "caf", "##e", "x", "##x", "\u65e5", "\u672c", "-", "\u03bf", "##\u03c2", "C", "##o"),
)
# Parts of random texts, with what normalization changes: case, white space, accents, ideographs, joiners.
PARTS = (
    *("[E1]", "[e1]", "E1", "covid19", "COVID19", "Covid", "new york", "New  York", "new\tyork", "NEW YORK", " ", "  "),
    *("x", "s", "\u65e5\u672c", "\u65e5", "\u8a9e", "caf\u00e9", "cafe\u0301", "CAFE", "[MASK]", "[SEP]", "-", "_"),
    *("\u00b2", "\u0301", "\u200d", "un", "\u03bf\u03c2", "\n", "1", "\u0130", "\ufb01", "\u00a0", "\x0b"),
)
ADDED = ("[E1]", "covid19", "new york", "\u65e5\u672c", "caf\u00e9", "[ent]", "cov", "Un", "york")
BETWEEN = " \t\n\u00a0\u0301\u200d\x0b"
UNCASED = WordRules()


def theirs(added: list[AddedToken], rules: WordRules = UNCASED) -> Any:
    """Return the tokenizer of the library with the vocabulary BASE."""
    tokenizers = pytest.importorskip("tokenizers")
    vocabulary = {token: number for number, token in enumerate(BASE)}
    result = tokenizers.Tokenizer(
        tokenizers.models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=200)
    )
    result.normalizer = tokenizers.normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=rules.tokenize_chinese_chars,
        strip_accents=rules.strip_accents,
        lowercase=rules.do_lower_case,
    )
    result.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    for token in added:
        fields = {name: getattr(token, name) for name in ("single_word", "lstrip", "rstrip", "normalized")}
        entry = tokenizers.AddedToken(token.content, **fields, special=token.special)
        (result.add_special_tokens if token.special else result.add_tokens)([entry])
    return result


def ours(added: list[AddedToken], rules: WordRules = UNCASED, compiled: bool | None = None) -> Tokenizer:
    tokens = dict.fromkeys((*BASE, *(token.content for token in added)))
    vocabulary = Vocabulary(tuple(tokens), added_tokens=tuple(added))
    return Tokenizer(
        vocabulary,
        rules.do_lower_case,
        compiled=compiled,
        strip_accents=rules.strip_accents,
        tokenize_chinese_chars=rules.tokenize_chinese_chars,
    )


@pytest.mark.parametrize("compiled", [False, None], ids=["python", "default"])
def test_random_texts_have_the_ids_and_offsets_of_the_library(compiled: bool | None) -> None:
    generator = random.Random(7)
    for _ in range(600):
        strip_accents = generator.choice((None, True, False))
        rules = WordRules(generator.random() < 0.6, strip_accents, generator.random() < 0.8)
        added = [
            AddedToken(content, *(generator.random() < 0.3 for _ in range(3)), generator.random() < 0.6)
            for content in generator.sample(ADDED, generator.randint(1, 4))
        ]
        library, tokenizer = theirs(added, rules), ours(added, rules, compiled)
        texts = ["".join(generator.choices(PARTS, k=generator.randint(0, 9))) for _ in range(4)]
        ids, splits, offsets = tokenizer.encode_batch_with_offsets(texts)
        assert tokenizer.encode_batch(texts)[0].tolist() == ids.tolist()
        # With lstrip and rstrip, the library includes spaces.
        kept = {tokenizer.vocabulary.ids[token.content] for token in added if not (token.lstrip or token.rstrip)}
        for number, text in enumerate(texts):
            expected = library.encode(text)
            part = slice(splits[number], splits[number + 1])
            assert ids[part].tolist() == expected.ids, (text, added, rules)
            for token, (start, end), their_offsets in zip(ids[part], offsets[part], expected.offsets, strict=True):
                if token in kept:
                    # At the ends, the library has other white space, accents and removed characters.
                    found = text[slice(*their_offsets)]
                    assert text[start:end].strip(BETWEEN) == found.strip(BETWEEN), (text, added, rules)


def test_what_the_attributes_do() -> None:
    def tokens(text: str, *added: AddedToken) -> list[str]:
        assert ours(list(added)).encode_batch([text])[0].tolist() == theirs(list(added)).encode(text).ids
        return ours(list(added)).tokenize(text)

    covid = AddedToken("covid19")
    assert tokens("COVID19 xcovid1984", covid) == ["covid19", "x", "covid19", "[UNK]"]
    assert tokens("covid19s covid19", AddedToken("covid19", single_word=True)) == ["covid", "##19", "##s", "covid19"]
    assert tokens("[e1] [E1]", AddedToken("[E1]")) == ["[E1]", "[E1]"]
    assert tokens("[e1] [E1]", AddedToken("[E1]", normalized=False)) == ["[", "e", "##1", "]", "[E1]"]
    assert tokens("new york New\tYork new  york", AddedToken("new york")) == ["new york"] * 2 + ["new", "york"]
    # The longest token is found, and tokens that are not normalized first.
    assert tokens("covid19", covid, AddedToken("cov")) == ["covid19"]
    assert tokens("covid19", covid, AddedToken("cov", normalized=False)) == ["cov", "[UNK]"]
    # WordPiece does not use added tokens.
    assert tokens("covid19s", AddedToken("covid19", normalized=False, single_word=True)) == ["covid", "##19", "##s"]


def test_offsets_pickles_and_never_split() -> None:
    tokenizer = ours([AddedToken("[E1]"), AddedToken("new york")])
    text = "x [e1]\u0301 New\u00a0York.un"
    ids, _, offsets = tokenizer.encode_batch_with_offsets([text])
    words = [text[start:end] for start, end in offsets]
    assert words == ["x", "[e1]\u0301", "New\u00a0York", ".", "un"]
    again = pickle.loads(pickle.dumps(tokenizer))
    assert again.encode_batch([text])[0].tolist() == ids.tolist()
    both = Tokenizer(tokenizer.vocabulary, never_split=["[MASK]"])
    assert both.tokenize("[MASK][E1]un") == ["[MASK]", "[E1]", "un"]


def write(directory: Path, base: tuple[str, ...] = BASE, **files: Any) -> Path:
    (directory / "vocab.txt").write_bytes(Vocabulary(base).to_bytes())
    for name, content in files.items():
        (directory / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    return directory


def entry(content: str, **fields: Any) -> dict[str, Any]:
    defaults = {"lstrip": False, "rstrip": False, "single_word": False, "normalized": True, "special": False}
    return {"content": content, **defaults, **fields}


MASK = entry("[MASK]", normalized=False, special=True)
N = len(BASE)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (
            {
                "tokenizer_config": {
                    "added_tokens_decoder": {"4": MASK, f"{N}": entry("[E1]"), f"{N + 1}": entry("a b")}
                }
            },
            (AddedToken("[E1]"), AddedToken("a b")),
        ),
        ({"added_tokens": {"[E2]": N + 1, "[E1]": N}}, (AddedToken("[E1]"), AddedToken("[E2]"))),
        (
            {"added_tokens": {"[E1]": N}, "special_tokens_map": {"additional_special_tokens": ["[E1]", "[unused1]"]}},
            (
                AddedToken("[E1]", normalized=False, special=True),
                AddedToken("[unused1]", normalized=False, special=True),
            ),
        ),
        (
            {"tokenizer": {"added_tokens": [{"id": 4, **MASK}, {"id": N, **entry("[E1]", single_word=True)}]}},
            (AddedToken("[E1]", single_word=True),),
        ),
        # In a directory of beambert, vocab.txt has the tokens too.
        ({"tokenizer_config": {"added_tokens_decoder": {N - 1: entry(BASE[-1])}}}, (AddedToken(BASE[-1]),)),
    ],
    ids=["decoder", "old", "special", "tokenizer.json", "in vocab.txt"],
)
def test_recorded_tokens_are_read(files: dict[str, Any], expected: tuple[AddedToken, ...], tmp_path: Path) -> None:
    vocabulary = Vocabulary.load(write(tmp_path, **files) / "vocab.txt")
    assert vocabulary.added_tokens == expected
    further = [token.content for token in expected if token.content not in BASE]
    assert vocabulary.tokens == (*BASE, *further)
    tokenizer = Tokenizer.load(tmp_path, do_lower_case=True)
    for token in expected:
        assert tokenizer.tokenize(f"x{token.content}x") == ["x", token.content, "x"] or token.single_word


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"added_tokens": {"[E1]": N + 1}}, rf"'\[E1\]' has the id {N + 1} in the files beside it, not {N}; copy"),
        ({"added_tokens": {"x": 2}}, r"'x' has the id 2"),
        ({"added_tokens": ["x"]}, r"added_tokens\.json: .*; correct the file"),
        ({"tokenizer_config": {"added_tokens_decoder": {"a": entry("x")}}}, r"tokenizer_config\.json: .*; correct"),
        ({"tokenizer_config": {"added_tokens_decoder": {"5": {"content": 3}}}}, r"tokenizer_config\.json: .*content"),
        ({"special_tokens_map": {"additional_special_tokens": "x"}}, r"special_tokens_map\.json: .*; correct"),
    ],
)
def test_records_that_do_not_fit_are_one_line(files: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(VocabularyError, match=message) as caught:
        Vocabulary.load(write(tmp_path, **files) / "vocab.txt")
    assert "\n" not in str(caught.value)


def test_a_vocabulary_of_another_name_has_no_added_tokens(tmp_path: Path) -> None:
    write(tmp_path, added_tokens={"[E1]": N})
    (tmp_path / "vocab.txt").rename(tmp_path / "other.txt")
    assert Vocabulary.load(tmp_path / "other.txt").added_tokens == ()


def test_capitals_and_lines_of_added_tokens() -> None:
    base = (*SPECIAL_TOKENS, "a")
    assert not Vocabulary((*base, "COVID"), added_tokens=(AddedToken("COVID"),)).has_capitals()
    for content in (" a", "b\nc"):
        vocabulary = Vocabulary((*base, content), added_tokens=(AddedToken(content),))
        assert vocabulary.wordpieces.to_bytes() == Vocabulary(base).to_bytes()
        with pytest.raises(VocabularyError, match=r"cannot store; convert the model with --to huggingface"):
            vocabulary.to_bytes()


def test_placeholders_of_a_vocabulary_are_kept_whole(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join([*BASE, "[EMAIL]", "[IP]"]) + "\n", encoding="utf-8")
    tokenizer = Tokenizer.load(path)
    assert [token.content for token in tokenizer.vocabulary.added_tokens] == ["[EMAIL]", "[IP]"]
    assert tokenizer.tokenize("new [EMAIL], [IP]x [PHONE] [email]")[:4] == ["new", "[EMAIL]", "[UNK]", "[IP]"]
    assert tokenizer.tokenize("[PHONE]")[0] == tokenizer.tokenize("[email]")[0] == "["
    assert Vocabulary.from_bytes(path.read_bytes(), "v") == tokenizer.vocabulary
    assert not Vocabulary.of_tokens(BASE).added_tokens
    # A record beside the file decides.
    record = {"added_tokens_decoder": {str(len(BASE)): {"content": "[EMAIL]"}}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(record))
    assert Tokenizer.load(path).vocabulary.added_tokens == (AddedToken("[EMAIL]"),)
