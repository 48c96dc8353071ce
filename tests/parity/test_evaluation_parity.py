"""Compare log-probabilities of `beambert evaluate` with transformers, one masked copy at a time, within 1e-4."""

import numpy as np
import pytest
import torch
import transformers
from tiny_models import random_model, write_vocabulary

from beambert.tokenizer.tokenizer import Tokenizer
from beambert.trainers.inference.masked_scoring import MaskedScorer
from beambert.trainers.inference.model_loading import load_model

SENTENCES = ["a tin", "ban", "rain is", "q x z", "the", "a tie"]


@pytest.fixture(scope="module", params=["pretraining_erf", "pretraining_tanh"])
def directory(request, tmp_path_factory):
    directory = tmp_path_factory.mktemp("model")
    random_model(request.param).save_pretrained(directory)
    write_vocabulary(directory)
    return directory


def their_scores(directory, sentence, whole_word):
    """Return token ids of transformers' tokenizer and log-probabilities of its masked-LM model.

    Words for whole-word masking are those of its pre-tokenizer.
    """
    tokenizer = transformers.BertTokenizerFast(str(directory / "vocab.txt"), do_lower_case=True)
    model = transformers.BertForMaskedLM.from_pretrained(directory).eval()
    encoding = tokenizer(sentence, return_tensors="pt")
    ids, words = encoding["input_ids"], encoding.word_ids()
    scores = []
    for place in range(1, ids.shape[1] - 1):
        masked = ids.clone()
        masked[0, place] = tokenizer.mask_token_id
        if whole_word:
            later = [other for other in range(place, ids.shape[1]) if words[other] == words[place]]
            masked[0, later] = tokenizer.mask_token_id
        with torch.no_grad():
            logits = model(input_ids=masked, attention_mask=torch.ones_like(masked)).logits[0, place]
        scores.append(torch.log_softmax(logits.double(), -1)[ids[0, place]].item())
    return ids[0].tolist(), scores


@pytest.mark.parametrize("whole_word", [False, True])
def test_log_probabilities_equal_transformers(directory, whole_word):
    model = load_model(directory)
    tokenizer = Tokenizer(model.vocabulary, model.do_lower_case)
    vocabulary = model.vocabulary
    rows = [
        np.array([vocabulary.cls_id, *tokenizer.encode_batch([text])[0], vocabulary.sep_id], np.int32)
        for text in SENTENCES
    ]
    found = MaskedScorer(model, model.max_seq_length).token_log_probabilities(rows, whole_word=whole_word)
    largest = 0.0
    for sentence, row, ours in zip(SENTENCES, rows, found, strict=True):
        ids, theirs = their_scores(directory, sentence, whole_word)
        assert row.tolist() == ids
        largest = max(largest, float(np.abs(ours - np.array(theirs)).max()))
    print(f"whole_word={whole_word}: largest |difference| of a log-probability {largest:.1e}")
    assert largest < 1e-4
