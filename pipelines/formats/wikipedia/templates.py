"""Replace inline templates with the text that readers see.

Only templates with a rule show text; all others (infoboxes, citations, navigation, maintenance tags) are not prose. The
rules cover the templates in the prose of real dumps, mainly of the English edition. Most rules are patterns, in
`templates.toml`. The others are functions from the parameters to the displayed text. Parameters are numbered as in
MediaWiki: {"1": ..., "lc": ...}.
"""

import functools
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from beambert.pipelines.formats.wikipedia.editions import LANGUAGE_NAMES

Parameters = dict[str, str]
Rule = Callable[[Parameters], str]

_TABLES: dict[str, Any] = tomllib.loads(Path(__file__).with_name("templates.toml").read_text(encoding="utf-8"))
_WORDS: dict[str, Any] = _TABLES.pop("words")
# Longer names have no rule. The cache holds no longer text.
_MAX_NAME_CHARACTERS, _MAX_HEAD_CHARACTERS = 80, 200
_FIELD = re.compile(r"\{([^{}]+)\}")

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


def _positional(parameters: Parameters) -> list[str]:
    """Return the numbered parameters in order, up to the first gap."""
    values: list[str] = []
    while str(len(values) + 1) in parameters:
        values.append(parameters[str(len(values) + 1)])
    return values


def _pattern(pattern: str) -> Rule:
    """Return the rule of a pattern of `templates.toml`."""

    def rule(parameters: Parameters) -> str:
        def field(match: re.Match[str]) -> str:
            if match[1] == "*":
                values = _positional(parameters)
            else:
                groups = (names.split("|") for names in match[1].split(" "))
                values = [next((value for name in names if (value := parameters.get(name))), "") for names in groups]
            return " ".join(filter(None, values))

        return _FIELD.sub(field, pattern)

    return rule


def _first(parameters: Parameters) -> str:
    """Return the first parameter."""
    return parameters.get("1", "")


def _last(parameters: Parameters) -> str:
    """Return the last parameter: in {{transl|ar|DIN|text}} the text comes after one or two codes."""
    return (_positional(parameters) or [""])[-1]


def _joined(parameters: Parameters) -> str:
    """Return the numbered parameters, joined without spaces."""
    return "".join(_positional(parameters))


def _is_number(text: str) -> bool:
    return any(character.isdigit() for character in text) and not any(character.isalpha() for character in text)


def _with_commas(number: str) -> str:
    """Return digits in groups of three, as the English templates write them."""
    whole, point, fraction = number.partition(".")
    return f"{int(whole):,}{point}{fraction}" if whole.isascii() and whole.isdigit() and 3 < len(whole) < 40 else number


def _convert(parameters: Parameters) -> str:
    """Return the measure of {{convert|5|to|10|km|mi}}, "5 to 10 km", without the conversion."""
    show = str if parameters.get("comma") == "off" else _with_commas
    values = _positional(parameters)
    if not values:
        return ""
    text, index = show(values[0]), 1
    while index + 1 < len(values) and values[index] in _WORDS["ranges"]:
        text += _WORDS["ranges"][values[index]] + show(values[index + 1])
        index += 2
    if index < len(values):
        text += " " + _WORDS["units"].get(values[index], values[index])
        if index + 2 < len(values) and _is_number(values[index + 1]) and not _is_number(values[index + 2]):
            text += f" {show(values[index + 1])} {_WORDS['units'].get(values[index + 2], values[index + 2])}"
    return text


def _value(parameters: Parameters) -> str:
    """Return {{val|1.5|0.1|e=6|u=m}} as 1.5±0.1×106 m, the exponent in plain text."""
    values = _positional(parameters)
    text = "±".join(_with_commas(value) for value in values[:2])
    if "e" in parameters:
        text += f"×10{parameters['e']}"
    unit = parameters.get("u") or parameters.get("ul") or ""
    return f"{parameters.get('p', '')}{text}{' ' if unit else ''}{unit}{parameters.get('s', '')}"


def _fraction(parameters: Parameters) -> str:
    values = _positional(parameters)
    if len(values) == 1:
        return f"1/{values[0]}"
    return " ".join([*values[:-2], "/".join(values[-2:])])


def _circa(parameters: Parameters) -> str:
    return " – ".join(f"c. {value}" for value in _positional(parameters) if value) or "c."


def _span(word: str) -> Rule:
    """Return a rule for spans of years: {{floruit|1150|1160}} is "fl. 1150–1160"."""
    return lambda parameters: f"{word} " + "–".join(value for value in _positional(parameters) if value)


