"""Render sample instances of the training data for `report.html`."""

import itertools
from html import escape

from beambert.pipelines.examples import inspection
from beambert.pipelines.examples.example_reader import read_examples
from beambert.pipelines.examples.inspection import SAME, InstanceText, Span
from beambert.pipelines.instances.options import PretrainingDataOptions
from beambert.tokenizer.vocabulary import Vocabulary

_SAMPLES = 8


def read_samples(path: str, vocab: Vocabulary) -> list[InstanceText]:
    """Return the first instances of a shard."""
    examples = (inspection.decode(features, len(vocab)) for features in read_examples(path))
    texts = (text for example in examples for text in inspection.as_text(example, vocab))
    return list(itertools.islice(texts, _SAMPLES))


def samples_section(samples: list[InstanceText], options: PretrainingDataOptions) -> str:
    """Return the HTML of the section on samples; all text is escaped."""
    names = inspection.LABELS.get(options.objective, ("", ""))
    legend = (
        "<p>Masked tokens are highlighted, with the original token struck through: "
        '<mark class="mask"><s>word</s> MASK</mark> (replaced by [MASK]), <mark class="other"><s>word</s> other</mark> '
        '(replaced by a random token), <mark class="same">word</mark> (kept, but predicted).</p>'
    )
    articles = []
    for sample in samples:
        tag = f'<span class="tag">{names[min(sample.label, 1)]}</span>' if sample.b and sample.label is not None else ""
        lengths = f"A: {sample.a_tokens} tokens" + (f", B: {sample.b_tokens} tokens" if sample.b else "")
        masked = "" if options.masking == "dynamic" else f", {sample.masked} masked"
        b = f'<p class="b"><b>B</b> {_marked(sample.b)}</p>' if sample.b else ""
        articles.append(
            f'<article class="sample">{tag}<span class="soft">{lengths}{masked}</span>'
            f'<p class="a"><b>A</b> {_marked(sample.a)}</p>{b}</article>'
        )
    return ("" if options.masking == "dynamic" else legend) + "".join(articles)


def _marked(spans: list[Span]) -> str:
    """Return spans as HTML, with masked tokens highlighted."""
    parts = []
    for number, span in enumerate(spans):
        parts.append("" if span.glued or not number else " ")
        text = escape(span.text)
        if span.kind:
            seen = text if span.kind == SAME else f"<s>{text}</s> {escape(span.instead)}"
            text = f'<mark class="{span.kind}">{seen}</mark>'
        parts.append(text)
    return "".join(parts)
