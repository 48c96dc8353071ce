"""Define the tables of `template_rules.py`: names of templates, units, currencies and characters."""

MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
UNITS = {
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
    "MUSgal": "million US gal",
    "impgal": "imp gal",
    "foot": "ft",
    "pd/sqmi": "per sq mi",
    "PD/sqmi": "per sq mi",
    "PD/km2": "per km²",
}
RANGES = {
    "to": " to ", "and": " and ", "or": " or ", "-": "–", "–": "–", "by": " by ", "x": " × ", "xx": " × ", "×": " × ",
    "*": " × ", "+/-": " ± ", "±": " ± ", "to(-)": " to ", "to about": " to about ", "and(-)": " and ", ",": ", ",
}  # fmt: skip
CURRENCIES = {
    "us$": "US$", "usd": "US$", "$": "$", "jpy": "¥", "¥": "¥", "cny": "CN¥", "rmb": "RMB ", "cad": "CA$", "aud": "A$",
    "a$": "A$", "gbp": "£", "£": "£", "eur": "€", "€": "€", "euro": "€", "inr": "₹", "indian rupee": "₹", "nzd": "NZ$",
    "nz$": "NZ$", "krw": "₩", "chf": "CHF ", "rub": "₽", "hkd": "HK$", "sek": "SEK ", "php": "₱", "try": "₺",
}  # fmt: skip
SHIPS = (
    "uss", "hms", "hmas", "hmcs", "hmnzs", "hmt", "rms", "ss", "mv", "ms", "mt", "sms", "usns", "uscgc", "ins",
    "orp", "rfa", "ps", "gts", "hnlms", "hdms", "hswms", "css",
)  # fmt: skip
SUN_AND_PLANETS = {
    "solar luminosity": "L☉", "solar mass": "M☉", "solar radius": "R☉", "jupiter mass": "MJ", "jupiter radius": "RJ",
    "earth mass": "M🜨", "earth radius": "R🜨",
}  # fmt: skip
CHINESE = {
    "c": "Chinese", "t": "traditional Chinese", "s": "simplified Chinese", "p": "pinyin", "w": "Wade–Giles",
    "j": "Jyutping", "poj": "Pe̍h-ōe-jī", "l": "lit.",
}  # fmt: skip

_SPACED_DASH = " – "
CHARACTERS = {
    "ndash": "–", "en dash": "–", "endash": "–", "nbndash": "–", "snd": _SPACED_DASH, "snds": _SPACED_DASH,
    "spnd": _SPACED_DASH, "spaced ndash": _SPACED_DASH, "spaced en dash": _SPACED_DASH, "sndash": _SPACED_DASH,
    "mdash": "—", "em dash": "—", "emdash": "—", "mdashb": "—", "spaced mdash": " — ", "spaced em dash": " — ",
    "nbsp": " ", "nbs": " ", "space": " ", "spaces": " ", "thinsp": " ", "thin space": " ", "hair space": " ",
    "hairsp": " ", "nnbsp": " ", "0": "", "shy": "", "wbr": "", "zwsp": "", "zwj": "\u200d", "zwnj": "\u200c",
    "'": "'", "'s": "'s", "'\"": "'\"", "\"'": "\"'", "' \"": "'\"", "\" '": "\"'", "' '": "''", "-'": "'", "-\"": '"',
    "=": "=", "!": "|", "!!": "||", "(": "{", ")": "}", "((": "{{", "))": "}}", "*": "*", "colon": ":", "pipe": "|",
    "·": " · ", "dot": " · ", "middot": " · ", "•": " • ", "bullet": " • ", "\\": " / ", "...": "...",
    "ellipsis": "...",
    "extinct": "†", "dagger": "†", "okina": "ʻ", "hamza": "ʾ", "ayin": "ʿ", "asper": "ʿ", "sharp": "♯", "flat": "♭",
    "natural": "♮", "number sign": "#", "degree": "°", "minus": "−", "times": "×", "sic": "", "break": " ", "br": " ",
}  # fmt: skip

# Templates that show only their first parameter.
SHOW_FIRST = (
    "nowrap", "nobr", "nowr", "no wrap", "nobreak", "avoid wrap", "j", "small", "smaller", "big", "larger",
    "large", "huge", "em", "strong", "sc", "smallcaps", "sc2", "sup", "sub", "mvar", "math", "bigmath", "code",
    "mono", "monospace", "samp", "var", "kbd", "keypress", "key press", "keystroke", "linktext", "notatypo",
    "not a typo", "typo", "vanchor", "visible anchor", "citation needed span", "cnspan", "clarify span", "center",
    "dp", "nq", "abbr", "abbrlink", "tooltip", "hover", "unicode", "polytonic", "hebrew", "strikethrough", "s",
    "u", "underline", "overline", "ins", "italic", "italics", "bold", "noitalic", "noitalics", "nobold", "upright",
    "roman", "serif", "sans-serif", "nts", "number table sorting", "format price", "formatprice", "flag", "flagu",
    "flagcountry", "nihongo foot", "nihongo2", "w", "chem2", "resize", "midsize", "allcaps", "ruby", "ipa link",
    "ipalink", "unichar", "railgauge", "track gauge", "gli", "nastaliq", "text", "asiantitle", "bigger", "ltr", "rtl",
)  # fmt: skip
