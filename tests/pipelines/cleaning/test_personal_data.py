"""Test what counts as personal data, and what happens to documents that have any."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beambert.pipelines.cleaning import personal_data
from beambert.pipelines.cleaning.personal_data import (
    MAX_CHARACTERS,
    PERSONAL_DATA_RULES,
    PLACEHOLDERS,
    find_personal_data,
    mask_personal_data,
    require_placeholders,
    show,
)
from beambert.pipelines.cleaning.rules import CleaningOptions
from beambert.pipelines.corpus.document_steps import clean_document
from beambert.pipelines.documents import Document
from beambert.pipelines.errors import SourceError
from beambert.pipelines.segmentation.segmenters import split_sentences
from beambert.tokenizer.vocabulary import SPECIAL_TOKENS, Vocabulary

pytest.importorskip("phonenumbers")
pytest.importorskip("stdnum")

# Numbers from documentation: Wikipedia's IBAN examples, card issuers' test numbers, reserved names and numbers.
EVERY_KIND = "joe@example.org, DE89 3704 0044 0532 0130 00, 4111 1111 1111 1111, 93.184.216.34, +44 20 7946 0958"


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("Write to Joe.Bloggs+news@mail.example.co.uk.", "Write to [EMAIL]."),
        ("<o'neill@example.com>, a_b-c@x1.org;", "<[EMAIL]>, [EMAIL];"),
        ("請聯繫foo@example.com謝謝", "請聯繫[EMAIL]謝謝"),
        ("foo@müller-example.de", "[EMAIL]"),
        ("IBAN: GB29 NWBK 6016 1331 9268 19 BIC NWBKGB2L", "IBAN: [IBAN] BIC NWBKGB2L"),
        ("to NL91ABNA0417164300.", "to [IBAN]."),
        ("MT84 MALT 0110 0001 2345 MTLC AST0 01S", "[IBAN]"),
        ("card 5555-5555-5555-4444, exp 12/27", "card [CARD], exp 12/27"),
        ("3782 822463 10005 or 378282246310005", "[CARD] or [CARD]"),
        ("from 93.184.216.34:443 at", "from [IP]:443 at"),
        ("by 93.184.216.34.", "by [IP]."),
        ("(2606:2800:220:1:248:1893:25c8:1946)", "([IP])"),
        ("2606:2800::1 answers", "[IP] answers"),
        ("Call (212) 555-0123 or 1-800-555-0199.", "Call [PHONE] or [PHONE]."),
        ("Our number (+49 (0)30 901820) is new", "Our number ([PHONE]) is new"),
        ("((212) 736-5000)", "([PHONE])"),
        ("Tel.: 030 901820, Fax 030-901821", "Tel.: [PHONE], Fax [PHONE]"),
        ("Tel:030 901820, Tel.:(030)901820, card:4111111111111111", "Tel:[PHONE], Tel.:[PHONE], card:[CARD]"),
        ("https://example.org?by=joe@example.org", "https://example.org?by=[EMAIL]"),
        ("GB29\u00a0NWBK\u00a06016\u00a01331\u00a09268\u00a019", "[IBAN]"),
        ("电话010-62783000", "电话[PHONE]"),
        ("call 555-0123", "call [PHONE]"),
        ("01 42 68 53 00", "[PHONE]"),
        (EVERY_KIND, "[EMAIL], [IBAN], [CARD], [IP], [PHONE]"),
    ],
)
def test_personal_data_is_masked(text, masked):
    assert mask_personal_data(text) == masked


@pytest.mark.parametrize(
    "text",
    [
        # Each resembles personal data.
        "react@16.8.0, git@example.org:a/b.git, https://joe:secret@example.org/, icon@2x.png, @joe, joe@home",
        "two@@signs.org, a..b@example.org, .@example.org, @joe@example.social",
        "GB29 NWBK 6016 1331 9268 18, DE89 3704 0044 0532 0130, XX89370400440532013000",
        "4111 1111 1111 1112, 4111111111111111.5, 9111111111111111, 41111111111111111, 0x4111111111111111",
        "version 4.0.93.117, v1.2.193.4, section 3.4.21.64, 10.1.93.200, 192.168.93.1, 256.1.2.3, 1.93.200.4.5",
        "17.0.0.0/8, 1.2.3.4, 255.255.255.255, 127.0.0.1",
        "12:30:45, 00:1B:44:11:3A:B7, std::vector, 2001:db8::1, fe80::1",
        "1914-1918, (1990-1995), 2020-12-31 10:30, 31.12.2020, 12/31/2020, 20201231, 2006/2007-2008",
        "ISBN 978-0-306-40615-7, ISBN 0-306-40615-2, 978-0-306-40615-7, PMID 21256547, doi:10.1000/182.2020.123456",
        "1,234,567,890 people, $2125550123, 1 234 567 890, 3.14159265358979, 52.520008, 13.404954",
        "order 212-555-0123, part no. 0170-123-4567, patent 5,443,036",
        "123e4567-e89b-12d3-a456-426614174000, d41d8cd98f00b204e9800998ecf8427e",
        "won 21-19, 21-17, 15-21; 100000000; 2125550123",
    ],
)
def test_other_numbers_stay(text):
    assert find_personal_data(text) == []


def test_the_rules_of_a_corpus_are_the_only_ones():
    for rule in PERSONAL_DATA_RULES:
        assert [finding.rule for finding in find_personal_data(EVERY_KIND, [rule])] == [rule]
        others = CleaningOptions(pii="mask", skip_rules=rule)
        assert PLACEHOLDERS[rule] not in clean_document(Document([EVERY_KIND]), others).text
        assert PLACEHOLDERS[rule] not in others.placeholders


PARTS = [
    "joe@example.org",
    "212-736-5000",
    "+442079460958",
    "DE89370400440532013000",
    "4111111111111111",
    "93.184.216.34",
]


@given(st.lists(st.sampled_from(PARTS), max_size=30).map("".join))
def test_findings_in_any_text(text):
    findings = find_personal_data(text)
    assert findings == sorted(findings)
    assert all(before.end <= after.start for before, after in itertools.pairwise(findings))
    assert all(0 < finding.end - finding.start <= MAX_CHARACTERS for finding in findings)
    masked = mask_personal_data(text)
    assert len(masked) - len(text) == sum(len(PLACEHOLDERS[f.rule]) - (f.end - f.start) for f in findings)
    for rule in {finding.rule for finding in findings}:
        shown = show(text, findings, rule, hidden=True)
        assert PLACEHOLDERS[rule] in shown
        assert shown in masked
        first = next(finding for finding in findings if finding.rule == rule)
        assert text[first.start : first.end] in show(text, findings, rule, hidden=False)


@pytest.mark.parametrize("part", ["a@", "1-", "GB29 ", "2606:", "+(", "joe@example.org ", "1.", "0 "])
def test_hostile_text(part):
    """Test text on which quadratic rules would take minutes."""
    found = find_personal_data(part * (400_000 // len(part)))
    assert len(found) == (25_000 if "joe" in part else 0)


def document(text: str, **fields) -> Document:
    return Document(["A first paragraph.", text], **fields)


def test_mask():
    options = CleaningOptions(pii="mask")
    text = f"{'He said so. ' * 30}Write to joe@example.org or ann@example.org."
    cleaned = clean_document(document(text, title="Joe (joe@example.org)"), options)
    assert cleaned.paragraphs[1].endswith("Write to [EMAIL] or [EMAIL].")
    assert cleaned.title == "Joe ([EMAIL])"
    assert cleaned.removed.counts == {"pii_email": 1}
    assert cleaned.removed.lost == {"pii_email": 2 * len("joe@example.org") - 2 * len("[EMAIL]")}
    ((rule, shown),) = cleaned.removed.dropped
    assert rule == "pii_email"
    assert shown.endswith("Write to [EMAIL] or [EMAIL].")
    assert not cleaned.removed.personal_data


@pytest.mark.parametrize("mode", ["mask", "drop"])
def test_metadata(mode):
    """Test that the number of a page in its URL stays, even if it resembles a telephone number."""
    metadata = {"url": "https://example.org/212-736-5000?by=joe@example.org", "author": "joe@example.org, 212-736-5000"}
    cleaned = clean_document(document("", metadata=metadata), CleaningOptions(pii=mode))
    assert cleaned.metadata == {"url": "https://example.org/212-736-5000?by=[EMAIL]", "author": "[EMAIL], [PHONE]"}
    assert not cleaned.rejected
    assert clean_document(document("", metadata=metadata), CleaningOptions(pii="report")).metadata == metadata


def test_report_and_drop():
    text = "Call 212-736-5000 or write to joe@example.org."
    reported = clean_document(document(text), CleaningOptions(pii="report"))
    assert reported.paragraphs[1] == text
    assert not reported.rejected
    assert reported.removed.personal_data == {"pii_email": text, "pii_phone": text}
    dropped = clean_document(document(text), CleaningOptions(pii="drop"))
    assert dropped.rejected == "pii_email"
    assert dropped.removed.personal_data["pii_email"] == "Call [PHONE] or write to [EMAIL]."
    assert clean_document(document("", title="joe@example.org"), CleaningOptions(pii="drop")).rejected == "pii_email"
    for mode in ("off", "report", "mask", "drop"):
        plain = document("Nothing is here, since 1914-1918.")
        assert clean_document(plain, CleaningOptions(pii=mode)) == plain


@pytest.mark.parametrize("mode", ["mask", "drop"])
@pytest.mark.parametrize("blanks", range(150, 191, 5))
def test_lists_of_other_rules_have_no_personal_data(mode, blanks):
    """Test paragraphs that another rule drops, with an address at the place where the list truncates them."""
    text = f"| {'x' * blanks} joe.bloggs@example.org |" + "* " * 100
    options = CleaningOptions(pii=mode, end_punctuation=True)
    cleaned = clean_document(document(text), options)
    assert cleaned.removed.dropped
    assert not cleaned.rejected
    assert all("joe" not in shown for _, shown in cleaned.removed.dropped)
    without = clean_document(document(text), CleaningOptions(end_punctuation=True))
    assert any("joe" in shown for _, shown in without.removed.dropped)


def test_placeholders_do_not_join_sentences():
    sentences = ["Write to [EMAIL].", "Call [PHONE].", "It works."]
    assert split_sentences(" ".join(sentences), "en") == sentences


def test_vocabularies():
    given = Vocabulary((*SPECIAL_TOKENS, "a", "[EMAIL]"), "vocab.txt")
    require_placeholders(given, ["[EMAIL]"])
    with pytest.raises(SourceError, match=r"vocab.txt lacks \[PHONE\], which --pii mask puts into the text; add"):
        require_placeholders(given, ["[EMAIL]", "[PHONE]"])


def test_no_library_is_needed_for_prose(monkeypatch):
    monkeypatch.setattr(personal_data, "_is_valid", None)
    assert find_personal_data("In 1990, the 12,345 people of room 101 at No. 7 moved (see p. 12-15).") == []
