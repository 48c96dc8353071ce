"""Templates that stand inside sentences, and the words a reader sees in their place.

A rule takes the template's parameters as MediaWiki numbers them ({"1": ..., "2": ..., "lc": ...}) and returns text. Only
templates named here show anything: what is left (infoboxes, citations, navigation, maintenance tags) is no prose. The
table follows the templates that occur in the prose of real dumps; `benchmarks/wikipedia.py --templates` lists those
that have no rule.
"""

import functools
from collections.abc import Callable

from pipelines.sources.wiki_languages import LANGUAGE_NAMES

Parameters = dict[str, str]
Rule = Callable[[Parameters], str]

_MONTHS = "January February March April May June July August September October November December".split()
_UNITS = {
    "C": "°C",
    "F": "°F",
    "K": "K",
    "sqmi": "sq mi",
    "sqft": "sq ft",
    "sqin": "sq in",
    "km2": "km²",
    "m2": "m²",
    "cm2": "cm²",
    "mm2": "mm²",
    "mi2": "sq mi",
    "ft2": "sq ft",
    "m3": "m³",
    "km3": "km³",
    "cm3": "cm³",
    "cuft": "cu ft",
    "cuin": "cu in",
    "cumi": "cu mi",
    "acre": "acres",
    "USgal": "US gal",
    "impgal": "imp gal",
    "foot": "ft",
    "pd/sqmi": "per sq mi",
    "PD/sqmi": "per sq mi",
    "PD/km2": "per km²",
}
_RANGES = {
    "to": " to ", "and": " and ", "or": " or ", "-": "–", "–": "–", "by": " by ", "x": " × ", "xx": " × ", "×": " × ",
    "*": " × ", "+/-": " ± ", "±": " ± ", "to(-)": " to ", "to about": " to about ", "and(-)": " and ", ",": ", ",
}  # fmt: skip
_CURRENCIES = {
    "us$": "US$", "usd": "US$", "$": "$", "jpy": "¥", "¥": "¥", "cny": "CN¥", "rmb": "RMB ", "cad": "CA$", "aud": "A$",
    "a$": "A$", "gbp": "£", "£": "£", "eur": "€", "€": "€", "euro": "€", "inr": "₹", "indian rupee": "₹", "nzd": "NZ$",
    "nz$": "NZ$", "krw": "₩", "chf": "CHF ", "rub": "₽", "hkd": "HK$", "sek": "SEK ", "php": "₱", "try": "₺",
}  # fmt: skip
_SHIPS = "uss hms hmas hmcs hmnzs hmt rms ss mv ms mt sms usns uscgc ins orp rfa ps gts hnlms hdms hswms uss css".split()
_SUN_AND_PLANETS = {
    "solar luminosity": "L☉", "solar mass": "M☉", "solar radius": "R☉", "jupiter mass": "MJ", "jupiter radius": "RJ",
    "earth mass": "M🜨", "earth radius": "R🜨",
}  # fmt: skip
_CHINESE = {
    "c": "Chinese", "t": "traditional Chinese", "s": "simplified Chinese", "p": "pinyin", "w": "Wade–Giles",
    "j": "Jyutping", "poj": "Pe̍h-ōe-jī", "l": "lit.",
}  # fmt: skip

_SPACED_DASH = " – "
_CHARACTERS = {
    "ndash": "–", "en dash": "–", "endash": "–", "nbndash": "–", "snd": _SPACED_DASH, "snds": _SPACED_DASH,
    "spnd": _SPACED_DASH, "spaced ndash": _SPACED_DASH, "spaced en dash": _SPACED_DASH, "sndash": _SPACED_DASH,
    "mdash": "—", "em dash": "—", "emdash": "—", "mdashb": "—", "spaced mdash": " — ", "spaced em dash": " — ",
    "nbsp": " ", "nbs": " ", "space": " ", "spaces": " ", "thinsp": " ", "thin space": " ", "hair space": " ",
    "hairsp": " ", "nnbsp": " ", "0": "", "shy": "", "wbr": "", "zwsp": "", "zwj": "\u200d", "zwnj": "\u200c",
    "'": "'", "'s": "'s", "'\"": "'\"", "\"'": "\"'", "' \"": "'\"", "\" '": "\"'", "' '": "''", "-'": "'", "-\"": '"',
    "=": "=", "!": "|", "!!": "||", "(": "{", ")": "}", "((": "{{", "))": "}}", "*": "*", "colon": ":", "pipe": "|",
    "·": " · ", "dot": " · ", "middot": " · ", "•": " • ", "bullet": " • ", "\\": " / ", "...": "...", "ellipsis": "...",
    "extinct": "†", "dagger": "†", "okina": "ʻ", "hamza": "ʾ", "ayin": "ʿ", "asper": "ʿ", "sharp": "♯", "flat": "♭",
    "natural": "♮", "number sign": "#", "degree": "°", "minus": "−", "times": "×", "sic": "", "break": " ", "br": " ",
}  # fmt: skip

