"""Render examples with the predictions of a fine-tuned model as HTML: errors, choices, answers, entities.

The content comes from a file. A function raises an error if the content is malformed, and the caller omits the section.
Every text is escaped, and has an element of its own with the direction of its script.
"""

import itertools
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from beambert.pipelines.reporting.tables import percent
from beambert.trainers.run_report.task_style import TYPE_COLORS
from beambert.trainers.run_report.task_tables import clipped, shown_label

# Number of examples shown; the others are folded.
_OPEN = 10
_TEXT_CHARACTERS = 1200
# Characters of a context shown around an answer.
_CONTEXT_AROUND = 200
# Longer words may be truncated.
_WORD = 30
Details = Mapping[str, Any]


def errors(content: Sequence[Details]) -> str:
    """Return incorrectly predicted texts as HTML, most confident first."""
    articles = []
    for error in content:
        probability = error.get("probability")
        pair = error.get("text_pair")
        words = [_verdict(error["label"], error["prediction"], probability), _paragraph(error["text"], "a")]
        words += [_paragraph(pair, "b")] if isinstance(pair, str) else []
        articles.append(_article(error["location"], "".join(words)))
    has_probability = any(error.get("probability") is not None for error in content)
    title = "Incorrect predictions, most confident first" if has_probability else "Predictions with the largest error"
    return _folded(articles, f"{title}.")


def choices(content: Sequence[Details]) -> str:
    """Return incorrect choices as HTML, most confident first."""
    articles = []
    for error in content:
        true, predicted = (int(error[name]) for name in ("label", "prediction"))
        items = []
        for number, choice in enumerate(error["choices"]):
            kinds = [name for name, i in (("true", true), ("predicted", predicted)) if i == number]
            item = _text(choice)
            if kinds:
                item = f'<mark class="{" ".join(kinds)}">{item}</mark> <small>{" and ".join(kinds)}</small>'
            items.append(f'<li dir="auto">{item}</li>')
        words = (
            f'<p class="verdict soft">probability {percent(float(error["probability"]))}</p>'
            f'{_paragraph(error["text"], "a")}<ol class="answers" start="0">{"".join(items)}</ol>'
        )
        articles.append(_article(error["location"], words))
    return _folded(articles, "Incorrect choices, most confident first.")


def answers(content: Sequence[Details]) -> str:
    """Return questions as HTML, with true and predicted spans marked in their contexts."""
    articles = []
    for answer in content:
        context = str(answer["context"])
        true = [_span(span, context) for span in answer["answers"]]
        predicted = [] if answer["prediction"] is None else [_span(answer["prediction"], context)]
        verdict = (
            '<span class="tag true">correct</span>'
            if answer["exact"]
            else '<span class="tag predicted">incorrect</span>'
        )
        answer_text = _text(answer["text"]) if answer["text"] else "no answer"
        true_texts = list(dict.fromkeys(context[start:end] for start, end in true))
        true_answers = ", ".join(f"<bdi>{_text(text)}</bdi>" for text in true_texts) or "no answer"
        words = (
            f'<p class="verdict">{verdict}<b dir="auto">{_text(answer["question"])}</b></p>'
            f'<p class="verdict"><span class="soft">predicted</span> <bdi>{answer_text}</bdi> '
            f'<span class="soft">({percent(float(answer["probability"]))}), true</span> {true_answers}</p>'
            f'<p class="a" dir="auto">{marked_context(context, true, predicted)}</p>'
        )
        articles.append(_article(answer["location"], words))
    legend = (
        '<mark class="true">true answer</mark>, <mark class="predicted">predicted answer</mark>, '
        '<mark class="true predicted">both</mark>'
    )
    return _folded(articles, f"Incorrect answers, most confident first, then some correct answers. {legend}.")


def _span(span: Sequence[int], context: str) -> tuple[int, int]:
    start, end = (int(offset) for offset in span)
    if not 0 <= start < end <= len(context):
        raise ValueError(f"not a span of the context: {start} to {end}")
    return start, end


def marked_context(context: str, true: Sequence[tuple[int, int]], predicted: Sequence[tuple[int, int]]) -> str:
    """Return a context as HTML with marked spans, without text far from all spans.

    Args:
        context: text of the context, not escaped.
        true, predicted: start and end of each span in characters; spans may overlap.
    """
    spans = [*true, *predicted]
    shown = _near(spans, context) if spans else [(0, _end_of_word(context, 2 * _CONTEXT_AROUND))]
    boundaries = sorted({offset for span in (*spans, *shown) for offset in span})
    parts, end = [], 0
    for first, last in itertools.pairwise(boundaries):
        if not any(start <= first and last <= stop for start, stop in shown):
            continue
        if first > end:
            parts.append("… " if end == 0 else " … ")
        end = last
        kinds = [
            name
            for name, group in (("true", true), ("predicted", predicted))
            if any(start <= first and last <= stop for start, stop in group)
        ]
        text = escape(context[first:last])
        parts.append(f'<mark class="{" ".join(kinds)}">{text}</mark>' if kinds else text)
    return "".join(parts) + (" …" if end < len(context) else "")


