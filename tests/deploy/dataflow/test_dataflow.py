"""Test `beambert submit dataflow` against a stand-in for Google Cloud that runs the staged files."""

import dataclasses
import hashlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from apache_beam.options.pipeline_options import GoogleCloudOptions
from google.api_core import exceptions
from google.cloud import dataflow
from google.protobuf import json_format

from beambert import cli
from beambert.common.imports import is_installed
from beambert.deploy.dataflow import flags as dataflow_flags
from beambert.deploy.dataflow import jobs, launcher, workers
from beambert.deploy.dataflow import options as dataflow_options
from beambert.deploy.dataflow.workers import choose_machine_type
from beambert.pipelines.errors import OutputFileError, SubmitError
from beambert.pipelines.runner import dataflow_job
from beambert.pipelines.runner.memory import peak_memory
from tests.conftest import SMALL
from tests.deploy.dataflow.gcp_stand_in import BUCKET, PROJECT, REGION, stand_in

TEXT = f"gs://{BUCKET}/text/*.jsonl"


@pytest.fixture(scope="module")
def cloud(articles, tmp_path_factory):
    """The stand-in, with the articles in its bucket."""
    with stand_in(tmp_path_factory.mktemp("cloud")) as here, pytest.MonkeyPatch.context() as patch:
        for name, value in here.environment.items():
            patch.setenv(name, value)
        here.upload(articles, "text")
        yield here


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """The source package of beambert, as every job stages it."""
    return workers.make_source_package(None, tmp_path_factory.mktemp("package"))


@pytest.fixture
def quick(monkeypatch, package):
    """Shorten the intervals at which jobs are polled, and stage a package that was built before."""
    monkeypatch.setattr(workers, "make_source_package", lambda _file, _folder: package)
    monkeypatch.setattr(dataflow_job, "_FIRST_SECONDS", 0.05)
    monkeypatch.setattr(dataflow_job, "_MOST_SECONDS", 0.05)
    monkeypatch.setattr(dataflow_job, "_SECONDS_FOR_THE_REASON", 0.5)


def submit(cloud, *argv: str) -> int:
    return cli.main(["submit", "dataflow", *cloud.flags, *argv])


def assert_same_bytes(objects: dict[str, bytes], local: Path) -> None:
    """Assert that objects are the files of a dataset, by their names relative to it."""
    files = {str(path.relative_to(local)): path.read_bytes() for path in local.rglob("*") if path.is_file()}
    assert any(name.startswith("shards/") for name in files)
    assert objects.keys() == files.keys()
    assert {name for name in files if objects[name] != files[name]} == set()


@pytest.mark.slow
def test_a_build_from_bucket_to_bucket_has_the_bytes_of_a_local_one(cloud, tmp_path, capsys):
    output = f"gs://{BUCKET}/data"
    here = len(cloud.jobs)
    assert submit(cloud, "--labels", "team=words", "build", "--input", TEXT, "--output", output, *SMALL) == 0
    submitted = capsys.readouterr()

    local = tmp_path / "data"
    assert cli.main(["build", "--input", TEXT, "--output", str(local), *SMALL]) == 0
    objects = cloud.contents("data")
    assert_same_bytes(objects, local)

    # The output names both jobs with their console URLs, their final state and their counters.
    numbers = list(cloud.jobs)[here:]
    assert len(numbers) == 2
    for number in numbers:
        url = f"https://console.cloud.google.com/dataflow/jobs/{REGION}/{number}?project={PROJECT}"
        assert f"Job {number}: {url}" in submitted.out
        assert f"Job {number}: done" in submitted.out
    documents = json.loads(objects["corpus.json"])["counts"]["documents_read"]
    assert (
        f"4 corpus shards written, {documents} documents read, 8 vCPUs, 2.00 vCPU hours, 0.50 GB shuffled"
        in submitted.out
    )
    assert "examples written" in submitted.out

    # The requests to the service have the expected job type, labels, workers, network and experiments.
    for number in numbers:
        request = json_format.ParseDict(cloud.jobs[number]["request"], dataflow.Job.pb(dataflow.Job()))
        assert request.type_ == dataflow.JobType.JOB_TYPE_BATCH
        assert dict(request.labels) == {"team": "words", "tool": "beambert", "command": "build"}
        (pool,) = request.environment.worker_pools
        assert (pool.machine_type, pool.num_threads_per_worker, pool.autoscaling_settings.max_num_workers) == (
            "n2-standard-4",
            1,
            20,
        )
        assert pool.ip_configuration == dataflow.WorkerIPAddressConfiguration.WORKER_IP_PRIVATE
        assert "shuffle_mode=service" in request.environment.experiments
        assert not {"enable_streaming_engine", "enable_windmill_service"} & set(request.environment.experiments)
        assert len(json.dumps(cloud.jobs[number]["request"])) < 100_000

    # Exactly these files are staged. Neither they nor the requests contain the private key.
    staged = cloud.contents("temp")
    assert {name.split("/")[-1] for name in staged} == {
        "beambert-0.1.0.tar.gz",
        "extra_packages.txt",
        "pipeline.pb",
        "requirements.txt",
    }
    key = json.loads((cloud.folder / "key.json").read_text())
    told = [json.dumps(cloud.requests).encode(), *staged.values()]
    for secret in (key["private_key"].splitlines()[1], key["private_key_id"]):
        assert not any(secret.encode() in content for content in told)

    # The same command again submits no job.
    capsys.readouterr()
    assert submit(cloud, "build", "--input", TEXT, "--output", output, *SMALL) == 0
    told = capsys.readouterr().out
    assert f"Corpus in {output} is up to date." in told
    assert f"Shards in {output} are up to date." in told
    assert len(cloud.jobs) == here + 2


