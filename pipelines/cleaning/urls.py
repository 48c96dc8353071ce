"""URLs of web pages: lists that allow or block them, and a normal form by which pages are compared."""

import functools
import posixpath
import re
from dataclasses import dataclass
from urllib.parse import SplitResult, quote, unquote, urlsplit

from beambert.pipelines.errors import SourceError
from beambert.pipelines.sources.files import open_decompressed

# Rules that reject a document by its URL.
BLOCKED_URL, UNLISTED_URL = "blocked_url", "unlisted_url"
URL = "url"

_WORD = re.compile(r"[^\W_]+")
_DOMAIN = re.compile(r"[\w-]+(?:\.[\w-]+)+")
_SUFFIX = re.compile(r"(?:\.\w+)+")


@dataclass(frozen=True)
class UrlList:
    """Domains, suffixes of paths, and words of URLs, in lower case.

    Attributes:
        domains: domains, which include their subdomains.
        suffixes: ends of paths, such as ".pdf".
        words: runs of letters and digits anywhere in the URL.
    """

    domains: frozenset[str]
    suffixes: tuple[str, ...]
    words: frozenset[str]

    def matches(self, url: str) -> bool:
        """Return whether the list has the domain of a URL or one above it, the end of its path, or one of its words."""
        parts = _split(url)
        if parts is None:
            return False
        labels = _host(parts).split(".")
        return (
            any(".".join(labels[start:]) in self.domains for start in range(len(labels)))
            or parts.path.lower().endswith(self.suffixes)
            or not self.words.isdisjoint(_WORD.findall(unquote(url).lower()))
        )


@functools.cache
def load_url_list(paths: tuple[str, ...], flag: str) -> UrlList:
    """Read files of domains, suffixes and words, one a line; the result is cached in the process.

    Args:
        paths: files on any Beam filesystem, compressed or not. Blank lines and those that start with # are ignored.
        flag: the flag that names them, for messages.

    Raises:
        SourceError: a file cannot be read, or a line is something else.
    """
    entries: dict[re.Pattern[str], set[str]] = {_DOMAIN: set(), _SUFFIX: set(), _WORD: set()}
    for path in paths:
        with open_decompressed(path) as stream:
            content = stream.read()
        try:
            lines = content.decode("utf-8-sig").splitlines()
        except UnicodeDecodeError as error:
            raise SourceError(f"{flag} {path} is not UTF-8; convert the file") from error
        for number, line in enumerate(lines, start=1):
            entry = line.strip().lower()
            if not entry or entry.startswith("#"):
                continue
            kind = next((kind for kind in entries if kind.fullmatch(entry)), None)
            if kind is None:
                raise SourceError(
                    f"{flag} {path}: line {number} is {entry[:80]!r}; give a domain (example.org), the end of a path "
                    "(.pdf) or a word (casino) in each line"
                )
            entries[kind].add(_ascii(entry).removeprefix("www.") if kind is _DOMAIN else entry)
    return UrlList(frozenset(entries[_DOMAIN]), tuple(sorted(entries[_SUFFIX])), frozenset(entries[_WORD]))


def _split(url: str) -> SplitResult | None:
    """Return the parts of a URL, with or without its scheme; None if it is invalid or has no host."""
    try:
        parts = urlsplit(url.strip() if "://" in url else f"//{url.strip()}")
        parts.port  # noqa: B018  Raises ValueError if it is invalid.
    except ValueError:
        return None
    return parts if parts.hostname else None


def _host(parts: SplitResult) -> str:
    host = _ascii((parts.hostname or "").rstrip(".")).removeprefix("www.")
    return f"[{host}]" if ":" in host else host


def _ascii(host: str) -> str:
    """Return a host name in the form of the domain name system: xn--mller-kva.de for müller.de."""
    try:
        return host if host.isascii() else host.encode("idna").decode("ascii")
    except UnicodeError:
        return host


def domain_of(url: str) -> str:
    """Return the host of a URL without "www.", or "" if it is invalid."""
    parts = _split(url)
    return _host(parts) if parts else ""


# Parameters that identify the visitor or the link that was followed, not the page. "sid" may be that of a story.
_TRACKING = re.compile(
    r"utm_\w+|[a-z]{0,2}clid|msclkid|mc_[ce]id|igshid|_ga|_gl|phpsessid|jsessionid|sessionid", re.IGNORECASE
)
_SESSION = re.compile(r";jsessionid=[^/?]*", re.IGNORECASE)
_ESCAPE = re.compile(r"%[0-9A-Fa-f]{2}")
_PRINTABLE = "".join(map(chr, range(33, 127)))


def normalize_url(url: str) -> str:
    """Return a URL in the form in which URLs of the same page are mostly equal (RFC 3986, section 6).

    Scheme, user, "www.", default port, fragment, final slash, and parameters of trackers and sessions are removed, and
    the other parameters sorted. Host and percent-encoding get one form.

    Returns:
        The normal form, such as "example.org/a?b=1", or "" if the URL is invalid.
    """
    parts = _split(url)
    if parts is None:
        return ""
    port = f":{parts.port}" if parts.port not in (None, 80, 443) else ""
    # Empty for the root, and otherwise with exactly one slash at its start.
    path = posixpath.normpath("/" + _with_one_encoding(_SESSION.sub("", parts.path)).lstrip("/")).rstrip("/")
    parameters = [_with_one_encoding(parameter) for parameter in parts.query.split("&")]
    kept = sorted(each for each in parameters if each and not _TRACKING.fullmatch(each.partition("=")[0]))
    query = f"?{'&'.join(kept)}" if kept else ""
    return f"{_host(parts)}{port}{path}{query}"


def _with_one_encoding(text: str) -> str:
    """Return text with every character percent-encoded that must be, in upper case, and no unreserved one."""
    return _ESCAPE.sub(_decode_unreserved, quote(text, safe=_PRINTABLE))


def _decode_unreserved(escape: re.Match[str]) -> str:
    character = unquote(escape[0], errors="replace")
    is_unreserved = character.isascii() and (character.isalnum() or character in "-._~")
    return character if is_unreserved else escape[0].upper()
