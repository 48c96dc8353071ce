"""Report the progress of a data job: by the counts of local workers, or by the files that a cluster has written."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import NamedTuple

from apache_beam.io.filesystem import BeamIOError

from beambert.common.progress import Progress
from beambert.pipelines.io.atomic_files import list_files
from beambert.pipelines.io.live_counts import LiveCounts, collect_counts

_SECONDS_BETWEEN_POLLS = 0.5
# A listing costs one or more requests.
_SECONDS_BETWEEN_LISTINGS = 5.0
_UNITS = ((9, "GB"), (6, "MB"), (3, "kB"), (0, "bytes"))


class Stage(NamedTuple):
    """A stage of a job.

    Attributes:
        label: Name of the stage, as printed.
        read_bytes: Bytes of the input that the stage reads.
        items: Plural noun for what it counts, such as "documents".
        write_cost: Time of writing as a fraction of the time of reading.
        shards: Names of the files that it writes, shards or their markers; each is one unit of work.
    """

    label: str
    read_bytes: float
    items: str
    write_cost: float = 0.0
    shards: Sequence[str] = ()


# The finished fraction of a stage, and the parts of its progress line.
_Measurement = tuple[float, list[str]]


@contextmanager
def report_progress(stage: Stage, pattern: str = "") -> Iterator[None]:
    """Show the progress of a stage while the body runs.

    Args:
        stage: The stage.
        pattern: Directory and name pattern of the shards, as for `list_files`, for a job on a cluster; "" for a job on
            this machine, whose workers are counted.
    """
    with ExitStack() as stack:
        if pattern:
            measure, seconds = _written_shards(stage, pattern), _SECONDS_BETWEEN_LISTINGS
        else:
            measure, seconds = _counted_work(stage, stack.enter_context(collect_counts())), _SECONDS_BETWEEN_POLLS
        progress = stack.enter_context(Progress(1.0))
        stop = threading.Event()

        def poll() -> None:
            while not stop.wait(seconds):
                progress.update(*measure())

        thread = threading.Thread(target=poll, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
        progress.update(1.0, measure()[1])


def _counted_work(stage: Stage, counts: LiveCounts) -> Callable[[], _Measurement]:
    """Return a function that measures a stage by the counts of its workers."""
    start = time.monotonic()

    def measure() -> _Measurement:
        reading, writing = counts.read()
        read, written = reading.work / max(stage.read_bytes, 1), writing.work / max(len(stage.shards), 1)
        fraction = (read + stage.write_cost * written) / (1 + stage.write_cost)
        work = sizes(reading.work, stage.read_bytes)
        if read >= 1 and stage.write_cost:
            work = f"{writing.work:,.0f} of {len(stage.shards):,} shards"
        parts = [f"{stage.label} {work}", f"{reading.items:,} {stage.items}"]
        if reading.items:
            parts.append(f"{reading.items / max(time.monotonic() - start, 1e-9):,.0f} {stage.items}/s")
        return fraction, parts

    return measure


def _written_shards(stage: Stage, pattern: str) -> Callable[[], _Measurement]:
    """Return a function that measures a stage by the shards that exist."""
    names, written = frozenset(stage.shards), set[str]()

    def measure() -> _Measurement:
        # After an error, the next listing includes the files.
        with suppress(BeamIOError, OSError):
            written.update(names.intersection(file.path.rsplit("/", 1)[-1] for file in list_files(pattern)))
        return len(written) / max(len(names), 1), [f"{stage.label} {len(written):,} of {len(names):,} shards"]

    return measure


def sizes(done: float, total: float) -> str:
    """Return two sizes in bytes in the unit of the larger one, such as "0.4 of 12.5 MB"."""
    power, unit = next((power, unit) for power, unit in _UNITS if total >= 10**power or not power)
    form = ",.1f" if power and total < 100 * 10**power else ",.0f"
    return f"{min(done, total) / 10**power:{form}} of {total / 10**power:{form}} {unit}"
