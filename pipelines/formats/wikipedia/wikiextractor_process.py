"""Convert wikitext to paragraphs with the package wikiextractor (AGPL-3.0, extra `[wikiextractor]`).

The time of the package grows faster than the length of some pages, and only the main thread of a process can stop it.
So the package runs in a process of its own, whose program is this module too (`main`). Each line of its standard input
is a request, and each line of its standard output the reply, both as JSON.
"""

import contextlib
import functools
import html
import importlib.metadata
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Collection, Iterator
from types import FrameType
from typing import Any

from beambert.common.process import python_command, python_environment
from beambert.pipelines.errors import SourceError
from beambert.pipelines.formats.wikipedia.editions import unwanted_prefixes
from beambert.pipelines.formats.wikipedia.templates import template_text
from beambert.pipelines.formats.wikipedia.wikitext import MAX_CHARACTERS, Extract, TooComplex

# The interface differs between versions, and so does the text.
VERSION = "3.1.0"
_COMMAND = python_command("-m", "beambert.pipelines.formats.wikipedia.wikiextractor_process")
_SECONDS_TO_END = 1.0
# CPU time for a page; a page of 2 MiB, the largest that MediaWiki saves, takes about 1 second.
MAX_SECONDS = 30.0
# Kinds of a reply. Its second item is the list of paragraphs, or the reason of the failure.
_PARAGRAPHS, _TOO_COMPLEX, _FAILED = "paragraphs", "too_complex", "failed"

# Noncharacters replace bars and equals signs within a parameter, so that they do not separate parameters.
_PROTECT = str.maketrans("|=", "\ufdd0\ufdd1")
_RESTORE = str.maketrans("\ufdd0\ufdd1", "|=")
_LINK = re.compile(r"\[\[[^\[\]]*\]\]")
_SURROGATE = re.compile("[\ud800-\udfff]")


class ExtractionFailed(Exception):
    """The package fails on a page. The message is its error."""


def require_package(where: str = "") -> None:
    """Check that the package is installed, without importing it.

    Args:
        where: Where it is missing, for the message, such as "on this worker".

    Raises:
        SourceError: It is missing, or another version is installed.
    """
    try:
        installed = importlib.metadata.version("wikiextractor")
    except importlib.metadata.PackageNotFoundError:
        installed = ""
    if installed == VERSION and importlib.util.find_spec("wikiextractor") is not None:
        return
    problem = f"{installed} is installed" if installed else "it is not installed"
    raise SourceError(
        f"--wikitext_extractor wikiextractor requires wikiextractor {VERSION} (license AGPL-3.0), but {problem}"
        f"{' ' if where else ''}{where}; run pip install 'beambert[wikiextractor]'"
    )


@contextlib.contextmanager
def open_wikiextractor() -> Iterator[Extract]:
    """Yield the function of the package, as `wikitext.to_paragraphs`, and end its process afterwards.

    The process starts with the first page, and again after a page that ends it. The function raises:

    - TooComplex: The page has more than MAX_CHARACTERS, or takes too much time or memory.
    - ExtractionFailed: The package raises an error on this page, or ends its process.
    - SourceError: The package is not installed on this machine.
    """
    process = _Process()
    try:
        yield process.extract
    finally:
        process.end()


