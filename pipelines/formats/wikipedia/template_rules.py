"""Define the rules of inline templates: functions from parameters to the displayed text.

Parameters are numbered as in MediaWiki: {"1": ..., "lc": ...}.
"""

from collections.abc import Callable

from beambert.pipelines.formats.wikipedia.languages import LANGUAGE_NAMES
from beambert.pipelines.formats.wikipedia.template_tables import (
    CHARACTERS,
    CHINESE,
    CURRENCIES,
    MONTHS,
    RANGES,
    SHIPS,
    SHOW_FIRST,
    SUN_AND_PLANETS,
    UNITS,
)

Parameters = dict[str, str]
Rule = Callable[[Parameters], str]


def _positional(parameters: Parameters) -> list[str]:
    """Return the numbered parameters in order, up to the first gap."""
    values: list[str] = []
    while str(len(values) + 1) in parameters:
        values.append(parameters[str(len(values) + 1)])
    return values


def first(parameters: Parameters) -> str:
    """Return the first parameter."""
    return parameters.get("1", "")


def _last(parameters: Parameters) -> str:
    """Return the last parameter: in {{transl|ar|DIN|text}} the text comes after one or two codes."""
    return (_positional(parameters) or [""])[-1]


def joined(parameters: Parameters) -> str:
    """Return the numbered parameters, joined without spaces."""
    return "".join(_positional(parameters))


def second(parameters: Parameters) -> str:
    """Return the second parameter, else the text, else the first."""
    return parameters.get("2") or parameters.get("text") or first(parameters)


def block(parameters: Parameters) -> str:
    """Return a quotation as separate paragraphs."""
    text = parameters.get("text") or parameters.get("quote") or parameters.get("content") or first(parameters)
    return f"\n\n{text}\n\n"


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
    while index + 1 < len(values) and values[index] in RANGES:
        text += RANGES[values[index]] + show(values[index + 1])
        index += 2
    if index < len(values):
        text += " " + UNITS.get(values[index], values[index])
        if index + 2 < len(values) and _is_number(values[index + 1]) and not _is_number(values[index + 2]):
            text += f" {show(values[index + 1])} {UNITS.get(values[index + 2], values[index + 2])}"
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
        month = MONTHS[int(month) - 1]
    if not (month and day):
        return f"{month} {year}".strip()
    day = day.lstrip("0")
    return f"{day} {month} {year}" if parameters.get("df", "").startswith("y") else f"{month} {day}, {year}"


def _as_of(parameters: Parameters) -> str:
    if parameters.get("alt"):
        return parameters["alt"]
    word = "since" if parameters.get("since") else "as of"
    return f"{word if parameters.get('lc') else word.capitalize()} {_date(parameters)}"


def _old_style_date(parameters: Parameters) -> str:
    return f"{first(parameters)} [O.S. {parameters.get('3', '')}] {parameters.get('2', '')}"


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
        for key, name in CHINESE.items()
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


def _ship(prefix: str, name: str, number: str, form: str) -> str:
    if form == "1":
        return number
    if form == "2" or not prefix:
        return name
    return f"{prefix} {name} ({number})" if number and form not in ("5", "6") else f"{prefix} {name}"


def _ship_of(prefix: str) -> Rule:
    def rule(parameters: Parameters) -> str:
        name, number, form = [*_positional(parameters), "", "", ""][:3]
        return _ship(prefix, name, number, form)

    return rule


def _any_ship(parameters: Parameters) -> str:
    prefix, name, number, form = [*_positional(parameters), "", "", "", ""][:4]
    return _ship(prefix, name, number, form)


def _ship_class(parameters: Parameters) -> str:
    name, kind = [*_positional(parameters), "", ""][:2]
    return f"{name}-class {kind}".rstrip()


def language_label(name: str) -> Rule:
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
    return language_label(LANGUAGE_NAMES.get(first(parameters).lower(), ""))(shifted)


def _pronunciation(parameters: Parameters) -> str:
    """Return the sounds of {{IPA|/a/}}; since 2022 also {{IPA|de|ˈalbɛʁt}}."""
    code, sounds = parameters.get("1", ""), parameters.get("2", "")
    return f"[{sounds}]" if sounds and len(code) in (2, 3) and code.isascii() and code.isalpha() else code


def pronunciation_in(parameters: Parameters) -> str:
    """Return a pronunciation in brackets."""
    label = "pronounced " if parameters.get("2") == "pron" else ""
    return f"{label}[{first(parameters)}]"


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


def shown(*names: str) -> Rule:
    """Return a rule that shows the first of these parameters that is not empty."""
    return lambda parameters: next((parameters[name] for name in names if parameters.get(name)), "")


def always(text: str) -> Rule:
    """Return a rule that shows the same text for all parameters."""
    return lambda _: text


def around(before: str, after: str) -> Rule:
    """Return a rule that shows the first parameter between two texts."""
    return lambda parameters: f"{before}{first(parameters)}{after}"


