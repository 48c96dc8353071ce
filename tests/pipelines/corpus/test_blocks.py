import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beambert.pipelines.corpus.blocks import (
    BlockLocation,
    from_block,
    read_block_marker,
    read_blocks,
    to_block,
    write_block_file,
    write_block_marker,
)
from beambert.pipelines.corpus.corpus_manifest import write_shard
from beambert.pipelines.documents import Document
from tests.pipelines.documents import documents


@given(st.lists(documents(), min_size=1, max_size=5))
def test_a_block_gives_back_its_documents(drawn: list[Document]) -> None:
    block = to_block(drawn)
    assert from_block(block) == drawn
    assert to_block(from_block(block)) == block


def test_a_block_of_one_short_document_weighs_little_more_than_its_text() -> None:
    # With the number of partitions of a corpus of terabytes, most blocks contain one short document.
    paragraphs = ["A sentence of some words.\nAnother one, which is not the same."]
    document = Document(paragraphs, "A title", "files/00.jsonl", language="en", origin="files/*.jsonl", id="0a1b" * 8)
    assert len(to_block([document])) < 500


def test_blocks_in_a_file(tmp_path) -> None:
    documents = [Document(["A sentence."] * i, "t", "s", language="en", id=f"{i:032x}") for i in range(1, 4)]
    path = str(tmp_path / "unit")
    assert read_block_marker(path) is None
    blocks = [(("train", 3), to_block(documents[:2])), (("validation", 0), to_block(documents[2:]))]
    places = write_block_file(path, blocks)
    write_block_marker(path, places, {"documents_read": 3})
    read_again, summary = read_block_marker(path)
    assert read_again == places
    assert summary == {"documents_read": 3}
    assert [key for key, _ in places] == [("train", 3), ("validation", 0)]
    assert list(read_blocks(place for _, place in places)) == documents
    assert list(read_blocks([places[1][1], blocks[0][1]])) == [*documents[2:], *documents[:2]]
    # Without the JSON file, which is written last, the block file is ignored.
    (tmp_path / "unit.json").unlink()
    assert read_block_marker(path) is None
    with pytest.raises(FileNotFoundError):
        list(read_blocks([BlockLocation(str(tmp_path / "none"), 0, 9)]))


def test_a_shard_has_the_sentences_of_each_document(tmp_path):
    """Test that a document without text, which no rule needs to reject, has no sentence instead of an empty one."""
    texts = [["One.\nTwo.", "Three."], [], ["Four."]]
    for number, some in enumerate((texts, [text for text in texts if text])):
        path = str(tmp_path / f"{number}.parquet")
        write_shard(path, [Document(text, id=f"{index:032x}") for index, text in enumerate(some)])
        column = pyarrow.parquet.read_table(path)["sentences"].to_pylist()
        assert column == ["\n".join(text).split("\n") if text else [] for text in some]
