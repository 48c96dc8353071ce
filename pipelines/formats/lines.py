"""Lines of a file or of a range of it, for the formats whose documents are lines or runs of lines.

A line is in the range that contains the line end before it; the first line of a file is in its first range. So each
line is in exactly one range, and a range can be read without the bytes before it.
"""

import codecs
import io
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from beambert.pipelines.errors import SourceError

# Number of bytes that suffice to recognize UTF-16 and UTF-32, which no reader supports.
HEAD_BYTES = 4096
# UTF-32 first: the byte order mark of UTF-32-LE starts with that of UTF-16-LE.
_MARKS = (
    (codecs.BOM_UTF32_LE, "UTF-32"),
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)
# Minimum fraction of zeros among the bytes that are zero for ASCII; other characters may make up the rest.
_MIN_ZEROS = 0.4
# Maximum fraction of zeros among the other bytes, to exclude UTF-8 text with NUL characters.
_MAX_OTHER_ZEROS = 0.02

# Bytes from a position in a file, decompressed, and whether they are in the range that is read.
Chunk = tuple[bytes, bool]


class Line(NamedTuple):
    """A line of a file.

    Attributes:
        content: Its bytes with the line end, without a UTF-8 byte order mark.
        number: Its number in the file, from 1; 0 in a range.
        byte: In a range, its offset in the file, or that of its frame in a compressed file; else -1.
        in_range: Whether it is in the range that is read, rather than after it.
    """

    content: bytes
    number: int = 0
    byte: int = -1
    in_range: bool = True

    @property
    def location(self) -> str:
        """Return its location in the file for messages, such as "line 3"."""
        return f"byte {self.byte:,}" if self.byte >= 0 else f"line {self.number}"


def lines_of_stream(stream: Iterable[bytes], path: str, encoding: str) -> Iterator[Line]:
    """Yield the lines of a complete file.

    Raises:
        SourceError: The file is UTF-16 or UTF-32.
    """
    for number, content in enumerate(stream, start=1):
        yield Line(_without_mark(content, path, encoding) if number == 1 else content, number)


def lines_of_chunks(
    chunks: Iterable[Chunk], path: str, encoding: str, start: int, frame: Callable[[], int] | None = None
) -> Iterator[Line]:
    """Yield the lines of a range, then those after it; none if no line is in the range.

    Args:
        chunks: The bytes from the start of the range to the end of the file.
        path: Path of the file, for messages.
        encoding: Encoding of the file.
        start: Offset of the range in the file.
        frame: In a compressed file, returns the offset of the frame of the last chunk.

    Raises:
        SourceError: The file is UTF-16 or UTF-32.
    """
    lines = _split_chunks(chunks, start, frame)
    if start == 0:
        for content, byte, in_range in itertools.islice(lines, 1):
            yield Line(_without_mark(content, path, encoding), 0, byte, in_range)
    for content, byte, in_range in lines:
        yield Line(content, 0, byte, in_range)


def split_at_cr(lines: Iterable[Line]) -> Iterator[Line]:
    """Yield lines, which end with LF, split where they contain CR: the line end of old Macs and of some exports."""
    added = 0
    for line in lines:
        content = line.content
        if b"\r" in content:
            content = content.rstrip(b"\r\n")
        if b"\r" not in content:
            yield line._replace(number=line.number + added) if added and line.number else line
            continue
        for part in content.split(b"\r"):
            yield line._replace(content=part + b"\n", number=line.number and line.number + added)
            added += 1
        added -= 1


def decode_line(line: Line, path: str, encoding: str, errors: str = "strict") -> str:
    """Return a line as text, without LF or CRLF.

    Raises:
        SourceError: The line is not valid in `encoding`, and `errors` is "strict".
    """
    try:
        return line.content.decode(encoding, errors).rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise SourceError(
            f"{path}, {line.location}: {invalid_byte(error, encoding)}; "
            "set the correct encoding, such as --encoding latin-1, or convert the file"
        ) from error


def decode_lines(
    stream: Iterable[bytes], path: str, encoding: str, errors: str = "strict"
) -> Iterator[tuple[int, str]]:
    """Yield (line number from 1, line without LF or CRLF), without a UTF-8 byte order mark.

    Raises:
        SourceError: A line is not valid in `encoding`, and `errors` is "strict"; or the file is UTF-16 or UTF-32.
    """
    for line in lines_of_stream(stream, path, encoding):
        yield line.number, decode_line(line, path, encoding, errors)


def invalid_byte(error: UnicodeDecodeError, encoding: str) -> str:
    """Return the byte that cannot be decoded, such as "byte 0xe4 is not valid utf-8"."""
    return f"byte 0x{error.object[error.start]:02x} is not valid {encoding}"


def wide_encoding(head: bytes) -> str:
    """Return "UTF-16", "UTF-32" or "", by the byte order mark of a file or by the zero bytes of its ASCII letters.

    Args:
        head: The first bytes of the file, at least 4 if it has them.
    """
    for mark, name in _MARKS:
        if head.startswith(mark):
            return name
    head = head[: min(HEAD_BYTES, len(head) - len(head) % 4) or len(head)]
    if len(head) < 4 or 0 not in head:
        return ""
    fractions = [head[offset::4].count(0) / len(head[offset::4]) for offset in range(4)]
    for name, zero, other in (
        ("UTF-32", (1, 2, 3), (0,)),
        ("UTF-32", (0, 1, 2), (3,)),
        ("UTF-16", (1, 3), (0, 2)),
        ("UTF-16", (0, 2), (1, 3)),
    ):
        if min(fractions[n] for n in zero) > _MIN_ZEROS and max(fractions[n] for n in other) <= _MAX_OTHER_ZEROS:
            return name
    return ""


def start_of(head: bytes) -> bytes:
    """Return the first bytes of a file without a UTF-8 byte order mark and blanks."""
    return head.removeprefix(codecs.BOM_UTF8).lstrip()


def _split_chunks(
    chunks: Iterable[Chunk], start: int, frame: Callable[[], int] | None
) -> Iterator[tuple[bytes, int, bool]]:
    """Yield (line, offset, whether it is in the range), from the first line of the range on."""
    parts: list[bytes] = []
    started = in_range = start == 0
    position = byte = start
    for data, chunk_in_range in chunks:
        if not started:
            if not chunk_in_range:
                return
            end = data.find(b"\n") + 1
            position += end or len(data)
            if not end:
                continue
            started = in_range = True
            data = data[end:]
        for line in io.BytesIO(data):
            if not parts:
                byte = frame() if frame else position
            position += len(line)
            parts.append(line)
            if line.endswith(b"\n"):
                yield (b"".join(parts) if len(parts) > 1 else line), byte, in_range
                parts.clear()
                in_range = chunk_in_range
    if parts:
        yield b"".join(parts), byte, in_range


def _without_mark(first: bytes, path: str, encoding: str) -> bytes:
    """Return the first line of a file without a byte order mark.

    Raises:
        SourceError: The file is UTF-16 or UTF-32.
    """
    if (wide := wide_encoding(first)) and codecs.lookup(encoding).name == "utf-8":
        raise SourceError(f"{path} is {wide}; convert it first: iconv -f {wide.lower()} -t utf-8 FILE > FILE.txt")
    return first.removeprefix(codecs.BOM_UTF8)
