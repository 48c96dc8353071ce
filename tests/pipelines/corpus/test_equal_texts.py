"""Test which of several equal texts is kept: by weight and content, not by file name or order of arrival."""

import dataclasses
import json

from hypothesis import given
from hypothesis import strategies as st

from beambert.pipelines.corpus.blocks import deduplicate, to_block
from beambert.pipelines.corpus.options import CorpusOptions
from beambert.pipelines.documents import Document, identity
from beambert.pipelines.transforms.partitions import (
    _BLOCKS,
    _REPEATED_PARAGRAPHS,
    deduplicate_partition,
    find_repeated_paragraphs,
    paragraph_batches,
)

OPTIONS = CorpusOptions(
    do_lower_case=True,
    vocab_size=100,
    character_rules="",
    num_partitions=1,
    validation_fraction=0.0,
    repeated_paragraphs=True,
)
SENTENCES = [f"Sentence number {name} has some eight words in it, or nine." for name in ("one", "two", "three")]


def document(sentences: list[str], counts: tuple[int, ...], weight: float, title: str, language: str, source: str):
    rest = iter(sentences)
    return Document(
        ["\n".join(next(rest) for _ in range(count)) for count in counts],
        title=title,
        source=source,
        language=language,
        origin=f"{source}*",
        weight=weight,
        id=identity(sentences).hex(),
    )


copies = st.lists(
    st.tuples(
        st.sampled_from([SENTENCES[:2], SENTENCES, SENTENCES[1:]]),
        st.booleans(),
        st.sampled_from([0.5, 1.0, 3.0]),
        st.sampled_from(["", "A", "B"]),
        st.sampled_from(["en", "de"]),
    ),
    min_size=1,
    max_size=8,
)


def documents_of(drawn: list, names: list[str]) -> list[Document]:
    return [
        document(sentences, (len(sentences),) if whole else (1,) * len(sentences), weight, title, language, name)
        for (sentences, whole, weight, title, language), name in zip(drawn, names, strict=True)
    ]


def without_name(document: Document) -> Document:
    return dataclasses.replace(document, source="", origin="")


def kept(documents: list[Document]) -> list[Document]:
    """Return the documents of a partition that `--drop_repeated_paragraphs` keeps, without file names."""
    blocks = {_BLOCKS: [to_block([one]) for one in documents]}
    batches = [batch for _, batch in paragraph_batches((("train", 0), blocks), 1)]
    repeated = [found for _, found in find_repeated_paragraphs((0, batches), OPTIONS)] if batches else []
    result = deduplicate_partition((("train", 0), {**blocks, _REPEATED_PARAGRAPHS: repeated}))
    return [without_name(one) for one in result.kept]


@given(copies, st.randoms(use_true_random=False))
def test_result_does_not_depend_on_file_names_and_order(drawn, rng):
    names = [f"file-{number}" for number in range(len(drawn))]
    expected = kept(documents_of(drawn, names))
    rng.shuffle(names)
    renamed = documents_of(drawn, names)
    rng.shuffle(renamed)
    assert kept(renamed) == expected


@given(copies)
def test_the_largest_weight_stays(drawn):
    documents = documents_of(drawn, [str(number) for number in range(len(drawn))])
    largest: dict[str, float] = {}
    for sentences, _, weight, _, _ in drawn:
        text = "\n".join(sentences)
        largest[text] = max(weight, largest.get(text, 0.0))
    assert {one.text: one.weight for one in deduplicate(documents).kept} == largest


def test_paragraphs_are_numbered_in_the_copy_that_stays():
    # The kept document has three paragraphs. The second one is also in another document, which keeps it.
    texts = [[*SENTENCES[:2], f"Only document {number} has this one."] for number in range(40)]
    own, shared = next(
        (one, other)
        for one in texts
        for other in ([SENTENCES[1], f"A tail of document {number}."] for number in range(40))
        if identity(other) < identity(one)
    )
    documents = [
        document(own, (1, 1, 1), 3.0, "", "en", "z"),
        document(own, (2, 1), 1.0, "", "en", "a"),
        document(shared, (1, 1), 1.0, "", "en", "b"),
    ]
    texts_kept = {json.dumps(one.sentences) for one in kept(documents)}
    assert texts_kept == {json.dumps(shared), json.dumps([own[0], own[2]])}
