"""Find personal data in text: mail addresses, IBANs, payment cards, IP addresses and telephone numbers.

A cheap test excludes most paragraphs: fewer than 2% of those of Wikipedia have a number of seven digits or more. The
others are checked by the rules of each kind: check digits (ISO 13616, ISO/IEC 7812), address ranges (RFC 6890) and the
numbering plans of telephone numbers (libphonenumber). Only ASCII digits are recognized.
"""

import bisect
import ipaddress
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from beambert.pipelines.errors import SourceError
from beambert.tokenizer.vocabulary import PLACEHOLDER_TOKENS, Vocabulary

# In order of precedence where two rules match the same text.
PERSONAL_DATA_RULES = EMAIL, IBAN, CARD, IP_ADDRESS, PHONE = "pii_email", "pii_iban", "pii_card", "pii_ip", "pii_phone"
PLACEHOLDERS = dict(zip(PERSONAL_DATA_RULES, PLACEHOLDER_TOKENS, strict=True))
# No finding is longer: the longest is a mail address.
MAX_CHARACTERS = 320
# Characters on each side of a finding that a list shows.
_CONTEXT = 80


class Finding(NamedTuple):
    """Personal data in a text: `text[start:end]`, found by one of `PERSONAL_DATA_RULES`."""

    start: int
    end: int
    rule: str


def find_personal_data(text: str, rules: Collection[str] = PERSONAL_DATA_RULES) -> list[Finding]:
    """Return the personal data of a text, in order and without overlaps.

    Args:
        text: one paragraph.
        rules: the rules to apply, of `PERSONAL_DATA_RULES`.

    Raises:
        ModuleNotFoundError: phonenumbers or python-stdnum is not installed, and a number must be checked.
    """
    candidates: list[Finding] = []
    if EMAIL in rules and "@" in text:
        candidates += _find(EMAIL, _emails(text))
    if IBAN in rules and _IBAN_START.search(text):
        candidates += _find(IBAN, _ibans(text))
    if _NUMBER.search(text):
        if CARD in rules:
            candidates += _find(CARD, _cards(text))
        if IP_ADDRESS in rules:
            candidates += _find(IP_ADDRESS, _ipv4_addresses(text))
        if PHONE in rules:
            candidates += _find(PHONE, _phones(text))
    if IP_ADDRESS in rules and ":" in text and _IPV6_START.search(text):
        candidates += _find(IP_ADDRESS, _ipv6_addresses(text))
    findings: list[Finding] = []
    for rule in PERSONAL_DATA_RULES:
        # Those of one rule do not overlap.
        new = [finding for finding in candidates if finding.rule == rule and not _overlaps(finding, findings)]
        findings = sorted([*findings, *new])
    return findings


def _overlaps(finding: Finding, others: list[Finding]) -> bool:
    """Return whether a finding overlaps one of a sorted list without overlaps."""
    after = bisect.bisect(others, finding)
    return any(
        other.start < finding.end and finding.start < other.end for other in others[max(0, after - 1) : after + 1]
    )


def mask_findings(text: str, findings: Iterable[Finding]) -> str:
    """Return a text with the placeholder of its rule in place of each finding."""
    parts, end = [], 0
    for finding in findings:
        parts += [text[end : finding.start], PLACEHOLDERS[finding.rule]]
        end = finding.end
    return "".join([*parts, text[end:]])


def mask_personal_data(text: str, rules: Collection[str] = PERSONAL_DATA_RULES) -> str:
    """Return a text with a placeholder in place of each finding; arguments as `find_personal_data`."""
    findings = find_personal_data(text, rules)
    return mask_findings(text, findings) if findings else text


def mask_metadata(metadata: Mapping[str, str], rules: Collection[str]) -> dict[str, str]:
    """Return the metadata of a document without personal data; in its URL, numbers are those of pages, and stay."""
    return {
        name: mask_personal_data(value, [rule for rule in rules if rule == EMAIL or name != "url"])
        for name, value in metadata.items()
    }


def require_placeholders(vocabulary: Vocabulary, placeholders: Iterable[str]) -> None:
    """Check that a vocabulary has the tokens that replace personal data in a corpus.

    Raises:
        SourceError: it lacks one.
    """
    if missing := [token for token in placeholders if token not in vocabulary.ids]:
        raise SourceError(
            f"the vocabulary {vocabulary.origin} lacks {', '.join(missing)}, which --pii mask puts into the text; add "
            "the tokens with `beambert extend-vocab --added_tokens`, learn a vocabulary, or use --pii drop"
        )


