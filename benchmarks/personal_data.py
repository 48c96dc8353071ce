"""Measure precision, recall and speed of the rules for personal data (`--pii`).

    make bench-pii
    python benchmarks/personal_data.py ../shared/data

Sentences with personal data of each kind, and with numbers that resemble it, are generated from a seed. The generator
shares no code with the rules: check digits are computed here, and telephone numbers are drawn from the published plan
of each country. A finding is correct if its text and its kind are those of the generator. Real text is then searched
for all kinds; every finding is printed with --findings, to be judged by eye.
"""

import argparse
import bz2
import gzip
import html
import random
import re
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from beambert.pipelines.cleaning.personal_data import PERSONAL_DATA_RULES, find_personal_data

PER_KIND = 2000
Draw = random.Random


def digits(draw: Draw, count: int, first: str = "0123456789") -> str:
    """Return random digits, the first one from a set."""
    return draw.choice(first) + "".join(draw.choice("0123456789") for _ in range(count - 1))


def word(draw: Draw, shortest: int = 3, longest: int = 9) -> str:
    return "".join(draw.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(draw.randint(shortest, longest)))


def in_groups(text: str, size: int, separator: str = " ") -> str:
    return separator.join(text[start : start + size] for start in range(0, len(text), size))


# Personal data.


def email(draw: Draw) -> str:
    local = draw.choice(
        [
            word(draw),
            f"{word(draw)}.{word(draw)}",
            f"{word(draw)[0]}.{word(draw).capitalize()}",
            f"{word(draw)}_{digits(draw, 2)}",
            f"{word(draw)}+{word(draw)}",
            f"{word(draw)}-{word(draw)}",
        ]
    )
    suffix = draw.choice(["com", "org", "net", "de", "fr", "co.uk", "info", "museum", "com.br", "ac.jp"])
    hosts = [word(draw), f"{word(draw)}-{word(draw)}", f"mail.{word(draw)}", f"{word(draw)}{digits(draw, 1)}"]
    return f"{local}@{draw.choice(hosts)}.{suffix}"


def ip_address(draw: Draw) -> str:
    if draw.random() < 0.25:
        groups = [draw.choice(["2001", "2003", "2600", "2a00", "2a02"]), f"{draw.randint(0x1000, 0xFFF0):x}"]
        groups += [f"{draw.getrandbits(16):x}" for _ in range(draw.choice([2, 6]))]
        return ":".join(groups) if len(groups) == 8 else ":".join(groups) + "::" + f"{draw.randint(1, 0xFFFF):x}"
    # A first number of the ranges that are assigned to the public internet as a whole.
    return f"{draw.choice([23, 46, 62, 84, 91, 93, 109, 151, 178, 212])}." + ".".join(
        str(draw.randint(1, 254)) for _ in range(3)
    )


def remainder_97(text: str) -> int:
    """Return the remainder of ISO 7064: letters count from A = 10."""
    return int("".join(str(int(character, 36)) for character in text)) % 97


def bank_account(draw: Draw) -> str:
    country, account = draw.choice(
        [
            ("DE", digits(draw, 18)),
            ("GB", draw.choice(["NWBK", "BARC", "MIDL"]) + digits(draw, 14)),
            ("NL", draw.choice(["ABNA", "INGB", "RABO"]) + digits(draw, 10)),
            ("AT", digits(draw, 16)),
            ("CH", digits(draw, 17)),
            ("IE", "AIBK" + digits(draw, 14)),
        ]
    )
    check = 98 - remainder_97(f"{account}{country}00")
    number = f"{country}{check:02}{account}"
    return number if draw.random() < 0.5 else in_groups(number, 4)


