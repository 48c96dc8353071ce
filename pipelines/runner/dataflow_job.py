"""One job on Dataflow: submission, progress, cancellation."""

import dataclasses
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions
from apache_beam.runners.dataflow.dataflow_runner import DataflowRunner
from apache_beam.runners.dataflow.internal.apiclient import DataflowJobAlreadyExistsError
from google.api_core.exceptions import GoogleAPICallError
from google.auth.exceptions import GoogleAuthError

from beambert_common.signals import interrupted_by_signals
from pipelines.errors import SubmitError

# The first looks come soon, for whoever made a mistake; a job of hours needs few.
_FIRST_SECONDS = 1.0
_MOST_SECONDS = 15.0
_SECONDS_BETWEEN_COUNTS = 30.0
# The reason of a failure is told up to this long after the failure.
_SECONDS_FOR_THE_REASON = 60.0
_SECONDS_TO_CANCEL = 300.0
# Looks that fail one after the other: the network, or credentials that have run out.
_FAILED_LOOKS = 40
_OVER = ("JOB_STATE_DONE", "JOB_STATE_FAILED", "JOB_STATE_CANCELLED", "JOB_STATE_UPDATED", "JOB_STATE_DRAINED")
# What the service itself measures, by its names, and how it is told: word, unit it comes in, factor.
_SERVICE = {
    "CurrentVcpuCount": ("{:,.0f} vCPUs", 1.0),
    "TotalVcpuTime": ("{:,.2f} vCPU hours", 1 / 3600),
    "TotalMemoryUsage": ("{:,.1f} GB hours of memory", 1 / 1024 / 3600),
    "TotalShuffleDataProcessed": ("{:,.2f} GB shuffled", 1.0),
}


@dataclasses.dataclass(frozen=True)
class _Job:
    """A job that runs, and whom to ask about it."""

    client: Any
    id: str
    project: str
    region: str

    @property
    def url(self) -> str:
        return f"https://console.cloud.google.com/dataflow/jobs/{self.region}/{self.id}?project={self.project}"

    @property
    def how_to_cancel(self) -> str:
        return f"gcloud dataflow jobs cancel {self.id} --project={self.project} --region={self.region}"


def run(build: Callable[[beam.Pipeline], None], options: PipelineOptions) -> None:
    """Submit a job, report its progress until it ends, and cancel it when this process gets a signal to end.

    Args:
        build: adds the steps to a pipeline.
        options: the options of Beam.

    Raises:
        SubmitError: the service rejects the job, the job fails, or it is canceled elsewhere. The last line of the
            job's error has a line of its own.
    """
    runner = DataflowRunner()
    cloud = options.view_as(GoogleCloudOptions)
    try:
        pipeline = beam.Pipeline(runner=runner, options=options)
        build(pipeline)
        result = pipeline.run()
    except DataflowJobAlreadyExistsError as error:
        raise SubmitError(_duplicate_job_message(cloud)) from error
    except (GoogleAPICallError, GoogleAuthError) as error:
        raise refusal(error, cloud) from error
    if not result.has_job:
        # It was written down as a template; somebody else submits it.
        return
    job = _Job(runner.dataflow_client, result.job_id(), cloud.project, cloud.region)
    print(f"Job {job.id}: {job.url}", flush=True)
    with interrupted_by_signals():
        try:
            _watch(job)
        except KeyboardInterrupt:
            _cancel(job)
            raise


def _duplicate_job_message(cloud: GoogleCloudOptions) -> str:
    return (
        f"Dataflow runs a job named {cloud.job_name} already, which is what another run for the same --output is "
        f"called; wait for it, or find and cancel it: gcloud dataflow jobs list --status=active "
        f"--project={cloud.project} --region={cloud.region}"
    )


def refusal(error: Exception, cloud: GoogleCloudOptions) -> SubmitError:
    """Return the error of this package for an error of Google's libraries, with a remedy."""
    if isinstance(error, GoogleAuthError):
        return SubmitError(f"Google takes these credentials no longer ({error}); gcloud auth application-default login")
    code = getattr(error, "code", None)
    ways_out = {
        400: "mend the flag that it names",
        401: "run `gcloud auth application-default login`",
        403: "docs/SECURITY.md lists the roles that you and the workers' service account need, and the APIs to enable",
        404: f"check --project {cloud.project}, --region {cloud.region} and the names of the buckets",
        429: "a quota is spent: wait, or ask for more of it",
    }
    if code == 409:
        return SubmitError(_duplicate_job_message(cloud))
    return SubmitError(f"Google Cloud refuses ({error}); {ways_out.get(code or 0, 'run the same again later')}")


