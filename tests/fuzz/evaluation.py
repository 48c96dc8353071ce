"""Cases with corrupt files of minimal pairs, in every layout."""

import json
from pathlib import Path
from random import Random

from tests.fuzz.base import Base, document, place
from tests.fuzz.case import Case
from tests.fuzz.mutations import any_splice, mutated_json, spliced
from tests.fuzz.process import Outcome

_PAIRS = 6
_SENTENCES = [(document(number)[0], document(number)[-1]) for number in range(_PAIRS)]
_RECORDS = [
    json.dumps({"sentence_good": good, "sentence_bad": bad, "UID": f"p{number % 2}", "field": "syntax"})
    for number, (good, bad) in enumerate(_SENTENCES)
]
_FILES = {
    "pairs.jsonl": "".join(f"{record}\n" for record in _RECORDS),
    "pairs.txt": "".join(f"{bad}\n{good}\n" for good, bad in _SENTENCES),
    "pairs.tsv": "".join(f"{good}\t{bad}\tp{number % 2}\n" for number, (good, bad) in enumerate(_SENTENCES)),
}


def pair_file(random: Random, base: Base, folder: Path) -> Case:
    """Return a case with a corrupt file of minimal pairs."""
    place(base.artifact("native"), folder / "native")
    name = random.choice(list(_FILES))
    content = _FILES[name].encode()
    if name == "pairs.jsonl" and random.random() < 0.6:
        records = list(_RECORDS)
        number = random.randrange(_PAIRS)
        mutation = mutated_json(random, records[number])
        records[number] = mutation.text
        description, new = mutation.name, "".join(f"{record}\n" for record in records).encode("utf-8", "surrogatepass")
    else:
        description, splice = any_splice(random, content)
        new = spliced(content, splice)
    (folder / name).write_bytes(new)
    argv = ["evaluate", "native", "--pairs", name, "--output", "out.json"]
    return Case(f"{name}: {description}", argv, _wrong)


def _wrong(outcome: Outcome) -> str | None:
    scores = json.loads((outcome.folder / "out.json").read_text(encoding="utf-8"))["pairs"]
    listed = sum(paradigm["pairs"] for paradigm in scores["paradigms"])
    return None if 1 <= listed == scores["pairs"] else "the pairs of the paradigms are not all pairs"
