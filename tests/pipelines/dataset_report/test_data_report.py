"""Test `report.html`: complete, self-contained, harmless and readable in a browser; and each of its warnings."""

import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import pytest

from beambert import cli
from beambert.pipelines import dataset
from beambert.pipelines.commands.pretraining_data_run import print_summary
from beambert.pipelines.dataset_report.data_report import render
from beambert.pipelines.dataset_report.data_warnings import Facts, expected_masked, warnings_of
from beambert.pipelines.examples.statistics import Statistics
from beambert.pipelines.examples.train_eval_overlap import Overlap
from beambert.pipelines.formats.input_format import ReadOptions
from beambert.pipelines.instances.options import PretrainingDataOptions
from beambert.pipelines.sources.readers import read_file
from beambert.tokenizer.vocabulary import SPECIAL_TOKENS, Vocabulary
from tests.pages import assert_harmless, look_at, needs_chromium, parsed

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>&amp;\"'"
SECTIONS = (
    "warnings",
    "sources",
    "rejected",
    "text",
    "vocabulary",
    "examples",
    "masks",
    "duplicates",
    "samples",
    "made",
)


@pytest.fixture(scope="module")
def output(tmp_path_factory) -> Path:
    """A dataset of the language reference and a document of markup, from a file whose name is markup too."""
    folder = tmp_path_factory.mktemp("report")
    documents = list(read_file("language_reference", ReadOptions("language_reference")))
    lines = [json.dumps({"text": "\n".join(d.paragraphs)}) for d in documents]
    lines += [json.dumps({"text": f"{HOSTILE} He said {HOSTILE} and they said {HOSTILE}.\n" * 30})]
    (folder / "a<b onclick='x'>&lt;.jsonl").write_text("\n".join(lines))
    argv = ["build", "--input", f"{folder}/*.jsonl", "--output", f"{folder}/out", "--vocab_size", "1500"]
    assert cli.main([*argv, "--dupe_factor", "2", "--validation_fraction", "0.15", "--num_partitions", "2"]) == 0
    return folder / "out"


def test_page_is_complete_and_self_contained(output):
    page = (output / "report.html").read_text(encoding="utf-8")
    assert_harmless(page)
    checker = parsed(page)
    assert tuple(checker.ids) == SECTIONS
    targets = [value for _, name, value in checker.attributes if name == "href"]
    assert targets == [f"#{name}" for name in SECTIONS]
    text = " ".join(checker.text)
    counts = dataset.load(output).counts
    assert f"{counts['train']['documents']:,}" in text
    assert "/*.jsonl" in text
    assert page.count("<svg") >= 5
    assert page.count("<article") == 8
    assert page.count("<blockquote") == sum(map(len, counts["samples"].values())) > 0
    assert page.count('<mark class="mask">') > 8
    for warning in counts["warnings"]:
        assert warning in text


def test_page_is_written_before_the_manifest_and_reproducible(output, tmp_path):
    assert (output / "report.html").stat().st_mtime_ns <= (output / "dataset.json").stat().st_mtime_ns
    argv = ["pretraining-data", "--input", str(output), "--output", str(tmp_path / "out"), "--dupe_factor", "2"]
    assert cli.main(argv) == 0
    assert (tmp_path / "out" / "report.html").read_bytes() == (output / "report.html").read_bytes()
    counts = dataset.load(tmp_path / "out").counts
    assert counts == dataset.load(output).counts
    # Topics of the language reference repeat each other.
    overlap = counts["overlap"]
    assert 0 < overlap["documents_found"] < overlap["documents"] <= counts["documents"]["validation"]


def test_the_summary_has_all_warnings(output, capsys):
    manifest = dataset.load(output)
    for number in (0, 5):
        manifest.counts["warnings"] = [f"fault {n}" for n in range(number)]
        print_summary(manifest, str(output))
        assert re.findall(r"  warning     (.*)", capsys.readouterr().err) == manifest.counts["warnings"]


def test_the_summary_omits_a_deleted_report(output, capsys):
    report = output / "report.html"
    content = report.read_bytes()
    report.unlink()
    try:
        print_summary(dataset.load(output), str(output))
        assert "report.html" not in capsys.readouterr().out
    finally:
        report.write_bytes(content)
    print_summary(dataset.load(output), str(output))
    assert f"  report      {output}/report.html" in capsys.readouterr().out


