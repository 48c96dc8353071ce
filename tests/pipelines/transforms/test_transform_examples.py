"""Test that the examples in the docstrings of the public transforms run and print the output shown."""

import doctest

import apache_beam as beam
import pytest

from pipelines import transforms
from pipelines.cleaning.rules import CleaningOptions
from pipelines.instances.options import PretrainingDataOptions
from pipelines.transforms import corpora, documents, examples, ml_transform


@pytest.mark.slow
@pytest.mark.parametrize("module", [documents, corpora, examples, ml_transform], ids=lambda module: module.__name__)
def test_docstrings(module, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {name: getattr(transforms, name) for name in transforms.__all__}
    names.update(beam=beam, CleaningOptions=CleaningOptions, PretrainingDataOptions=PretrainingDataOptions)
    result = doctest.testmod(module, extraglobs=names)
    assert not result.failed
    assert result.attempted


def test_every_transform_has_an_example():
    for name in transforms.__all__:
        public = getattr(transforms, name)
        if isinstance(public, type) and issubclass(public, beam.PTransform):
            assert ">>> with beam.Pipeline() as pipeline:" in public.__doc__, name
