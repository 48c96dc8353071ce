"""The Python blocks of the data guides run, and their comments are the values."""

import ast
import json
import re

from pipelines.cleaning import rules
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
    assert values == 3


def test_filter_before_the_job(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "open.txt").write_text("A text for everyone.")
    (tmp_path / "texts" / "secret.txt").write_text("This text is CONFIDENTIAL.")
    exec(python_blocks("own-cleaning-rule")[0], {})
    lines = (tmp_path / "filtered.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == [{"text": "A text for everyone.", "title": "open.txt"}]


def test_cleaning_rule_of_the_guide(monkeypatch):
    """Adds the rule as the guide describes, and drops a paragraph with it."""
    names: dict[str, object] = {}
    for block in python_blocks("own-cleaning-rule")[1:]:
        exec(block, names)
    added = (names["URL_LINES"], names["drop_url_lines"])
    monkeypatch.setattr(rules, "_PARAGRAPH_RULES", (*rules._PARAGRAPH_RULES, added))
    dropped: list[tuple[str, str]] = []
    paragraphs = ["See the page below.", "https://example.org/a/b", "It has the rest, as www.example.org does."]
    kept = rules.clean_paragraphs(paragraphs, rules.CleaningOptions(), rules.Counter(), dropped)
    assert (kept, dropped) == ([paragraphs[0], paragraphs[2]], [("url_lines", paragraphs[1])])
