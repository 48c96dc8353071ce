"""Submit a job to Dataflow, report its progress, and cancel it on a signal."""

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

from beambert.common.formatting import format_duration
from beambert.common.signals import interrupted_by_signals
from beambert.common.terminal import lossy_stdout
from beambert.pipelines.errors import SubmitError

# Polling starts fast, so that mistakes show early, and slows down for long jobs.
_FIRST_SECONDS = 1.0
_MOST_SECONDS = 15.0
_SECONDS_BETWEEN_COUNTS = 30.0
# The service reports the reason of a failure up to this long after the failure.
_SECONDS_FOR_THE_REASON = 60.0
_SECONDS_TO_CANCEL = 300.0
# Consecutive polls that may fail, because of the network or expired credentials.
_MAX_FAILED_POLLS = 40
_FINAL_STATES = ("JOB_STATE_DONE", "JOB_STATE_FAILED", "JOB_STATE_CANCELLED", "JOB_STATE_UPDATED", "JOB_STATE_DRAINED")
# Metrics of the service by name: format of the printed value, and factor from the unit of the service.
_SERVICE_METRICS = {
    "CurrentVcpuCount": ("{:,.0f} vCPUs", 1.0),
    "TotalVcpuTime": ("{:,.2f} vCPU hours", 1 / 3600),
    "TotalMemoryUsage": ("{:,.1f} GB hours of memory", 1 / 1024 / 3600),
    "TotalShuffleDataProcessed": ("{:,.2f} GB shuffled", 1.0),
}


@dataclasses.dataclass(frozen=True)
class _Job:
    """A submitted job, and the client that reports its state."""

    client: Any
    id: str
    project: str
    region: str

    @property
    def url(self) -> str:
        return f"https://console.cloud.google.com/dataflow/jobs/{self.region}/{self.id}?project={self.project}"

    @property
    def cancel_command(self) -> str:
        return f"gcloud dataflow jobs cancel {self.id} --project={self.project} --region={self.region}"


def run(build: Callable[[beam.Pipeline], None], options: PipelineOptions) -> None:
    """Submit a job, report its progress until it ends, and cancel it if this process receives a signal to end.

    Args:
        build: Adds the steps to a pipeline.
        options: Beam's options.

    Raises:
        SubmitError: The service rejects the job, the job fails, or it is canceled elsewhere. The last line of the
            job's error is on a separate line.
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
        # --template_location wrote a template instead of submitting a job.
        return
    job = _Job(runner.dataflow_client, result.job_id(), cloud.project, cloud.region)
    print(f"Job {job.id}: {job.url}", flush=True)
    with interrupted_by_signals():
        try:
            _monitor(job)
        except KeyboardInterrupt:
            # The terminal may be closed.
            with lossy_stdout():
                _cancel(job)
            raise


def _duplicate_job_message(cloud: GoogleCloudOptions) -> str:
    return (
        f"Dataflow already runs a job named {cloud.job_name}, the name of jobs with the same --output; wait for it, or "
        f"find and cancel it: gcloud dataflow jobs list --status=active --project={cloud.project} "
        f"--region={cloud.region}"
    )


def refusal(error: Exception, cloud: GoogleCloudOptions) -> SubmitError:
    """Return a SubmitError with a remedy for an error of Google's libraries."""
    if isinstance(error, GoogleAuthError):
        return SubmitError(f"Google rejects the credentials ({error}); run gcloud auth application-default login")
    code = getattr(error, "code", None)
    remedies = {
        400: "correct the flag that the message names",
        401: "run gcloud auth application-default login",
        403: "see docs/reference/cloud-permissions.md for the roles and APIs that the job needs",
        404: f"check --project {cloud.project}, --region {cloud.region} and the names of the buckets",
        429: "a quota is exhausted: wait, or request an increase",
    }
    if code == 409:
        return SubmitError(_duplicate_job_message(cloud))
    return SubmitError(
        f"Google Cloud rejects the request ({error}); {remedies.get(code or 0, 'run the same command again later')}"
    )