@pytest.mark.skipif(os.environ.get("BEAMBERT_LARGE") != "1", reason="takes minutes: make test-dataflow runs it")
def test_wikipedia_from_bucket_to_bucket_has_the_bytes_of_a_local_build(cloud, shared_data, tmp_path):
    """Test 20 MB of text and the optional steps."""
    for name in ("enwiki-2015-00.bz2", "enwiki-2015-01.bz2"):
        cloud.bucket().blob(f"wiki/{name}").upload_from_filename(shared_data / "wiki-extracted" / name)
    flags = ["--drop_near_duplicates", "--drop_repeated_paragraphs", "--vocab_size", "8000", "--dupe_factor", "2"]
    argv = ["build", "--input", f"gs://{BUCKET}/wiki/*.bz2", *flags]
    assert submit(cloud, *argv, "--output", f"gs://{BUCKET}/wikipedia") == 0
    assert cli.main([*argv, "--output", str(tmp_path)]) == 0
    assert_same_bytes(cloud.contents("wikipedia"), tmp_path)


def test_a_dry_run_shows_both_jobs_and_submits_and_writes_nothing(cloud, quick, capsys):
    jobs, objects = len(cloud.jobs), set(cloud.contents("temp"))
    argv = ["--dry_run", "--use_public_ips", "build", "--input", TEXT, "--output", f"gs://{BUCKET}/dry", *SMALL]
    assert submit(cloud, *argv) == 0
    told = capsys.readouterr().out
    assert "Dry run: 2 jobs" in told
    assert "corpus: 4 files in 4 splits" in told
    assert "pretraining-data: 4 corpus shards, 10 copies of a shard" in told
    assert "beam_python3." in told
    assert "n2-standard-4, at most 20, 30 GB of disk, public IP addresses" in told
    for line in (
        "Partition  (shuffles)",
        "WriteCorpusShard",
        "Learn",
        "WriteDataset",
        "beambert-0.1.0.tar.gz",
        "pipeline.pb",
    ):
        assert line in told
    assert len(cloud.jobs) == jobs
    assert set(cloud.contents("temp")) == objects
    assert cloud.contents("dry") == {}


