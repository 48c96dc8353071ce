import pytest
from hypothesis import given
from hypothesis import strategies as st

from beambert.pipelines.corpus.records import (
    BlockLocation,
    Record,
    from_block,
    read_block_file,
    read_blocks,
    to_block,
    write_block_file,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
RECORDS = st.lists(
    st.builds(
        Record,
        id=st.binary(min_size=16, max_size=16),
        title=TEXT,
        source=TEXT,
        language=TEXT,
        text=TEXT,
        paragraphs=st.lists(st.integers(0, 2**31 - 1), max_size=4).map(tuple),
        origin=TEXT,
        weight=st.floats(0, 10),
        reason=TEXT,
        work=TEXT,
        line=st.integers(0, 2**63 - 1),
        byte=st.integers(-1, 2**63 - 1),
        source_id=TEXT,
    ),
    min_size=1,
    max_size=5,
)


@given(records=RECORDS)
def test_a_block_gives_back_its_records(records: list[Record]) -> None:
    assert from_block(to_block(records)) == records
    assert to_block(records) == to_block(records)


def test_a_block_of_one_short_document_weighs_little_more_than_its_text() -> None:
    # With the number of partitions of a corpus of terabytes, most blocks contain one short document.
    text = "A sentence of some words.\nAnother one, which is not the same."
    record = Record(b"0123456789abcdef", "A title", "files/00.jsonl", "en", text, (1, 1), "files/*.jsonl", 1.0, "", "")
    assert len(to_block([record])) < 500


def test_blocks_in_a_file(tmp_path) -> None:
    records = [
        Record(bytes([i]) * 16, "t", "s", "en", "A sentence.\n" * i, (1,) * i, "o", 1.0, "", "") for i in range(1, 4)
    ]
    path = str(tmp_path / "unit")
    assert read_block_file(path) is None
    blocks = [(["train", 3], to_block(records[:2])), (["validation", 0], to_block(records[2:]))]
    write_block_file(path, blocks, {"documents_read": 3})
    places, summary = read_block_file(path)
    assert summary == {"documents_read": 3}
    assert [key for key, _ in places] == [["train", 3], ["validation", 0]]
    assert list(read_blocks(place for _, place in places)) == records
    assert list(read_blocks([places[1][1], blocks[0][1]])) == [*records[2:], *records[:2]]
    # Without the JSON file, which is written last, the block file is ignored.
    (tmp_path / "unit.json").unlink()
    assert read_block_file(path) is None
    with pytest.raises(FileNotFoundError):
        list(read_blocks([BlockLocation(str(tmp_path / "none"), 0, 9)]))
