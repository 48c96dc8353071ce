"""Validate the language codes of `--language`."""

import difflib
import re

from beambert.pipelines.errors import SourceError
from beambert.pipelines.formats.wikipedia.editions import EDITION_CODES, LANGUAGE_NAMES

# Codes without a Wikipedia edition: of ISO 639-1, sentencex and py3langid, of languages of India, and special codes
# (und, mul, zxx).
_OTHERS = """
    ae lu nb nd nr oj aae abs acm aeb aln apc arn arq bcc bci bdr bew bgn bho bqi brx btm cmn cpx doi dtp dua egl fil
    fit frc fuv gcf gld grc gsw gug hbo hke hrx hsn iba jut kea kge khw kik kiu kjh kjp kmr knc kok krl ksw kum liv ljp
    lki lua lus luz lzz mag mnc mul mwr nod npi nyn nyo ory pdt prs qug rgn rsk rup ruq rut sdc sdh ses sgs sjd sli sma
    sro sty swc tmr tru ttj und uzn uzs vmf vmw vot vro wls yrl zlm zxx
"""
_CODES = frozenset([*(code.split("-")[0] for code in EDITION_CODES), *_OTHERS.split()])
_SUBTAGS = re.compile(r"[A-Za-z]{2,9}(?:[-_][A-Za-z0-9]{1,8})*")


def require_language(language: str) -> None:
    """Reject an unknown language code, which would otherwise be segmented by English rules silently.

    Args:
        language: code such as "en", "pt-BR" or "zh_Hans"; only the first subtag is checked.

    Raises:
        SourceError: the code is unknown; the message suggests the nearest language.
    """
    code = re.split("[-_]", language)[0].lower()
    if _SUBTAGS.fullmatch(language) and code in _CODES:
        return
    near = _nearest(code)
    hint = (
        f"did you mean {near} ({LANGUAGE_NAMES[near]})? Use"
        if near
        else "use a code such as en, de, hi, ja or pt-BR, or"
    )
    raise SourceError(
        f"invalid --language {language}: not a known ISO 639 code; {hint} und to segment any language by the rules "
        "of English"
    )


def _nearest(word: str) -> str | None:
    """Return the code of the language with the most similar English name, or None."""
    by_name = {name.lower(): code for code, name in LANGUAGE_NAMES.items() if code in _CODES}
    named = sorted(name for name in by_name if len(word) > 2 and name.startswith(word[:9]))
    close = named or difflib.get_close_matches(word, by_name, n=1, cutoff=0.75)
    return by_name[close[0]] if close else None
