"""Names of Wikipedia's editions, from `editions.toml`: sections without prose, namespaces, disambiguation templates."""

import tomllib
from pathlib import Path
from typing import Any

_EDITIONS: dict[str, Any] = tomllib.loads(Path(__file__).with_name("editions.toml").read_text(encoding="utf-8"))
# Codes of the editions, mostly ISO 639 codes.
EDITION_CODES: frozenset[str] = frozenset(_EDITIONS.pop("codes").split())
# English names of languages by ISO 639 code.
LANGUAGE_NAMES: dict[str, str] = _EDITIONS.pop("languages")


def _names(kind: str, language: str) -> frozenset[str]:
    """Return the names of a kind in an edition, and the English ones, which are valid in all editions."""
    return frozenset(name for code in ("en", language.split("-")[0]) for name in _EDITIONS.get(code, {}).get(kind, ()))


def unwanted_sections(language: str) -> frozenset[str]:
    """Return the headings of sections with sources and links instead of prose."""
    return _names("sections", language)


def unwanted_prefixes(language: str) -> frozenset[str]:
    """Return the prefixes of links without prose: files, categories and other editions."""
    return _names("namespaces", language) | EDITION_CODES


def disambiguation_templates(language: str) -> frozenset[str]:
    """Return the templates that occur only on disambiguation pages."""
    return _names("disambiguation", language)