@pytest.mark.slow
@pytest.mark.parametrize("has_reader", [True, False])
def test_ctrl_c_cancels_the_job_and_frees_the_output(cloud, has_reader):
    cloud.keep_waiting = True
    before = len(cloud.jobs)
    argv = [*cloud.flags, "corpus", "--input", TEXT, "--output", f"gs://{BUCKET}/stopped", "--vocab_size", "2000"]
    process = subprocess.Popen(
        [sys.executable, "-m", "beambert", "submit", "dataflow", *argv],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # If the tests run in the background, they ignore Ctrl-C, and child processes inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        for line in process.stdout:
            if "pending" in line:
                break
        assert "build.lock" in cloud.contents("stopped")
        if not has_reader:
            process.stdout.close()
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
    finally:
        cloud.keep_waiting = False
        process.kill()
    (number,) = list(cloud.jobs)[before:]
    assert process.returncode == 130, errors
    if has_reader:
        assert f"gcloud dataflow jobs cancel {number} --project={PROJECT} --region={REGION}" in output
        assert f"Job {number}: canceled" in output
    assert cloud.jobs[number]["state"] == "JOB_STATE_CANCELLED"
    assert cloud.contents("stopped") == {}
    assert "Traceback" not in errors


WORKERS_ERROR = """Error message from worker: generic::unknown: Traceback (most recent call last):
  File "apache_beam/runners/common.py", line 1512, in apache_beam.runners.common.DoFnRunner.process
beambert.pipelines.errors.SourceError: gs://b/a.txt, line 3: byte 0xe9 is not valid

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "apache_beam/runners/worker/sdk_worker.py", line 310, in _execute
beambert.pipelines.errors.SourceError: gs://b/a.txt, line 3: byte 0xe9 is not valid [while running 'Read-41']
"""


def test_the_reason_of_a_failure_is_that_of_a_worker_or_else_the_last():
    failed = "Workflow failed. Causes: S01 failed."
    reason = "beambert.pipelines.errors.SourceError: gs://b/a.txt, line 3: byte 0xe9 is not valid"
    assert dataflow_job._reason([WORKERS_ERROR, failed]).startswith(reason)
    assert dataflow_job._reason(["The first.", failed]) == failed
    assert dataflow_job._reason([]) == "no message"


def test_why_a_job_failed_is_one_line(cloud, quick, capsys, monkeypatch):
    monkeypatch.setattr(cloud, "fail_with", [WORKERS_ERROR] * 4 + ["Workflow failed. Causes: S01 failed."])
    argv = ["corpus", "--input", TEXT, "--output", f"gs://{BUCKET}/failed", "--vocab_size", "2000"]
    assert submit(cloud, *argv) == 1
    errors = capsys.readouterr().err
    assert "error: gs://b/a.txt, line 3: byte 0xe9 is not" in errors.splitlines()[-1]
    assert "Traceback" not in errors
    # The error is printed once although the service repeats it at each attempt, and once more in the final message.
    assert sum("byte 0xe9" in line for line in errors.splitlines()) == 2
    assert cloud.contents("failed") == {}


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (exceptions.Forbidden("no permission"), "see docs/reference/cloud-permissions.md for the roles"),
        (exceptions.BadRequest("the zone is wrong"), "correct the flag that the message names"),
        (exceptions.TooManyRequests("Quota exceeded"), "a quota is exhausted"),
        (exceptions.NotFound("no such bucket"), "check --project my-project, --region us-central1"),
    ],
)
def test_the_remedy_of_a_rejected_request(error, remedy):
    cloud = GoogleCloudOptions(["--project=my-project", "--region=us-central1"])
    message = str(dataflow_job.refusal(error, cloud))
    assert error.message in message
    assert remedy in message


def test_a_second_job_at_the_same_output_is_refused_by_the_service_itself(cloud, quick, capsys):
    """Submit while the job of a killed process still runs, after the lock of that process was removed."""
    output = f"gs://{BUCKET}/twice"
    cloud.jobs["running"] = {
        "request": {"name": dataflow_flags.job_name_of(output)},
        "state": "JOB_STATE_RUNNING",
    }
    assert submit(cloud, "corpus", "--input", TEXT, "--output", output, "--vocab_size", "2000") == 1
    del cloud.jobs["running"]
    assert f"already runs a job named {dataflow_flags.job_name_of(output)}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (
            ["build", "--input", "texts/*.txt", "--output", "gs://bucket/o"],
            "--input texts/*.txt is not readable by Dataflow workers",
        ),
        (
            ["corpus", "--input", "gs://bkt/i", "--output", "gs://bkt/o", "--decontaminate", "gs://bkt/a", "b"],
            "--decontaminate b is not readable by Dataflow workers",
        ),
        (
            ["corpus", "--input", "gs://bucket/i", "--output", "gs://bucket/o", "--runner=DirectRunner"],
            "--runner is a flag of submit dataflow: put it before corpus",
        ),
    ],
)
def test_arguments_that_workers_cannot_use_are_named_before_any_request(cloud, capsys, argv, expected):
    asked = len(cloud.requests)
    assert submit(cloud, *argv) == 1
    assert expected in capsys.readouterr().err
    assert len(cloud.requests) == asked


