"""Cases with hostile models of every format: links and paths to other files, huge shapes, nesting, escapes."""

from pathlib import Path
from random import Random

from tests.fuzz.base import Base
from tests.fuzz.case import Case
from tests.fuzz.mutations import any_splice, spliced
from tests.fuzz.process import Outcome
from tests.hostile_models import REFUSED, SECRET_CONTENT, TOLERATED, damage_model, replace_pickle, write_model

_CONVERT = (
    *("convert --to native {} out", "convert --to huggingface {} out", "convert --to tf1 {} out"),
    "convert --to native --optimizer keep {} out",
)
# These take seconds.
_SLOW = (
    "fill-mask {} [MASK] --top_k 40",
    "features --init_checkpoint {} --input_file lines.txt --output_file out.jsonl",
)
_SLOW_SHARE = 0.1
# Long enough not to occur by chance.
_PART_OF_SECRET = SECRET_CONTENT[:12]


def model(random: Random, base: Base, folder: Path) -> Case:
    """Return a case with a hostile model, or with one that has a corrupt file."""
    kind = random.choice(list(REFUSED))
    path = write_model(folder, kind)
    (folder / "lines.txt").write_text("a b\n", encoding="utf-8")
    template = random.choice(_SLOW if random.random() < _SLOW_SHARE else _CONVERT)
    argv = template.format(path.name).split()
    choice = random.random()
    if choice < 0.4:
        change = random.choice(list(REFUSED[kind][1]))
        damage_model(folder, kind, change)
        return Case(f"{kind}: {change}", argv, lambda outcome: "the model was not refused")
    if choice < 0.6:
        change = random.choice(list(TOLERATED))
        TOLERATED[change](random, folder, kind)
        return Case(f"{kind}: {change}", argv, _reveals)
    return Case(f"{kind}: {_splice(random, folder, kind)}", argv, _reveals)


def _splice(random: Random, folder: Path, kind: str) -> str:
    """Corrupt a file of the model; return a description."""
    names: list[str] = []

    def damage(content: bytes) -> bytes:
        name, splice = any_splice(random, content)
        names.append(name)
        return spliced(content, splice)

    if kind == "pickle" and random.random() < 0.5:
        replace_pickle(folder / "model", damage)
        return f"{names[0]} in data.pkl"
    files = sorted(path for path in (folder / "model").rglob("*") if path.is_file() and path.stat().st_size)
    path = folder / "model.zip" if kind == "archive" else random.choice(files)
    path.write_bytes(damage(path.read_bytes()))
    return f"{names[0]} in {path.name}"


def _reveals(outcome: Outcome) -> str | None:
    """Return a fault if the output contains the secret."""
    files = [path for path in outcome.folder.glob("out*") if path.is_file()]
    files += [path for path in (outcome.folder / "out").rglob("*") if path.is_file()]
    contents = [outcome.stdout.encode(), outcome.stderr.encode(), *(path.read_bytes() for path in files)]
    return "it reveals another file" if any(_PART_OF_SECRET in content for content in contents) else None