def _watch(job: _Job) -> None:
    """Report the progress of a job until it is done. Raise SubmitError if it does not succeed."""
    state, since, wait, counted, failed = "", time.monotonic(), _FIRST_SECONDS, time.monotonic(), 0
    errors: list[str] = []
    messages = _Messages(job)
    while True:
        try:
            now = job.client.get_job(job.id).current_state.name
            if now != state:
                state = now
                print(f"Job {job.id}: {_words(state)}", flush=True)
            errors += messages.tell()
            if state in _OVER or time.monotonic() - counted > _SECONDS_BETWEEN_COUNTS:
                counted = time.monotonic()
                _print_counts(job)
            failed = 0
        except (GoogleAPICallError, GoogleAuthError, OSError) as error:
            failed += 1
            if failed == _FAILED_LOOKS:
                raise SubmitError(
                    f"Dataflow cannot be asked about job {job.id} any more ({error}), which goes on; see {job.url}, "
                    "and when it is done run the same again for what comes after it"
                ) from error
        if state in _OVER:
            break
        time.sleep(wait)
        wait = min(wait * 1.5, _MOST_SECONDS)
    if state == "JOB_STATE_DONE":
        print(f"Job {job.id}: took {(time.monotonic() - since) / 60:.1f} min with its start", flush=True)
        return
    if state == "JOB_STATE_CANCELLED":
        raise SubmitError(f"job {job.id} was cancelled; run the same again to go on from what is finished")
    deadline = time.monotonic() + _SECONDS_FOR_THE_REASON
    while not errors and time.monotonic() < deadline:
        time.sleep(_FIRST_SECONDS)
        with suppress(GoogleAPICallError, GoogleAuthError, OSError):
            errors += messages.tell()
    raise SubmitError(f"job {job.id} failed, {job.url} has its log. It said:\n{_reason(errors)}")


def _reason(errors: list[str]) -> str:
    """Return the end of the most useful error: one with a traceback, else the last."""
    candidates = [error for error in errors if "Traceback" in error] or errors or ["nothing"]
    return _last_line(candidates[-1])


def _last_line(text: str) -> str:
    """Return a message, or the last line (the exception) of one with a traceback; the job's log has the rest."""
    lines = [line for line in text.splitlines() if line.strip()]
    return "\n".join(lines[-1:] if "Traceback" in text else lines)


def _words(state: str) -> str:
    return state.removeprefix("JOB_STATE_").replace("_", " ").lower()


class _Messages:
    """What the service says of a job, each message told once."""

    def __init__(self, job: _Job) -> None:
        self._job = job
        self._latest: Any = None
        self._seen: set[str] = set()

    def tell(self) -> list[str]:
        """Print warnings and errors that are new; return the errors."""
        errors = []
        page = None
        while True:
            messages, page = self._job.client.list_messages(self._job.id, start_time=self._latest, page_token=page)
            for message in messages:
                if message.id in self._seen:
                    continue
                new = message.message_text not in self._seen
                # Of a bundle that fails four times, the service tells four times.
                self._seen |= {message.id, message.message_text}
                self._latest = max(filter(None, (self._latest, message.time)), default=None)
                kind = message.message_importance.name.removeprefix("JOB_MESSAGE_")
                if kind == "ERROR":
                    errors.append(message.message_text)
                if new and kind in ("ERROR", "WARNING"):
                    print(f"Dataflow: {kind.lower()}: {_last_line(message.message_text)}", file=sys.stderr, flush=True)
            if not page:
                return errors


def _print_counts(job: _Job) -> None:
    text = describe_metrics(job.client.get_job_metrics(job.id).metrics)
    if text:
        print(f"Job {job.id}: {text}", flush=True)


def describe_metrics(metrics: Any) -> str:
    """Return our counters, then the service's metrics; attempted work, where reported, may count work twice.

    Args:
        metrics: `google.cloud.dataflow_v1beta3.MetricUpdate`s.
    """
    counters: dict[str, float] = {}
    service: dict[str, float] = {}
    for metric in sorted(metrics, key=lambda metric: metric.name.context.get("tentative", "")):
        context, value = metric.name.context, metric.scalar
        if not isinstance(value, int | float):
            continue
        if metric.name.origin == "user" and context.get("namespace") == "beambert":
            # Sorted so that of the committed and the attempted value the attempted comes last.
            counters[metric.name.name] = value
        elif metric.name.origin == "dataflow/v1b3" and metric.name.name in _SERVICE:
            service[metric.name.name] = value
    parts = [f"{value:,.0f} {name.replace('_', ' ')}" for name, value in sorted(counters.items())]
    parts += [text.format(service[name] * factor) for name, (text, factor) in _SERVICE.items() if name in service]
    return ", ".join(parts)


def _cancel(job: _Job) -> None:
    """Cancel a job and wait until its workers are gone; a second interrupt ends the wait."""
    print(f"\nCancelling job {job.id}; if this process is stopped before it says so: {job.how_to_cancel}", flush=True)
    try:
        job.client.modify_job_state(job.id, "JOB_STATE_CANCELLED")
        deadline = time.monotonic() + _SECONDS_TO_CANCEL
        while time.monotonic() < deadline:
            if job.client.get_job(job.id).current_state.name in _OVER:
                print(f"Job {job.id}: cancelled", flush=True)
                return
            time.sleep(_FIRST_SECONDS)
    except (GoogleAPICallError, GoogleAuthError, OSError) as error:
        print(f"Cancelling failed ({error})", file=sys.stderr)
    print(f"Job {job.id} has not ended yet: {job.how_to_cancel}", file=sys.stderr, flush=True)