_SHOW_FIRST = (
    "nowrap, nobr, nowr, no wrap, nobreak, avoid wrap, j, small, smaller, big, larger, large, huge, em, strong, sc, smallcaps, "
    "sc2, sup, sub, mvar, math, bigmath, code, mono, monospace, samp, var, kbd, keypress, key press, keystroke, linktext, "
    "notatypo, not a typo, typo, vanchor, visible anchor, citation needed span, cnspan, clarify span, center, dp, nq, abbr, "
    "abbrlink, tooltip, hover, unicode, polytonic, hebrew, strikethrough, s, u, underline, overline, ins, italic, italics, "
    "bold, noitalic, noitalics, nobold, upright, roman, serif, sans-serif, nts, number table sorting, format price, formatprice, "
    "flag, flagu, flagcountry, nihongo foot, nihongo2, w, chem2, resize, midsize, allcaps, ruby, ipa link, "
    "ipalink, unichar, railgauge, track gauge, gli, nastaliq, text, asiantitle, bigger, ltr, rtl"
)

def _positional(parameters: Parameters) -> list[str]:
    """The numbered parameters in order, up to the first gap."""
    values = []
    while str(len(values) + 1) in parameters:
        values.append(parameters[str(len(values) + 1)])
    return values


def _first(parameters: Parameters) -> str:
    return parameters.get("1", "")


def _last(parameters: Parameters) -> str:
    """{{transl|ar|DIN|text}}: the text comes last, behind one or two codes."""
    return (_positional(parameters) or [""])[-1]


def _joined(parameters: Parameters) -> str:
    return "".join(_positional(parameters))


def _second(parameters: Parameters) -> str:
    return parameters.get("2") or parameters.get("text") or _first(parameters)


def _block(parameters: Parameters) -> str:
    """A quotation that stands as paragraphs of its own."""
    text = parameters.get("text") or parameters.get("quote") or parameters.get("content") or _first(parameters)
    return f"\n\n{text}\n\n"


def _is_number(text: str) -> bool:
    return any(character.isdigit() for character in text) and not any(character.isalpha() for character in text)


def _with_commas(number: str) -> str:
    """Digits in groups of three, as the English templates write them."""
    whole, point, fraction = number.partition(".")
    return f"{int(whole):,}{point}{fraction}" if whole.isascii() and whole.isdigit() and 3 < len(whole) < 40 else number


def _convert(parameters: Parameters) -> str:
    """{{convert|5|to|10|km|mi}}: what the author measured, "5 to 10 km"; the conversion is left out."""
    show = str if parameters.get("comma") == "off" else _with_commas
    values = _positional(parameters)
    if not values:
        return ""
    text, place = show(values[0]), 1
    while place + 1 < len(values) and values[place] in _RANGES:
        text += _RANGES[values[place]] + show(values[place + 1])
        place += 2
    if place < len(values):
        text += " " + _UNITS.get(values[place], values[place])
        if place + 2 < len(values) and _is_number(values[place + 1]) and not _is_number(values[place + 2]):
            text += f" {show(values[place + 1])} {_UNITS.get(values[place + 2], values[place + 2])}"
    return text


def _value(parameters: Parameters) -> str:
    """{{val|1.5|0.1|e=6|u=m}}: 1.5±0.1×106 m, the exponent as plain text shows it."""
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
    """{{floruit|1150|1160}}: "fl. 1150–1160"."""
    return lambda parameters: f"{word} " + "–".join(value for value in _positional(parameters) if value)


