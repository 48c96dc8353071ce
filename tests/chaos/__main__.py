"""Disturb every command that writes, and compare its final output with that of an undisturbed run."""

import argparse
import concurrent.futures
import os
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path

from . import disks, report
from .case import CASE_NAME, Case, Outcome, Reference, cases_of, complete_round, run_case, run_reference
from .commands import BY_NAME, COMMANDS, required


def main(argv: list[str] | None = None) -> int:
    """Run the cases; return 1 if one of them failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--disturbances", type=int, help="number of cases (default: every kind of every command once)")
    parser.add_argument("--seed", type=int, default=1, help="draws commands, disturbances and moments (default: 1)")
    parser.add_argument("--first", type=int, default=0, help="number of the first case; reproduces one (default: 0)")
    parser.add_argument("--only", nargs="+", choices=list(BY_NAME), metavar="COMMAND", help="commands to disturb")
    parser.add_argument("--kinds", nargs="+", metavar="KIND", help="run the cases of these kinds of disturbance alone")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="cases at the same time")
    parser.add_argument("--directory", type=Path, help="where failed cases are kept (default: a new one)")
    args = parser.parse_args(argv)
    directory = (args.directory or Path(tempfile.mkdtemp(prefix="beambert-chaos-"))).resolve()
    names = args.only or [command.name for command in COMMANDS]
    cases = cases_of(names, args.seed, args.first, args.disturbances or complete_round(names))
    cases = [case for case in cases if not args.kinds or case.kind in args.kinds]
    if not disks.can_mount():
        print("mounting is not allowed: no full or read-only disks, only RLIMIT_FSIZE", flush=True)
    started = time.monotonic()
    with concurrent.futures.ProcessPoolExecutor(args.jobs) as pool:
        slots = [
            pool.submit(
                _run_slot, [case for case in cases if case.command in names[n :: args.jobs]], directory / f"slot-{n}"
            )
            for n in range(args.jobs)
        ]
        outcomes = [outcome for slot in slots for outcome in slot.result()]
    outcomes.sort(key=lambda outcome: outcome.case.number)
    failed = [outcome for outcome in outcomes if outcome.faults]
    only = f" --only {' '.join(args.only)}" if args.only else ""
    for outcome in failed:
        print(f"\n{report.failure(outcome)}")
        print(f"    python -m tests.chaos --seed {args.seed} --first {outcome.case.number} --disturbances 1{only}")
    print(f"\n{report.summary(outcomes)}\n{time.monotonic() - started:.0f} s")
    if not failed and args.directory is None:
        shutil.rmtree(directory)
    return 1 if failed else 0


def _run_slot(cases: list[Case], slot: Path) -> list[Outcome]:
    """Run cases one after another; the directories of those that fail are kept in the slot."""
    slot.mkdir(parents=True)
    references: dict[str, Reference] = {}
    outcomes = []
    for case in cases:
        for command in required([case.command]):
            if command.name not in references:
                references[command.name] = run_reference(command, slot)
                print(f"{command.name}: {references[command.name].seconds:.1f} s undisturbed", flush=True)
        try:
            outcome = run_case(case, slot, references[case.command])
        except Exception:
            # A case that the harness cannot handle must not end the others.
            outcome = Outcome(case, faults=[f"a fault of the harness:\n{traceback.format_exc()}"])
        outcomes.append(outcome)
        if outcome.faults:
            outcome.kept = slot / f"{case.number:05d}-{case.command}-{case.kind}"
            (slot / CASE_NAME).rename(outcome.kept)
            print(report.failure(outcome), flush=True)
        else:
            shutil.rmtree(slot / CASE_NAME)
            done = outcome.done or "nothing done"
            print(f"{case.number}: {case.command}, {case.kind}: good; {done}, {outcome.runs} run(s)", flush=True)
    return outcomes


if __name__ == "__main__":
    sys.exit(main())
