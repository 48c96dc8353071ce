"""Text files of tasks, which are UTF-8 or refused."""

import codecs
from pathlib import Path

from beambert_common.command_line.path_flags import file_kind
from pipelines.sources.wide_encodings import HEAD_BYTES, wide_encoding
from trainers.errors import TaskDataError


def read_text(path: Path) -> str:
    """Return the content of a file, without a byte order mark; ends of lines as they are.

    Raises:
        TaskDataError: it cannot be read, or is not UTF-8.
    """
    if kind := file_kind(path):
        raise TaskDataError(f"{path} cannot be read (it is {kind}); write the text to a file and give that")
    try:
        content = path.read_bytes().removeprefix(codecs.BOM_UTF8)
    except OSError as error:
        reason = error.strerror or error
        raise TaskDataError(f"{path} cannot be read ({reason}); check the path and your access") from error
    if encoding := wide_encoding(content[:HEAD_BYTES]):
        raise TaskDataError(f"{path} is {encoding}; convert it first: iconv -f {encoding} -t UTF-8 {path.name}")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise TaskDataError(
            f"{path}, line {line}: byte 0x{content[error.start]:02x} is not UTF-8; if the file is Latin-1, write it "
            f"anew with: iconv -f ISO-8859-1 -t UTF-8 {path.name}"
        ) from error