def test_the_next_command_quotes_the_path(output, capsys):
    print_summary(dataset.load(output), "my data")
    assert "\nNext: beambert pretrain --data 'my data' --output RUN" in capsys.readouterr().out


def hostile_page(output: Path, **changed) -> str:
    """Return a report in which every string is markup, of a vocabulary with 4 tokens beside the special ones."""
    manifest = dataset.load(output)
    size = {"documents": 1, "words": 5, "rejected": {HOSTILE: 1}}
    counts = {
        **manifest.counts,
        "inputs": {HOSTILE: size, **{f"input {i}": size for i in range(30)}},
        "languages": {HOSTILE: size},
        "documents_rejected": {HOSTILE: 3},
        "domains": {HOSTILE: {"documents": 3}, "": {"rejected": 1}},
        "qualities": {"0.5": {"documents": 3, "bytes": 9}},
        "quality_model": {
            "documents": {"good": 5000, "bad": 700},
            "validation": {"good": 500, "bad": 70},
            "accuracy": 0.75,
            "calibration": [(60, 0.125, 0.25), None, None, None, (510, 0.875, 0.9375)],
            "thresholds": [(0.1, 0.9625, 0.1875)],
        },
        "samples": {
            HOSTILE: [{"id": "1", "title": HOSTILE, "place": HOSTILE, "text": HOSTILE}],
            "low_quality": [{"id": "1", "title": "t", "place": "p", "text": "x", "quality": "0.4321"}],
        },
        "documents_reported": {HOSTILE: 3},
        "paragraphs_cleaned": {HOSTILE: 3},
        "warnings": [HOSTILE],
    }
    shards = [dataclasses.replace(shard, name=HOSTILE) for shard in manifest.shards]
    options = {**manifest.options, HOSTILE: HOSTILE, "list": [HOSTILE], "corpus": {HOSTILE: HOSTILE}}
    manifest = dataclasses.replace(manifest, counts=counts, shards=shards, options=options, versions={HOSTILE: HOSTILE})
    vocab = Vocabulary((*SPECIAL_TOKENS, HOSTILE, "a", "b", "c"))
    train = Statistics(piece_counts=np.arange(len(vocab)), tokens=36)
    return render(manifest, PretrainingDataOptions(**changed), train, Statistics(), vocab, [])


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"masking": "dynamic"},
        {"objective": "mlm"},
        {"objective": "sop", "pack": True},
        {"balance_next_sentence": True, "length_bins": (64, 128)},
    ],
)
def test_markup_in_any_string_is_shown_not_run(output, changed):
    page = hostile_page(output, **changed)
    assert_harmless(page)
    assert page.count("&lt;script&gt;") >= 12
    assert tuple(parsed(page).ids) == SECTIONS


def test_the_tables_of_the_quality_model(output):
    text = " ".join(" ".join(parsed(hostile_page(output)).text).split())
    assert "on 5,000 good and 700 bad documents" in text
    assert "its accuracy is 75.0%" in text
    assert "0.0 to 0.2 60 0.125 0.250 0.8 to 1.0 510 0.875 0.938" in text
    assert "0.1 96.2% 18.8%" in text
    assert "t p, probability 0.4321" in text


FINE = Statistics(
    documents=100_000,
    sentences=2_000_000,
    tokens=60_000_000,
    unknown_tokens=1000,
    sentence_lengths=np.array([0] * 30 + [2_000_000]),
    piece_counts=np.full(1000, 60_000),
    instances=500_000,
    instances_labeled_1=270_000,
    instance_tokens=60_000_000,
    tokens_truncated=5_000_000,
    tokens_packed=60_000_000,
    rows=500_000,
    positions=64_000_000,
    row_lengths=np.array([0] * 120 + [500_000]),
    masked_tokens=9_000_000,
    masked_as_mask=7_200_000,
    masked_as_random=900_000,
    masked_as_original=900_000,
)
TWELVE_MASKS = {
    "masked_tokens": 6_000_000,
    "masked_as_mask": 4_800_000,
    "masked_as_random": 600_000,
    "masked_as_original": 600_000,
}
NO_MASKS = dict.fromkeys(TWELVE_MASKS, 0)
CORPUS = {
    "documents_read": 100_000,
    "documents_rejected": {"duplicate": 900},
    "languages": {"en": {"words": 1000}, "de": {"words": 1}},
}


