"""Check the wording of documents, help texts, messages and docstrings: terms, length of sentences, width of lines.

`python -m tests.prose [FILE.md | FILE.py | COMMAND ...]` prints the findings; without arguments, it checks everything.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from beambert import cli

ROOT = Path(__file__).parents[1]
MAX_COLUMNS = 100
MAX_SENTENCE_WORDS = 40
MAX_MEAN_WORDS = 20
MAX_CELL_WORDS = 15
_TEST_FOLDERS = ("tests", "benchmarks")
# A page with fewer sentences has no mean worth testing.
_MIN_SENTENCES_FOR_MEAN = 5

# The term to use, by the pattern that it replaces. Words with another, common meaning are omitted.
TERMS = {
    r"pieces?": "token, or file split",
    r"held[- ]out|holds? out": "validation split",
    r"anew": "again",
    r"goes on|go on|going on|went on": "resumes, continues",
    r"hangs? on|hung on": "depends on",
    r"is to be had|are to be had": "is available",
    r"so many": "N",
    r"likewise": "the same way",
    r"of the run": "the run's",
    r"what there is": "name it",
    r"tells?|told|speaks?|speaking of": "states, reports",
    r"lies in|lie in|lies at|lies under|lies there": "is in",
    r"wish|wishes|wished": "request",
    r"noticed?|notices": "detects",
    r"reckon(?:s|ed|ing)?": "estimate",
    r"learnt|spelt|misspelt": "learned, spelled",
    r"dealt out|deals? out": "distributed",
    r"written whole|whole file": "atomic write",
    r"damage[ds]?|damaging": "corrupt",
    r"left[_-]to[_-]right": "causal attention",
    r"recompute|recomputation": "activation checkpointing",
    r"on paper": "estimated",
    r"at hand": "available",
    r"in a line|climbs?": "linearly",
    r"behind your back|nobody|somebody": "name who or what",
    r"some hundred": "several hundred",
    r"may be had|can be had": "is available",
    r"what it says|what they say|what is said": "message",
    r"front door": "CLI",
    r"updates an? |updates? in all": "steps",
    r"shortened to this length|taken as one vector": "maximum global gradient norm",
    r"keeps? of itself": "decay rate",
    r"what to (?:read|make of it)": "input, output",
    r"share of every weight": "weight decay",
    r"alike": "near-duplicates, or the same way",
    r"is poor|are poor": "say what is wrong",
    r"looked at": "inspected",
    r"the bill": "cost",
    r"takes? over|taken over|taking over": "uses, copies",
    r"gives? way|give up first": "say what happens",
    r"no matter|whatever": "regardless of",
    r"belongs? to whoever": "name who",
    r"needs? no more than": "needs at most",
    r"(?-i:is none|are none)": "say what it is",
    r"by itself alone|of its own accord": "on its own",
}
# Titles of the groups of flags in help.
GROUPS = {
    *("arguments", "common flags", "other flags", "input", "input handling", "output", "corpus", "cleaning"),
    *("deduplication", "vocabulary", "sampling", "masking", "shards", "data", "model", "training", "optimizer"),
    *("devices", "numerics", "checkpoints", "evaluation", "task", "predictions", "export", "cost model"),
    *("Google Cloud", "cluster"),
}
_TERMS = re.compile("|".join(rf"\b(?:{pattern})\b" for pattern in TERMS).replace(r" )\b", r" )"), re.IGNORECASE)


# The first pattern occurs in messages, the second in regular expressions, style sheets and lists of codes.
_PROSE = re.compile(r"\b(?:the|of|and|with|not)\b")
_DATA = re.compile(r"[|{\\]|\w:\w")


class Finding(NamedTuple):
    """A fault of a text: its location and the problem."""

    place: str
    problem: str

    def __str__(self) -> str:
        return f"{self.place}: {self.problem}"


class Block(NamedTuple):
    """A paragraph, list item, heading or table cell: the number of its first line and its text."""

    line: int
    kind: str
    text: str


def markdown_blocks(text: str) -> Iterator[Block]:
    """Yield the blocks of prose of a Markdown document, without code, comments, directives and front matter."""
    text = re.sub(r"<!--.*?-->", lambda match: "\n" * match[0].count("\n"), text, flags=re.DOTALL)
    lines = text.splitlines()
    collected: list[str] = []
    start, kind, fence = 0, "paragraph", ""
    for number, line in enumerate([*lines, ""], 1):
        stripped = line.strip()
        if fence:
            if stripped.startswith(fence) and not stripped.strip(fence[0]):
                fence = ""
            continue
        opening = re.match(r"(`{3,}|~{3,}|:{3,})", stripped)
        cells = stripped.startswith("|")
        item = re.match(r"(?:[-*+]|\d+\.)\s+", stripped)
        heading = stripped.startswith("#")
        if collected and (not stripped or opening or cells or item or heading):
            yield Block(start, kind, " ".join(collected))
            collected = []
        if opening:
            fence = opening[0]
        elif cells:
            if not re.fullmatch(r"[|\s:-]+", stripped):
                for cell in re.split(r"(?<!\\)\|", stripped.strip("|")):
                    yield Block(number, "cell", cell.strip())
        elif heading:
            yield Block(number, "heading", stripped.lstrip("# "))
        elif stripped and not re.match(r"</?\w+[^>]*>$|\[[\w-]+\]: ", stripped):
            if not collected:
                start, kind = number, "item" if item else "paragraph"
            collected.append(stripped[item.end() :] if item else stripped)


def plain(text: str) -> str:
    """Return Markdown without markup: a link becomes its text, code in backticks becomes one word."""
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)|<[^>]+>", " ", text)
    text = re.sub(r"``.+?``|`[^`]+`", "code", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"\*\*|__|(?<!\w)[*_]|[*_](?!\w)", "", text)


def sentences(text: str) -> list[str]:
    """Return the sentences of plain text; colons and semicolons do not end a sentence."""
    text = re.sub(r"\b(?:e\.g|i\.e|et al|vs|cf|Fig|Sec|no)\.", lambda match: match[0].replace(".", ""), text)
    return [part for part in re.split(r"(?<=[.!?])[)\"']*\s+(?=[\"'(\[]?[A-Z0-9]|code\b)", text) if part.strip()]


def words(text: str) -> list[str]:
    """Return the words of plain text."""
    return re.findall(r"[\w$%][\w.,:/'’%-]*", text)


def wrong_terms(text: str) -> Iterator[str]:
    """Yield the terms of a text that TERMS replaces, with the replacement."""
    for match in _TERMS.finditer(text):
        term = next(term for pattern, term in TERMS.items() if re.fullmatch(pattern, match[0], re.IGNORECASE))
        yield f"{match[0]!r}: write {term}"


def long_sentences(text: str) -> Iterator[str]:
    """Yield the sentences of plain text that are too long."""
    for sentence in sentences(text):
        if len(words(sentence)) > MAX_SENTENCE_WORDS:
            yield f"a sentence of {len(words(sentence))} words: {sentence[:60]}..."


def check_markdown(path: Path) -> list[Finding]:
    """Return the faults of a Markdown document."""
    name = str(path.relative_to(ROOT))
    text = path.read_text(encoding="utf-8")
    findings = []
    lengths = []
    for block in markdown_blocks(text):
        place = f"{name}:{block.line}"
        prose = plain(block.text)
        findings += [Finding(place, problem) for problem in wrong_terms(prose)]
        if block.kind == "cell":
            if len(words(prose)) > MAX_CELL_WORDS:
                findings.append(Finding(place, f"a table cell of {len(words(prose))} words: {prose[:60]}..."))
            continue
        if block.kind == "heading":
            if re.match(r"(?:what|how|when|where|why)\b", prose, re.IGNORECASE):
                findings.append(Finding(place, f"a heading that is a clause: {prose}"))
            continue
        findings += [Finding(place, problem) for problem in long_sentences(prose)]
        if block.kind == "paragraph":
            lengths += [len(words(sentence)) for sentence in sentences(prose)]
    if len(lengths) >= _MIN_SENTENCES_FOR_MEAN and sum(lengths) / len(lengths) > MAX_MEAN_WORDS:
        findings.append(Finding(name, f"mean sentence length {sum(lengths) / len(lengths):.1f} words"))
    findings += [Finding(f"{name}:{number}", f"{width} columns") for number, width in wide_lines(text)]
    return findings


def wide_lines(text: str) -> Iterator[tuple[int, int]]:
    """Yield number and width of the lines that are too wide, except tables, code, and a lone word, link or image."""
    fence = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            fence = not fence
        elif (
            not fence
            and len(line) > MAX_COLUMNS
            and not re.match(r"\s*(?:\||<|\S+$|(?:- )?!?\[[^\]]*\]\(\S+\)$)", line)
        ):
            yield number, len(line)


class _Strings(ast.NodeVisitor):
    """A visitor that collects docstrings, and other strings that read like messages: (line, kind, text)."""

    def __init__(self) -> None:
        self.found: list[tuple[int, str, str]] = []
        self._docstrings: set[ast.expr] = set()

    def generic_visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                self._docstrings.add(first.value)
        super().generic_visit(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        parts = [part.value if isinstance(part, ast.Constant) else "X" for part in node.values]
        self._add(node, "message", "".join(map(str, parts)))
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                self.visit(part.value)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str):
            self._add(node, "docstring" if node in self._docstrings else "message", node.value)

    def _add(self, node: ast.expr, kind: str, text: str) -> None:
        # A string without spaces is a name, a path or a pattern.
        if len(re.findall(r"[A-Za-z]{2,}", text)) >= 2 and " " in text:
            self.found.append((node.lineno, kind, text))


def check_python(path: Path) -> list[Finding]:
    """Return the faults of the strings, docstrings and comments of a Python file."""
    name = str(path.relative_to(ROOT))
    source = path.read_text(encoding="utf-8")
    visitor = _Strings()
    visitor.visit(ast.parse(source))
    findings = []
    for line, kind, text in visitor.found:
        prose = plain(re.sub(r"\s+", " ", text))
        problems = wrong_terms(prose)
        findings += [Finding(f"{name}:{line}", f"{kind}: {problem}") for problem in problems]
        if kind == "message" and _PROSE.search(prose) and not _DATA.search(text):
            findings += [Finding(f"{name}:{line}", f"{kind}: {problem}") for problem in long_sentences(prose)]
    for number, line in enumerate(source.splitlines(), 1):
        comment = re.match(r"\s*# (.*)|.*?\S  # (.*)", line)
        if comment and "noqa" not in line:
            prose = plain(comment[1] or comment[2] or "")
            findings += [Finding(f"{name}:{number}", f"comment: {problem}") for problem in wrong_terms(prose)]
    return findings


def check_help(name: str) -> list[Finding]:
    """Return the faults of the help of a command."""
    parser, module = cli.make_parser(name)
    place = f"beambert {name} --help"
    description = plain(" ".join((parser.description or "").split()))
    findings = [Finding(place, problem) for problem in (*wrong_terms(description), *long_sentences(description))]
    if re.match(r"[A-Z]\w*[^s]s\b|From|The|A\b", description):
        findings.append(Finding(place, f"the summary is not imperative: {description[:40]}..."))
    sections = parser.sections()
    findings += [
        Finding(place, f"a group of another name: {title}") for title in sections if title.split(": ")[0] not in GROUPS
    ]
    flags = [action for actions in sections.values() for action in actions]
    if not module.EXAMPLE:
        findings.append(Finding(place, "no example"))
    if len(flags) > 12 and not 5 <= len(module.COMMON_FLAGS) <= 8:
        findings.append(Finding(place, f"{len(module.COMMON_FLAGS)} common flags, not 5 to 8"))
    for action in flags:
        flag = action.option_strings[-1] if action.option_strings else str(action.metavar or action.dest)
        text = plain(" ".join((action.help or "").split()))
        findings += [Finding(f"{place} {flag}", problem) for problem in (*wrong_terms(text), *long_sentences(text))]
        if not re.match(r"[A-Z0-9\"'(\[.]|code\b|[a-z]\w*(?:[_.]\w+|:)", text):
            findings.append(Finding(f"{place} {flag}", f"help starts in lower case: {text[:40]}"))
        if re.search(r"[^.][.]$", text) and len(sentences(text)) == 1:
            findings.append(Finding(f"{place} {flag}", "help of one sentence ends with a period"))
    return findings


def documents() -> list[Path]:
    """Return the Markdown documents of the project."""
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def modules() -> list[Path]:
    """Return the Python files of the product."""
    folders = ("beambert", "tokenizer", "bert_model", "reporting", "pipelines", "trainers", "adaptation", "deploy")
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


def test_files() -> list[Path]:
    """Return the Python files of tests and benchmarks, without those that have examples of wrong terms."""
    paths = [path for folder in _TEST_FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    return [path for path in paths if path.name not in ("prose.py", "test_prose.py")]


def check_file(path: Path) -> list[Finding]:
    """Return the faults of a document or a Python file; the strings of tests may have any words."""
    if path.suffix == ".md":
        return check_markdown(path)
    findings = check_python(path)
    if path.relative_to(ROOT).parts[0] in _TEST_FOLDERS:
        return [finding for finding in findings if not finding.problem.startswith("message: ")]
    return findings


def main(names: list[str]) -> int:
    commands = [name for name in names or cli.COMMANDS if name in cli.COMMANDS]
    paths = [Path(name).resolve() for name in names if name not in commands]
    if not names:
        paths = [*documents(), *modules(), *test_files()]
    findings = [finding for path in paths for finding in check_file(path)]
    findings += [finding for name in commands for finding in check_help(name)]
    print(*findings, sep="\n")
    print(f"{len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
