"""Test the best spans computed with NumPy against those of the TensorFlow graph, with the same logits."""

import json

import numpy as np
import pytest
import tensorflow as tf

from beambert.tokenizer.in_graph import InGraphTokenizer
from beambert.tokenizer.tokenizer import Tokenizer
from beambert.tokenizer.vocabulary import Vocabulary
from beambert.trainers.inference.span_signatures import answer_spans
from tests.tokenizer.mixed_scripts import ARTICLE_1
from tests.trainers.inference.best_spans import best_spans, context_windows, windows_with_most_context

ODD = [
    "",
    "   \u00a0\n",
    "\x00\x01\ufffd",
    "a\x00b \x07c\u200d d\u00ade",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f600 ok \U0001f1e9\U0001f1ea",
    "\u5317\u4eac\u662f\u4e2d\u56fd\u7684\u9996\u90fd\u3002",
    "\u039f\u03a3 \u00c9t\u00e9 e\u0301te\u0301 \ufb01 \u1ec7 \ud55c\uae00",
    "x" * 250,
    "word",
    *ARTICLE_1.values(),
]


@pytest.fixture(scope="module")
def squad(shared_data):
    """Questions and contexts of SQuAD, followed by unusual and very long texts."""
    content = json.loads((shared_data / "squad/xquad.en.json").read_text(encoding="utf-8"))
    paragraphs = [paragraph for article in content["data"] for paragraph in article["paragraphs"]]
    contexts = [paragraph["context"] for paragraph in paragraphs[::4]]
    questions = [paragraph["qas"][0]["question"] for paragraph in paragraphs[::4]]
    contexts += [*ODD, " ".join(contexts), "\u5317\u4eac" * 2000]
    questions += ["What is it?", "", "\U0001f600", " ".join(questions)]
    return [questions[i % len(questions)] for i in range(len(contexts))], contexts


@pytest.fixture(scope="module")
def vocabulary(shared_data):
    return Vocabulary.load(shared_data / "tokenizer/bert-base-uncased-vocab.txt")


@pytest.fixture(scope="module")
def in_graph(vocabulary):
    return InGraphTokenizer(vocabulary)


def logits_of(ids, segments):
    """Return start and end logits [2, ..., S]: functions of token, segment and position, with many equal values."""
    position = np.arange(ids.shape[-1])
    scores = [np.sin(ids * factor + 5 * segments + 0.1 * factor * position) for factor in (1.7, 2.9)]
    return np.round(4 * np.stack(scores)).astype(np.float32) / 4


@pytest.mark.parametrize("max_seq_length", [24, 384])
def test_the_spans_are_those_of_the_graph(squad, vocabulary, in_graph, max_seq_length):
    questions, contexts = squad

    def in_batches(features):
        ids, segments = features["input_ids"].numpy(), features["segment_ids"].numpy()
        return tf.constant(np.stack(logits_of(ids, segments), axis=1))

    def by_row(rows, segments):
        return [logits_of(row, segment) for row, segment in zip(rows, segments, strict=True)]

    tokenizer = Tokenizer(vocabulary)
    found = best_spans(by_row, tokenizer, questions, contexts, max_seq_length)
    columns = tf.constant(questions), tf.constant(contexts)
    wanted = answer_spans(in_batches, in_graph, vocabulary, *columns, max_seq_length)
    wanted = {name: values.numpy() for name, values in wanted.items()}
    answered = 0
    for i, (span, context) in enumerate(zip(found, contexts, strict=True)):
        assert (span.score, span.null_score) == (wanted["score"][i], wanted["null_score"][i]), i
        if wanted["start"][i] < 0:
            assert (span.start, span.end) == (-1, -1)
            continue
        answered += 1
        offsets = [len(context.encode()[: wanted[name][i]].decode()) for name in ("start", "end")]
        assert [span.start, span.end] == offsets, i
        assert context[span.start : span.end] == wanted["answer"][i].decode()
    # All contexts have an answer except the three without tokens.
    assert answered == len(contexts) - 3
    # The answer to a single question is the same as in the batch.
    assert best_spans(by_row, tokenizer, questions[-2:-1], contexts[-2:-1], max_seq_length) == found[-2:-1]


def test_windows_are_those_of_run_squad():
    assert context_windows(0, 100) == [(0, 0)]
    assert context_windows(100, 100) == [(0, 100)]
    assert context_windows(101, 100) == [(0, 100), (100, 101)]
    assert context_windows(500, 380) == [(0, 380), (128, 500)]
    # As in the docstring of _check_is_max_context: the word in the middle of a window has the most context there.
    chosen = windows_with_most_context([(0, 380), (128, 500)]).tolist()
    assert (chosen[0], chosen[250], chosen[260], chosen[499]) == (0, 0, 1, 1)
    assert chosen == sorted(chosen)
    # Both windows give token 3 two neighbors on its shorter side; the first one counts.
    assert windows_with_most_context([(0, 6), (1, 7)]).tolist() == [0, 0, 0, 0, 1, 1, 1]
