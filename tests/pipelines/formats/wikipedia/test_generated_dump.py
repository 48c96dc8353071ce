"""Test the dumps that `benchmarks/wikipedia_dump.py` composes of real pages for the rehearsal."""

import bz2
import re
from collections import Counter

import pytest

from beambert.pipelines.formats.input_format import ReadOptions
from beambert.pipelines.sources.readers import read_file
from benchmarks.wikipedia_dump import PAGES_PER_STREAM, write_dump


@pytest.mark.slow
def test_pages_are_real_and_none_occurs_twice(shared_data, tmp_path):
    path = tmp_path / "composed.xml.bz2"
    write_dump(shared_data / "wiki-dump", path, 40_000_000)
    content = path.read_bytes()
    xml = bz2.decompress(content).decode("utf-8")
    assert 40e6 < len(xml.encode("utf-8")) < 60e6
    streams = len(re.findall(rb"BZh91AY&SY", content))
    assert abs(xml.count("<page>") - PAGES_PER_STREAM * (streams - 2)) == 0
    documents = list(read_file(str(path), ReadOptions()))
    kept = [document for document in documents if not document.rejected]
    assert len({document.title for document in documents}) == len(documents)
    with_text = [tuple(document.paragraphs) for document in kept if document.paragraphs]
    assert len(set(with_text)) == len(with_text) >= 0.98 * len(kept)
    # As in the dumps that the pages are from.
    real = [d for dump in (shared_data / "wiki-dump").glob("*.bz2") for d in read_file(str(dump), ReadOptions())]
    shares, real_shares = (Counter(d.rejected for d in each) for each in (documents, real))
    for rule in ("", "redirect", "disambiguation"):
        assert shares[rule] / len(documents) == pytest.approx(real_shares[rule] / len(real), abs=0.05), rule
    # Composed text has as few remains of markup as real text.
    shares_of_remains = []
    for each in (kept, real):
        paragraphs = [paragraph for document in each for paragraph in document.paragraphs]
        remains = sum(mark in paragraph for paragraph in paragraphs for mark in ("{{", "}}", "[["))
        shares_of_remains.append(remains / len(paragraphs))
    assert shares_of_remains[0] <= shares_of_remains[1] + 0.002


def test_the_bytes_depend_on_the_pages_only(shared_data, tmp_path):
    for name in ("a", "b"):
        write_dump(shared_data / "wiki-dump", tmp_path / name, 1)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
