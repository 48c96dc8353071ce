"""Test builds on a real Flink cluster: a JobManager, two TaskManagers and their Python workers on this machine.

The tests require Java and download Flink (about 290 MB, cached in ~/.cache/beambert). Without them the tests are
skipped, or fail if BEAMBERT_REQUIRE_FLINK=1 is set.
"""

import bz2
import gzip
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from beambert import cli
from beambert.deploy.flink.job_server import find_java, free_port, job_server
from beambert.pipelines.errors import SubmitError
from beambert.pipelines.runner.flink_rest import FlinkCluster
from benchmarks.web_pages import warc_records
from tests.conftest import without_progress
from tests.deploy.flink.local_cluster import LocalCluster, fetch_job_server
from tests.every_output import tree_of
from tests.test_examples import run as run_example

pytestmark = pytest.mark.slow
takes_minutes = pytest.mark.skipif(os.environ.get("BEAMBERT_LARGE") != "1", reason="make test-flink runs it")
# Two files of Wikipedia, 20 MB of text, of which most tests read this number of articles per file.
FILES = "enwiki-2015-0[01].bz2"
ARTICLES = 250
# Size of the pages of a web archive.
ARCHIVE_BYTES = 100_000_000
FLAGS = ["--vocab_size", "4000", "--dupe_factor", "1"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[LocalCluster]:
    try:
        find_java("java")
        fetch_job_server()
        local = LocalCluster(tmp_path_factory.mktemp("cluster") / "flink")
        local.up(2, free_port(), free_port())
    except SubmitError as error:
        if os.environ.get("BEAMBERT_REQUIRE_FLINK") == "1":
            pytest.fail(f"no Flink cluster, and BEAMBERT_REQUIRE_FLINK=1: {error}")
        pytest.skip(f"no Flink cluster: {error}")
    yield local
    local.down()
    assert not [name for name in local.state["processes"] if local._runs(name)]


def built_here(texts: str, output: Path) -> Path:
    """Build the texts with the embedded engine, and return the output."""
    assert cli.main(["build", "--input", texts, "--output", str(output), *FLAGS, "--direct_num_workers", "2"]) == 0
    return output


@pytest.fixture(scope="module")
def few_texts(shared_data, tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("texts")
    for path in sorted((shared_data / "wiki-extracted").glob(FILES)):
        articles = bz2.decompress(path.read_bytes()).decode().split("</doc>\n")[:ARTICLES]
        assert len(articles) == ARTICLES
        (folder / path.name).write_bytes(bz2.compress("".join(f"{text}</doc>\n" for text in articles).encode()))
    return f"{folder}/{FILES}"


@pytest.fixture(scope="module")
def few(few_texts, tmp_path_factory) -> Path:
    return built_here(few_texts, tmp_path_factory.mktemp("few") / "data")


@pytest.fixture(scope="module")
def reference(shared_data, tmp_path_factory) -> Path:
    texts = f"{shared_data}/wiki-extracted/{FILES}"
    return built_here(texts, tmp_path_factory.mktemp("reference") / "data")


def submission(cluster: LocalCluster, *argv: object) -> list[str]:
    """Return the command line that submits a command to the cluster."""
    flags = ["--flink_master", cluster.master, "--environment_config", cluster.worker_pool]
    flags += ["--job_server_jar", str(fetch_job_server())]
    return [sys.executable, "-m", "beambert", "submit", "flink", *flags, *map(str, argv)]


def start(cluster: LocalCluster, *argv: object) -> subprocess.Popen:
    return subprocess.Popen(
        submission(cluster, *argv),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # The tests may run where Ctrl-C is ignored, and child processes inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def wait_until(condition: Callable[[], bool], process: subprocess.Popen) -> None:
    deadline = time.monotonic() + 600
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_the_same_bytes_on_a_cluster(cluster, few_texts, few, tmp_path):
    output = tmp_path / "data"
    argv = ["build", "--input", few_texts, "--output", output, *FLAGS]
    result = subprocess.run(submission(cluster, *argv), capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "Traceback" not in result.stderr
    assert f"Flink: RUNNING, http://{cluster.master}/#/job/running/" in result.stderr
    assert tree_of(output) == tree_of(few)


@takes_minutes
def test_a_web_archive_that_all_workers_read_has_the_same_bytes(cluster, shared_data, tmp_path):
    pages = {
        path.name: gzip.decompress(path.read_bytes()) for path in sorted(shared_data.glob("html-articles/html/*.gz"))
    }
    crawl = tmp_path / "crawl.warc.gz"
    with crawl.open("wb") as file:
        for record in warc_records(pages, ARCHIVE_BYTES):
            file.write(gzip.compress(record, 6))
    argv = ["corpus", "--input", str(crawl), "--vocab_size", "4000", "--num_partitions", "8", "--output"]
    for workers in ("1", "2"):
        assert cli.main([*argv, str(tmp_path / workers), "--direct_num_workers", workers]) == 0
    result = subprocess.run(submission(cluster, *argv, tmp_path / "flink"), capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert tree_of(tmp_path / "1") == tree_of(tmp_path / "2") == tree_of(tmp_path / "flink")


@takes_minutes
def test_the_same_bytes_after_a_task_manager_was_killed_in_each_job(cluster, reference, shared_data, tmp_path):
    output = tmp_path / "data"
    argv = ["build", "--input", f"{shared_data}/wiki-extracted/{FILES}", "--output", output, *FLAGS]
    process = start(cluster, *argv)
    try:
        for number, pattern in ((1, "corpus/*.parquet"), (2, "shards/*.tfrecord")):
            wait_until(lambda pattern=pattern: bool(list(output.glob(pattern))), process)
            cluster.kill_task_manager(number)
            written = {path.name for path in output.glob(pattern)}
            assert len(written) < len(list(reference.glob(pattern))), "it was killed too late to tell anything"
            time.sleep(1)
            cluster.start_task_manager(number)
        out, err = process.communicate(timeout=900)
    finally:
        process.kill()
    assert process.returncode == 0, err
    assert "Contents of" in out
    assert "Traceback" not in err
    # Each of the two jobs was restarted.
    assert err.count("Flink: RUNNING") >= 4, err
    assert tree_of(output) == tree_of(reference)


@takes_minutes
def test_a_pipeline_of_ones_own(cluster, few_texts, tmp_path):
    """Check that its shards are those that the same pipeline writes without the cluster."""
    with bz2.open(sorted(Path(few_texts).parent.iterdir())[0], "rt", encoding="utf-8") as file:
        texts = [article.partition(">")[2] for article in file.read().split("</doc>")]
    table = pyarrow.table({"text": texts, "title": list(map(str, range(len(texts))))})
    pyarrow.parquet.write_table(table, tmp_path / "table.parquet", row_group_size=200)
    flags = ["--input", tmp_path / "table.parquet", "--vocab_size", 4000]
    run_example("examples/own_documents.py", *flags, "--output", tmp_path / "here")
    with job_server(find_java("java"), fetch_job_server(), cluster.master, tmp_path) as endpoint:
        beam = ["--runner=PortableRunner", f"--job_endpoint={endpoint}", "--environment_type=EXTERNAL"]
        beam += [f"--environment_config={cluster.worker_pool}", "--parallelism=2"]
        run_example("examples/own_documents.py", *flags, "--output", tmp_path / "there", *beam)
    here, there = (
        {name: digest for name, digest in tree_of(tmp_path / folder).items() if name.startswith(("shards/", "vocab"))}
        for folder in ("here", "there")
    )
    assert len(here) > 10
    assert there == here


def test_a_mistake_that_only_a_worker_finds_is_one_line(cluster, tmp_path):
    (tmp_path / "a.txt").write_bytes(b"A sentence.\nAnother one.\n\nNot UTF-8: \xff\xfe.\n")
    argv = ["corpus", "--input", tmp_path / "a.txt", "--input_format", "sentences", "--output", tmp_path / "out"]
    result = subprocess.run(submission(cluster, *argv), capture_output=True, text=True, check=False)
    assert result.returncode == 1
    errors = [line for line in without_progress(result.stderr) if not line.startswith("Flink: ")]
    assert len(errors) == 1, result.stderr
    assert errors[0].startswith("beambert submit flink: error: ")
    assert "a.txt" in errors[0]


def test_ctrl_c_cancels_the_job(cluster, few, tmp_path):
    shutil.copytree(few / "corpus", tmp_path / "in/corpus")
    for name in ("corpus.json", "vocab.txt"):
        shutil.copy(few / name, tmp_path / "in")
    output = tmp_path / "out"
    argv = ["pretraining-data", "--input", tmp_path / "in", "--output", output, "--dupe_factor", "120"]
    process = start(cluster, *argv)
    wait_until(lambda: bool(list(output.glob("shards/*.tfrecord"))), process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "Flink: canceling" in err
    assert "Traceback" not in err
    rest = FlinkCluster(cluster.master)
    assert rest.overview()["jobs-running"] == 0
    # After the cancellation, nothing is written.
    before = tree_of(output)
    assert "dataset.json" not in before
    time.sleep(3)
    assert tree_of(output) == before
    assert not (output / "build.lock").exists()
