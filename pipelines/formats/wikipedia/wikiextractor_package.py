"""Convert wikitext to paragraphs with the package wikiextractor (AGPL-3.0, extra `[wikiextractor]`).

The program of the process that `wikiextractor_process.py` starts. The time of the package grows faster than the length
of some pages, and only the main thread of a process can stop it. Each line of standard input is a request, and each
line of standard output its reply, both as JSON.
"""

import functools
import html
import json
import os
import re
import signal
import sys
from collections.abc import Collection
from types import FrameType
from typing import Any

from beambert.pipelines.formats.wikipedia.languages import unwanted_prefixes
from beambert.pipelines.formats.wikipedia.templates import template_text

# CPU time for a page; a page of 2 MiB, the largest that MediaWiki saves, takes about 1 second.
MAX_SECONDS = 30.0
# Keys of a reply. The value is the list of paragraphs, or the reason of the failure.
PARAGRAPHS = "paragraphs"
TOO_COMPLEX = "too_complex"
FAILED = "failed"

# Noncharacters replace bars and equals signs within a parameter, so that they do not separate parameters.
_PROTECT = str.maketrans("|=", "\ufdd0\ufdd1")
_RESTORE = str.maketrans("\ufdd0\ufdd1", "|=")
_LINK = re.compile(r"\[\[[^\[\]]*\]\]")
_SURROGATE = re.compile("[\ud800-\udfff]")


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


def _reply(request: list[Any]) -> dict[str, Any]:
    """Return the reply to a request: the arguments of `to_paragraphs` in a list."""
    try:
        # Repeated, because the package may drop an exception in an error handler of its own.
        signal.setitimer(signal.ITIMER_PROF, MAX_SECONDS, 1.0)
        try:
            return {PARAGRAPHS: to_paragraphs(*request)}
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
    except (_OutOfTime, RecursionError, MemoryError) as error:
        return {TOO_COMPLEX: type(error).__name__}
    except Exception as error:
        return {FAILED: f"{type(error).__name__}: {error}"}


def _stop_page(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    raise _OutOfTime


def main() -> None:
    """Write an empty line when the package is imported, then answer requests until standard input ends."""
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
