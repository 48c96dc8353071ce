"""Read web archives: WARC files of HTTP responses (ISO 28500), and WET files of the text of pages.

A file has one record after another. Compressed files have a member (gzip) or frame (zstandard) for each record, as the
standard recommends, and then several workers read a file: each takes the members that begin in its range with a record.
A file of one member is read by one worker. A record is delimited here, with bounded memory and also in corrupt files.
FastWARC parses its headers and decodes its content.
"""

import dataclasses
import io
import re
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from beambert.pipelines.documents import Document
from beambert.pipelines.errors import SourceError
from beambert.pipelines.formats.fields import BROKEN_RECORD, TRUNCATED
from beambert.pipelines.formats.frames import (
    CHUNK_BYTES,
    CODECS,
    GZIP,
    MAGIC_BYTES,
    Codec,
    compression_of,
    find_frame,
    plain_chunks,
)
from beambert.pipelines.formats.html import MAX_PAGE_BYTES, NOT_HTML, PAGE_TOO_LARGE, is_page, page_document, read_page
from beambert.pipelines.formats.input_format import InputFormat, ReadOptions

# Rules by which records are rejected, besides those of pages; counted in corpus.json and listed in rejected/*.jsonl.
HTTP_STATUS = "http_status"
REVISIT = "revisit"

_VERSION = b"WARC/"
_VERSION_LINE = re.compile(rb"WARC/\d\.\d\r?\n")
# The start of a record after another one.
_NEXT_RECORD = re.compile(rb"\r?\n\r?\n(?=WARC/1\.\d\r?\n)")
_NEXT_RECORD_BYTES = len(b"\r\n\r\nWARC/1.0\r\n")
_HEADER_END = re.compile(rb"\r?\n\r?\n")
_MAX_LINE_ENDS_BYTES = 64
_MAX_HEADER_BYTES = 64 << 10
# Of a compressed response, the limit concerns the content too.
_MAX_RECORD_BYTES = MAX_PAGE_BYTES + _MAX_HEADER_BYTES
_LENGTH = re.compile(rb"^content-length[ \t]*:[ \t]*(\d{1,18})[ \t]*\r?$", re.IGNORECASE | re.MULTILINE)
_PAGE_TYPES = ("text/html", "application/xhtml+xml")
# Records about other records, which are no documents.
_PAGE_RECORDS = ("response", "resource", "revisit", "conversion")


@dataclasses.dataclass(frozen=True)
class _Record:
    """A record of a file.

    Attributes:
        header: Its header with the empty line.
        body: Its content, up to `_MAX_RECORD_BYTES`.
        problem: Rule by which it is rejected, or "".
    """

    header: bytes
    body: bytes = b""
    problem: str = ""


class _Stream:
    """Bytes from blocks of bytes, of which only those that are inspected are in memory.

    Attributes:
        position: Number of bytes read.
    """

    def __init__(self, blocks: Iterable[bytes]) -> None:
        self._blocks = iter(blocks)
        self._buffer = b""
        self.position = 0

    def peek(self, size: int) -> bytes:
        """Return the next bytes, fewer at the end of the stream."""
        parts, length = [self._buffer], len(self._buffer)
        while length < size and (block := next(self._blocks, None)) is not None:
            parts.append(block)
            length += len(block)
        self._buffer = b"".join(parts) if len(parts) > 1 else self._buffer
        return self._buffer[:size]

    def read(self, size: int) -> bytes:
        """Return the next bytes and move behind them; fewer at the end of the stream."""
        data = self.peek(size)
        self._buffer = self._buffer[len(data) :]
        self.position += len(data)
        return data

    def skip(self, size: int) -> int:
        """Move by a number of bytes, and return by how many, fewer at the end of the stream."""
        left = size
        while left and (data := self.read(min(left, _MAX_HEADER_BYTES))):
            left -= len(data)
        return size - left

    def unread(self, data: bytes) -> None:
        """Move back to the start of bytes that were read."""
        self._buffer = data + self._buffer
        self.position -= len(data)

    def skip_to_record(self) -> bool:
        """Move to the start of the next record after an empty line, and return whether there is one."""
        while window := self.peek(_MAX_HEADER_BYTES):
            if match := _NEXT_RECORD.search(window):
                self.skip(match.end())
                return True
            if len(window) <= _NEXT_RECORD_BYTES:
                return False
            self.skip(len(window) - _NEXT_RECORD_BYTES)
        return False