@pytest.mark.parametrize(
    ("flag", "value", "expected"),
    [
        ("--project", "My Project", "is not a project ID"),
        ("--project", "123456789", "is not a project ID"),
        ("--region", "us-central1-a", "is not a region"),
        ("--temp_location", "/tmp/x", "is not of the form gs://BUCKET/FOLDER"),
        ("--temp_location", "gs://Bucket/x", "is not of the form gs://BUCKET/FOLDER"),
        ("--job_name", "Words_1", "is not a job name"),
        ("--labels", "Team=Words", "is not a label"),
        ("--service_account_email", "worker", "is not a service account"),
        ("--max_num_workers", "0", "is not a whole number from 1"),
    ],
)
def test_a_flag_with_a_wrong_value_is_named(flag, value, expected, capsys):
    flags = {"--project": "my-project", "--region": "us-central1", "--temp_location": "gs://bucket/t", flag: value}
    argv = [word for pair in flags.items() for word in pair]
    with pytest.raises(SystemExit):
        cli.main(["submit", "dataflow", *argv, "build", "--input", "gs://b/i", "--output", "gs://b/o"])
    last = capsys.readouterr().err.splitlines()[-1]
    assert f"argument {flag}: " in last
    assert expected in last


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--num_workers=30"], "invalid --num_workers 30: must be at most --max_num_workers 20"),
        (["--autoscaling_algorithm=NONE"], "NONE requires --num_workers"),
    ],
)
def test_numbers_of_workers_that_contradict_each_other_are_refused(cloud, capsys, flags, expected):
    assert submit(cloud, *flags, "corpus", "--input", TEXT, "--output", f"gs://{BUCKET}/x") == 1
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize("value", ["my-project-123", "example.com:my-project", "abcdef"])
def test_projects_of_every_kind_are_taken(value):
    assert dataflow_options.parse_project(value) == value


def test_machines_have_the_memory_of_a_partition():
    bucket = 64 << 20
    assert choose_machine_type(None, bucket) == "n2-standard-4"
    assert choose_machine_type(None, 300 << 20) == "n2-highmem-4"
    assert peak_memory(300 << 20, 1) / 1e9 > 0.7 * (4 - 0.25)
    # Only two cores share the memory that the system takes, so that each process has less.
    assert choose_machine_type("n1-standard-2", bucket) == "n1-standard-2"
    # The memory of a custom machine type is unknown.
    assert choose_machine_type("custom-4-8192", 10**12) == "custom-4-8192"
    with pytest.raises(SubmitError, match=r"a partition of 67 MB of text needs about .*, and n2-highcpu-8 has"):
        choose_machine_type("n2-highcpu-8", bucket)
    with pytest.raises(SubmitError, match=r"n2-highmem-4 has .* per process: use a higher --num_partitions"):
        choose_machine_type(None, 10**9)


def test_a_job_name_is_that_of_its_output():
    one, other = "gs://bucket/Wiki Data_2026/", "gs://other/Wiki Data_2026"
    assert dataflow_flags.job_name_of(one).startswith("beambert-wiki-data-2026-")
    assert dataflow_flags.job_name_of(one) == dataflow_flags.job_name_of(one.rstrip("/"))
    assert dataflow_flags.job_name_of(one) != dataflow_flags.job_name_of(other)
    for output in (one, other, "gs://bucket", "gs://bucket/" + "x" * 300, "gs://bucket/日本"):
        assert dataflow_options.parse_job_name(dataflow_flags.job_name_of(output))


def test_counters_are_described_in_words():
    def metric(origin, name, scalar, **context):
        return SimpleNamespace(name=SimpleNamespace(origin=origin, name=name, context=context), scalar=scalar)

    metrics = [
        metric("user", "documents_read", 12_000.0, namespace="beambert", step="s3", tentative="true"),
        metric("user", "documents_read", 9_000.0, namespace="beambert", step="s3"),
        metric("user", "documents_read", 1.0, namespace="another"),
        metric("dataflow/v1b3", "TotalVcpuTime", 5400.0),
        metric("dataflow/v1b3", "SomethingNew", 1.0),
        metric("dataflow/v1b3", "CurrentVcpuCount", None),
    ]
    assert dataflow_job.describe_metrics(metrics) == "12,000 documents read, 1.50 vCPU hours"
    assert dataflow_job.describe_metrics([]) == ""


