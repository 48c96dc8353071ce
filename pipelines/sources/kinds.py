"""Recognize files that are not text: archives, documents, databases, other binary data, web pages and XML.

The first bytes determine the kind, and the name only if the bytes are ambiguous. Ordinary text must never match,
regardless of its first character.
"""

import re
from typing import NamedTuple

from beambert.pipelines.formats.frames import stem_of
from beambert.pipelines.formats.lines import start_of, wide_encoding

_HEAD_BYTES = 4096
_AS_TEXT = "or read it unchanged with --input_format text"


class Kind(NamedTuple):
    """A kind of file, and the remedy for it.

    Attributes:
        name: Its name with an article, such as "a tar archive".
        remedy: An imperative sentence without a period.
        binary: Whether the file is never text; --input_format text reads other kinds.
    """

    name: str
    remedy: str
    binary: bool = True


_PANDOC = "extract its text first, such as with pandoc --to plain FILE --output FILE.txt"
_TAR = Kind("a tar archive", "unpack it first (tar -x -f FILE) and give its files")
_ZIP = Kind("a zip archive or office document", "unpack it first (unzip FILE), or extract its text with pandoc")
_BINARY = Kind("binary data, not text", "leave it out of --input, or export its text first")

# Kinds by their first bytes.
_MAGIC = {
    b"PAR1": Kind("a Parquet file", "read it with --input_format parquet"),
    b"%PDF-": Kind("a PDF document", "extract its text first, such as with pdftotext FILE FILE.txt"),
    b"%!PS-Adobe": Kind("a PostScript document", "extract its text first, such as with ps2ascii FILE FILE.txt"),
    b"{\\rtf": Kind("an RTF document", _PANDOC),
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": Kind("an old Office document (doc, xls, ppt)", "save it as text first"),
    b"SQLite format 3\0": Kind(
        "an SQLite database", "export the text first: sqlite3 -json FILE 'select ... from ...' > FILE.json"
    ),
    b"Rar!\x1a\x07": Kind("a RAR archive", "unpack it first (unrar x FILE) and give its files"),
    b"7z\xbc\xaf'\x1c": Kind("a 7z archive", "unpack it first (7z x FILE) and give its files"),
    b"PK\x03\x04": _ZIP,
    b"PK\x05\x06": _ZIP,
    b"ARROW1\0\0": Kind("an Arrow file", "write it as Parquet first (pyarrow.parquet.write_table)"),
    **dict.fromkeys([b"\xff\xd8\xff", b"GIF87a", b"GIF89a", b"OggS\0", b"\x93NUMPY", b"Obj\x01"], _BINARY),
}
_COMPRESSED = {
    b"\x1f\x8b": ("gzip", ".gz"),
    b"BZh91AY&SY": ("bzip2", ".bz2"),
    b"\x28\xb5\x2f\xfd": ("zstandard", ".zst"),
    b"\xfd7zXZ\0": ("xz", ".xz"),
}
_TAR_SUFFIXES = (".tgz", ".tbz", ".tbz2", ".txz", ".tzst")

_WARC = Kind("a WARC file", "extract the text of its pages first, such as with trafilatura", binary=False)
_HTML = Kind(
    "an HTML page",
    f"extract its text first, such as with trafilatura --input-dir DIR --output-dir TEXTS, {_AS_TEXT}",
    binary=False,
)
_XML = Kind("XML, but not a MediaWiki dump", f"convert it to text or JSON Lines first, {_AS_TEXT}", binary=False)

_PROLOG = rb"(?:<\?xml\b[^<>]*\?>\s*|<!--(?:[^-]|-(?!->))*+-->\s*)*"
# The second tag distinguishes a web page from a sentence such as "<html> is the root element".
_HTML_START = re.compile(
    _PROLOG + rb"<(?:!doctype\s+html\b[^<>]*|(?:html|head|body)(?:\s[^<>]*)?)>\s*<", re.IGNORECASE | re.DOTALL
)
_XML_START = re.compile(rb"<\?xml\s+version\s*=")
_HTML_SUFFIXES = (".html", ".htm", ".xhtml")

# Control characters except tab, line ends, form feed and escape, which occur in text files.
_CONTROL_BYTES = bytes([*range(9), 11, *range(14, 27), *range(28, 32)])
_LEAST_CONTROL_BYTES = 8
_CONTROL_SHARE = 0.01


def kind_of(name: str, head: bytes) -> Kind | None:
    """Return the kind of a file that is not readable as text, or None.

    MediaWiki dumps are XML too, so the caller must check for them first.

    Args:
        name: Name of the file.
        head: Its first bytes, at least 512 if the file has them, decompressed if its name has a compression suffix.
    """
    head = head[:_HEAD_BYTES]
    return _binary_kind(stem_of(name), head) or _markup_kind(stem_of(name), start_of(head))


def _binary_kind(stem: str, head: bytes) -> Kind | None:
    for magic, kind in _MAGIC.items():
        if head.startswith(magic):
            return kind
    if head[257:262] == b"ustar":
        return _TAR
    for magic, (method, suffix) in _COMPRESSED.items():
        if head.startswith(magic):
            if stem.endswith(_TAR_SUFFIXES):
                return _TAR
            return Kind(f"compressed with {method}, but its name lacks the suffix", f"rename it to FILE{suffix}")
    if encoding := wide_encoding(head):
        return Kind(encoding, f"convert it first: iconv -f {encoding.lower()} -t utf-8 FILE > FILE.txt")
    control = len(head) - len(head.translate(None, _CONTROL_BYTES))
    return _BINARY if control >= max(_LEAST_CONTROL_BYTES, _CONTROL_SHARE * len(head)) else None


def _markup_kind(stem: str, start: bytes) -> Kind | None:
    if start.startswith((b"WARC/1.0\r\n", b"WARC/1.1\r\n")):
        return _WARC
    if not start.startswith(b"<"):
        return None
    if _HTML_START.match(start) or stem.endswith(_HTML_SUFFIXES):
        return _HTML
    return _XML if _XML_START.match(start) or stem.endswith(".xml") else None