def show(text: str, findings: list[Finding], rule: str, hidden: bool) -> str:
    """Return the first finding of a rule with the text around it, at most 80 characters on each side.

    Args:
        text: the text.
        findings: its personal data, from `find_personal_data`.
        rule: a rule that found something.
        hidden: whether placeholders replace the findings.
    """
    number = next(number for number, finding in enumerate(findings) if finding.rule == rule)
    start, end, _ = findings[number]
    if not hidden:
        return text[max(0, start - _CONTEXT) : end + _CONTEXT]
    after = [Finding(other.start - end, other.end - end, other.rule) for other in findings[number + 1 :]]
    before = mask_findings(text[:start], findings[:number])[-_CONTEXT:]
    return f"{before}{PLACEHOLDERS[rule]}{mask_findings(text[end:], after)[:_CONTEXT]}"


def _find(rule: str, spans: Iterable[tuple[int, int]]) -> Iterator[Finding]:
    return (Finding(start, end, rule) for start, end in spans)


# The lengths of both parts are bounded, as by RFC 5321, so that the time is linear in the length of the text.
_LOCAL_PART = re.compile(r"(?<![A-Za-z0-9_.@%+-])[A-Za-z0-9](?:[A-Za-z0-9_%+'-]|\.(?!\.))*(?<![.'])\Z")
_DOMAIN = re.compile(
    r"(?:[^\W_](?:[\w-]{0,61}[^\W_])?\.){1,8}(?:[A-Za-z]{2,24}|xn--[A-Za-z0-9-]{2,59})(?![A-Za-z0-9_@-])"
)
_USER_OF_URL, _PATH = re.compile(r"://[^\s/?#]*\Z"), re.compile(r":[~/\w]")
_LOCAL_CHARACTERS, _DOMAIN_CHARACTERS = 64, 255
# "icon@2x.png" is a file, not an address.
_FILE_SUFFIXES = frozenset(
    ["png", "jpg", "jpeg", "gif", "svg", "webp", "css", "js", "pdf", "html", "htm", "py", "json"]
)


def _emails(text: str) -> Iterator[tuple[int, int]]:
    position = text.find("@")
    while position >= 0:
        # Two more characters, on which the start of the local part depends.
        local = _LOCAL_PART.search(text[max(0, position - _LOCAL_CHARACTERS - 2) : position])
        domain = _DOMAIN.match(text[position + 1 : position + 1 + _DOMAIN_CHARACTERS])
        if local and domain and len(local[0]) <= _LOCAL_CHARACTERS:
            start, end = position - len(local[0]), position + 1 + domain.end()
            is_file = domain[0].rpartition(".")[2].lower() in _FILE_SUFFIXES
            # The user of a URL, such as ssh://git@example.org, and of a path, such as git@example.org:project/code.
            is_location = _USER_OF_URL.search(text[max(0, start - 80) : start]) or _PATH.match(text[end : end + 2])
            if not is_file and not is_location:
                yield start, end
        position = text.find("@", position + 1)


# ISO 13616: country, two check digits, 11 to 30 letters and digits; printed in groups of four.
_IBAN_START = re.compile(r"[A-Z][A-Z][0-9][0-9][ \u00a0-]?[A-Z0-9]{3}")
_IBAN = re.compile(r"(?<!\w)[A-Z]{2}[0-9]{2}(?:[ \u00a0-]?[A-Z0-9]){11,30}(?![a-z0-9_])")


def _ibans(text: str) -> Iterator[tuple[int, int]]:
    from stdnum import iban

    for match in _IBAN.finditer(text):
        # The length depends on the country. What follows in capitals, such as BIC, is not part of it.
        for end in _ends(text, match.start(), match.end()):
            if iban.is_valid(text[match.start() : end].replace("\u00a0", " ")):
                yield match.start(), end
                break


def _ends(text: str, start: int, end: int) -> Iterator[int]:
    """Yield the end of a match, and each end before a separator within it, the last one first."""
    yield end
    for position in range(end - 1, start, -1):
        if not text[position].isalnum():
            yield position


