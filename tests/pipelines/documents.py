"""A strategy that draws documents."""

from hypothesis import strategies as st

from beambert.pipelines.documents import Document, Removed


def documents() -> st.SearchStrategy[Document]:
    """Return a strategy of documents with any values in every field."""
    text = st.text(max_size=20)
    counts = st.dictionaries(text, st.integers(0, 9), max_size=2)
    removed = st.builds(
        Removed,
        counts=counts,
        dropped=st.lists(st.tuples(text, text), max_size=2),
        lost=counts,
        html_tags=st.booleans(),
        contamination=st.dictionaries(text, text, max_size=2),
        personal_data=st.dictionaries(text, text, max_size=2),
    )
    return st.builds(
        Document,
        paragraphs=st.lists(text, max_size=4),
        title=text,
        source=text,
        segmented=st.booleans(),
        rejected=text,
        language=text,
        line=st.integers(0, 2**63 - 1),
        byte=st.integers(-1, 2**63 - 1),
        source_id=text,
        origin=text,
        weight=st.floats(0.001, 1000),
        id=st.binary(min_size=16, max_size=16).map(bytes.hex),
        metadata=st.dictionaries(text, text, max_size=2),
        removed=removed,
    )
