"""Read JSON other than JSON Lines: an array of objects, or objects that span several lines.

The file is read in chunks, so that an array may be larger than memory. A syntax error ends the reading, because the
start of the next object is unknown.
"""

import codecs
import io
import json
import re
from collections.abc import Iterator
from typing import Any

from beambert.pipelines.documents import Document
from beambert.pipelines.errors import SourceError
from beambert.pipelines.formats.fields import FieldReader
from beambert.pipelines.formats.input_format import InputFormat, ReadOptions
from beambert.pipelines.formats.jsonl import json_problem
from beambert.pipelines.formats.lines import invalid_byte, start_of

_CHUNK_BYTES = 256 << 10
# The end of a chunk within a value causes an error at most this far before the end, or an unterminated string.
_MAX_ERROR_DISTANCE = 16
_BLANKS = re.compile(r"[ \t\r\n]*")
# An array whose first item is an object, or an object that continues on the next line.
_ARRAY_OF_OBJECTS = re.compile(rb'\[\s*\{\s*["}]')
_ARRAY = re.compile(rb'\[\s*["\]{\[\dtfn-]')
_OPEN_BRACE_ALONE = re.compile(rb'\{[ \t]*\r?\n\s*["}]')
_OBJECT_OVER_LINES = re.compile(rb'\{(?:[^\n]*[{\[][ \t]*\r?\n|[^\n]*,[ \t]*\r?\n\s*")')


def is_json(stem: str, head: bytes) -> bool:
    """Return whether a file contains JSON values that are not JSON Lines.

    Args:
        stem: Its lowercase name without a compression suffix.
        head: Its first bytes.
    """
    start = start_of(head)
    if _ARRAY_OF_OBJECTS.match(start) or _OPEN_BRACE_ALONE.match(start):
        return True
    if stem.endswith(".json") and _ARRAY.match(start):
        return True
    # By its name it is JSON Lines, with an invalid first line.
    return not stem.endswith((".jsonl", ".ndjson")) and bool(_OBJECT_OVER_LINES.match(start))


def read_documents(stream: io.BufferedIOBase, path: str, options: ReadOptions) -> Iterator[Document]:
    """Yield one document per object, or per item of a top-level array.

    Raises:
        SourceError: The file is not JSON, or an object has no text and `on_bad_record` is "stop".
    """
    fields = FieldReader(path, options)
    values = _Values(stream, path, options.encoding)
    for number, (line, value, raw) in enumerate(values.items(), start=1):
        yield fields.document(value, f"item {number} (line {line})", number, raw)
    fields.finish()


class _Values:
    """The JSON values of a stream in order; for a top-level array, its items."""

    def __init__(self, stream: io.BufferedIOBase, path: str, encoding: str) -> None:
        self._stream = stream
        self._path = path
        self._encoding = "utf-8-sig" if codecs.lookup(encoding).name == "utf-8" else encoding
        self._bytes = codecs.getincrementaldecoder(self._encoding)()
        self._decoder = json.JSONDecoder()
        self._text = ""
        self._position = 0
        self._line = 1
        self._ended = False

    def items(self) -> Iterator[tuple[int, Any, str]]:
        """Yield (number of the first line, value, text of the value)."""
        while self._peek():
            if self._peek() != "[":
                yield self._value()
                continue
            self._advance(1)
            if self._peek() == "]":
                self._advance(1)
                continue
            while True:
                yield self._value()
                mark = self._peek()
                if mark not in (",", "]"):
                    self._fail("a comma or bracket is missing after an item" if mark else "the array is truncated")
                self._advance(1)
                if mark == "]":
                    break

    def _value(self) -> tuple[int, Any, str]:
        self._peek()
        line, start = self._line, self._position
        while True:
            try:
                value, end = self._decoder.raw_decode(self._text, self._position)
            except (ValueError, RecursionError) as error:
                if self._may_be_truncated(error) and self._read_more():
                    start = self._position
                    continue
                self._fail(json_problem(error), error)
            # A number may continue in the next chunk.
            if end == len(self._text) and self._read_more():
                start = self._position
                continue
            raw = self._text[start:end]
            self._advance(end - start)
            return line, value, raw

    def _may_be_truncated(self, error: Exception) -> bool:
        if not isinstance(error, json.JSONDecodeError):
            return False
        return error.msg.startswith("Unterminated string") or error.pos >= len(self._text) - _MAX_ERROR_DISTANCE

    def _peek(self) -> str:
        """Return the next nonblank character, or "" at the end, without consuming it."""
        while True:
            end = _BLANKS.match(self._text, self._position).end()  # type: ignore[union-attr]
            self._advance(end - self._position)
            if self._position < len(self._text):
                return self._text[self._position]
            if not self._read_more():
                return ""

    def _advance(self, characters: int) -> None:
        self._line += self._text.count("\n", self._position, self._position + characters)
        self._position += characters

    def _read_more(self) -> bool:
        """Read at least as much as is buffered, so that parsing long values is linear; return False at the end."""
        if self._ended:
            return False
        buffered = self._text[self._position :]
        data = self._stream.read(max(_CHUNK_BYTES, len(buffered)))
        self._ended = not data
        try:
            self._text = buffered + self._bytes.decode(data, final=self._ended)
        except UnicodeDecodeError as error:
            raise SourceError(
                f"{self._path}, after line {self._line}: {invalid_byte(error, self._encoding)}; "
                "set the correct encoding, such as --encoding latin-1, or convert the file"
            ) from error
        self._position = 0
        return True

    def _fail(self, problem: str, error: Exception | None = None) -> None:
        line = self._line
        if isinstance(error, json.JSONDecodeError):
            line += self._text.count("\n", self._position, error.pos)
            problem = error.msg
        raise SourceError(
            f"{self._path}, line {line}: not valid JSON ({problem}); fix the file, or set the correct --input_format"
        ) from error


JSON = InputFormat(name="json", read=read_documents, recognize=is_json, has_fields=True, has_language=True)
