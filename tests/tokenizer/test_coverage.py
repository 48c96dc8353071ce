from beambert.tokenizer.coverage import Coverage, coverage


def test_by_hand() -> None:
    pieces = {"[UNK]": 1, "a": 2, "b": 3, "##b": 4, "##c": 5, "ab": 6}
    counts = {"a": 10, "ab": 5, "abc": 3, "abx": 2, "a" * 201: 1}
    measured = coverage(counts, pieces)
    assert measured == Coverage(words=21, unknown=3, whole_words=15, tokens=10 + 5 + 3 * 2 + 3)
    assert str(measured) == "1.1429 tokens per word, 71.4% are one token, 14.286% [UNK]"


def test_parts_add_up() -> None:
    assert Coverage(1, 2, 3, 4) + Coverage(10, 20, 30, 40) == Coverage(11, 22, 33, 44)
    assert str(Coverage()) == "0.0000 tokens per word, 0.0% are one token, 0.000% [UNK]"
