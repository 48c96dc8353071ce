"""Write a multistream dump of Wikipedia of any size, made from the pages of small dumps.

    python benchmarks/wikipedia_dump.py ../shared/data/wiki-dump big.xml.bz2 2000

Articles, redirects and other pages follow each other as in the small dumps, with new titles. The text of an article is
composed of parts of other articles of the same kind: a lead, sections, tables, templates, categories. So no article
occurs twice, and all markup is real. The bytes depend on the arguments only.
"""

import argparse
import bz2
import functools
import multiprocessing
import random
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PAGES_PER_STREAM = 100
_PAGE = re.compile(rb"  <page>.*?</page>\n", re.DOTALL)
_TEXT = re.compile(r"(<text\b[^<>]*>)([^<]*)(?=</text>)")
_TITLE = re.compile(r"(?<=<title>)([^<]*)(?=</title>)")
# What must be balanced within a part. The text is escaped.
_OPENING = re.compile(r"\{\{|\{\||\[\[|&lt;!--|&lt;ref\b(?:(?!&gt;).)*(?<!/)&gt;|&lt;(?:gallery|math|timeline)\b")
_CLOSING = re.compile(r"\}\}|\|\}|\]\]|--&gt;|&lt;/(?:ref|gallery|math|timeline)&gt;")


class Source(NamedTuple):
    """The pages of the small dumps.

    Attributes:
        head: the bytes before the first page.
        pages: the pages.
        kinds: the kinds of the parts of each page; [] for pages that are no articles.
        parts: the parts of articles, by kind.
    """

    head: bytes
    pages: list[str]
    kinds: list[list[str]]
    parts: dict[str, list[str]]


def _kind(part: str, first: bool) -> str:
    if first:
        return "lead"
    return next((mark for mark in ("==", "{|", "{{", "[[", "*") if part.lstrip().startswith(mark)), "text")


def _parts(text: str) -> Iterator[str]:
    """Yield the parts of a text between empty lines, as long as needed for balanced markup."""
    part = ""
    for block in text.split("\n\n"):
        part = f"{part}\n\n{block}" if part else block
        if len(_OPENING.findall(part)) == len(_CLOSING.findall(part)):
            yield part
            part = ""
    if part:
        yield part


def _is_article(page: str) -> bool:
    return "<ns>0</ns>" in page and "<redirect" not in page and _TEXT.search(page) is not None


@functools.cache
def read_source(directory: Path) -> Source:
    """Return the pages of the dumps of a directory."""
    head, pages = b"", []
    for path in sorted(directory.glob("*.xml.bz2")):
        try:
            data = bz2.BZ2File(path).read()
        except EOFError:
            data = b"".join(_complete_streams(path))
        head = head or data[: data.index(b"  <page>")]
        pages += [page.decode("utf-8") for page in _PAGE.findall(data)]
    kinds: list[list[str]] = []
    parts = defaultdict(list)
    for page in pages:
        found = list(_parts(_TEXT.search(page)[2])) if _is_article(page) else []
        kinds.append([_kind(part, number == 0) for number, part in enumerate(found)])
        for kind, part in zip(kinds[-1], found, strict=True):
            parts[kind].append(part)
    return Source(head, pages, kinds, dict(parts))


def _complete_streams(path: Path) -> Iterator[bytes]:
    """Yield the output of a truncated file."""
    data = path.read_bytes()
    while data:
        decompressor = bz2.BZ2Decompressor()
        try:
            yield decompressor.decompress(data)
        except OSError:
            return
        data = decompressor.unused_data


def make_page(source: Source, number: int) -> str:
    """Return the page of a number, from 0."""
    index = number % len(source.pages)
    page = _TITLE.sub(lambda match: f"{match[1]} {number}", source.pages[index], count=1)
    if not source.kinds[index]:
        return page
    draws = random.Random(number)
    kinds = source.kinds[index]
    if len(kinds) < 3:
        # So few parts have few combinations.
        kinds = [*kinds, "text", "text", "text"]
    text = "\n\n".join(draws.choice(source.parts[kind]) for kind in kinds)
    return _TEXT.sub(lambda match: match[1] + text, page, count=1)


def _stream(directory: Path, number: int) -> tuple[int, bytes]:
    """Return the size of the XML of a stream, and its compressed bytes."""
    source = read_source(directory)
    first = number * PAGES_PER_STREAM
    xml = "".join(make_page(source, page) for page in range(first, first + PAGES_PER_STREAM)).encode("utf-8")
    return len(xml), bz2.compress(xml)


def write_dump(directory: Path, output: Path, size: int) -> None:
    """Write a dump of about `size` bytes of XML, with one process per core.

    Args:
        directory: has the small dumps.
        output: the new file.
        size: bytes of XML.
    """
    with output.open("wb") as file, multiprocessing.Pool() as pool:
        file.write(bz2.compress(read_source(directory).head))
        number = written = 0
        while written < size:
            # Enough streams for all processes, and none beyond the size.
            stream_bytes = written / number if number else size
            batch = range(number, number + max(1, min(256, int((size - written) / stream_bytes))))
            for xml_bytes, stream in pool.imap(functools.partial(_stream, directory), batch):
                written += xml_bytes
                file.write(stream)
            number = batch.stop
        file.write(bz2.compress(b"</mediawiki>\n"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("megabytes", type=int)
    arguments = parser.parse_args()
    write_dump(arguments.directory, arguments.output, arguments.megabytes * 10**6)