# Separators of the digits of a number, and the start of any number that the rules below accept.
_SEPARATOR = r"[ \u00a0\u202f()./\u2010-\u2013-]"
_NUMBER = re.compile(rf"[0-9](?:(?:{_SEPARATOR}{{0,3}}[0-9]){{6}}|[0-9]{{0,2}}\.[0-9]{{1,3}}\.[0-9]{{1,3}}\.[0-9])")
# Not within a word, a decimal number, a path or a longer number.
# Chinese and Japanese text has no spaces around a number.
_BEFORE = r"(?<![A-Za-z0-9_$€£#])(?<![0-9_][.,/:=-])(?<![A-Za-z.,][.,/=-])"
_AFTER = r"(?![A-Za-z0-9_%])(?![.,/:_-][A-Za-z0-9_])"

# ISO/IEC 7812: groups of four digits, or 4-6-5 (American Express) and 4-6-4 (Diners Club).
_CARD = re.compile(
    rf"{_BEFORE}[0-9]{{4}}([ -]?)"
    rf"(?:[0-9]{{4}}\1[0-9]{{4}}\1[0-9]{{4}}(?:\1[0-9]{{3}})?|[0-9]{{6}}\1[0-9]{{4,5}}){_AFTER}"
)
# Visa, Mastercard, American Express, Discover, JCB, Diners Club, UnionPay and Maestro.
_ISSUER = re.compile(
    r"4[0-9]{15}(?:[0-9]{3})?|(?:5[1-5]|222[1-9]|22[3-9]|2[3-6]|27[01]|2720)[0-9]*|3[47][0-9]{13}"
    r"|(?:6011|65|64[4-9]|35(?:2[89]|[3-8])|62|50|5[678]|63|67)[0-9]*|3(?:0[0-5]|[68])[0-9]{11}"
)


def _cards(text: str) -> Iterator[tuple[int, int]]:
    from stdnum import luhn

    for match in _CARD.finditer(text):
        digits = re.sub("[ -]", "", match[0])
        if _ISSUER.fullmatch(digits) and len(digits) in _card_lengths(digits) and luhn.is_valid(digits):
            yield match.span()


def _card_lengths(digits: str) -> tuple[int, ...]:
    """Return the lengths of the numbers of an issuer."""
    if digits.startswith("3") and not digits.startswith("35"):
        return (14, 15)
    return (16, 19) if digits.startswith(("4", "6", "35")) else (16,)


_IPV4 = re.compile(rf"{_BEFORE}(?:[0-9]{{1,3}}\.){{3}}[0-9]{{1,3}}(?![A-Za-z0-9_%]|[.,-][A-Za-z0-9_]|/[0-9])")
_IPV6_START = re.compile(r"[23][0-9A-Fa-f]{3}:[0-9A-Fa-f:]{2}")
# Global unicast addresses (RFC 4291, section 2.4).
_IPV6 = re.compile(r"(?<![\w:.])[23][0-9A-Fa-f]{3}:[0-9A-Fa-f:]{2,34}(?![\w:]|\.[0-9])")
# Words before other numbers of this form: versions, sections of a text, enzymes.
_NO_ADDRESS = re.compile(
    r"(?:\bv|\bver\.?|\bversions?|\brelease|\bbuild|\bfirmware|\bsections?|\bchapter|\bec|\boid|§)[ :]*\Z",
    re.IGNORECASE,
)
# Versions and sections have small numbers; of 256 addresses, one has no number of 64 or more.
_SMALL = 64


def _ipv4_addresses(text: str) -> Iterator[tuple[int, int]]:
    for match in _IPV4.finditer(text):
        is_large = max(map(int, match[0].split("."))) >= _SMALL
        before = text[max(0, match.start() - 16) : match.start()]
        if is_large and _is_global(match[0]) and not _NO_ADDRESS.search(before):
            yield match.span()


def _ipv6_addresses(text: str) -> Iterator[tuple[int, int]]:
    return (match.span() for match in _IPV6.finditer(text) if _is_global(match[0]))


def _is_global(address: str) -> bool:
    """Return whether a text is an IP address of a machine on the internet, not one of a private or reserved range."""
    try:
        return ipaddress.ip_address(address).is_global
    except ValueError:
        return False


