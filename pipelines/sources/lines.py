"""Lines of a file or of a range of it, for the formats whose documents are lines or runs of lines.

A line is in the range that contains the line end before it; the first line of a file is in its first range. So each
line is in exactly one range, and a range can be read without the bytes before it.
"""

import codecs
import io
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from beambert.pipelines.errors import SourceError
from beambert.pipelines.sources.wide_encodings import wide_encoding

# Bytes from a position in a file, decompressed, and whether they are in the range that is read.
Chunk = tuple[bytes, bool]


class Line(NamedTuple):
    """A line of a file.

    Attributes:
        number: Its number in the file, from 1.
        content: Its bytes with the line end, without a UTF-8 byte order mark.
        in_range: Whether it is in the range that is read, rather than after it.
    """

    number: int
    content: bytes
    in_range: bool = True


class RangeStart(NamedTuple):
    """Where and how the reading of a range starts.

    Attributes:
        reader: Name of the reader of its lines, a key of `beambert.pipelines.sources.readers.LINE_READERS`.
        offset: Its first byte in the file as stored, the start of a frame in a compressed file.
        line: Number of its first line in the file, from 1.
        run: Number of lines between the last blank line and its first line.
    """

    reader: str = ""
    offset: int = 0
    line: int = 1
    run: int = 0

    @property
    def is_file_start(self) -> bool:
        """Return whether the first line of the range is the first line of the file."""
        return self.line == 1


FILE_START = RangeStart()


def lines_of_stream(stream: Iterable[bytes], path: str, encoding: str) -> Iterator[Line]:
    """Yield the lines of a complete file.

    Raises:
        SourceError: The file is UTF-16 or UTF-32.
    """
    return _numbered(((raw, True) for raw in stream), 1, path, encoding)


def lines_of_chunks(chunks: Iterable[Chunk], first: int, path: str, encoding: str) -> Iterator[Line]:
    """Yield the lines of a range, then those after it; none if no line is in the range.

    Args:
        chunks: The bytes from the start of the range to the end of the file.
        first: Number of the first line of the range; 1 for the first range of the file.
        path: Path of the file, for messages.
        encoding: Encoding of the file.

    Raises:
        SourceError: The file is UTF-16 or UTF-32.
    """
    return _numbered(_split_lines(chunks, first == 1), first, path, encoding)


def split_at_cr(lines: Iterable[Line]) -> Iterator[Line]:
    """Yield lines, which end with LF, split where they contain CR: the line end of old Macs and of some exports."""
    added = 0
    for line in lines:
        content = line.content.rstrip(b"\r\n") if b"\r" in line.content else b""
        if b"\r" not in content:
            yield line._replace(number=line.number + added) if added else line
            continue
        for part in content.split(b"\r"):
            yield Line(line.number + added, part + b"\n", line.in_range)
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
            f"{path}, line {line.number}: {invalid_byte(error, encoding)}; "
            "set the correct encoding, such as --encoding latin-1, or convert the file"
        ) from error


def invalid_byte(error: UnicodeDecodeError, encoding: str) -> str:
    """Return the byte that cannot be decoded, such as "byte 0xe4 is not valid utf-8"."""
    return f"byte 0x{error.object[error.start]:02x} is not valid {encoding}"


def _numbered(lines: Iterable[Chunk], first: int, path: str, encoding: str) -> Iterator[Line]:
    for number, (raw, in_range) in enumerate(lines, start=first):
        if number == 1:
            if (wide := wide_encoding(raw)) and codecs.lookup(encoding).name == "utf-8":
                raise SourceError(
                    f"{path} is {wide}; convert it first: iconv -f {wide.lower()} -t utf-8 FILE > FILE.txt"
                )
            raw = raw.removeprefix(codecs.BOM_UTF8)
        yield Line(number, raw, in_range)


def _split_lines(chunks: Iterable[Chunk], is_file_start: bool) -> Iterator[Chunk]:
    """Yield (line, whether it is in the range), from the first line of the range on."""
    parts: list[bytes] = []
    started = in_range = is_file_start
    for chunk, chunk_in_range in chunks:
        data = chunk
        if not started:
            if not chunk_in_range:
                return
            end = chunk.find(b"\n") + 1
            if not end:
                continue
            data = chunk[end:]
            started = in_range = True
        for line in io.BytesIO(data):
            if not line.endswith(b"\n"):
                parts.append(line)
                continue
            yield (b"".join([*parts, line]) if parts else line), in_range
            parts.clear()
            in_range = chunk_in_range
    if parts:
        yield b"".join(parts), in_range