def _records(stream: _Stream) -> Iterator[tuple[int, _Record]]:
    """Yield (position, record) for each record of a stream that begins with one.

    A record whose length is wrong is followed by the next record that is found in its content or after it. Other data
    between records has the position of the record before it, by which it belongs to a range.
    """
    position = stream.position
    while head := stream.peek(_MAX_HEADER_BYTES):
        if _VERSION_LINE.match(head):
            position = stream.position
        end, length = _HEADER_END.search(head), _LENGTH.search(head)
        if not head.startswith(_VERSION) or not end or not length or length.end() > end.end():
            is_truncated = len(head) < _MAX_HEADER_BYTES and not end and head.startswith(_VERSION)
            yield position, _Record(head, problem=TRUNCATED if is_truncated else BROKEN_RECORD)
            if not stream.skip_to_record():
                return
            continue
        header, size = stream.read(end.end()), int(length[1])
        body = stream.read(min(size, _MAX_RECORD_BYTES))
        inner = _NEXT_RECORD.search(body) if size > len(body) else None
        if not inner:
            skipped = stream.skip(size - len(body))
            if len(body) + skipped < size:
                yield position, _Record(header, problem=TRUNCATED)
                return
            following = stream.peek(_MAX_LINE_ENDS_BYTES)
            line_ends = following[: len(following) - len(following.lstrip(b"\r\n"))]
            stream.skip(len(line_ends))
            # An empty line proves the length, even if other data follows.
            if line_ends.count(b"\n") >= 2 or not stream.peek(1):
                yield position, _Record(header, body, PAGE_TOO_LARGE if skipped else "")
                continue
            if not skipped:
                inner = _NEXT_RECORD.search(body)
        yield position, _Record(header, problem=BROKEN_RECORD)
        if inner:
            stream.unread(body[inner.end() :])
        elif not stream.skip_to_record():
            return


_CODECS = {".gz": GZIP, ".zst": CODECS[".zst"]}
# A frame with the dictionary of the file, which the Internet Archive writes.
_ZST_DICTIONARY = b"\x5d\x2a\x4d\x18"


class _Members:
    """The members of a compressed file, from one that begins with a record up to the next one that does.

    Args:
        file: The file as stored.
        codec: Its compression.
        offset: Offset of the first member.

    Attributes:
        following: After the last block, the offset of the next member that begins with a record, or None.
        is_corrupt: Whether the last member is corrupt or truncated.
        has_other_data: Whether a corrupt member or other data follows the last member.
    """

    def __init__(self, file: BinaryIO, codec: Codec, offset: int) -> None:
        self._file, self._codec, self._offset = file, codec, offset
        self.following: int | None = None
        self.is_corrupt = self.has_other_data = False

    def blocks(self) -> Iterator[bytes]:
        """Yield the decompressed bytes."""
        offset: int | None = self._offset
        while offset is not None:
            self._file.seek(offset)
            has_output = offset == self._offset
            try:
                for block in filter(None, self._codec.read_frame(self._file)):
                    if not has_output and block.startswith(_VERSION):
                        self.following = offset
                        return
                    has_output = True
                    yield block
            except (EOFError, self._codec.error):
                # A member without output is not part of the last record.
                self.is_corrupt, self.has_other_data = has_output, not has_output
                self.following = _find_member(self._file, self._codec, offset + 1, None)
                return
            offset = self._next()

    def _next(self) -> int | None:
        """Return the offset of the member after the one that the file is at the end of, or None."""
        while header := self._file.read(MAGIC_BYTES):
            offset = self._file.tell() - len(header)
            if self._codec.magic.match(header):
                return offset
            if skippable := self._codec.skippable.match(header):
                self._file.seek(offset + skippable.end() + int.from_bytes(skippable[1], "little"))
                continue
            self.following = _find_member(self._file, self._codec, offset, None)
            self.has_other_data = True
            break
        return None


