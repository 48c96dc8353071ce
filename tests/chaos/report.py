"""Report the outcomes of cases: the failures and a summary."""

from collections import Counter
from collections.abc import Sequence

from .case import Outcome


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