def warnings(train=None, corpus=None, overlap=None, options=None, held_out=None, replacements=30_000) -> list[str]:
    return warnings_of(
        Facts(
            dataclasses.replace(FINE, **(train or {})),
            dataclasses.replace(FINE, **(held_out or {})),
            {**CORPUS, **(corpus or {})},
            Overlap(*(overlap or (10, 0, 100, 1))),
            PretrainingDataOptions(**(options or {})),
            replacements,
        )
    )


def test_a_warning_that_the_corpus_printed_is_in_the_report():
    """Test words that become [UNK] and are 1% of the words, but fewer of the tokens."""
    alphabet = ["1.1% of the words are [UNK] because --alphabet_limit 9 excludes 2 of the 11 characters of the text"]
    train, overlap = dataclasses.replace(FINE, unknown_tokens=540_000), Overlap(10, 0, 100, 1)
    assert warnings_of(Facts(train, FINE, CORPUS, overlap, PretrainingDataOptions(), 30_000, alphabet)) == alphabet


def test_data_without_fault_raises_no_alarm():
    assert warnings() == []
    assert warnings(train={"tokens_truncated": 12_000_000}) == []
    # Without pairs, a few hundred examples have enough masked tokens to measure an accuracy.
    small = {"instances": 300, "instance_tokens": 30_000}
    assert warnings(held_out=small, options={"objective": "mlm"}) == []


def test_short_examples_of_usual_sentences_raise_no_alarm():
    lengths = np.eye(1, 100, 40, dtype=int)[0] * 2_000_000
    assert warnings(train={"sentence_lengths": lengths}, options={"max_seq_length": 32, "objective": "mlm"}) == []


