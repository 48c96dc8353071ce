"""Replace inline templates with the text that readers see.

Only templates with a rule show text; all others (infoboxes, citations, navigation, maintenance tags) are not prose. The
rules cover the templates in the prose of real dumps, mainly of the English edition. `benchmarks/wikipedia.py
--templates` lists the templates without a rule.
"""

import functools
from collections.abc import Callable

from beambert.pipelines.formats.wikipedia.languages import LANGUAGE_NAMES
from beambert.pipelines.formats.wikipedia.template_rules import (
    RULES,
    Parameters,
    Rule,
    always,
    around,
    block,
    first,
    joined,
    language_label,
    pronunciation_in,
    second,
    shown,
    spaced,
    unit,
)
from beambert.pipelines.formats.wikipedia.template_tables import CHARACTERS


def _with_reading(parameters: Parameters) -> str:
    return f"{first(parameters)}（{parameters.get('2', '')}）"


# Templates of other editions, including names with another meaning there.
_RULES_BY_LANGUAGE: dict[str, dict[str, Rule]] = {
    "de": {"zitat": block, '"': around("„", "“"), "zitat-en": block, "fnz": first, "zeno-artikel": always(""),
           "ars": first, "has": first, "zhs": first, "grcs": first, "las": first},
    "fr": {"citation": around("« ", " »"), "citation bloc": block, "début citation": always(""), "unité": unit,
           "nombre": unit, "nb": first, "date": spaced, "date-": spaced, "date de naissance": spaced,
           "s": around("", "e siècle"), "s-": around("", "e siècle"), "s mini-": around("", "e siècle"),
           "-s": around("", "e siècle av. J.-C."), "sp": lambda p: f"{first(p)}e et {p.get('3', '')}e siècle",
           "langue": second, "e": lambda p: f"e{first(p)}", "er": always("er"), "1er": always("1er"),
           "ier": always("Ier"), "iie": always("IIe"), "ère": always("re"), "n°": always("no"),
           "n°-": always("no "), "lien": shown("texte", "trad", "1"), "petit": first,
           "souverain-": first, "souverain": first, "av jc": always("av. J.-C."), "ap jc": always("apr. J.-C."),
           "citation étrangère": second, "heure": spaced, "tiret": always("–"), "guil": around("« ", " »")},
    "es": {"cita": block, "unidad": unit, "esd": first, "siglo": lambda p: f"siglo {first(p)}", "fecha": spaced,
           "cita destacada": block, "versalita": first, "nombre": first, "ac": always("a. C."),
           "convertir": unit},
    "it": {"citazione": block, "m": unit, "quote": block, "maiuscoletto": first, "tutto attaccato": first},
    "pt": {"quote": block, "citação": block, "citação2": block, "fmtn": unit, "fmtnum": first, "unidade": unit,
           "lknb": first, "dtlink": spaced, "ac": always("a.C."), "séc": lambda p: f"século {first(p)}"},
    "nl": {"citaat": block, "afkorting": first},
    "pl": {"cytat": block, "j": second, "język": second, "odn": always(""), "k": second, "w języku": second},
    "ru": {"цитата": block, "начало цитаты": always(""), "s": first, "число": first, "nobr": first, "год": first,
           "не переведено": shown("2", "1"), "не переведено 5": shown("2", "1"), "нп": shown("2", "1"), "м": first,
           "нп5": shown("2", "1"), "iw": shown("2", "1"), "кавычки": around("«", "»"), "юл": first},
    "ja": {"読み仮名": _with_reading, "読み仮名 ruby不使用": _with_reading, "韓国語読み仮名": first, "ルビ": first,
           "仮リンク": shown("label", "1"), "補助漢字フォント": first, "jis2004フォント": first},
    "zh": {"link-en": shown("3", "1"), "link-ja": shown("3", "1"), "link-fr": shown("3", "1"), "le": shown("3", "1"),
           "link-de": shown("3", "1"), "tsl": shown("4", "3"), "internal link helper/en": first, "僻字": first},
    "sv": {"citat": block, "nowrap": first, "formatera tal": first},
}  # fmt: skip

_BY_PREFIX: tuple[tuple[str, Rule], ...] = (("script/", first), ("ipa-", pronunciation_in), ("ipac-", joined))

# MediaWiki's parser functions, such as {{lc:TEXT}}.
_FUNCTIONS: dict[str, Callable[[str], str]] = {
    "lc": str.lower,
    "uc": str.upper,
    "lcfirst": lambda text: text[:1].lower() + text[1:],
    "ucfirst": lambda text: text[:1].upper() + text[1:],
    "formatnum": str.strip,
    "nowrap": str.strip,
}
_OF_THE_PAGE = ("pagename", "fullpagename", "basepagename", "subpagename", "article", "articlepagename", "pagenamebase")


@functools.lru_cache(maxsize=65536)
def _rule(name: str, language: str) -> Rule | None:
    own = _RULES_BY_LANGUAGE.get(language, {})
    if name in own:
        return own[name]
    if name in CHARACTERS and name not in RULES:
        return always(CHARACTERS[name])
    if name in RULES:
        return RULES[name]
    if name.startswith("lang-"):
        # The English edition puts the English name of the language first; labels of other editions are omitted.
        return language_label(LANGUAGE_NAMES.get(name[5:].split("-")[0], "") if language == "en" else "")
    return next((rule for prefix, rule in _BY_PREFIX if name.startswith(prefix)), None)


def parse_parameters(text: str) -> Parameters:
    """Parse `a|lc=y|b` to {"1": "a", "lc": "y", "2": "b"}; the last of equal names wins, as in MediaWiki."""
    parameters: Parameters = {}
    count = 0
    for part in text.split("|"):
        name, equals, value = part.partition("=")
        if equals:
            parameters[name.strip()] = value.strip()
        else:
            count += 1
            parameters[str(count)] = part.strip()
    return parameters


def has_rule(name: str, language: str) -> bool:
    """Return whether a template of this name has a rule."""
    return _rule(" ".join(name.replace("_", " ").lower().split()), language) is not None


def template_text(content: str, title: str, language: str) -> str:
    """Return the displayed text of `{{content}}`; "" for a template without a rule.

    Args:
        content: The text between the braces, with resolved templates and links.
        title: Title of the page, for {{PAGENAME}}.
        language: Language code of the edition.
    """
    head, _, rest = content.partition("|")
    name = " ".join(head.replace("_", " ").lower().split()).removeprefix("template:")
    rule = _rule(name, language) if len(name) < 80 else None
    if rule is not None:
        return rule(parse_parameters(rest) if rest else {})
    function, colon, value = head.partition(":")
    if colon:
        apply = _FUNCTIONS.get(function.strip().lower())
        return apply(value) if apply else ""
    return title if name in _OF_THE_PAGE else ""