def unit(parameters: Parameters) -> str:
    """Return number and unit of templates such as {{unité|5|km}}."""
    return " ".join(value for value in (first(parameters), parameters.get("2") or parameters.get("ul", "")) if value)


def spaced(parameters: Parameters) -> str:
    """Return the numbered parameters, joined by spaces."""
    return " ".join(value for value in _positional(parameters) if value)


def _sic(parameters: Parameters) -> str:
    mark = "" if parameters.get("hide") or parameters.get("nolink") == "hide" else " [sic]"
    return f"{joined(parameters)}{mark}".lstrip() if first(parameters) else "[sic]"


def _scripture(parameters: Parameters) -> str:
    """Return the reference of {{Bibleverse|1|Kings|2:3}} or {{Bibleref2|Mark|3:25}}."""
    return " ".join(value for value in _positional(parameters)[:3] if value and not value.isupper())


RULES: dict[str, Rule] = {
    **dict.fromkeys(SHOW_FIRST, first),
    **{name: around(symbol, "") for name, symbol in CURRENCIES.items()},
    **{name: around("", f" {symbol}") for name, symbol in SUN_AND_PLANETS.items()},
    **{name: _ship_of(name.upper()) for name in SHIPS},
    **dict.fromkeys(("lang", "rtl-lang", "color", "font color", "fontcolor", "colored text", "sort", "bg"), second),
    **dict.fromkeys(("transl", "transliteration", "tlit", "wikt-lang", "wt", "wiktionary"), _last),
    **dict.fromkeys(("chem", "respelling", "su", "mp", "mpl", "minor planet"), joined),
    **dict.fromkeys(("quote", "blockquote", "cquote", "bquote", "quotation", "poem quote", "poemquote"), block),
    **dict.fromkeys(("quote without source", "verse translation", "bq", "centered pull quote"), block),
    **dict.fromkeys(("convert", "cvt"), _convert),
    **dict.fromkeys(("circa", "c.", "ca.", "ca", "circ"), _circa),
    **dict.fromkeys(("floruit", "fl.", "fl"), _span("fl.")),
    **dict.fromkeys(("reign", "r."), _span("r.")),
    **dict.fromkeys(("frac", "sfrac", "fraction"), _fraction),
    **dict.fromkeys(("as of", "asof"), _as_of),
    **dict.fromkeys(("birth date", "birth date and age", "bda", "death date", "start date", "end date", "dob"), _date),
    **dict.fromkeys(("death date and age", "dda", "film date", "start date and age"), _date),
    **dict.fromkeys(("oldstyledate", "oldstyledatedy"), _old_style_date),
    **dict.fromkeys(("nihongo", "nihongo krt"), _nihongo),
    **dict.fromkeys(
        ("ill", "interlanguage link", "link-interwiki", "interlanguage link multi", "ill2"), _interlanguage_link
    ),
    **dict.fromkeys(("zh", "lang-zh", "zh-cp"), _chinese),
    **dict.fromkeys(("ipac-en", "ipac-cmn", "ipac-pl", "ipac-yue", "ipac-en-us"), _english_pronunciation),
    **dict.fromkeys(("ipablink", "ipa blink"), around("[", "]")),
    **dict.fromkeys(("ipaslink", "ipa slink"), around("/", "/")),
    **dict.fromkeys(("angbr", "angle bracket", "angbr ipa", "grapheme"), around("⟨", "⟩")),
    **dict.fromkeys(("literal translation", "lit.", "lit"), around("lit. '", "'")),
    **dict.fromkeys(("gloss", "glossary link"), around("'", "'")),
    **dict.fromkeys(("née", "nee"), lambda p: f"née {first(p)}".rstrip()),
    **dict.fromkeys(("bibleverse", "bibleref2", "bibleref", "bible verse", "bibleverse nolink"), _scripture),
    **dict.fromkeys(("post-nominals", "postnominals", "post-nom"), lambda p: ", ".join(_positional(p))),
    **dict.fromkeys(("e", "e-sp"), around("×10", "")),
    **dict.fromkeys(("sclass", "sclass2", "sclass-"), _ship_class),
    **dict.fromkeys(("korean", "korean/auto"), lambda p: p.get("hangul", "")),
    **dict.fromkeys(("ietf rfc", "rfc"), around("RFC ", "")),
    "coord": _coordinates,
    "langx": _any_language_label,
    "ipa": _pronunciation,
    "nihongo3": _nihongo3,
    "val": _value,
    "ship": _any_ship,
    "sic": _sic,
    "respell": lambda p: "-".join(_positional(p)),
    "music": lambda p: CHARACTERS.get(first(p), first(p)),
    "us patent": lambda p: f"U.S. Patent {_with_commas(first(p))}",
    "section link": lambda p: " § ".join(_positional(p)[:2]),
}
