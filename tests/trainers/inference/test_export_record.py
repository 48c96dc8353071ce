"""Test the counts of differing code points in the model card, and the ranges of code points in export.json."""

from beambert.tokenizer.differences import TokenizerDifferences
from beambert.trainers.inference.export_record import code_point_ranges, difference_lines


def test_ranges() -> None:
    assert code_point_ranges([]) == []
    assert code_point_ranges([0, 1, 2, 0xDF, 0x1F600]) == ["U+0000-U+0002", "U+00DF", "U+1F600"]
    assert code_point_ranges([9, 0x10FFFE, 0x10FFFF]) == ["U+0009", "U+10FFFE-U+10FFFF"]


def test_lines() -> None:
    differences = TokenizerDifferences(
        code_points=(0x1, *range(0x4E00, 0x5200)),
        num_assigned=1,
        in_vocabulary=(0x1, *range(0x4E00, 0x4E00 + 62)),
        num_mark_pairs=5000,
        mark_pairs=((0x302E, 0x1D165),),
        tokens=("c d",),
    )
    counts, characters, pairs, tokens = difference_lines(differences)
    assert counts.startswith("1,025 of 1,112,064 code points differ; 1 of them are assigned")
    # The first 60 of 63, without the control character.
    shown = "\ufffd" + "".join(map(chr, range(0x4E00, 0x4E00 + 59)))
    assert characters == f"63 of these occur in the vocabulary: {shown} and 3 more"
    assert pairs == "1 of 5,000 pairs of combining marks differ"
    assert tokens == "1 tokens of the vocabulary differ as text"


def test_lines_without_differences() -> None:
    counts, characters = difference_lines(TokenizerDifferences((), 0, (), 5000, (), ()))
    assert counts.startswith("0 of 1,112,064")
    assert characters == "0 of these occur in the vocabulary"
