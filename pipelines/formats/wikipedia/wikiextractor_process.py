"""Run the package wikiextractor in a process of its own, which a page cannot block."""

import contextlib
import importlib.metadata
import importlib.util
import json
import subprocess
from types import TracebackType

from beambert.common.process import python_command, python_environment
from beambert.pipelines.errors import SourceError
from beambert.pipelines.formats.wikipedia import wikiextractor_package
from beambert.pipelines.formats.wikipedia.wikitext import MAX_CHARACTERS, TooComplex

# The interface differs between versions, and so does the text.
VERSION = "3.1.0"
_COMMAND = python_command("-m", wikiextractor_package.__name__)
_SECONDS_TO_END = 1.0


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


class WikiExtractorProcess:
    """The process that extracts pages. It starts with the first page, and again after a page that ends it.

    As a context manager, it ends the process.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "WikiExtractorProcess":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end()

    def to_paragraphs(self, wikitext: str, title: str, language: str, file_prefixes: frozenset[str]) -> list[str]:
        """Return the prose of a page, one string per paragraph.

        Args:
            wikitext: Source of the page.
            title: Title of the page.
            language: Language code of the edition, such as "en".
            file_prefixes: Further lowercase namespace names of files and categories.

        Raises:
            TooComplex: The page has more than MAX_CHARACTERS, or takes too much time or memory.
            ExtractionFailed: The package raises an error on this page, or ends its process.
            SourceError: The package is not installed on this machine.
        """
        if len(wikitext) > MAX_CHARACTERS:
            raise TooComplex(f"{len(wikitext)} characters")
        request = json.dumps([wikitext, title, language, sorted(file_prefixes)]).encode("ascii") + b"\n"
        # Again if the process was ended from outside, not by this page.
        line = self._exchange(request) or self._exchange(request)
        if not line:
            raise ExtractionFailed("the page ends the process of the package")
        reply = json.loads(line)
        if wikiextractor_package.TOO_COMPLEX in reply:
            raise TooComplex(reply[wikiextractor_package.TOO_COMPLEX])
        if wikiextractor_package.FAILED in reply:
            raise ExtractionFailed(reply[wikiextractor_package.FAILED])
        paragraphs: list[str] = reply[wikiextractor_package.PARAGRAPHS]
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
                self._end()
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
                f"{self._end()}); reinstall it: pip install --force-reinstall --no-deps wikiextractor=={VERSION}"
            )
        return process

    def _end(self) -> int | None:
        """End the process, and return its exit code; None if none has started."""
        process, self._process = self._process, None
        if process is None:
            return None
        for pipe in (process.stdin, process.stdout):
            if pipe:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        try:
            return process.wait(_SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()
