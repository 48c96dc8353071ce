"""Test `--pii` from raw text to pretraining data."""

import json
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.testing.util import assert_that, equal_to

from beambert import cli
from beambert.pipelines import dataset
from beambert.pipelines.documents import Document
from beambert.pipelines.transforms import CleanDocuments, CleaningOptions, LearnWordPieceVocabulary, SegmentSentences
from beambert.tokenizer.tokenizer import Tokenizer
from tests.every_output import corpus_rows, rejected

pytest.importorskip("phonenumbers")
pytest.importorskip("stdnum")

SMALL = ["--vocab_size", "60", "--validation_fraction", "0", "--num_partitions", "1"]
PLACEHOLDERS = ("[EMAIL]", "[IBAN]", "[CARD]", "[IP]")
SECRETS = ("joe", "ann", "eve", "@", "736-5000", "3704")
DOCUMENTS = [
    {"text": "Write to joe@example.org. Call (212) 736-5000 now.", "title": "Mail joe@example.org"},
    {"text": "The account is DE89 3704 0044 0532 0130 00 of the cat.", "title": "An account"},
    # Rejected by other rules.
    {"text": "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 ann@example.org", "title": "ann@example.org"},
    {"text": "Please enable JavaScript to read eve@example.org and more.\nThe dog ran in the fog.", "title": ""},
    {"text": "The cat and the dog sat on the mat. Nothing else is in the fog.", "title": "Cats"},
]


@pytest.fixture
def texts(tmp_path) -> Path:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in DOCUMENTS))
    return path


def counts_of(output: Path) -> dict:
    return json.loads((output / "corpus.json").read_text())["counts"]


def all_text(output: Path) -> str:
    """Return what a corpus and its lists say."""
    manifest = (output / "corpus.json").read_text()
    return json.dumps([corpus_rows(output), rejected(output)], ensure_ascii=False, default=str) + manifest


def test_masked_text_is_nowhere_and_its_tokens_stay_whole(texts, tmp_path):
    output = tmp_path / "out"
    flags = ["--pii", "mask", "--max_seq_length", "32", "--objective", "mlm"]
    assert cli.main(["build", "--input", str(texts), "--output", str(output), *SMALL, *flags]) == 0
    assert not [secret for secret in SECRETS if secret in all_text(output)]
    counts = counts_of(output)
    assert counts["documents_rejected"] == {"digits": 1}
    masked = {rule: count for rule, count in counts["paragraphs_cleaned"].items() if rule.startswith("pii")}
    assert masked == {"pii_email": 2, "pii_iban": 1, "pii_phone": 1}
    listed = {(line["reason"], line["text"]) for line in rejected(output)}
    assert ("pii_phone", "Write to [EMAIL]. Call [PHONE] now.") in listed
    assert ("boilerplate", "Please enable JavaScript to read [EMAIL] and more.") in listed

    tokens = (output / "vocab.txt").read_text().splitlines()
    assert tokens[-5:] == ["[EMAIL]", "[IBAN]", "[CARD]", "[IP]", "[PHONE]"]
    assert len(tokens) == 60
    # Neither the words of the placeholders nor their brackets are learned.
    assert "[" not in tokens
    tokenizer = Tokenizer.load(output)
    assert tokenizer.tokenize("The cat, [PHONE]")[-1] == "[PHONE]"
    manifest = dataset.load(output)
    assert manifest.counts["train"]["unknown_tokens"] == 0


def test_reported_and_dropped_documents(texts, tmp_path):
    output = tmp_path / "reported"
    assert cli.main(["corpus", "--input", str(texts), "--output", str(output), *SMALL, "--pii", "report"]) == 0
    assert counts_of(output)["documents_reported"] == {"pii_email": 1, "pii_iban": 1, "pii_phone": 1}
    assert any("joe@example.org" in sentence for row in corpus_rows(output) for sentence in row["sentences"])
    assert {line["reason"] for line in rejected(output)} >= {"pii_email, kept", "pii_iban, kept", "pii_phone, kept"}

    output = tmp_path / "dropped"
    flags = ["--pii", "drop", "--skip_rules", "pii_iban", "--vocab_size", "50"]
    assert cli.main(["corpus", "--input", str(texts), "--output", str(output), *SMALL, *flags]) == 0
    assert counts_of(output)["documents_rejected"] == {"pii_email": 2}
    assert not [secret for secret in SECRETS if secret in all_text(output) and secret != "3704"]
    contexts = {line["context"] for line in rejected(output) if "context" in line}
    assert "Write to [EMAIL]. Call [PHONE] now." in contexts


def test_the_vocabulary_of_an_own_pipeline_has_the_placeholders_of_its_text():
    with beam.Pipeline() as pipeline:
        texts = [Document([f"The cat {number} wrote to joe{number}@example.org."]) for number in range(9)]
        cleaned = pipeline | beam.Create(texts) | CleanDocuments(CleaningOptions(pii="mask", skip_rules="pii_phone"))
        learned = cleaned | SegmentSentences() | LearnWordPieceVocabulary(44, validation_fraction=0)
        assert_that(learned | beam.Map(lambda vocabulary: vocabulary.tokens[-4:]), equal_to([PLACEHOLDERS]))


def test_a_vocabulary_without_the_placeholders_is_refused(texts, tmp_path, capsys):
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\ncat\n")
    flags = ["--pii", "mask", "--vocab_file", str(vocabulary), "--num_partitions", "1"]
    assert cli.main(["corpus", "--input", str(texts), "--output", str(tmp_path / "out"), *flags]) == 1
    error = capsys.readouterr().err
    assert "vocab.txt lacks [EMAIL], [IBAN], [CARD], [IP], [PHONE], which --pii mask puts into the text" in error
    assert error.count("\n") == 1
