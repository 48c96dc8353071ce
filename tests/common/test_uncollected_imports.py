"""Test that the garbage collector is suspended during imports, and only then."""

import gc

import pytest

from beambert.common.imports import uncollected_imports


@pytest.fixture
def collections():
    """A list that grows with each collection."""
    seen = []

    def record(phase, info):
        seen.append((phase, info))

    enabled = gc.isenabled()
    gc.callbacks.append(record)
    gc.enable()
    yield seen
    gc.callbacks.remove(record)
    if not enabled:
        gc.disable()


def many_objects():
    return [[] for _ in range(2 * gc.get_threshold()[0])]


def test_no_collection_in_the_body_and_collections_after_it(collections):
    with uncollected_imports():
        kept = many_objects()
        assert collections == []
    kept += many_objects()
    assert collections


def test_an_import_that_fails_resumes_collections(collections):
    with pytest.raises(ImportError), uncollected_imports():
        raise ImportError
    assert gc.isenabled()


def test_a_body_within_a_body_does_not_resume_them(collections):
    with uncollected_imports():
        with uncollected_imports():
            pass
        assert not gc.isenabled()