def _monitor(job: _Job) -> None:
    """Report the progress of a job until it is done. Raise SubmitError if it does not succeed."""
    state, start, wait, last_counts, failed = "", time.monotonic(), _FIRST_SECONDS, time.monotonic(), 0
    errors: list[str] = []
    seen: set[str] = set()
    while True:
        try:
            current = job.client.get_job(job.id).current_state.name
            if current != state:
                state = current
                name = state.removeprefix("JOB_STATE_").replace("_", " ").lower()
                print(f"Job {job.id}: {name}", flush=True)
            errors += _print_messages(job, seen)
            if state in _FINAL_STATES or time.monotonic() - last_counts > _SECONDS_BETWEEN_COUNTS:
                last_counts = time.monotonic()
                if counts := describe_metrics(job.client.get_job_metrics(job.id).metrics):
                    print(f"Job {job.id}: {counts}", flush=True)
            failed = 0
        except (GoogleAPICallError, GoogleAuthError, OSError) as error:
            failed += 1
            if failed == _MAX_FAILED_POLLS:
                raise SubmitError(
                    f"the state of job {job.id} cannot be read any longer ({error}), but the job continues; see "
                    f"{job.url}, and run the same command again when it is done"
                ) from error
        if state in _FINAL_STATES:
            break
        time.sleep(wait)
        wait = min(wait * 1.5, _MOST_SECONDS)
    if state == "JOB_STATE_DONE":
        print(f"Job {job.id}: took {format_duration(time.monotonic() - start)}, startup included", flush=True)
        return
    if state == "JOB_STATE_CANCELLED":
        raise SubmitError(f"job {job.id} was canceled; run the same command again to resume")
    deadline = time.monotonic() + _SECONDS_FOR_THE_REASON
    while not errors and time.monotonic() < deadline:
        time.sleep(_FIRST_SECONDS)
        with suppress(GoogleAPICallError, GoogleAuthError, OSError):
            errors += _print_messages(job, seen)
    raise SubmitError(f"job {job.id} failed (log: {job.url}); error:\n{_reason(errors)}")


def _reason(errors: list[str]) -> str:
    """Return the end of the most useful error: one with a traceback, else the last."""
    return _last_line(([error for error in errors if "Traceback" in error] or errors or ["no message"])[-1])


def _last_line(text: str) -> str:
    """Return a message, or only the exception of one with a traceback; the job's log has the traceback."""
    lines = [line for line in text.splitlines() if line.strip()]
    return "\n".join(lines[-1:] if "Traceback" in text else lines)


def _print_messages(job: _Job, seen: set[str]) -> list[str]:
    """Print the warnings and errors of the service that are not in `seen`, and return the errors.

    The service repeats the message of a bundle at each of its four attempts.
    """
    errors = []
    page = None
    while True:
        messages, page = job.client.list_messages(job.id, page_token=page)
        for message in messages:
            text, kind = message.message_text, message.message_importance.name.removeprefix("JOB_MESSAGE_")
            if text in seen or kind not in ("ERROR", "WARNING"):
                continue
            seen.add(text)
            if kind == "ERROR":
                errors.append(text)
            print(f"Dataflow: {kind.lower()}: {_last_line(text)}", file=sys.stderr, flush=True)
        if not page:
            return errors


def describe_metrics(metrics: Any) -> str:
    """Return beambert's counters and the service's metrics as text.

    Attempted values, used where the service reports them, may count work twice.

    Args:
        metrics: A list of `google.cloud.dataflow_v1beta3.MetricUpdate`.
    """
    counters: dict[str, float] = {}
    service: dict[str, float] = {}
    for metric in sorted(metrics, key=lambda metric: metric.name.context.get("tentative", "")):
        context, value = metric.name.context, metric.scalar
        if not isinstance(value, int | float):
            continue
        if metric.name.origin == "user" and context.get("namespace") == "beambert":
            # The attempted value is sorted after the committed one, and replaces it.
            counters[metric.name.name] = value
        elif metric.name.origin == "dataflow/v1b3" and metric.name.name in _SERVICE_METRICS:
            service[metric.name.name] = value
    parts = [f"{value:,.0f} {name.replace('_', ' ')}" for name, value in sorted(counters.items())]
    parts += [
        text.format(service[name] * factor) for name, (text, factor) in _SERVICE_METRICS.items() if name in service
    ]
    return ", ".join(parts)


def _cancel(job: _Job) -> None:
    """Cancel a job and wait until its workers have stopped; a second interrupt ends the wait."""
    print(f"\nCanceling job {job.id}; if this does not finish, run {job.cancel_command}", flush=True)
    try:
        job.client.modify_job_state(job.id, "JOB_STATE_CANCELLED")
        deadline = time.monotonic() + _SECONDS_TO_CANCEL
        while time.monotonic() < deadline:
            if job.client.get_job(job.id).current_state.name in _FINAL_STATES:
                print(f"Job {job.id}: canceled", flush=True)
                return
            time.sleep(_FIRST_SECONDS)
    except (GoogleAPICallError, GoogleAuthError, OSError) as error:
        print(f"canceling failed ({error})", file=sys.stderr)
    print(f"Job {job.id} has not ended yet; run {job.cancel_command}", file=sys.stderr, flush=True)
