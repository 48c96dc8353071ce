"""Report the outcomes of cases: a table, the failures and a summary."""

from collections import Counter
from collections.abc import Sequence

from .case import Outcome


def table(outcomes: Sequence[Outcome]) -> str:
    """Return a table of the numbers of good cases and of all cases, by kind of disturbance and command.

    The number of cases whose command ended before the disturbance is in parentheses.
    """
    commands = sorted({outcome.case.command for outcome in outcomes})
    kinds = sorted({outcome.case.kind for outcome in outcomes})
    cells = {(kind, command): _cell(outcomes, kind, command) for kind in kinds for command in commands}
    rows = [["", *commands], *([kind, *(cells[kind, command] for command in commands)] for kind in kinds)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)


def _cell(outcomes: Sequence[Outcome], kind: str, command: str) -> str:
    chosen = [outcome for outcome in outcomes if (outcome.case.kind, outcome.case.command) == (kind, command)]
    if not chosen:
        return "."
    late = sum(not outcome.done for outcome in chosen)
    good = sum(not outcome.faults for outcome in chosen)
    return f"{good}/{len(chosen)}" + (f" ({late})" if late else "")


def failure(outcome: Outcome) -> str:
    """Return the lines that describe a failed case."""
    case = outcome.case
    lines = [f"{case.number}: {case.command}, {case.kind}: {outcome.done or 'nothing was done'}"]
    lines += [f"    {fault}" for fault in outcome.faults]
    lines.append(f"    exit code {outcome.code}, {outcome.ended:.1f} s after the disturbance; kept: {outcome.kept}")
    return "\n".join(lines)


def summary(outcomes: Sequence[Outcome]) -> str:
    """Return the last lines of the report."""
    late = sum(not outcome.done for outcome in outcomes)
    failed = sum(bool(outcome.faults) for outcome in outcomes)
    signaled = [
        outcome.ended for outcome in outcomes if outcome.case.kind.startswith(("terminate", "interrupt", "hang"))
    ]
    lines = [f"{len(outcomes)} cases; nothing was done in {late}, the command ended first; {failed} failed"]
    if signaled:
        lines.append(f"longest time from a signal to the end: {max(signaled):.1f} s")
    runs = Counter(outcome.runs for outcome in outcomes)
    lines.append("runs until success: " + ", ".join(f"{number}: {count}" for number, count in sorted(runs.items())))
    return "\n".join(lines)