def test_warnings_are_in_order_of_importance():
    found = warnings(
        train={"positions": 120_000_000, "masked_as_mask": 7_000_000},
        held_out={"instances": 300},
        overlap=(10, 2, 100, 0),
        corpus={"diacritics": {"letters": 100, "lost": 9, "example": ["\u00e9", "e"]}},
    )
    parts = ("report this bug", "loses a mark on 9.0%", "2 of 10 validation documents", "only 300", "are padding")
    assert all(part in warning for part, warning in zip(parts, found, strict=True))


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"held_out": {"instances": 0}}, "the validation split is empty"),
        ({"held_out": {"instances": 0}, "train": {"documents": 22}}, "with --validation_fraction 0.23 or more"),
        ({"held_out": {"instances": 300}}, "the validation split has only 300 pairs"),
        (
            {"held_out": {"instances": 300, "instance_tokens": 6000}, "options": {"objective": "mlm"}},
            "the validation split has only 900 masked tokens",
        ),
        ({"overlap": (10, 2, 100, 0)}, "2 of 10 validation documents have at least half of their longer sentences"),
        ({"overlap": (10, 0, 100, 7)}, "7.0% of the longer validation sentences also occur in the training text"),
        (
            {"overlap": (10, 0, 100, 7), "corpus": {"documents_rejected": {"near_duplicate": 5}}},
            "repeat each other; build the corpus again with --drop_repeated_paragraphs",
        ),
        (
            {
                "overlap": (10, 2, 100, 0),
                "corpus": {
                    "documents_rejected": {"near_duplicate": 5},
                    "paragraphs_cleaned": {"repeated_paragraph": 5},
                },
            },
            "which inflates evaluation results; evaluate on other text",
        ),
        ({"train": {"unknown_tokens": 4_800_000}}, "8.0% of the tokens are [UNK], so the vocabulary does not fit the"),
        ({"train": {"piece_counts": np.arange(100) // 50}}, "50.0% of the vocabulary never occurs"),
        (
            {"corpus": {"documents_rejected": {"short": 40_000, "dup": 9}}},
            "40% of the documents were rejected, most often by rule short (40,000)",
        ),
        ({"corpus": {"languages": {"en": {"words": 9}, "de": {"words": 9}}}}, "mixes 2 languages (de, en)"),
        ({"train": {"sentences": 110_000}}, "documents have 1.1 sentences on average"),
        (
            {"train": {"sentence_lengths": np.eye(1, 600, 599, dtype=int)[0] * 200_000}},
            "10.0% of the sentences are longer than 128 tokens",
        ),
        ({"options": {"dupe_factor": 1}}, "there is one copy"),
        (
            {"train": {"instances_labeled_1": 310_000}},
            "62.0% of the pairs are random next sentences instead of about 50%; --balance_next_sentence balances them",
        ),
        (
            {"options": {"balance_next_sentence": True}},
            "54.0% of the pairs are random next sentences instead of about 50%, because text of --max_seq_length 128 "
            "is often a single sentence; increase it, or use documents with more sentences",
        ),
        *(
            (
                {"train": {"instances_labeled_1": 100_000}, "options": {"balance_next_sentence": balanced}},
                "20.0% of the pairs are random next sentences instead of about 50%, because partitions with a single "
                "document have none; use fewer partitions, such as --num_partitions 2000",
            )
            for balanced in (False, True)
        ),
        (
            {"train": {"instances_labeled_1": 0, "documents": 1}},
            "0.0% of the pairs are random next sentences instead of about 50%, because there is one training document; "
            "add documents, or use --objective mlm or sop",
        ),
        ({"options": {"objective": "sop"}}, "54.0% of the pairs are swapped instead of about 50%"),
        ({"train": {"tokens_truncated": 18_000_000}}, "30.0% of the tokens are truncated"),
        (
            {"train": {"positions": 120_000_000}},
            "50% of the positions are padding, which costs training time; use --pack, --length_bins or a smaller --max",
        ),
        (
            {"train": {"positions": 120_000_000}, "options": {"length_bins": (64, 128)}},
            "50% of the positions are padding, which costs training time; use --pack or a smaller --max_seq_length",
        ),
        (
            {"train": TWELVE_MASKS, "options": {"max_predictions_per_seq": 12}},
            "10.0% of the tokens are masked instead of 15%; increase --max_predictions_per_seq 12, which is too small "
            "for --max_seq_length 128",
        ),
        (
            {"train": TWELVE_MASKS, "options": {"masking": "whole_word"}},
            "10.0% of the tokens are masked instead of 15%, because words have more tokens than may be masked in a "
            "row; use --masking token or a vocabulary with more whole words",
        ),
        (
            {"train": NO_MASKS, "options": {"masking": "whole_word"}},
            "0.0% of the tokens are masked instead of 15%, bec",
        ),
        (
            {"train": TWELVE_MASKS},
            "10.0% of the tokens are masked instead of 15%, because examples are short",
        ),
        ({"train": {"masked_as_mask": 7_000_000}}, "77.8% of the masked tokens are replaced by [MASK] instead of 80%"),
    ],
)
def test_each_fault_has_its_warning(changed, says):
    found = warnings(**changed)
    assert any(says in warning for warning in found), found
    assert all("\n" not in warning and not warning.endswith(".") for warning in found)
    assert len(found) <= 3


def test_random_replacements_that_equal_the_original_are_expected():
    """Test a vocabulary of 4 tokens (A, C, G, T): a quarter of the random replacements are the original token."""
    dna = {"masked_as_random": 675_000, "masked_as_original": 1_125_000}
    assert warnings(train=dna, replacements=4) == []
    assert any("12.5% of the masked tokens are kept instead of 10%" in line for line in warnings(train=dna))
    found = warnings(replacements=4)
    assert any("10.0% of the masked tokens are kept instead of 12.5%" in line for line in found)
    assert any("10.0% of the masked tokens are replaced by a random token instead of 7.5%" in line for line in found)


def test_the_report_expects_equal_replacements_in_a_small_vocabulary(output):
    page = hostile_page(output)
    for action, expected in (("replaced by a random token", "7.5%"), ("kept", "12.5%")):
        assert re.search(rf">{action}(?:<[^>]*>)+none(?:<[^>]*>)+{expected}<", page)


def test_expected_masks_follow_from_the_lengths():
    options = PretrainingDataOptions(max_seq_length=64, max_predictions_per_seq=8, length_bins=(16, 64))
    lengths = {5: 3, 16: 2, 17: 1, 40: 4, 64: 2}
    histogram_of_rows = np.zeros(65, np.int64)
    histogram_of_rows[list(lengths)] = list(lengths.values())
    # A row of 16 positions has room for 2 predictions, one of 64 for 8. Without that limit, the numbers are
    # round(0.75) = 1, round(2.4) = 2, round(2.55) = 3, 6 and round(9.6) = 10.
    assert expected_masked(Statistics(row_lengths=histogram_of_rows), options) == 3 * 1 + 2 * 2 + 1 * 3 + 4 * 6 + 2 * 8


@needs_chromium
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True), (360, False)])
def test_a_browser_shows_it_on_desktop_and_phone_in_light_and_dark(output, tmp_path, width, dark):
    page = (output / "report.html").read_text(encoding="utf-8")
    assert look_at(page, tmp_path, width, dark)["figures"] >= 5