def _near(spans: Sequence[tuple[int, int]], context: str) -> list[tuple[int, int]]:
    """Return the disjoint parts of a context near a span, in order; they start and end between words."""
    parts: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        start, end = _start_of_word(context, start - _CONTEXT_AROUND), _end_of_word(context, end + _CONTEXT_AROUND)
        if parts and start <= parts[-1][1]:
            parts[-1] = (parts[-1][0], max(end, parts[-1][1]))
        else:
            parts.append((start, end))
    return parts


def _start_of_word(context: str, offset: int) -> int:
    """Return the start of the next word from an offset on, or the offset if no word starts nearby."""
    return max(0, offset) if offset <= 0 else context.find(" ", offset - 1, offset + _WORD) + 1 or offset


def _end_of_word(context: str, offset: int) -> int:
    """Return the end of the last word before an offset, or the offset if no word ends nearby."""
    if offset >= len(context):
        return len(context)
    end = context.rfind(" ", offset - _WORD, offset + 1)
    return offset if end < 0 else end


def entities(content: Sequence[Details]) -> str:
    """Return sentences as HTML with true and predicted entities, with a color for each type."""
    types = sorted({str(entity[2]) for line in content for key in ("labels", "predictions") for entity in line[key]})
    colors = {kind: number % TYPE_COLORS for number, kind in enumerate(types)}
    articles = []
    for line in content:
        words = [str(word) for word in line["words"]]
        true, predicted = (_entity_line(words, line[name], colors) for name in ("labels", "predictions"))
        is_same = true == predicted
        lines = [("both", true)] if is_same else [("true", true), ("predicted", predicted)]
        body = "".join(f'<dt>{name}</dt><dd dir="auto">{text}</dd>' for name, text in lines)
        articles.append(_article(line["location"], f'<dl class="entities">{body}</dl>'))
    legend = " ".join(f'<mark class="type-{number}">{shown_label(kind)}</mark>' for kind, number in colors.items())
    return _folded(articles, f"Sentences with the most errors first, then some correct ones. {legend}")


def _entity_line(words: Sequence[str], spans: Sequence[Sequence[Any]], colors: Mapping[str, int]) -> str:
    parts, position = [], 0
    for first, end, kind in sorted((int(first), int(end), str(kind)) for first, end, kind in spans):
        if not position <= first < end <= len(words):
            raise ValueError(f"not an entity of the sentence: {first} to {end}")
        parts += [escape(word) for word in words[position:first]]
        text = escape(" ".join(words[first:end]))
        parts.append(f'<mark class="type-{colors[kind]}">{text}<small>{shown_label(kind)}</small></mark>')
        position = end
    return " ".join([*parts, *(escape(word) for word in words[position:])])


def _verdict(label: Any, prediction: Any, probability: Any) -> str:
    confidence = f' <span class="soft">({percent(float(probability))})</span>' if probability is not None else ""
    predicted, true = (f"<bdi>{shown_label(str(words))}</bdi>" for words in (prediction, label))
    return (
        f'<p class="verdict"><span class="soft">predicted</span> <b class="predicted">{predicted}</b>{confidence} '
        f'<span class="soft">true</span> <b class="true">{true}</b></p>'
    )


def _article(location: Any, content: str) -> str:
    return f'<article class="sample"><span class="soft">{escape(str(location))}</span>{content}</article>'


def _folded(articles: Sequence[str], words: str) -> str:
    """Return articles under a heading as HTML, folded after the first ones; "" without articles."""
    if not articles:
        return ""
    more = ""
    if len(articles) > _OPEN:
        rest = "".join(articles[_OPEN:])
        more = f"<details><summary>{len(articles) - _OPEN} more</summary>{rest}</details>"
    return f"<p>{words}</p>{''.join(articles[:_OPEN])}{more}"


def _paragraph(text: Any, kind: str) -> str:
    return f'<p class="{kind}" dir="auto">{_text(text)}</p>'


def _text(text: Any) -> str:
    return escape(clipped(str(text), _TEXT_CHARACTERS))
