"""Some instances of the training data as text, for `report.html`."""

import itertools
from html import escape

from pipelines.examples import inspection
from pipelines.examples.example_reader import read_examples
from pipelines.examples.inspection import SAME, InstanceText, Span
from pipelines.instances.options import PretrainingDataOptions
from tokenizer.vocabulary import Vocabulary

_SAMPLES = 8


def read_samples(path: str, vocab: Vocabulary) -> list[InstanceText]:
    """Return the first instances of a shard."""
    examples = (inspection.decode(features, len(vocab)) for features in read_examples(path))
    texts = (text for example in examples for text in inspection.as_text(example, vocab))
    return list(itertools.islice(texts, _SAMPLES))


def samples_section(samples: list[InstanceText], options: PretrainingDataOptions) -> str:
    """Return the samples as HTML; every piece of text is escaped."""
    names = inspection.LABELS.get(options.objective, ("", ""))
    legend = (
        "<p>Each masked token shows the original, struck through, and what the model sees in its place: "
        '<mark class="mask"><s>word</s> MASK</mark> <mark class="other"><s>word</s> another</mark> '
        '<mark class="same">word</mark> (kept as it is, but to be predicted).</p>'
    )
    articles = []
    for sample in samples:
        tag = f'<span class="tag">{names[min(sample.label, 1)]}</span>' if sample.b and sample.label is not None else ""
        lengths = f"A {sample.a_tokens}" + (f", B {sample.b_tokens}" if sample.b else "") + " tokens"
        masked = "" if options.masking == "dynamic" else f", {sample.masked} masked"
        b = f'<p class="b"><b>B</b> {_marked(sample.b)}</p>' if sample.b else ""
        articles.append(
            f'<article class="sample">{tag}<span class="soft">{lengths}{masked}</span>'
            f'<p class="a"><b>A</b> {_marked(sample.a)}</p>{b}</article>'
        )
    return ("" if options.masking == "dynamic" else legend) + "".join(articles)


def _marked(spans: list[Span]) -> str:
    parts = []
    for number, span in enumerate(spans):
        parts.append("" if span.glued or not number else " ")
        text = escape(span.text)
        if span.kind:
            seen = text if span.kind == SAME else f"<s>{text}</s> {escape(span.instead)}"
            text = f'<mark class="{span.kind}">{seen}</mark>'
        parts.append(text)
    return "".join(parts)
