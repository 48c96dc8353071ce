"""Measure sentence segmentation by language: golden rules, boundary F1 by paragraph length, and speed.

    python benchmarks/segmentation.py ../shared/data [TREEBANK.conllu ...]

Golden rules: cases with exactly the expected sentences, of all cases, including those marked as expected to fail.
F1: sentence ends in paragraphs of 1, 5, 50 or all gold sentences of a language, in order.
MB/s: UTF-8 bytes per CPU second of this process, in paragraphs of 5 sentences. Treebanks of Universal Dependencies get
a separate table. blingfire (livekit-blingfire on PyPI) is included where it is installed.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from beambert.pipelines.cleaning.rules import fold_whitespace
from beambert.pipelines.segmentation.segmenters import split_sentences, split_with_sentencex

LENGTHS = (1, 5, 50, 0)  # 0: all sentences are one paragraph
WITHOUT_BLANKS = ("zh", "ja")
LANGUAGES = {
    "amharic": "am", "arabic": "ar", "armenian": "hy", "bulgarian": "bg", "burmese": "my", "chinese": "zh",
    "danish": "da", "deutsch": "de", "dutch": "nl", "english": "en", "english_clean": "en", "french": "fr",
    "greek": "el", "hindi": "hi", "issues": "en", "italian": "it", "japanese": "ja", "kazakh": "kk", "marathi": "mr",
    "persian": "fa", "polish": "pl", "russian": "ru", "slovak": "sk", "spanish": "es", "urdu": "ur",
}  # fmt: skip
Segmenter = Callable[[str, str], list[str]]


def segmenters() -> dict[str, Segmenter]:
    """Return the segmenters to compare, beambert's last."""
    result = {"sentencex": split_with_sentencex}
    try:
        from livekit.blingfire import text_to_sentences
    except ImportError:
        pass
    else:
        result["blingfire"] = lambda text, _: text_to_sentences(text).split("\n")
    return {**result, "ours": split_sentences}


def golden_rules(path: Path) -> dict[str, list[tuple[str, list[str], bool]]]:
    """Return by language: (text, its sentences with normalized whitespace, expected to fail)."""
    rules: dict[str, list[tuple[str, list[str], bool]]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        case = json.loads(line)
        sentences = [sentence if isinstance(sentence, str) else sentence[0] for sentence in case["sents"]]
        language = LANGUAGES[case["file"].removeprefix("test_").removesuffix(".py")]
        row = (fold_whitespace(case["text"]), [fold_whitespace(sentence) for sentence in sentences], case["xfail"])
        rules.setdefault(language, []).append(row)
    return dict(sorted(rules.items()))


def english_48(path: Path) -> list[tuple[str, list[str]]]:
    """Return the 48 original English golden rules, without the other English cases of the file."""
    cases = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return [(case["text"], case["sents"]) for case in cases if case["set"] == "GOLDEN_EN_RULES_TEST_CASES"]


def gold_sentences(rules: list[tuple[str, list[str], bool]]) -> list[str]:
    """Return the sentences of the cases that are expected to pass and keep every character of their text."""
    return [
        sentence
        for text, sentences, fails in rules
        if not fails and "".join("".join(sentences).split()) == "".join(text.split())
        for sentence in sentences
    ]


def treebank_sentences(path: Path) -> list[str]:
    """Return the sentences of a CoNLL-U file."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [fold_whitespace(line.removeprefix("# text = ")) for line in lines if line.startswith("# text = ")]


def paragraphs(sentences: list[str], length: int) -> Iterator[list[str]]:
    """Return paragraphs of N sentences in order; 0 for one paragraph of all."""
    length = length or len(sentences)
    return (sentences[start : start + length] for start in range(0, len(sentences), length))


def ends(sentences: list[str]) -> set[int]:
    """Return the positions of sentence ends, in characters that are not whitespace."""
    result, total = set(), 0
    for sentence in sentences:
        total += len("".join(sentence.split()))
        result.add(total)
    return result


def boundary_f1(segment: Segmenter, language: str, sentences: list[str], length: int) -> float:
    """Return the F1 of sentence ends over all paragraphs of a length."""
    joint = "" if language in WITHOUT_BLANKS else " "
    hits = gold_ends = found_ends = 0
    for paragraph in paragraphs(sentences, length):
        gold, found = ends(paragraph), ends(segment(joint.join(paragraph), language))
        hits += len(gold & found)
        gold_ends += len(gold)
        found_ends += len(found)
    return 2 * hits / (gold_ends + found_ends)


def megabytes_a_second(segment: Segmenter, language: str, sentences: list[str]) -> float:
    """Return the speed on at least 0.3 MB, repeating shorter text, after one warm-up."""
    texts = [("" if language in WITHOUT_BLANKS else " ").join(run) for run in paragraphs(sentences, 5)]
    size = sum(len(text.encode()) for text in texts)
    repeats = -(-300_000 // size)
    for text in texts:
        segment(text, language)
    start = time.process_time()
    for _ in range(repeats):
        for text in texts:
            segment(text, language)
    return repeats * size / 1e6 / (time.process_time() - start)


def print_table(title: str, gold: dict[str, list[str]], rules: dict[str, list[tuple[str, list[str], bool]]]) -> None:
    compared = segmenters()
    print(f"\n{title}\n")
    print("| language | " + " | ".join(f"{name}: F1 at 1, 5, 50, all; MB/s" for name in compared) + " |")
    print("|---|" + "---|" * len(compared))
    for language, sentences in gold.items():
        cells = []
        for segment in compared.values():
            right = sum(segment(text, language) == expected for text, expected, _ in rules.get(language, []))
            cases = f"{right}/{len(rules[language])}; " if rules else ""
            scores = " ".join(f"{boundary_f1(segment, language, sentences, length):.3f}" for length in LENGTHS)
            cells.append(f"{cases}{scores}; {megabytes_a_second(segment, language, sentences):.0f}")
        print(f"| {language} | " + " | ".join(cells) + " |", flush=True)


def main(data: Path, treebanks: list[Path]) -> None:
    path = data / "segmentation/golden_rules.jsonl"
    rules = golden_rules(path)
    print_table("Golden rules", {language: gold_sentences(cases) for language, cases in rules.items()}, rules)
    for name, segment in segmenters().items():
        right = sum(segment(text, "en") == sentences for text, sentences in english_48(path))
        print(f"English golden rules: {name} {right} of 48")
    if treebanks:
        gold: dict[str, list[str]] = {}
        for treebank in treebanks:
            gold.setdefault(treebank.name.split("_")[0], []).extend(treebank_sentences(treebank))
        print_table("Universal Dependencies", dict(sorted(gold.items())), {})


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Path(argument) for argument in sys.argv[2:]])
