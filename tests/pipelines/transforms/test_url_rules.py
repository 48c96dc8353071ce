"""Test rules that use the URLs of documents, in pipelines with any order and number of partitions."""

import itertools
import json
import random
from pathlib import Path

import apache_beam as beam
import pytest

from beambert.pipelines.documents import Document
from beambert.pipelines.transforms import (
    CleanDocuments,
    DeduplicateDocuments,
    RejectDocuments,
    RejectUrls,
    SegmentSentences,
    WriteCorpus,
)
from tests.every_output import corpus_rows, rejected

MENU, NOTICE = "Home, news and contact", "Cookies make this page better for you."


def page(url: str, text: str, *lines: str) -> Document:
    return Document([*lines, text], metadata={"url": url} if url else {})


def pages() -> list[Document]:
    """Return pages of two domains with the same menu, and documents without a URL."""
    result = []
    for number in range(6):
        text = f"The page number {number} tells of the cat {number * 7} and the hat {number * 5}."
        result.append(page(f"https://www.one.org/{number}", text, MENU, NOTICE))
        result.append(page(f"http://two.org/{number}", text.replace("cat", "dog"), *[MENU] * (number < 3)))
        result.append(page("", text.replace("cat", "cow"), NOTICE))
    # The same page, and the same text at two addresses.
    result.append(page("http://one.org/0/?utm_source=mail", "Another version of page number 0.", MENU))
    result.append(page("https://one.org/again", result[3].paragraphs[-1], *result[3].paragraphs[:-1]))
    return result


def build(output: Path, documents: list[Document], partitions: int, **options) -> tuple[list, list, dict]:
    with beam.Pipeline() as pipeline:
        prepared = pipeline | beam.Create(documents) | CleanDocuments() | SegmentSentences() | RejectDocuments()
        _ = prepared | WriteCorpus(
            str(output), vocab_size=60, validation_fraction=0, num_partitions=partitions, **options
        )
    rows = sorted((row["id"], row["sentences"]) for row in corpus_rows(output))
    lines = sorted((line["id"], line["reason"], line["text"], line.get("like", "")) for line in rejected(output))
    return rows, lines, json.loads((output / "corpus.json").read_text())["counts"]


def test_duplicate_urls_and_domain_lines(tmp_path):
    options = {"duplicate_urls": True, "domain_lines": 4}
    rows, lines, counts = build(tmp_path / "a", pages(), 1, **options)
    shuffled = pages()
    random.Random(1).shuffle(shuffled)
    again = build(tmp_path / "b", shuffled, 5, **options)
    assert again[0] == rows
    assert sorted(again[1]) == lines

    # One page of one.org/0, the one with the smaller ID, and one of equal texts.
    assert counts["documents_rejected"] == {"duplicate": 1, "duplicate_url": 1}
    ((dropped, _, _, kept),) = [line for line in lines if line[1] == "duplicate_url"]
    assert kept < dropped
    assert kept in {row[0] for row in rows}
    # The menu of two.org is on three pages, that of one.org on all; documents without a URL stay as they are.
    sentences = [sentence for _, found in rows for sentence in found]
    assert sentences.count(MENU) == 3
    assert sentences.count(NOTICE) == 6
    pages_of_one = 6
    has_notice = "Another version of page number 0." not in sentences
    removed = pages_of_one + (pages_of_one if has_notice else pages_of_one - 1)
    assert counts["paragraphs_cleaned"]["domain_line"] == removed
    assert len([line for line in lines if line[1] == "domain_line"]) == removed
    assert sum("number" in sentence for sentence in sentences) == counts["documents"]["train"] == 18


def test_pages_of_lines_only_are_rejected_and_near_duplicates_compared_without_them(tmp_path):
    words = " ".join("".join(letters) for letters in itertools.product("bcdfgh", "aeiou", "klmnp"))
    texts = ["The cat sat on the mat in the sun of the south.", "A dog ran in the fog and the rain of the north."]
    documents = [page(f"http://one.org/{text[:5]}", text, words) for text in texts]
    documents.append(page("http://one.org/empty", words))
    options = {"domain_lines": 2, "near_duplicates": True, "duplicate_urls": True, "repeated_paragraphs": True}
    rows, _, counts = build(tmp_path / "a", documents, 2, **options)
    assert sorted(sentences for _, sentences in rows) == sorted([text] for text in texts)
    assert counts["documents_rejected"] == {"domain_line": 1}
    # Without the rule, the pages are near-duplicates because of the menu.
    _, _, counts = build(tmp_path / "b", documents[:2], 2, near_duplicates=True)
    assert counts["documents_rejected"] == {"near_duplicate": 1}


def test_dropped_documents_do_not_count(tmp_path):
    """Test that each rule sees what the rules before it keep: here, one page with the line is left."""
    documents = [
        page("http://one.org/a", text, MENU)
        for text in ("The quick cat sat on the box.", "The quick cat sat near the box.")
    ]
    rows, _, counts = build(tmp_path / "a", documents, 2, duplicate_urls=True, domain_lines=2)
    assert counts["documents_rejected"] == {"duplicate_url": 1}
    assert "domain_line" not in counts["paragraphs_cleaned"]
    assert [sentences[0] for _, sentences in rows] == [MENU]


def test_lists(tmp_path):
    (tmp_path / "block.txt").write_text("one.org\n")
    (tmp_path / "allow.txt").write_text("org\n")
    documents = pages()[:3]
    with beam.Pipeline() as pipeline:
        found = (
            pipeline
            | beam.Create(documents)
            | RejectUrls([str(tmp_path / "block.txt")], [str(tmp_path / "allow.txt")])
            | SegmentSentences()
            | DeduplicateDocuments(duplicate_urls=True, domain_lines=9)
        )
        _ = found | WriteCorpus(str(tmp_path / "out"), vocab_size=40, validation_fraction=0)
    manifest = json.loads((tmp_path / "out/corpus.json").read_text())
    assert manifest["counts"]["documents_rejected"] == {"blocked_url": 1, "unlisted_url": 1}
    recorded = manifest["options"]
    assert recorded["block_urls"] == [str(tmp_path / "block.txt")]
    assert recorded["allow_urls"] == [str(tmp_path / "allow.txt")]
    assert (recorded["duplicate_urls"], recorded["domain_lines"]) == (True, 9)


@pytest.mark.parametrize("flag", ["block", "allow"])
def test_a_single_path_is_no_list(flag):
    with pytest.raises(Exception, match=f"invalid --{flag}_urls 'a.txt': must be a list"):
        RejectUrls(**{flag: "a.txt"})