class _Process:
    """The process of the package, if it runs."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def extract(self, wikitext: str, title: str, language: str, file_prefixes: frozenset[str]) -> list[str]:
        """Return the prose of a page; see `open_wikiextractor`."""
        if len(wikitext) > MAX_CHARACTERS:
            raise TooComplex(f"{len(wikitext)} characters")
        request = json.dumps([wikitext, title, language, sorted(file_prefixes)]).encode("ascii") + b"\n"
        # Again if the process was ended from outside, not by this page.
        line = self._exchange(request) or self._exchange(request)
        if not line:
            raise ExtractionFailed("the page ends the process of the package")
        kind, value = json.loads(line)
        if kind == _TOO_COMPLEX:
            raise TooComplex(value)
        if kind == _FAILED:
            raise ExtractionFailed(value)
        paragraphs: list[str] = value
        return paragraphs

    def _exchange(self, request: bytes) -> bytes:
        """Send a request and return the line of its reply; b"" if the process has ended."""
        process = self._process or self._start()
        assert process.stdin
        assert process.stdout
        line = b""
        try:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(request)
                process.stdin.flush()
                line = process.stdout.readline()
        finally:
            # After an exception, the reply would be that of the next page.
            if not line.endswith(b"\n"):
                line = b""
                self.end()
        return line

    def _start(self) -> "subprocess.Popen[bytes]":
        require_package("on this machine, which reads the dump")
        process = self._process = subprocess.Popen(  # noqa: S603
            _COMMAND,
            env=python_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # Ctrl-C goes to the command alone, which closes the pipe.
            start_new_session=True,
        )
        assert process.stdout
        if process.stdout.readline() != b"\n":
            raise SourceError(
                f"--wikitext_extractor wikiextractor: the package is installed, but cannot be imported (exit code "
                f"{self.end()}); reinstall it: pip install --force-reinstall --no-deps wikiextractor=={VERSION}"
            )
        return process

    def end(self) -> int | None:
        """End the process, and return its exit code; None if none has started."""
        process, self._process = self._process, None
        if process is None:
            return None
        try:
            process.communicate(timeout=_SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
        return process.returncode


class _OutOfTime(BaseException):
    """A page takes more than MAX_SECONDS. Not an Exception, so that the package does not catch it."""


class _AcceptedPrefixes:
    """The prefixes of links that stay in the text: all but those of files, categories and other editions.

    By default, the package drops every link with a colon, such as [[Alien: Covenant]].
    """

    def __init__(self, unwanted: Collection[str]) -> None:
        self._unwanted = unwanted

    def __contains__(self, prefix: str) -> bool:
        return prefix.strip().lower().replace("_", " ") not in self._unwanted


@functools.cache
def _ignored_tags() -> list[Any]:
    """Return the patterns of the tags whose content stays, those of the package's command without --links."""
    from wikiextractor.extract import ignoredTags, ignoreTag

    return [ignoreTag(tag) for tag in (*ignoredTags, "a")]


def to_paragraphs(
    wikitext: str, title: str = "", language: str = "en", file_prefixes: Collection[str] = frozenset()
) -> list[str]:
    """Return the lines of prose that the package finds in a page.

    Templates show the text of beambert's own rules (`templates.py`): a split of a dump lacks the pages of most
    templates, and the package does not run the modules that the others call. Headings are omitted.

    Args:
        wikitext: Source of the page.
        title: Title of the page.
        language: Language code of the edition, such as "en".
        file_prefixes: Further lowercase namespace names of files and categories.

    Raises:
        Exception: The package fails on this page.
    """
    from wikiextractor.extract import Extractor

    page = Extractor(
        0,
        "",
        "",
        title,
        [],
        acceptedNamespaces=_AcceptedPrefixes(unwanted_prefixes(language) | frozenset(file_prefixes)),
        ignored_tag_patterns=_ignored_tags(),
        keepSections=False,
    )
    # The package calls this method for each template, up to 30 levels deep.
    page.expandTemplate = functools.partial(_template_text, page, language)
    # The package takes wikitext as dumps store it, with escaped brackets and ampersands.
    lines = page.clean_text(html.escape(wikitext, quote=False), expand_templates=True, html_safe=False)
    # The package decodes numeric entities of surrogates, which no encoding can write.
    return [line for line in (" ".join(_SURROGATE.sub("\ufffd", line).split()) for line in lines) if line]


def _template_text(page: Any, language: str, body: str) -> str:
    """Return the displayed text of `{{body}}`."""
    from wikiextractor.extract import splitParts

    page.frame.append((body, {}))
    try:
        parts = [page.expandTemplates(part) for part in splitParts(body)]
    finally:
        page.frame.pop()
    content = "|".join(_LINK.sub(lambda link: link[0].translate(_PROTECT), part) for part in parts)
    return template_text(content, page.title, language).translate(_PROTECT if page.frame else _RESTORE)


def _reply(request: list[Any]) -> tuple[str, Any]:
    """Return the reply to a request: the arguments of `to_paragraphs` in a list."""
    try:
        # Repeated, because the package may drop an exception in an error handler of its own.
        signal.setitimer(signal.ITIMER_PROF, MAX_SECONDS, 1.0)
        try:
            return _PARAGRAPHS, to_paragraphs(*request)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
    except (_OutOfTime, RecursionError, MemoryError) as error:
        return _TOO_COMPLEX, type(error).__name__
    except Exception as error:
        return _FAILED, f"{type(error).__name__}: {error}"


def _stop_page(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    raise _OutOfTime


def main() -> None:
    """Run the process: write an empty line when the package is imported, then answer requests until input ends."""
    _ignored_tags()
    signal.signal(signal.SIGPROF, _stop_page)
    # Nothing but replies may reach the pipe of standard output.
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as replies:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        replies.write(b"\n")
        replies.flush()
        for line in sys.stdin.buffer:
            replies.write(json.dumps(_reply(json.loads(line))).encode("ascii") + b"\n")
            replies.flush()


if __name__ == "__main__":
    main()