def _date(parameters: Parameters) -> str:
    """Year, month, day from the numbered parameters; the day first where the template is told so (df)."""
    year, month, day = [*_positional(parameters), "", "", ""][:3]
    if month.isascii() and month.isdigit() and len(month) <= 2 and 1 <= int(month) <= 12:
        month = _MONTHS[int(month) - 1]
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
    return f"{_first(parameters)} [O.S. {parameters.get('3', '')}] {parameters.get('2', '')}"


def _nihongo(parameters: Parameters) -> str:
    english, japanese, *others = [*_positional(parameters), "", ""][:4]
    inside = ", ".join(part for part in (japanese, *others, parameters.get("extra", "")) if part)
    return f"{english} ({inside})" if inside else english


def _nihongo3(parameters: Parameters) -> str:
    english, japanese, romaji = [*_positional(parameters), "", "", ""][:3]
    return f"{romaji} ({', '.join(part for part in (japanese, english) if part)})"


def _chinese(parameters: Parameters) -> str:
    label = parameters.get("labels") != "no"
    return "; ".join(
        f"{name}: {parameters[key]}" if label else parameters[key]
        for key, name in _CHINESE.items()
        if parameters.get(key)
    )


def _interlanguage_link(parameters: Parameters) -> str:
    """{{ill|Title|fr}}, in old dumps {{ill|fr|Title}}."""
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


def _language_label(name: str) -> Rule:
    """{{lang-el|Αιγαίο|Aigaío|lit=...}}: "Greek: Αιγαίο, romanized: Aigaío"."""

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
    """{{langx|el|...}}, which took over from {{lang-el|...}}."""
    shifted = dict(parameters)
    for number, value in enumerate(_positional(parameters)[1:], start=1):
        shifted[str(number)] = value
    shifted.pop(str(len(_positional(parameters))), None)
    return _language_label(LANGUAGE_NAMES.get(_first(parameters).lower(), ""))(shifted)


def _pronunciation(parameters: Parameters) -> str:
    """{{IPA|/a/}}; since 2022 also {{IPA|de|ˈalbɛʁt}}."""
    first, second = _first(parameters), parameters.get("2", "")
    return f"[{second}]" if second and len(first) in (2, 3) and first.isascii() and first.isalpha() else first


def _pronunciation_in(parameters: Parameters) -> str:
    label = "pronounced " if parameters.get("2") == "pron" else ""
    return f"{label}[{_first(parameters)}]"


def _english_pronunciation(parameters: Parameters) -> str:
    """{{IPAc-en|US|ə|ˈ|d|oʊ}}: the sounds, without the codes of the variety."""
    codes = {"us", "uk", "lang", "pron", "also", "local", "ipa", "au", "nz", "ca", "en", "usalso", "ukalso", "audio", ""}
    return "/" + "".join(value for value in _positional(parameters) if value.lower() not in codes) + "/"


def _around(before: str, after: str) -> Rule:
    return lambda parameters: f"{before}{_first(parameters)}{after}"


def _unit(parameters: Parameters) -> str:
    """{{unité|5|km}} and its like: number and unit."""
    return " ".join(value for value in (_first(parameters), parameters.get("2") or parameters.get("ul", "")) if value)


def _spaced(parameters: Parameters) -> str:
    return " ".join(value for value in _positional(parameters) if value)


def _sic(parameters: Parameters) -> str:
    mark = "" if parameters.get("hide") or parameters.get("nolink") == "hide" else " [sic]"
    return f"{_joined(parameters)}{mark}".lstrip() if _first(parameters) else "[sic]"


def _scripture(parameters: Parameters) -> str:
    """{{Bibleverse|1|Kings|2:3}}, {{Bibleref2|Mark|3:25}}."""
    return " ".join(value for value in _positional(parameters)[:3] if value and not value.isupper())