_PHONE = re.compile(rf"{_BEFORE}\(?\+?\(?[0-9](?:{_SEPARATOR}{{0,3}}[0-9]){{6,20}}{_AFTER}")
# (212) 555-0123, 212-555-0123, 212.555.0123, with or without 1 before it.
_NORTH_AMERICAN = re.compile(
    r"(?:\+?1[ .-]?)?(?:\([2-9][0-9]{2}\) ?[2-9][0-9]{2}|[2-9][0-9]{2}([.-])[2-9][0-9]{2}(?=\1))[ .\u2011-][0-9]{4}"
)
# A trunk prefix and an area code, then at least two groups: 020 7946 0958, (030) 123 456, 01 23 45 67 89.
_TRUNK_PREFIX = re.compile(r"\(?0[1-9][0-9]{0,3}\)?[ /\u2011-]{1,3}[0-9]{2,8}(?:[ \u2011-][0-9]{2,8}){0,3}")
_LOCAL = re.compile(r"[2-9][0-9]{2}-[0-9]{4}")
_LABEL = re.compile(
    r"(?:\b(?:tele?(?:phone?|fon|fono|fax)?|t[eé]l[eé]phone|t[eé]l|ph(?:one)?|fax|mob(?:ile?|il)?|cell|call|dial|hotline"
    r"|helpline|whatsapp|sms|handy|rufnummer|m[oó]vil|tel[eé]fono|телефон|тел)|[☎📞]|电话|電話)"
    r"(?: (?:number|us|me|no|nr|at|on|is))*\W{0,3}\Z",
    re.IGNORECASE,
)
_OTHER_NUMBER = re.compile(
    r"\b(?:isbn|issn|ismn|doi|pmid|oclc|lccn|ean|upc|gtin|asin|serial|version|order|invoice|ticket|patent|part|id"
    r"|item|sku|model|ref|case|account)\b[\w. #-]{0,8}[:#]?\W{0,2}\Z",
    re.IGNORECASE,
)
_YEAR = r"(?:1[0-9]|20)[0-9]{2}"
_DATE = re.compile(
    rf"\(?{_YEAR}\)?{_SEPARATOR}{{1,3}}\(?{_YEAR}\)?.*|{_YEAR}([-./ ])[0-9]{{1,2}}\1[0-9]{{1,2}}\b.*"
    rf"|[0-9]{{1,2}}([-./ ])[0-9]{{1,2}}\2{_YEAR}\b.*|{_YEAR}[01][0-9][0-3][0-9]"
)
# Numbering plans that a number without a country code is compared with.
_REGIONS = (
    *("US", "GB", "DE", "FR", "ES", "IT", "NL", "BE", "CH", "AT", "PL", "SE", "PT"),
    *("BR", "MX", "AR", "AU", "NZ", "IN", "JP", "KR", "CN", "RU", "TR", "ZA"),
)


def _phones(text: str) -> Iterator[tuple[int, int]]:
    for match in _PHONE.finditer(text):
        before = text[max(0, match.start() - 32) : match.start()]
        number = match[0]
        is_labeled = bool(_LABEL.search(before))
        if not is_labeled and (_OTHER_NUMBER.search(before) or _DATE.fullmatch(number)):
            continue
        # The parenthesis around a number is not part of it, but the one around its area code is.
        start = match.start() + (number.startswith("(") and number.count("(") > number.count(")"))
        for end in _ends(text, start, match.end()):
            if _is_phone(text[start:end], is_labeled):
                yield start, end
                break


def _is_phone(number: str, is_labeled: bool) -> bool:
    """Return whether a number has the form of a telephone number and exists in the numbering plan of a country.

    Args:
        number: digits with separators.
        is_labeled: whether a word such as "phone" precedes it; the form of other numbers without a country code must
            be one that other numbers rarely have.
    """
    digits = sum(map(str.isdigit, number))
    if digits < 7 or number.count("(") != number.count(")"):
        return False
    if "+" in number[:2]:
        return _is_valid(number, None)
    if number.startswith("00") and not number.isdigit():
        return _is_valid(f"+{number[2:]}", None)
    if _NORTH_AMERICAN.fullmatch(number):
        return _is_valid(number, "US")
    if is_labeled:
        is_date = bool(_DATE.fullmatch(number))
        return bool(_LOCAL.fullmatch(number)) or (not is_date and any(_is_valid(number, name) for name in _REGIONS))
    return bool(_TRUNK_PREFIX.fullmatch(number)) and digits >= 9 and any(_is_valid(number, name) for name in _REGIONS)


def _is_valid(number: str, region: str | None) -> bool:
    import phonenumbers

    try:
        return phonenumbers.is_valid_number(phonenumbers.parse(number, region))
    except phonenumbers.NumberParseException:
        return False