def _find_member(file: BinaryIO, codec: Codec, start: int, stop: int | None) -> int | None:
    """Return the offset of the first member in [start, stop) that begins with a record, or None.

    The start of a member may also occur inside a member, but does not decompress to a record there.
    """
    offset = find_frame(file, codec.magic, start, stop)
    while offset is not None:
        file.seek(offset)
        try:
            if next(filter(None, codec.read_frame(file)), b"").startswith(_VERSION):
                return offset
        except (EOFError, codec.error):
            pass
        offset = find_frame(file, codec.magic, offset + 1, stop)
    return None


def _records_of_members(file: BinaryIO, codec: Codec, start: int, stop: int | None) -> Iterator[tuple[int, _Record]]:
    """Yield (offset of its member, record) for the records of the members that begin in a range with a record."""
    offset = _find_member(file, codec, start, stop)
    while offset is not None and (stop is None or offset < stop):
        members = _Members(file, codec, offset)
        for _, record in _records(_Stream(members.blocks())):
            is_corrupt = members.is_corrupt and not record.problem
            yield offset, dataclasses.replace(record, problem=BROKEN_RECORD) if is_corrupt else record
        if members.has_other_data:
            yield offset, _Record(b"", problem=BROKEN_RECORD)
        offset = members.following


def _records_of_plain_file(file: BinaryIO, start: int, stop: int | None) -> Iterator[tuple[int, _Record]]:
    """Yield (offset, record) for the records that begin in a range of a file that is not compressed."""
    # The empty line before the first record may precede the range.
    origin = max(0, start - len(b"\r\n\r\n"))
    stream = _Stream(data for data, _ in plain_chunks(file, origin, None))
    while start and origin + stream.position < start:
        if not stream.skip_to_record():
            return
    for position, record in _records(stream):
        if stop is not None and origin + position >= stop:
            return
        yield origin + position, record


def read_range(file: BinaryIO, path: str, options: ReadOptions, start: int, stop: int | None) -> Iterator[Document]:
    """Yield the documents of the records that begin in a range of a file.

    Args:
        file: The file as stored.
        path: Its path.
        options: Options of reading.
        start, stop: Byte range; None is the end of the file. A record of a compressed file is in the range with the
            start of its member, or of the first member before it that begins with a record.

    Raises:
        SourceError: The file is not a WARC file.
    """
    del options
    codec = _CODECS.get(compression_of(path))
    if start == 0:
        _require_warc(file, path, codec)
    records = _records_of_members(file, codec, start, stop) if codec else _records_of_plain_file(file, start, stop)
    for offset, record in records:
        if document := _document(record, path):
            yield dataclasses.replace(document, byte=offset)


def read(stream: io.BufferedIOBase, path: str, options: ReadOptions) -> Iterator[Document]:
    """Yield the documents of a decompressed file whose name does not say that it is a WARC file.

    Raises:
        SourceError: The file is not a WARC file.
    """
    del options
    blocks = _Stream(iter(lambda: stream.read(CHUNK_BYTES), b""))
    if not blocks.peek(len(_VERSION)) == _VERSION:
        raise _not_warc(path)
    for _, record in _records(blocks):
        if document := _document(record, path):
            yield document


def _require_warc(file: BinaryIO, path: str, codec: Codec | None) -> None:
    """Raise SourceError unless a file begins with a record."""
    file.seek(0)
    head = file.read(MAGIC_BYTES)
    if codec and head.startswith(_ZST_DICTIONARY):
        raise SourceError(f"{path} is compressed with a dictionary in the file; decompress it first: zstd -d FILE")
    if codec is None and not head.startswith(_VERSION):
        raise _not_warc(path)
    if codec and _find_member(file, codec, 0, _MAX_HEADER_BYTES) is None:
        raise _not_warc(path)