def luhn_digit(number: str) -> str:
    """Return the check digit of ISO/IEC 7812-1, annex B."""
    doubled = [int(digit) * (2 if place % 2 == 0 else 1) for place, digit in enumerate(reversed(number))]
    return str(-sum(value // 10 + value % 10 for value in doubled) % 10)


def payment_card(draw: Draw) -> str:
    prefix, length = draw.choice(
        [("4", 16), ("51", 16), ("55", 16), ("2221", 16), ("34", 15), ("37", 15), ("6011", 16)]
    )
    number = prefix + digits(draw, length - 1 - len(prefix))
    number += luhn_digit(number)
    form = draw.random()
    if form < 0.4:
        return number
    separator = " " if form < 0.8 else "-"
    if length == 15:
        return separator.join([number[:4], number[4:10], number[10:]])
    return in_groups(number, 4, separator)


def area(draw: Draw) -> str:
    """Return an area code of the North American plan that is assigned."""
    return draw.choice(
        ["202", "212", "213", "305", "312", "404", "415", "416", "509", "604", "617", "702", "808", "916"]
    )


def telephone(draw: Draw) -> str:
    exchange, line = digits(draw, 3, "2346789"), digits(draw, 4)
    if exchange.endswith("11"):
        exchange = exchange[:2] + "4"
    forms: list[Callable[[], str]] = [
        lambda: f"({area(draw)}) {exchange}-{line}",
        lambda: f"{area(draw)}-{exchange}-{line}",
        lambda: f"+1 {area(draw)} {exchange} {line}",
        lambda: f"1-800-{exchange}-{line}",
        lambda: f"+44 20 7{digits(draw, 3)} {line}",
        lambda: f"020 7{digits(draw, 3)} {line}",
        lambda: f"07{draw.choice(['700', '800', '911'])} {digits(draw, 6)}",
        lambda: f"+49 30 {digits(draw, 8, '23456789')}",
        lambda: f"+49 (0)89 {digits(draw, 4, '23456789')} {line}",
        lambda: f"030 / {digits(draw, 4, '23456789')} {line}",
        lambda: f"0171 {digits(draw, 7, '23456789')}",
        lambda: f"01 4{digits(draw, 1)} {in_groups(digits(draw, 6), 2)}",
        lambda: f"+33 6 {in_groups(digits(draw, 8, '12345'), 2)}",
        lambda: f"+81 3-{digits(draw, 4, '3')}-{line}",
        lambda: f"+34 91 {digits(draw, 3, '23456789')} {in_groups(line, 2)}",
        lambda: f"0049 40 {digits(draw, 7, '23456789')}",
        lambda: f"+1.{area(draw)}.{exchange}.{line}",
        lambda: f"{area(draw)} {exchange} {line}",
        lambda: f"(030) {digits(draw, 8, '23456789')}",
        lambda: f"+49-171-{digits(draw, 7, '23456789')}",
        lambda: f"+7 (495) {digits(draw, 3, '2345')}-{in_groups(line, 2, '-')}",
        lambda: f"+91 98{digits(draw, 3)} {digits(draw, 5)}",
        lambda: f"+55 11 9{digits(draw, 4, '6789')}-{line}",
        lambda: f"(02) 9{digits(draw, 3, '23456')} {line}",
        lambda: f"044 {digits(draw, 3, '23456')} {in_groups(line, 2)}",
        lambda: f"06 6{digits(draw, 3)} {line}",
        lambda: f"91 {digits(draw, 3, '23456')} {in_groups(line, 2)}",
        lambda: f"03-3{digits(draw, 3)}-{line}",
    ]
    return draw.choice(forms)()


# Other text of similar form.


def isbn(draw: Draw) -> str:
    number = draw.choice(["978", "979"]) + digits(draw, 9)
    number += str(-sum(int(digit) * (3 if place % 2 else 1) for place, digit in enumerate(number)) % 10)
    return draw.choice(
        [
            f"ISBN {number}",
            f"ISBN {number[:3]}-{number[3]}-{number[4:7]}-{number[7:12]}-{number[12]}",
            f"{number[:3]}-{number[3]}-{number[4:7]}-{number[7:12]}-{number[12]}",
            f"ISBN 0-{digits(draw, 3)}-{digits(draw, 5)}-{draw.choice('0123456789X')}",
        ]
    )


def date(draw: Draw) -> str:
    year, month, day = draw.randint(1500, 2030), draw.randint(1, 12), draw.randint(1, 28)
    hour, minute, second = draw.randint(0, 23), draw.randint(0, 59), draw.randint(0, 59)
    return draw.choice(
        [
            f"{year}-{month:02}-{day:02}",
            f"{day:02}.{month:02}.{year}",
            f"{month}/{day}/{year}",
            f"{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}",
            f"{year}{month:02}{day:02}",
            f"{year}{month:02}{day:02}{hour:02}{minute:02}{second:02}",
            f"({year}–{year + draw.randint(1, 80)})",
            f"{year}/{year + 1} and {year + 2}-{year + 3}",
        ]
    )


def version(draw: Draw) -> str:
    number = ".".join(str(draw.randint(0, limit)) for limit in (30, 40, 99, 300))
    return draw.choice(
        [
            f"version {number}",
            f"v{number}",
            f"Acme {number}",
            f"release {draw.randint(1, 30)}.{draw.randint(0, 40)}.{draw.randint(0, 99)}",
            f"build 10.0.{digits(draw, 5, '12')}.{digits(draw, 3, '123')}",
            f"Chrome {draw.randint(60, 130)}.0.{digits(draw, 4, '4567')}.{draw.randint(40, 250)}",
            f"react@{draw.randint(1, 18)}.{draw.randint(0, 20)}.{draw.randint(0, 9)}",
            f"section {draw.randint(1, 9)}.{draw.randint(1, 9)}.{draw.randint(1, 20)}.{draw.randint(1, 99)}",
            f"EC {draw.randint(1, 6)}.{draw.randint(1, 20)}.{draw.randint(1, 99)}.{draw.randint(1, 200)}",
        ]
    )


def price(draw: Draw) -> str:
    amount = draw.randint(1_000_000, 999_999_999_999)
    return draw.choice(
        [
            f"${amount:,}",
            f"${amount / 100:,.2f}",
            f"€{amount:,}".replace(",", "."),
            f"{amount:,}".replace(",", " ") + " euros",
            f"{amount:,} people",
            f"{draw.randint(10, 99)}-{draw.randint(10, 99)}, {draw.randint(10, 99)}-{draw.randint(10, 99)}",
        ]
    )


def coordinates(draw: Draw) -> str:
    latitude, longitude = draw.uniform(-90, 90), draw.uniform(-180, 180)
    return draw.choice(
        [
            f"{latitude:.6f}, {longitude:.6f}",
            f"{latitude:.7f} {longitude:.7f}",
            f"{draw.randint(0, 89)}°{draw.randint(0, 59):02}′{draw.randint(0, 59):02}″N",
        ]
    )


def decimal(draw: Draw) -> str:
    return draw.choice(
        [
            f"{draw.random():.{draw.randint(7, 18)}f}",
            f"{draw.uniform(1, 999):.{draw.randint(7, 15)}f}",
            f"{digits(draw, 1, '123456789')}.{digits(draw, 8)}e-{draw.randint(1, 30)}",
            f"3.{in_groups(digits(draw, 20), 5)}",
        ]
    )


def code(draw: Draw) -> str:
    bits = draw.getrandbits(160)
    return draw.choice(
        [
            f"{bits:040x}",
            f"{bits % 2**128:032x}",
            str(uuid.UUID(int=bits % 2**128)),
            ":".join(f"{draw.getrandbits(8):02X}" for _ in range(6)),
            f"sha256:{bits:040x}",
            f"std::{word(draw)}::{word(draw)}",
        ]
    )


def identifier(draw: Draw) -> str:
    return draw.choice(
        [
            f"doi:10.{digits(draw, 4, '1')}/{word(draw)}.{digits(draw, 4)}.{digits(draw, 6)}",
            f"10.{digits(draw, 4, '1')}/s{digits(draw, 5)}-{digits(draw, 3)}-{digits(draw, 5)}-{digits(draw, 1)}",
            f"PMID {digits(draw, 8, '123')}",
            f"part no. {digits(draw, 4)}-{digits(draw, 4)}-{digits(draw, 2)}",
            f"{word(draw).upper()[:2]}{digits(draw, 2)}-{digits(draw, 4)}-{digits(draw, 6)}",
            f"order #{digits(draw, 10)}",
            f"Order number: {digits(draw, 3)}-{digits(draw, 7)}-{digits(draw, 7)}",
            f"US patent {digits(draw, 1, '3456789')},{digits(draw, 3)},{digits(draw, 3)}",
            f"serial {digits(draw, 12)}",
        ]
    )


def account_without_check(draw: Draw) -> str:
    """Return the form of an IBAN or a card with wrong check digits."""
    if draw.random() < 0.5:
        number = bank_account(draw).replace(" ", "")
        wrong = f"{(int(number[2:4]) + draw.randint(1, 90)) % 97 + 2:02}"
        if remainder_97(number[4:] + number[:2] + wrong) == 1:
            return account_without_check(draw)
        return in_groups(number[:2] + wrong + number[4:], 4)
    number = "".join(filter(str.isdigit, payment_card(draw)))
    return number[:-1] + str((int(number[-1]) + draw.randint(1, 9)) % 10)


def long_number(draw: Draw) -> str:
    """Return an identifier of 13 to 19 digits: by chance, one in ten has the check digit of a card."""
    return digits(draw, draw.randint(13, 19))


def network(draw: Draw) -> str:
    return draw.choice(
        [
            f"10.{draw.randint(0, 255)}.{draw.randint(0, 255)}.{draw.randint(0, 255)}",
            f"192.168.{draw.randint(0, 255)}.{draw.randint(0, 255)}",
            "127.0.0.1",
            f"{draw.randint(11, 99)}.{draw.randint(0, 255)}.0.0/16",
            f"fe80::{draw.getrandbits(16):x}:{draw.getrandbits(16):x}",
            f"{draw.randint(256, 999)}.{draw.randint(0, 255)}.{draw.randint(0, 255)}.{draw.randint(0, 255)}",
        ]
    )


def handle(draw: Draw) -> str:
    return draw.choice(
        [
            f"@{word(draw)}",
            f"{word(draw)}@{word(draw)}",
            f"git@{word(draw)}.org:{word(draw)}/{word(draw)}.git",
            f"https://{word(draw)}@{word(draw)}.org/{word(draw)}",
            f"icon@{draw.randint(2, 3)}x.png",
            f"@{word(draw)}@{word(draw)}.social",
            f"{draw.randint(2, 9)} apples @ {draw.randint(1, 9)}.{digits(draw, 2)}",
        ]
    )


POSITIVE = dict(zip(PERSONAL_DATA_RULES, (email, bank_account, payment_card, ip_address, telephone), strict=True))
NEGATIVE = {
    "ISBN": isbn,
    "dates and times": date,
    "versions and sections": version,
    "prices and counts": price,
    "coordinates": coordinates,
    "decimal numbers": decimal,
    "hashes, UUIDs, MAC": code,
    "DOI, part and order numbers": identifier,
    "wrong check digits": account_without_check,
    "numbers of 13 to 19 digits": long_number,
    "private and invalid addresses": network,
    "handles and paths": handle,
}
BEFORE = {
    PERSONAL_DATA_RULES[4]: ["Call {}", "Our office ({}) is open", "Tel.: {}", "Reach him at {}", "Phone {}", "{}"],
}
OTHER_BEFORE = ["We saw {}", "It was {}", "The value ({}) is known", "{}", "See {}"]
AFTER = [".", ", he said.", " for more.", "", " and wait; then go."]


def sentences(seed: int) -> Iterator[tuple[str, str, str, str]]:
    """Yield (name of the kind, rule or "", the text to find or "", sentence)."""
    for name, make in [*POSITIVE.items(), *NEGATIVE.items()]:
        draw = random.Random(f"{seed} {name}")
        for _ in range(PER_KIND):
            value = make(draw)
            sentence = draw.choice(BEFORE.get(name, OTHER_BEFORE)).format(value) + draw.choice(AFTER)
            rule = name if name in POSITIVE else ""
            yield name, rule, value if rule else "", sentence


def generated_set(seed: int, show: bool) -> None:
    """Print precision and recall by rule, and the findings in each kind of other text."""
    found, right, wrong = Counter[str](), Counter[str](), Counter[str]()
    total = Counter[str]()
    for name, rule, value, sentence in sentences(seed):
        total[name] += 1
        findings = [(finding.rule, sentence[finding.start : finding.end]) for finding in find_personal_data(sentence)]
        is_right = (rule, value) in findings
        right[name] += is_right
        others = [finding for finding in findings if finding != (rule, value)]
        wrong[name] += bool(others)
        found.update(rule for rule, _ in findings)
        if show and (others or (rule and not is_right)):
            print(f"  {name}: {sentence!r} -> {findings}")
    print("| rule | texts | precision | recall |\n|---|---|---|---|")
    for rule in POSITIVE:
        precision, recall = right[rule] / max(1, found[rule]), right[rule] / total[rule]
        print(f"| `{rule}` | {total[rule]:,} | {precision:.3f} | {recall:.3f} |")
    print("\n| other text | texts | with a finding |\n|---|---|---|")
    for name in NEGATIVE:
        print(f"| {name} | {total[name]:,} | {wrong[name] / total[name]:.2%} |")


def wikipedia(data: Path) -> list[str]:
    """Return the paragraphs of extracted English Wikipedia, 61 MB."""
    paths = sorted((data / "wiki-extracted").glob("*.bz2"))
    texts = (bz2.decompress(path.read_bytes()).decode("utf-8") for path in paths)
    return [line for text in texts for line in text.split("\n") if line and not line.startswith("<")]


def gutenberg(data: Path) -> list[str]:
    """Return the paragraphs of the Gutenberg books, with the header of each file."""
    paragraphs = []
    for path in sorted((data / "gutenberg").glob("*.txt")):
        content = path.read_bytes()
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError:
            text = content.decode("latin-1")
        paragraphs += [" ".join(block.split()) for block in text.replace("\r\n", "\n").split("\n\n")]
    return [paragraph for paragraph in paragraphs if paragraph]


def news_pages(data: Path) -> list[str]:
    """Return the lines of 181 web pages, with their menus, without tags, scripts and styles."""
    lines: list[str] = []
    for path in sorted((data / "html-articles/html").glob("*.gz")):
        page = gzip.decompress(path.read_bytes()).decode("utf-8", "replace")
        text = re.sub(r"<[^>]*>", " ", re.sub(r"(?s)<(script|style).*?</\1>", " ", page))
        lines += (" ".join(html.unescape(line).split()) for line in text.split("\n"))
    return [line for line in lines if line]


def real_text(data: Path, show: bool) -> None:
    """Print findings and speed on real text."""
    print("\n| text | MB | MB a CPU second | " + " | ".join(f"`{rule}`" for rule in PERSONAL_DATA_RULES) + " |")
    print("|---" * (3 + len(PERSONAL_DATA_RULES)) + "|")
    shown = []
    for name, read in (("Wikipedia", wikipedia), ("Gutenberg", gutenberg), ("news pages", news_pages)):
        paragraphs = read(data)
        size = sum(len(paragraph.encode()) for paragraph in paragraphs) / 1e6
        start = time.process_time()
        findings = [(paragraph, find_personal_data(paragraph)) for paragraph in paragraphs]
        seconds = time.process_time() - start
        counts = Counter(finding.rule for _, in_paragraph in findings for finding in in_paragraph)
        cells = " | ".join(str(counts[rule]) for rule in PERSONAL_DATA_RULES)
        print(f"| {name} | {size:.0f} | {size / seconds:.0f} | {cells} |")
        shown += [(name, paragraph, finding) for paragraph, in_paragraph in findings for finding in in_paragraph]
    if show:
        for name, paragraph, (start, end, rule) in shown:
            before, after = paragraph[max(0, start - 50) : start], paragraph[end : end + 30]
            print(f"  {name} {rule}: {before} >>{paragraph[start:end]}<< {after}")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--findings", action="store_true", help="print every finding, to be judged by eye")
    args = parser.parse_args()
    find_personal_data("+49 30 123456 4111111111111111")  # Imports the libraries.
    generated_set(args.seed, args.findings)
    if args.data.is_dir():
        real_text(args.data, args.findings)


if __name__ == "__main__":
    main()
