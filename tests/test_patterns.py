"""Test that the time of every regular expression of the package grows at most linearly with the text."""

import re
from typing import Any

import pytest

from beambert.common.tokenizer_files import AddedToken
from beambert.deploy.dataflow import options as dataflow_options
from beambert.pipelines.cleaning import ngrams
from beambert.pipelines.formats.wikipedia import dump
from beambert.pipelines.segmentation import segmenters
from beambert.tokenizer.tokenizer import _Pattern
from tests import patterns
from tests.cpu_time import seconds

# Lengths of the text, and the limit in seconds of CPU time for the longest, of 256 kB. A linear pattern takes up to
# 0.5 s for it, a quadratic one minutes or hours. For a shorter text, the limit is scaled by the square of the length.
# Within the scaled limit, even quadratic time cannot exceed the limit, so that only slow patterns are tried on longer
# text.
_SIZES = (1 << 14, 1 << 16, 1 << 18)
_SIZE = _SIZES[-1]
_LIMIT = 5.0

# Patterns that are used on bounded text only: the maximum number of characters, and the code that bounds the text.
BOUNDED = {
    "pipelines.cleaning.rules._BOILERPLATE": (200, "drop_boilerplate looks at shorter paragraphs alone"),
    "pipelines.cleaning.rules._NOTICE": (200, "drop_boilerplate looks at shorter paragraphs alone"),
    "pipelines.segmentation.segmenters._WORD_AND_PERIOD": (
        12,
        "_ends_in_abbreviation cuts the text before",
    ),
}
# Patterns that are used with another method than the source shows.
METHOD = {r"-\d[-,\d]*$": "match"}  # argparse uses this method.
# Method and examples of patterns that are built at run time. Those without examples have, in place of the method, the
# kind of text, which is bounded.
DYNAMIC: dict[str, tuple[str, Any]] = {
    "deploy.dataflow.options._matching.parse": (
        "fullmatch",
        lambda: [
            re.compile(dict(zip(made.__code__.co_freevars, made.__closure__, strict=True))["pattern"].cell_contents)
            for made in vars(dataflow_options).values()
            if getattr(made, "__qualname__", "") == "_matching.<locals>.parse"
        ],
    ),
    "deploy.dataflow.flags.require_cloud_paths": (
        "fullmatch",
        lambda: [re.compile(dataflow_options.CLOUD_PATH)],
    ),
    "deploy.dataflow.template._parameter": ("the defaults of our own flags", list),
    # Its result is assigned to a name of the module, and tested there.
    "pipelines.segmentation.segmenters._pair_pattern": ("sub", list),
    "pipelines.segmentation.segmenters._continuations": (
        "sub",
        lambda: [*segmenters._CONTINUATION.values(), *segmenters._CONTINUATION_AFTER_PERIOD.values()],
    ),
    # Applied to paths, which have at most 4,096 characters.
    "pipelines.sources.files._expression": ("patterns of the user", list),
    "pipelines.cleaning.ngrams._other_signs": ("sub", lambda: [ngrams._other_signs()]),
    "pipelines.formats.wikipedia.dump._disambiguation": (
        "search",
        lambda: [dump._disambiguation(language) for language in ("en", "de", "ja")],
    ),
    "pipelines.formats.wikipedia.wikitext._without_tags.end_of": (
        "search",
        lambda: [re.compile(r"</ref\s*>", re.IGNORECASE)],
    ),
    "tokenizer.tokenizer.__init__": (
        "finditer",
        lambda: [_Pattern({token: AddedToken(token) for token in ("[MASK]", "a", "a b")})._pattern],
    ),
    "trainers.options._parse_lr_multiplier": ("names of variables", list),
    "trainers.optimization.optimizers.rate_factors": ("names of variables", list),
    "trainers.monitoring.throughput.peak_flops": ("names of devices", list),
}


def _apply(pattern: re.Pattern[Any], method: str, text: Any) -> None:
    if method in ("sub", "subn"):
        getattr(pattern, method)(text[:0], text)
    elif method == "finditer":
        for _ in pattern.finditer(text):
            pass
    else:
        getattr(pattern, method)(text)


def _collected() -> dict[tuple[re.Pattern[Any], str], tuple[str, int]]:
    """Return (place, maximum number of characters of its text) by (pattern, method)."""
    found: dict[tuple[re.Pattern[Any], str], tuple[str, int]] = {}
    for module in patterns.modules():
        uses = patterns.Uses(module)
        for name, compiled in patterns.compiled_patterns(module).items():
            place = f"{module.__name__}.{name}"
            most = BOUNDED.get(place, (_SIZE, ""))[0]
            for pattern in compiled:
                for method in uses.methods.get(name, ()):
                    found.setdefault((pattern, method), (place, most))
        for method, text, flags in uses.inline:
            method = METHOD.get(str(text), "search" if method == "compile" else method)
            found.setdefault((re.compile(text, flags), method), (f"{module.__name__}: {text!r}", _SIZE))
        for place, source in uses.dynamic:
            assert place in DYNAMIC, f"{place} makes the pattern {source} at run time; add examples of it to DYNAMIC"
            method, examples = DYNAMIC[place]
            for pattern in examples():
                found.setdefault((pattern, method), (place, _SIZE))
    return found


def _slow_text(pattern: re.Pattern[Any], method: str, most: int) -> str:
    """Return the start of a text on which the time of a pattern grows more than linearly, or "" if no text does."""
    sizes = [min(most, size) for size in _SIZES]
    for text_of in patterns.adversarial_texts(pattern):
        for size in sizes:
            text = text_of(size)
            taken = seconds(lambda text=text: _apply(pattern, method, text), _LIMIT)
            if taken > _LIMIT:
                return repr(text[:60])
            if taken <= _LIMIT * (size / _SIZE) ** 2:
                break
    return ""


@pytest.mark.slow
def test_every_pattern_is_linear_on_adversarial_text():
    collected = _collected()
    assert len(collected) > 100
    slow = {
        f"{place}.{method}": text
        for (pattern, method), (place, most) in collected.items()
        if (text := _slow_text(pattern, method, most))
    }
    assert not slow


QUADRATIC = {
    r"[\w.]+@\w": "search",
    r"(={2,6})\s*([^=].*?)\s*\1$": "sub",
    r"'{2}(?![\s'])(.+?)(?<![\s'])'{2}(?!')": "sub",
    r"(?:a|a)*b": "match",
}


@pytest.mark.parametrize("pattern", QUADRATIC)
def test_adversarial_text_finds_patterns_that_are_not_linear(pattern):
    # The limit is lower than in the test above to save time, since these patterns are known to be slow.
    method, compiled = QUADRATIC[pattern], re.compile(pattern)
    enough = _LIMIT * (_SIZES[1] / _SIZE) ** 2
    texts = patterns.adversarial_texts(compiled)
    assert any(seconds(lambda of=of: _apply(compiled, method, of(_SIZES[1])), 2 * enough) > enough for of in texts)
