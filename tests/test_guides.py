"""Test that the Python blocks of the data guides run, and that their comments are the values."""

import ast
import datetime
import re

import apache_beam as beam
from apache_beam.testing.util import assert_that, equal_to

from beambert.pipelines import dataset
from beambert.pipelines.cleaning import rules
from beambert.pipelines.formats.input_format import ReadOptions
from beambert.pipelines.sources.readers import read_file
from tests.conftest import ROOT


def python_blocks(name: str) -> list[str]:
    """Return the Python blocks of a guide, without the indentation of a list item."""
    text = (ROOT / "docs" / "guides" / f"{name}.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^( *)```python\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE)
    return [re.sub(f"^{indent}", "", code, flags=re.MULTILINE) for indent, code in blocks]


def test_words_of_scripts_without_spaces():
    (block,) = python_blocks("languages-without-spaces")
    names: dict[str, object] = {}
    values = 0
    for line in block.splitlines():
        code, _, value = line.partition("  # ")
        if value:
            assert eval(code, names) == ast.literal_eval(value), line
            values += 1
        else:
            exec(code, names)
    assert values == 4


def test_filter_before_the_job(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "open.txt").write_text("It was a dark and stormy night, and\nthe rain fell.\n\nIt stopped.\n")
    (tmp_path / "texts" / "secret.txt").write_text("This text is CONFIDENTIAL.")
    exec(python_blocks("own-cleaning-rule")[0], {})
    (kept,) = (tmp_path / "kept").iterdir()
    (document,) = read_file(str(kept), ReadOptions())
    assert document.paragraphs == ["It was a dark and stormy night, and the rain fell.", "It stopped."]


def test_cleaning_rule_of_the_guide(monkeypatch):
    """Add the rule as the guide describes, and drop a paragraph with it."""
    names: dict[str, object] = {}
    for block in python_blocks("own-cleaning-rule")[1:]:
        exec(block, names)
    added = (names["URL_LINES"], names["drop_url_lines"])
    monkeypatch.setattr(rules, "_PARAGRAPH_RULES", (*rules._PARAGRAPH_RULES, added))
    dropped: list[tuple[str, str]] = []
    paragraphs = ["See the page below.", "https://example.org/a/b", "It has the rest, as www.example.org does."]
    kept = rules.clean_paragraphs(paragraphs, rules.CleaningOptions(), rules.Counter(), dropped)
    assert (kept, dropped) == ([paragraphs[0], paragraphs[2]], [("url_lines", paragraphs[1])])


def test_a_beam_pipeline_of_ones_own(tmp_path, monkeypatch):
    """Check that the pipeline of the guide writes data, and that its functions do what the text describes."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts").mkdir()
    for number in range(30):
        words = " ".join(f"{first}{second}" for first in "dkmprst"[number % 7] for second in ("ance", "ilo", "ure"))
        (tmp_path / "texts" / f"{number}.txt").write_text(f"The old dog {number} sleeps. It says {words}.")
    pipeline, rows, rule, step, sink = python_blocks("own-beam-pipeline")
    names: dict[str, object] = {}
    exec(pipeline, names)
    assert dataset.load("data").num_examples("train") > 0
    for block in (rows, rule, step, sink):
        exec(block, names)
    texts = [names["Document"]([text, "-- Me"]) for text in ("ingredients: salt", "A poem.")]
    with beam.Pipeline() as cleaning:
        cleaned = names["clean"](cleaning | beam.Create(texts))
        results = cleaned | beam.Map(lambda document: (document.text, document.rejected))
        assert_that(results, equal_to([("ingredients: salt", "is_recipe"), ("A poem.", "")]))
    with beam.Pipeline() as own_rows:
        row = {"article": {"body": "A text.", "title": "A title"}, "published": datetime.date(2026, 11, 28), "score": 2}
        documents = own_rows | beam.Create([row, {}]) | names["to_documents"]
        texts = documents | beam.Map(lambda found: (found.paragraphs, found.title, found.source_id, found.weight))
        assert_that(texts, equal_to([(["A text."], "A title", "2026-11-28", 2.0), (["{}"], "", "", 1.0)]))
    assert names["upper_titles"](names["Document"]([], "a title")).title == "A TITLE"
    with beam.Pipeline() as again:
        documents = again | names["ReadDocuments"]("texts/*.txt") | names["SegmentSentences"]("en")
        examples = documents | names["CreatePretrainingExamples"]("data/vocab.txt")
        shapes = examples | beam.FlatMap(names["shapes"]) | beam.Distinct()
        assert_that(shapes, equal_to([((128,), (20,))]))


def test_the_tokenizer_page_shows_the_actual_values(tmp_path, monkeypatch, shared_data):
    """Run its Python line by line; a comment that starts with a quote or a bracket is the expected value."""
    release = tmp_path / "uncased_L-12_H-768_A-12"
    release.mkdir()
    (release / "vocab.txt").write_bytes((shared_data / "tokenizer/bert-base-uncased-vocab.txt").read_bytes())
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs/guides/tokenize-text.md").read_text(encoding="utf-8")
    lines = re.search(r"```python\n(.*?)```", text, re.DOTALL)[1].splitlines()
    names = {"texts": ["Some text.", "More."]}
    seen = 0
    for line in lines:
        code, _, comment = line.partition("  # ")
        if comment.startswith(("[", '"')):
            assert eval(code, names) == ast.literal_eval(comment), line
            seen += 1
        else:
            exec(code, names)
    assert seen == 2