_RULES: dict[str, Rule] = {
    **dict.fromkeys(_SHOW_FIRST.split(", "), _first),
    **{name: _around(symbol, "") for name, symbol in _CURRENCIES.items()},
    **{name: _around("", f" {symbol}") for name, symbol in _SUN_AND_PLANETS.items()},
    **{name: _ship_of(name.upper()) for name in _SHIPS},
    **dict.fromkeys(("lang", "rtl-lang", "color", "font color", "fontcolor", "colored text", "sort", "bg"), _second),
    **dict.fromkeys(("transl", "transliteration", "tlit", "wikt-lang", "wt", "wiktionary"), _last),
    **dict.fromkeys(("chem", "respelling", "su", "mp", "mpl", "minor planet"), _joined),
    **dict.fromkeys(("quote", "blockquote", "cquote", "bquote", "quotation", "poem quote", "poemquote"), _block),
    **dict.fromkeys(("quote without source", "verse translation", "bq", "centered pull quote"), _block),
    **dict.fromkeys(("convert", "cvt"), _convert),
    **dict.fromkeys(("circa", "c.", "ca.", "ca", "circ"), _circa),
    **dict.fromkeys(("floruit", "fl."), _span("fl.")),
    **dict.fromkeys(("reign", "r."), _span("r.")),
    **dict.fromkeys(("frac", "sfrac", "fraction"), _fraction),
    **dict.fromkeys(("as of", "asof"), _as_of),
    **dict.fromkeys(("birth date", "birth date and age", "bda", "death date", "start date", "end date", "dob"), _date),
    **dict.fromkeys(("death date and age", "dda", "film date", "start date and age"), _date),
    **dict.fromkeys(("oldstyledate", "oldstyledatedy"), _old_style_date),
    **dict.fromkeys(("nihongo", "nihongo krt"), _nihongo),
    **dict.fromkeys(("ill", "interlanguage link", "link-interwiki", "interlanguage link multi", "ill2"), _interlanguage_link),
    **dict.fromkeys(("zh", "lang-zh", "zh-cp"), _chinese),
    **dict.fromkeys(("ipac-en", "ipac-cmn", "ipac-pl", "ipac-yue", "ipac-en-us"), _english_pronunciation),
    **dict.fromkeys(("ipablink", "ipa blink"), _around("[", "]")),
    **dict.fromkeys(("ipaslink", "ipa slink"), _around("/", "/")),
    **dict.fromkeys(("angbr", "angle bracket", "angbr ipa", "grapheme"), _around("⟨", "⟩")),
    **dict.fromkeys(("literal translation", "lit.", "lit"), _around("lit. '", "'")),
    **dict.fromkeys(("gloss", "glossary link"), _around("'", "'")),
    **dict.fromkeys(("née", "nee"), lambda p: f"née {_first(p)}".rstrip()),
    **dict.fromkeys(("bibleverse", "bibleref2", "bibleref", "bible verse", "bibleverse nolink"), _scripture),
    **dict.fromkeys(("post-nominals", "postnominals", "post-nom"), lambda p: ", ".join(_positional(p))),
    **dict.fromkeys(("e", "e-sp"), _around("×10", "")),
    **dict.fromkeys(("sclass", "sclass2", "sclass-"), _ship_class),
    **dict.fromkeys(("korean", "korean/auto"), lambda p: p.get("hangul", "")),
    **dict.fromkeys(("ietf rfc", "rfc"), _around("RFC ", "")),
    "langx": _any_language_label,
    "ipa": _pronunciation,
    "nihongo3": _nihongo3,
    "val": _value,
    "ship": _any_ship,
    "sic": _sic,
    "respell": lambda p: "-".join(_positional(p)),
    "music": lambda p: _CHARACTERS.get(_first(p), _first(p)),
    "us patent": lambda p: f"U.S. Patent {_with_commas(_first(p))}",
    "section link": lambda p: " § ".join(_positional(p)[:2]),
}