def test_a_flex_template_writes_the_job_without_packages_to_install(cloud, capsys):
    """Launch with the parameters that Google's launcher passes.

    The workers' image has every package. So no package is staged, and the launcher's image needs no write permission.
    """
    jobs = len(cloud.jobs)
    parameters = [
        "--runner=DataflowRunner",
        f"--project={PROJECT}",
        f"--region={REGION}",
        f"--temp_location=gs://{BUCKET}/template",
        "--job_name=from-a-template",
        f"--template_location=gs://{BUCKET}/template/job.json",
        "--sdk_container_image=us-docker.pkg.dev/p/r/beambert-worker:0.1.0",
        f"--dataflow_endpoint={cloud.endpoint}",
        "--no_auth",
        f"--input={TEXT} gs://{BUCKET}/text/0.jsonl",
        f"--output=gs://{BUCKET}/templated",
        "--vocab_size=2000",
        "--fix_mojibake=true",
        "--identify_language=false",
        "--num_partitions=",
    ]
    assert launcher.main("corpus", parameters) == 0, capsys.readouterr().err
    assert len(cloud.jobs) == jobs
    made = cloud.contents("template")
    job = json_format.Parse(made["job.json"], dataflow.Job.pb(dataflow.Job()))
    (pool,) = job.environment.worker_pools
    assert not pool.packages
    assert pool.worker_harness_container_image.endswith("beambert-worker:0.1.0")
    options = job.environment.sdk_pipeline_options["options"]
    content = made[options["pipelineUrl"].removeprefix(f"gs://{BUCKET}/template/")]
    assert hashlib.sha256(content).hexdigest() == options["pipelineProtoHash"]

    # An invalid parameter and an output with any other file are errors.
    assert launcher.main("corpus", [*parameters, "--fix_mojibake=yes"]) == 1
    assert "invalid --fix_mojibake 'yes': must be true or false" in capsys.readouterr().err
    cloud.bucket().blob("templated/corpus/left.parquet").upload_from_string(b"x")
    assert launcher.main("corpus", parameters) == 1
    assert f"gs://{BUCKET}/templated contains corpus: use an empty output" in capsys.readouterr().err


@pytest.mark.parametrize("package", ["array-record", "wikiextractor"])
def test_a_package_is_installed_for_its_extra_only(package):
    if not is_installed(package.replace("-", "_")):
        pytest.skip(f"{package} is not installed")
    names = [{line.partition("==")[0] for line in workers.requirements(extras)} for extras in ([package], [])]
    assert names[0] > names[1]
    assert package in names[0] - names[1]


def test_the_extras_of_a_job_are_those_of_its_flags(articles):
    argv = ["--input", f"{articles}/*.jsonl", "--vocab_size", "600", "--output", f"gs://{BUCKET}/extras"]
    assert jobs._extras(cli.read_command("build", argv).configure()) == []
    config = cli.read_command("build", [*argv, "--format", "array_record"]).configure()
    assert jobs._extras(config) == ["array-record"]
    options = config.corpus.options
    read = dataclasses.replace(options.read, wikitext_extractor="wikiextractor")
    corpus = dataclasses.replace(config.corpus, options=dataclasses.replace(options, read=read))
    assert jobs._extras(corpus) == ["wikiextractor"]


@pytest.mark.parametrize("flag", ["--dataflow_job_file", "--template_location"])
@pytest.mark.parametrize("equals", [True, False])
def test_a_file_that_exists_is_refused(flag, equals, tmp_path):
    there = tmp_path / "job.json"
    there.write_text("{}")

    def refuse(path):
        flags = [f"{flag}={path}"] if equals else [flag, str(path)]
        dataflow_flags.refuse_existing_files(["--experiments=x", *flags, "--no_auth"], [("--input", str(there))])

    with pytest.raises(OutputFileError, match=f"{flag} .*job.json is the same file as --input"):
        refuse(there)
    there.with_name("other.json").write_text("{}")
    with pytest.raises(OutputFileError, match=r"exists; delete it, or give another"):
        refuse(there.with_name("other.json"))
    refuse(tmp_path / "new.json")
    refuse("gs://bucket/job.json")
