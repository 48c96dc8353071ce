"""The jobs of a Flink cluster while a command runs: print their states, and cancel them if the command is stopped."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from beambert.pipelines.errors import SubmitError
from beambert.pipelines.runner.flink_rest import FINAL, FlinkCluster

# Idle timeout of Python workers.
MILLISECONDS_IDLE = 5_000
_POLL_SECONDS = 1.0
_SECONDS_TO_CANCEL = 30.0


@contextmanager
def monitored_jobs(cluster: FlinkCluster, name: str, *, keeps_workers: bool) -> Iterator[None]:
    """Print each change of state of the jobs while the body runs, and cancel them if the body raises.

    Args:
        cluster: the cluster.
        name: job name; jobs with this name that exist before are not printed.
        keeps_workers: whether idle workers wait for `MILLISECONDS_IDLE`.
    """
    before = {job["jid"] for job in cluster.jobs(name)}
    over = threading.Event()
    thread = threading.Thread(target=print_states, args=(cluster, name, before, over), daemon=True)
    thread.start()
    try:
        yield
    except BaseException:
        over.set()
        if _cancel(cluster, name) and keeps_workers:
            # The workers finish their bundles and end after the idle timeout.
            time.sleep(MILLISECONDS_IDLE / 1000 + 1)
        raise
    finally:
        over.set()
        thread.join(_SECONDS_TO_CANCEL)


def print_states(cluster: FlinkCluster, name: str, before: set[str], over: threading.Event) -> None:
    """Print each change of state of the jobs until an event is set.

    Args:
        cluster: the cluster.
        name: job name.
        before: IDs of jobs that are not printed.
        over: the event.
    """
    states: dict[str, str] = {}
    while not over.wait(_POLL_SECONDS):
        # The JobManager may be unreachable for a moment.
        with suppress(SubmitError):
            for job in cluster.jobs(name):
                jid, state = job["jid"], job["state"]
                if jid in before or states.get(jid) == state:
                    continue
                states[jid] = state
                reason = cluster.reason(jid) if state in ("RESTARTING", "FAILING", "FAILED") else ""
                dashboard = "" if state in FINAL else f", {cluster.url}/#/job/running/{jid}"
                print(f"Flink: {state}{f' ({reason[:200]})' if reason else ''}{dashboard}", file=sys.stderr, flush=True)


def _cancel(cluster: FlinkCluster, name: str) -> bool:
    """Cancel the running jobs, wait until they end, and return whether any was running."""
    deadline = time.monotonic() + _SECONDS_TO_CANCEL
    canceled: set[str] = set()
    try:
        while running := [job["jid"] for job in cluster.jobs(name) if job["state"] not in FINAL]:
            for jid in running:
                if jid not in canceled:
                    canceled.add(jid)
                    cluster.cancel(jid)
                    print(f"Flink: canceling {jid}", file=sys.stderr, flush=True)
            if time.monotonic() > deadline:
                print(
                    f"Flink: job {running[0]} was not canceled within {_SECONDS_TO_CANCEL:g} s; check {cluster.url}",
                    file=sys.stderr,
                )
                break
            time.sleep(0.3)
    except SubmitError as error:
        print(f"Flink: the job could not be canceled: {error}", file=sys.stderr)
    return bool(canceled)