# Where another edition uses a name for something of its own.
_RULES_BY_LANGUAGE: dict[str, dict[str, Rule]] = {
    "de": {"zitat": _block, '"': _around("„", "“"), "zitat-en": _block, "fnz": _first, "zeno-artikel": lambda p: "",
           "ars": _first, "has": _first, "zhs": _first, "grcs": _first, "las": _first},
    "fr": {"citation": _around("« ", " »"), "citation bloc": _block, "début citation": lambda p: "", "unité": _unit,
           "nombre": _unit, "nb": _first, "date": _spaced, "date-": _spaced, "date de naissance": _spaced,
           "s": _around("", "e siècle"), "s-": _around("", "e siècle"), "s mini-": _around("", "e siècle"),
           "-s": _around("", "e siècle av. J.-C."), "sp": lambda p: f"{_first(p)}e et {p.get('3', '')}e siècle",
           "langue": _second, "e": lambda p: f"e{_first(p)}", "er": lambda p: "er", "1er": lambda p: "1er",
           "ier": lambda p: "Ier", "iie": lambda p: "IIe", "ère": lambda p: "re", "n°": lambda p: "no",
           "n°-": lambda p: "no ", "lien": lambda p: p.get("texte") or p.get("trad") or _first(p), "petit": _first,
           "souverain-": _first, "souverain": _first, "av jc": lambda p: "av. J.-C.", "ap jc": lambda p: "apr. J.-C.",
           "citation étrangère": _second, "heure": _spaced, "tiret": lambda p: "–", "guil": _around("« ", " »")},
    "es": {"cita": _block, "unidad": _unit, "esd": _first, "siglo": lambda p: f"siglo {_first(p)}", "fecha": _spaced,
           "cita destacada": _block, "versalita": _first, "nombre": _first, "ac": lambda p: "a. C.", "convertir": _unit},
    "it": {"citazione": _block, "m": _unit, "quote": _block, "maiuscoletto": _first, "tutto attaccato": _first},
    "pt": {"quote": _block, "citação": _block, "citação2": _block, "fmtn": _unit, "fmtnum": _first, "unidade": _unit,
           "lknb": _first, "dtlink": _spaced, "ac": lambda p: "a.C.", "séc": lambda p: f"século {_first(p)}"},
    "nl": {"citaat": _block, "afkorting": _first},
    "pl": {"cytat": _block, "j": _second, "język": _second, "odn": lambda p: "", "k": _second, "w języku": _second},
    "ru": {"цитата": _block, "начало цитаты": lambda p: "", "s": _first, "число": _first, "nobr": _first, "год": _first,
           "iw": lambda p: p.get("2") or _first(p), "не переведено": lambda p: p.get("2") or _first(p), "м": _first,
           "не переведено 5": lambda p: p.get("2") or _first(p), "нп5": lambda p: p.get("2") or _first(p),
           "нп": lambda p: p.get("2") or _first(p), "lang": _second, "кавычки": _around("«", "»"), "юл": _first},
    "ja": {"読み仮名": lambda p: f"{_first(p)}（{p.get('2', '')}）", "ルビ": _first, "仮リンク": lambda p: p.get("label") or _first(p),
           "補助漢字フォント": _first, "jis2004フォント": _first, "cquote": _block, "quotation": _block, "lang": _second,
           "読み仮名 ruby不使用": lambda p: f"{_first(p)}（{p.get('2', '')}）", "韓国語読み仮名": _first, "flagicon": lambda p: ""},
    "zh": {"link-en": lambda p: p.get("3") or _first(p), "le": lambda p: p.get("3") or _first(p), "tsl": lambda p: p.get("4") or p.get("3", ""),
           "link-ja": lambda p: p.get("3") or _first(p), "internal link helper/en": _first, "僻字": _first, "kr": _first,
           "link-fr": lambda p: p.get("3") or _first(p), "link-de": lambda p: p.get("3") or _first(p), "cquote": _block},
    "sv": {"citat": _block, "nowrap": _first, "formatera tal": _first},
}  # fmt: skip

_BY_PREFIX: tuple[tuple[str, Rule], ...] = (("script/", _first), ("ipa-", _pronunciation_in), ("ipac-", _joined))

# {{lc:TEXT}} and its like, MediaWiki's own.
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
    if name in _CHARACTERS and name not in _RULES:
        character = _CHARACTERS[name]
        return lambda parameters: character
    if name in _RULES:
        return _RULES[name]
    if name.startswith("lang-"):
        # The English edition puts the language's name first, in English; what the others put is left out.
        return _language_label(LANGUAGE_NAMES.get(name[5:].split("-")[0], "") if language == "en" else "")
    return next((rule for prefix, rule in _BY_PREFIX if name.startswith(prefix)), None)


def parse_parameters(text: str) -> Parameters:
    """`a|lc=y|b` -> {"1": "a", "lc": "y", "2": "b"}, stripped; a later one of the same name wins, as in MediaWiki."""
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
    """Whether a template of this name shows its words."""
    return _rule(" ".join(name.replace("_", " ").lower().split()), language) is not None


def template_text(content: str, title: str, language: str) -> str:
    """What a reader sees of `{{content}}`; "" for a template without a rule.

    Args:
        content: what stands between the braces, templates and links inside it resolved already.
        title: of the page, for {{PAGENAME}}.
        language: of the edition.
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
