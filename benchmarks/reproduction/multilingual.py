"""Check the multilingual cased model: fill-mask in ten languages, and token ids and hidden states in 31 scripts."""

import hashlib
import unicodedata
from pathlib import Path

from benchmarks.reproduction import hidden_states

# Texts with one [MASK], and a token that a reader of the language would accept.
TEXTS = {
    "English": ("Paris is the capital of [MASK].", "France"),
    "German": ("Berlin ist die Hauptstadt von [MASK].", "Deutschland"),
    "French": ("Rome est la capitale de l'[MASK].", "Italie"),
    "Spanish": ("Madrid es la capital de [MASK].", "España"),
    "Italian": ("Parigi è la capitale della [MASK].", "Francia"),
    "Dutch": ("Amsterdam is de hoofdstad van [MASK].", "Nederland"),
    "Greek": ("Η Αθήνα είναι η πρωτεύουσα της [MASK].", "Ελλάδας"),
    "Arabic": ("القاهرة هي عاصمة [MASK].", "مصر"),
    "Chinese": ("北京是中国的首[MASK]。", "都"),
    "Japanese": ("東京は日本の首[MASK]です。", "都"),
}
# Ranges of letters.
SCRIPTS = {
    "Latin": (0xC0, 0x24F),
    "Greek": (0x386, 0x3CE),
    "Cyrillic": (0x400, 0x481),
    "Armenian": (0x531, 0x586),
    "Hebrew": (0x5D0, 0x5EA),
    "Arabic": (0x621, 0x64A),
    "Syriac": (0x710, 0x72F),
    "Thaana": (0x780, 0x7A5),
    "Devanagari": (0x905, 0x94D),
    "Bengali": (0x985, 0x9CD),
    "Gurmukhi": (0xA05, 0xA4D),
    "Gujarati": (0xA85, 0xACD),
    "Odia": (0xB05, 0xB4D),
    "Tamil": (0xB85, 0xBCD),
    "Telugu": (0xC05, 0xC4D),
    "Kannada": (0xC85, 0xCCD),
    "Malayalam": (0xD05, 0xD4D),
    "Sinhala": (0xD85, 0xDCA),
    "Thai": (0xE01, 0xE4E),
    "Lao": (0xE81, 0xECD),
    "Tibetan": (0xF40, 0xF84),
    "Burmese": (0x1000, 0x103E),
    "Georgian": (0x10D0, 0x10FA),
    "Ethiopic": (0x1200, 0x135A),
    "Cherokee": (0x13A0, 0x13F5),
    "Khmer": (0x1780, 0x17D2),
    "Mongolian": (0x1820, 0x1878),
    "Hiragana": (0x3041, 0x3096),
    "Katakana": (0x30A1, 0x30FA),
    "Han": (0x4E00, 0x9FA5),
    "Hangul": (0xAC00, 0xD7A3),
}
_WORDS = 25


def script_text(name: str) -> str:
    """Return words of one to eight letters and marks of a script, drawn by a hash."""
    first, last = SCRIPTS[name]
    characters = map(chr, range(first, last + 1))
    letters = [character for character in characters if unicodedata.category(character)[0] in "LM"]
    words = []
    for number in range(_WORDS):
        digest = hashlib.sha256(f"{name} {number}".encode()).digest()
        length = 1 + digest[0] % 8
        positions = (int.from_bytes(digest[1 + 2 * i : 3 + 2 * i], "big") for i in range(length))
        words.append("".join(letters[position % len(letters)] for position in positions))
    return " ".join(words) + "."


def run(model: Path, work: Path) -> list[list[str]]:
    """Return the rows of the table; files are written to `work`."""
    from beambert.trainers.commands.fill_mask import fill_masks

    answers = fill_masks(model, [text for text, _ in TEXTS.values()], top_k=3)
    rows = []
    for (language, (text, expected)), (found,) in zip(TEXTS.items(), answers, strict=True):
        tokens = [filling.token for filling in found]
        shown = ", ".join(f"{filling.token} {100 * filling.probability:.0f} %" for filling in found)
        place = f"number {tokens.index(expected) + 1}" if expected in tokens else "not among the first three"
        rows.append([f"fill-mask, multi-cased, {language}: {text}", expected, shown, place])
    texts = [script_text(name) for name in SCRIPTS]
    rows += hidden_states.rows(f"hidden states, multi-cased, texts in {len(texts)} scripts", model, texts, work)
    return rows