def _not_warc(path: str) -> SourceError:
    return SourceError(f"{path} is not a WARC file: it does not begin with WARC/1; set the correct --input_format")


def _fields(header: bytes) -> dict[str, str]:
    """Return the fields of the header of a record by their names in lower case."""
    fields: dict[str, str] = {}
    for line in header.decode("utf-8", "replace").splitlines()[1:]:
        name, colon, value = line.partition(":")
        if colon:
            fields.setdefault(name.strip().lower(), value.strip())
    return fields


def _document(record: _Record, path: str) -> Document | None:
    """Return the document of a record, or None for a record about other records."""
    fields = _fields(record.header)
    kind = fields.get("warc-type", "").lower()
    url = fields.get("warc-target-uri", "").strip("<>")
    known = {"url": url, "date": fields.get("warc-date", "")}
    metadata = {name: value for name, value in known.items() if value}
    if record.problem:
        # In a corrupt header, the kind of the record may be unknown.
        if kind and kind not in _PAGE_RECORDS:
            return None
        return Document([], source=path, rejected=record.problem, metadata=metadata)
    if kind == "conversion":
        lines = record.body.decode("utf-8", "replace").splitlines()
        return Document([line for line in lines if line.strip()], source=path, metadata=metadata)
    if kind == "revisit":
        return Document([], source=path, rejected=REVISIT, metadata=metadata)
    if kind == "resource":
        return _page(record.body, fields.get("content-type", ""), "", path, metadata)
    return _response(record, path, metadata) if kind == "response" else None


def _response(record: _Record, path: str, metadata: dict[str, str]) -> Document:
    """Return the document of an HTTP response."""
    from fastwarc.warc import ArchiveIterator

    for decoded in ("all", "none"):  # Some crawlers store decoded content and keep the field about its encoding.
        try:
            response = next(
                iter(ArchiveIterator(io.BytesIO(record.header + record.body), auto_decode=decoded, parse_http=True))
            )
            status = response.http_headers.status_code if response.http_headers is not None else None
            if status != 200:
                stated = {"status": str(status)} if status else {}
                rule = HTTP_STATUS if status else NOT_HTML
                return Document([], source=path, rejected=rule, metadata={**metadata, **stated})
            content = response.reader.read(MAX_PAGE_BYTES + 1)
        except (OSError, StopIteration):
            continue
        return _page(content, response.http_content_type or "", response.http_charset or "", path, metadata)
    return Document([], source=path, rejected=BROKEN_RECORD, metadata=metadata)


def _page(content: bytes, content_type: str, charset: str, path: str, metadata: dict[str, str]) -> Document:
    """Return the document of a page; content of another type is rejected, and content without a type if not HTML."""
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type not in _PAGE_TYPES if media_type else not is_page("", content[:_MAX_HEADER_BYTES]):
        stated = {"content_type": media_type[:100]} if media_type else {}
        return Document([], source=path, rejected=NOT_HTML, metadata={**metadata, **stated})
    return page_document(read_page(content, charset), path, metadata)


_RANGE_BYTES = {"": 16 << 20, ".gz": 4 << 20, ".zst": 4 << 20}
WARC = InputFormat(
    name="warc",
    recognize=lambda _stem, head: bool(_VERSION_LINE.match(head)),
    read=read,
    read_range=read_range,
    range_bytes={f"{name}{suffix}": size for name in (".warc", ".wet") for suffix, size in _RANGE_BYTES.items()},
    suffixes=(".warc", ".wet"),
    has_language=True,
    reports_other_kinds=True,
    package="resiliparse",
)
# The same records in both: a WET file has conversions only.
WET = dataclasses.replace(WARC, name="wet")
