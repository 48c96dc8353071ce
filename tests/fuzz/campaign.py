"""Draw cases from a seed, run them in parallel, and report those that fail."""

import collections
import dataclasses
import shutil
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random

from tests.fuzz import evaluation, finetuning, flags, inputs, models, stored
from tests.fuzz.base import Base
from tests.fuzz.case import Case, judge
from tests.fuzz.process import Child, preload

# By subject, its share of the cases and the function that draws a case.
_SUBJECTS: dict[str, tuple[float, Callable[[Random, Base, Path], Case]]] = {
    "flags": (0.32, flags.flag),
    "text": (0.12, inputs.text),
    "records": (0.02, inputs.record),
    "long lines": (0.05, inputs.long_line),
    "compressed": (0.06, inputs.compressed),
    "crawls": (0.03, inputs.crawl),
    "quality models": (0.02, inputs.quality_model),
    "parquet": (0.05, inputs.parquet),
    "manifests": (0.16, stored.manifest),
    "corpus shards": (0.03, stored.corpus_shard),
    "shards": (0.05, stored.shard),
    "checkpoints": (0.04, stored.checkpoint),
    "models": (0.04, models.model),
    "vocabularies": (0.03, stored.vocabulary),
    "fine-tuning": (0.02, finetuning.task_file),
    "evaluation": (0.01, evaluation.pair_file),
}


@dataclasses.dataclass(frozen=True)
class Failure:
    """A failed case: its number, its subject, the case, the kind of the failure, and the details."""

    number: int
    subject: str
    case: Case
    kind: str
    details: str


def run(folder: Path, seed: int, numbers: Iterable[int], jobs: int, subject: str | None = None) -> list[Failure]:
    """Run cases, print a summary, and return the failures.

    Args:
        folder: created if missing; the folders of failed cases stay in it.
        seed, numbers: seed and numbers of the cases, which determine them.
        jobs: number of commands at once.
        subject: the subject of all cases; None draws it for each case.
    """
    started = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    preload()
    base = Base(folder / "base")
    waiting = iter(numbers)
    running: dict[int, tuple[int, str, Case, Child]] = {}
    failures: list[Failure] = []
    counts: collections.Counter[tuple[str, str]] = collections.Counter()
    while True:
        while len(running) < jobs and (number := next(waiting, None)) is not None:
            name, case = draw(seed, number, base, folder / f"case-{number}", subject)
            child = Child(case.argv, folder / f"case-{number}")
            running[child.pid] = (number, name, case, child)
        if not running:
            break
        time.sleep(0.003)
        for pid, (number, name, case, child) in list(running.items()):
            outcome = child.poll()
            if outcome is None:
                continue
            del running[pid]
            found = judge(case, outcome)
            counts[name, found[0] if found else "success" if outcome.code == 0 else "error"] += 1
            if found:
                failures.append(Failure(number, name, case, *found))
                print(f"{found[0]}: case {number} ({name}) {case.description}\n    {' '.join(case.argv)}"[:400])
                print(f"    {found[1]!r}", flush=True)
            else:
                shutil.rmtree(child.folder)
    if changed := base.changed():
        failures.append(Failure(-1, "inputs", Case("kept", [], lambda _: None), "changed input", ", ".join(changed)))
    _report(counts, failures, time.monotonic() - started, seed, folder)
    return failures


def draw(seed: int, number: int, base: Base, folder: Path, subject: str | None = None) -> tuple[str, Case]:
    """Prepare the folder of a case; return its subject and the case, which seed and number determine."""
    random = Random(f"{seed} {number}")
    names = list(_SUBJECTS)
    name = random.choices(names, [share for share, _ in _SUBJECTS.values()])[0]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    name = subject or name
    return name, _SUBJECTS[name][1](random, base, folder)


def _report(
    counts: collections.Counter[tuple[str, str]], failures: list[Failure], seconds: float, seed: int, folder: Path
) -> None:
    kinds = ("success", "error", "traceback", "hang", "crash", "wrong success", "unhelpful error", "escape")
    print(f"\n{'':<16}" + "".join(f"{kind:>17}" for kind in kinds))
    for subject in sorted({subject for subject, _ in counts}):
        print(f"{subject:<16}" + "".join(f"{counts[subject, kind]:>17}" for kind in kinds))
    print(f"{'all':<16}" + "".join(f"{sum(n for (_, k), n in counts.items() if k == kind):>17}" for kind in kinds))
    print(f"{sum(counts.values())} cases of seed {seed} in {seconds:.0f} s, {len(failures)} failures; folder {folder}")
