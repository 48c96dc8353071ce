"""Test builds that start at the same time with the same output in Cloud Storage: exactly one proceeds."""

import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from google.api_core.exceptions import PreconditionFailed

from pipelines.errors import OutputError
from pipelines.runner.output_lock import FILE_NAME, lock_output
from tests.deploy.dataflow.gcp_stand_in import BUCKET

ROUNDS, AT_ONCE = 8, 4
# A process reports that it is ready. Then, for each pair of input lines, it takes the lock named by the first line
# and holds it until the second.
PROCESSES = """
import os, sys
from apache_beam.io.filesystems import FileSystems
from pipelines.runner.output_lock import lock_output
from pipelines.io.output_directory import OutputError
FileSystems.exists(sys.argv[1] + "/ready")
print("ready", flush=True)
for line in sys.stdin:
    try:
        with lock_output(f"{sys.argv[1]}/{line.strip()}"):
            print("holds", os.getpid(), flush=True)
            sys.stdin.readline()
    except OutputError as error:
        print(error, flush=True)
        sys.stdin.readline()
    print("released", flush=True)
"""


def test_the_stand_in_honors_preconditions(cloud):
    blob = cloud.bucket().blob("conditions/a b.txt")
    blob.upload_from_string("first", if_generation_match=0)
    first = blob.generation
    for condition in (0, first + 1):
        with pytest.raises(PreconditionFailed):
            cloud.bucket().blob("conditions/a b.txt").upload_from_string("second", if_generation_match=condition)
        with pytest.raises(PreconditionFailed):
            cloud.bucket().blob("conditions/a b.txt").delete(if_generation_match=first + 1)
    assert cloud.contents("conditions") == {"a b.txt": b"first"}
    cloud.bucket().blob("conditions/a b.txt").upload_from_string("second", if_generation_match=first)
    assert cloud.contents("conditions") == {"a b.txt": b"second"}


def test_of_several_threads_one_holds_the_output(cloud):
    barrier = threading.Barrier(AT_ONCE)

    def build(number):
        barrier.wait()
        try:
            with lock_output(f"gs://{BUCKET}/threads/{number}"):
                barrier.wait()
                return True
        except OutputError as error:
            barrier.wait()
            return str(error)

    with ThreadPoolExecutor(AT_ONCE) as threads:
        for number in range(ROUNDS):
            answers = list(threads.map(build, [number] * AT_ONCE))
            refused = [answer for answer in answers if answer is not True]
            assert len(refused) == AT_ONCE - 1, answers
            assert all(f"is in use by process {os.getpid()} on" in answer for answer in refused)
    assert cloud.contents("threads") == {}


@pytest.mark.slow
def test_of_several_processes_one_holds_the_output(cloud):
    from tests.pipelines.io.test_directory_lock import run

    processes = [run(PROCESSES, f"gs://{BUCKET}/processes") for _ in range(2)]
    assert [process.stdout.readline() for process in processes] == ["ready\n"] * 2
    for number in range(ROUNDS):
        for process in processes:
            process.stdin.write(f"{number}\n")
            process.stdin.flush()
        answers = [process.stdout.readline() for process in processes]
        (winner,) = (answer.split()[1] for answer in answers if answer.startswith("holds"))
        (loser,) = (answer for answer in answers if not answer.startswith("holds"))
        assert f"is in use by process {winner} on" in loser
        for process in processes:
            process.stdin.write("\n")
            process.stdin.flush()
        assert [process.stdout.readline() for process in processes] == ["released\n"] * 2
    for process in processes:
        process.communicate(timeout=60)
    assert cloud.contents("processes") == {}


def test_a_lock_that_another_took_meanwhile_is_not_deleted(cloud):
    output = f"gs://{BUCKET}/taken"
    with lock_output(output):
        # The error message recommends this if the process has ended.
        cloud.bucket().blob(f"taken/{FILE_NAME}").delete()
        other = lock_output(output)
        other.__enter__()
    assert cloud.contents("taken").keys() == {FILE_NAME}
    with suppress(OutputError):
        other.__exit__(None, None, None)
    assert cloud.contents("taken") == {}


def test_a_request_that_is_repeated_after_its_answer_was_lost_holds_the_output(cloud, monkeypatch):
    from google.cloud.storage import Blob

    upload = Blob.upload_from_string

    def twice(blob, *args, **options):
        upload(blob, *args, **options)
        upload(blob, *args, **options)

    monkeypatch.setattr(Blob, "upload_from_string", twice)
    with lock_output(f"gs://{BUCKET}/repeated"):
        assert json.loads(cloud.contents("repeated")[FILE_NAME])["process"] == os.getpid()
    assert cloud.contents("repeated") == {}