def _date(parameters: Parameters) -> str:
    """Return the date of the numbered parameters year, month, day; day first if the template has df."""
    year, month, day = [*_positional(parameters), "", "", ""][:3]
    if month.isascii() and month.isdigit() and len(month) <= 2 and 1 <= int(month) <= 12:
        month = _WORDS["months"][int(month) - 1]
    if not (month and day):
        return f"{month} {year}".strip()
    day = day.lstrip("0")
    return f"{day} {month} {year}" if parameters.get("df", "").startswith("y") else f"{month} {day}, {year}"


def _as_of(parameters: Parameters) -> str:
    if parameters.get("alt"):
        return parameters["alt"]
    word = "since" if parameters.get("since") else "as of"
    return f"{word if parameters.get('lc') else word.capitalize()} {_date(parameters)}"


def _nihongo(parameters: Parameters) -> str:
    english, japanese, *rest = [*_positional(parameters), "", ""][:4]
    inside = ", ".join(part for part in (japanese, *rest, parameters.get("extra", "")) if part)
    return f"{english} ({inside})" if inside else english


def _nihongo3(parameters: Parameters) -> str:
    english, japanese, romaji = [*_positional(parameters), "", "", ""][:3]
    return f"{romaji} ({', '.join(part for part in (japanese, english) if part)})"


def _chinese(parameters: Parameters) -> str:
    label = parameters.get("labels") != "no"
    return "; ".join(
        f"{name}: {parameters[key]}" if label else parameters[key]
        for key, name in _WORDS["chinese"].items()
        if parameters.get(key)
    )


def _interlanguage_link(parameters: Parameters) -> str:
    """Return the title of {{ill|Title|fr}}, in old dumps {{ill|fr|Title}}."""
    values = _positional(parameters)
    if parameters.get("lt"):
        return parameters["lt"]
    if len(values) > 1 and len(values[0]) in (2, 3) and values[0].islower() and len(values[1]) > 3:
        return values[3] if len(values) > 3 else values[1]
    return values[0] if values else ""


def _ship(values: list[str]) -> str:
    """Return the name of a ship from prefix, name, number and form: {{ship|HMS|Victory|1765|2}} is "Victory"."""
    prefix, name, number, form = [*values, "", "", "", ""][:4]
    if form == "1":
        return number
    if form == "2" or not prefix:
        return name
    return f"{prefix} {name} ({number})" if number and form not in ("5", "6") else f"{prefix} {name}"


def _ship_of(prefix: str) -> Rule:
    return lambda parameters: _ship([prefix, *_positional(parameters)])


def _ship_class(parameters: Parameters) -> str:
    name, kind = [*_positional(parameters), "", ""][:2]
    return f"{name}-class {kind}".rstrip()


def _language_label(name: str) -> Rule:
    """Return the rule of {{lang-el|Αιγαίο|Aigaío|lit=...}}: "Greek: Αιγαίο, romanized: Aigaío"."""

    def rule(parameters: Parameters) -> str:
        label = "" if parameters.get("label") == "none" else parameters.get("label") or name
        text = parameters.get("1") or parameters.get("text") or ""
        parts = [f"{label}: {text}" if label and text else text]
        romanized = parameters.get("2") or parameters.get("translit")
        if romanized:
            parts.append(f"romanized: {romanized}")
        if parameters.get("3") or parameters.get("lit"):
            parts.append(f"lit. '{parameters.get('3') or parameters['lit']}'")
        return ", ".join(part for part in parts if part)

    return rule


def _any_language_label(parameters: Parameters) -> str:
    """Return the text of {{langx|el|...}}, the successor of {{lang-el|...}}."""
    shifted = dict(parameters)
    for number, value in enumerate(_positional(parameters)[1:], start=1):
        shifted[str(number)] = value
    shifted.pop(str(len(_positional(parameters))), None)
    return _language_label(LANGUAGE_NAMES.get(_first(parameters).lower(), ""))(shifted)


def _pronunciation(parameters: Parameters) -> str:
    """Return the sounds of {{IPA|/a/}}; since 2022 also {{IPA|de|ˈalbɛʁt}}."""
    code, sounds = parameters.get("1", ""), parameters.get("2", "")
    return f"[{sounds}]" if sounds and len(code) in (2, 3) and code.isascii() and code.isalpha() else code


def _pronunciation_in(parameters: Parameters) -> str:
    """Return a pronunciation in brackets."""
    label = "pronounced " if parameters.get("2") == "pron" else ""
    return f"{label}[{_first(parameters)}]"


# Codes of varieties and labels in templates of pronunciation.
_VARIETIES = frozenset(
    ["us", "uk", "lang", "pron", "also", "local", "ipa", "au", "nz", "ca", "en", "usalso", "ukalso", "audio"]
)


def _english_pronunciation(parameters: Parameters) -> str:
    """Return the sounds of {{IPAc-en|US|ə|ˈ|d|oʊ}}, without the codes of the variety."""
    sounds = "".join(value for value in _positional(parameters) if value and value.lower() not in _VARIETIES)
    return f"/{sounds.replace(',_', ', ').replace('_', ' ')}/"


