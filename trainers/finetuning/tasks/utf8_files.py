"""Read text files of tasks, which must be UTF-8."""

import codecs
from pathlib import Path

from beambert.common.command_line.path_flags import file_kind
from beambert.pipelines.formats.lines import HEAD_BYTES, wide_encoding
from beambert.trainers.errors import TaskDataError


def read_text(path: Path) -> str:
    """Return the content of a file without byte order mark, with unchanged line ends.

    Raises:
        TaskDataError: the file cannot be read, or is not UTF-8.
    """
    if kind := file_kind(path):
        raise TaskDataError(f"{path} cannot be read (it is {kind}): use a regular file")
    try:
        content = path.read_bytes().removeprefix(codecs.BOM_UTF8)
    except OSError as error:
        reason = error.strerror or error
        raise TaskDataError(f"{path} cannot be read ({reason}): check the path and your access") from error
    if encoding := wide_encoding(content[:HEAD_BYTES]):
        raise TaskDataError(f"{path} is {encoding}: convert it with iconv -f {encoding} -t UTF-8 {path.name}")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise TaskDataError(
            f"{path}, line {line}: byte 0x{content[error.start]:02x} is not UTF-8: convert the file, for Latin-1 with "
            f"iconv -f ISO-8859-1 -t UTF-8 {path.name}"
        ) from error
