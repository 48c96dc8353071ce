"""Test that every tokenizer is constructed with all word rules, not only with some of them."""

import ast

from tests.conftest import ROOT

_TOKENIZERS = {"Tokenizer", "InGraphTokenizer", "TensorFlowTextTokenizer"}
_PACKAGES = ("trainers", "pipelines", "deploy", "bert_model")


def incomplete_calls(source: str) -> list[int]:
    """Return the lines that construct a tokenizer from a vocabulary without `**` of the word rules."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    return [
        call.lineno
        for call in calls
        if isinstance(call.func, ast.Name)
        and call.func.id in _TOKENIZERS
        and all(keyword.arg is not None for keyword in call.keywords)
    ]


def test_every_tokenizer_has_all_rules():
    paths = [path for package in _PACKAGES for path in (ROOT / package).rglob("*.py")]
    found = [
        f"{path.relative_to(ROOT)}:{line}: make it with InferenceModel.tokenizer(), or pass **asdict(word_rules)"
        for path in paths
        for line in incomplete_calls(path.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_an_incomplete_call_is_found():
    assert incomplete_calls("a = Tokenizer(v, m.do_lower_case)\nb = Tokenizer(v, **asdict(m.rules))\n") == [1]