def _coordinates(parameters: Parameters) -> str:
    """Return {{coord|13|19|N|169|9|W}} as "13°19′N 169°9′W"; "" if it is displayed beside the title."""
    if "title" in parameters.get("display", ""):
        return ""
    text, signs = "", iter("°′″")
    for value in _positional(parameters)[:8]:
        if value in ("N", "S"):
            text, signs = f"{text}{value} ", iter("°′″")
        elif value in ("E", "W"):
            return text + value
        else:
            text += value + next(signs, "")
    return ""


def _sic(parameters: Parameters) -> str:
    mark = "" if parameters.get("hide") or parameters.get("nolink") == "hide" else " [sic]"
    return f"{_joined(parameters)}{mark}".lstrip() if _first(parameters) else "[sic]"


def _scripture(parameters: Parameters) -> str:
    """Return the reference of {{Bibleverse|1|Kings|2:3}} or {{Bibleref2|Mark|3:25}}."""
    return " ".join(value for value in _positional(parameters)[:3] if value and not value.isupper())


# Rules that are no patterns, by name of the template.
_RULES: dict[str, Rule] = {
    **{name: _ship_of(name.upper()) for name in _WORDS["ships"]},
    "as of": _as_of,
    "bibleverse": _scripture,
    "chem": _joined,
    "circa": _circa,
    "convert": _convert,
    "coord": _coordinates,
    "floruit": _span("fl."),
    "frac": _fraction,
    "ill": _interlanguage_link,
    "ipa": _pronunciation,
    "ipac-en": _english_pronunciation,
    "langx": _any_language_label,
    "music": lambda p: {"sharp": "♯", "flat": "♭", "natural": "♮"}.get(_first(p), _first(p)),
    "née": lambda p: f"née {_first(p)}".rstrip(),
    "nihongo": _nihongo,
    "nihongo3": _nihongo3,
    "post-nominals": lambda p: ", ".join(_positional(p)),
    "reign": _span("r."),
    "respell": lambda p: "-".join(_positional(p)),
    "sclass": _ship_class,
    "section link": lambda p: " § ".join(_positional(p)[:2]),
    "ship": lambda p: _ship(_positional(p)),
    "sic": _sic,
    "start date": _date,
    "transl": _last,
    "us patent": lambda p: f"U.S. Patent {_with_commas(_first(p))}",
    "val": _value,
    "zh": _chinese,
}
_RULES |= {other: _RULES[name] for name, others in _TABLES.pop("redirects").items() for other in others}
_RULES_BY_PREFIX = {"script/": _first, "ipa-": _pronunciation_in, "ipac-": _joined}


@functools.cache
def _patterns(language: str) -> dict[str, Rule]:
    """Return the rules of an edition that are patterns, by name of the template."""
    return {name: _pattern(pattern) for pattern, names in _TABLES.get(language, {}).items() for name in names}


def _rule(name: str, language: str) -> Rule | None:
    rule = _patterns(language).get(name) or _RULES.get(name) or _patterns("en").get(name)
    if rule:
        return rule
    if name.startswith("lang-"):
        # The English edition puts the English name of the language first; labels of other editions are omitted.
        return _language_label(LANGUAGE_NAMES.get(name[5:].split("-")[0], "") if language == "en" else "")
    return next((rule for prefix, rule in _RULES_BY_PREFIX.items() if name.startswith(prefix)), None)


def _parse_parameters(text: str) -> Parameters:
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
    return _name_and_rule(name, language)[1] is not None


@functools.lru_cache(maxsize=65536)
def _name_and_rule(head: str, language: str) -> tuple[str, Rule | None]:
    """Return the name of a template, as in the tables, and its rule; few names make up most of the templates."""
    name = " ".join(head.replace("_", " ").lower().split()).removeprefix("template:")
    return name, _rule(name, language) if len(name) < _MAX_NAME_CHARACTERS else None


def template_text(content: str, title: str, language: str) -> str:
    """Return the displayed text of `{{content}}`; "" for a template without a rule.

    Args:
        content: The text between the braces, with resolved templates and links.
        title: Title of the page, for {{PAGENAME}}.
        language: Language code of the edition.
    """
    head, _, rest = content.partition("|")
    name, rule = _name_and_rule(head.strip()[:_MAX_HEAD_CHARACTERS], language)
    if rule is not None:
        return rule(_parse_parameters(rest) if rest else {})
    function, colon, value = head.partition(":")
    if colon:
        apply = _FUNCTIONS.get(function.strip().lower())
        return apply(value) if apply else ""
    return title if name in _OF_THE_PAGE else ""
