"""Test training with JAX on stand-ins of TPU hosts and of Cloud Storage.

A preempted run ends with the bytes of an uninterrupted run.
"""

import functools
import json
import os
import re

import pytest

from beambert.trainers.monitoring.metrics_jsonl import TIMING_FIELDS
from tests.deploy.dataflow.gcp_stand_in import BUCKET, stand_in
from tests.deploy.tpu.tpu_cloud import NAME, Cloud, until

LARGE = pytest.mark.skipif(os.environ.get("BEAMBERT_LARGE") != "1", reason="takes minutes: make test-tpu runs it")

SHAPE = {
    "vocab_size": 2000,
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 128,
}
# As many as take several seconds, so that the run is preempted before its end.
STEPS, SAVE_STEPS = 1500, 100
FLAGS = (
    *("--num_train_steps", str(STEPS), "--train_batch_size", "8", "--save_checkpoints_steps", str(SAVE_STEPS)),
    *("--keep_checkpoint_max", "2", "--num_warmup_steps", "10", "--max_eval_steps", "2", "--do_train"),
)
URL = f"gs://{BUCKET}"


@pytest.fixture
def bucket(tmp_path, built, monkeypatch):
    with stand_in(tmp_path) as here:
        for name, value in here.environment.items():
            monkeypatch.setenv(name, value)
        here.upload(built, "data")
        here.bucket().blob("shape.json").upload_from_string(json.dumps(SHAPE))
        yield here


def pretrain(output):
    return ("pretrain", "--data", f"{URL}/data", "--output", f"{URL}/{output}", "--model", f"{URL}/shape.json", *FLAGS)


def lasting(bucket, output):
    """Return the contents of a run's files that must not depend on interruptions: without logs and times."""
    found = {}
    for name, content in sorted(bucket.contents(output).items()):
        if name.startswith("logs/") or name == "report.html":
            continue
        if name == "metrics.jsonl":
            lines = [json.loads(line) for line in content.splitlines()]
            content = [{key: value for key, value in line.items() if key not in TIMING_FIELDS} for line in lines]
        elif name == "run.json":
            # It has the path of the output.
            content = content.replace(f"{URL}/{output}".encode(), b"")
        elif name.endswith(".state.json"):
            content = None
        found[name] = content
    return found


@pytest.mark.slow
@pytest.mark.parametrize("hosts", [1, pytest.param(2, marks=LARGE)])
def test_a_preempted_run_ends_with_the_bytes_of_a_straight_one(bucket, tmp_path, wheel, hosts):
    flags = ["--accelerator_type=v5p-16"] if hosts == 2 else []
    straight = Cloud(tmp_path / "straight", wheel)
    result = straight.submit(*flags, command=pretrain("straight"))
    assert result.returncode == 0, result.stdout + result.stderr

    preempted = Cloud(tmp_path / "preempted", wheel)
    process = preempted.begin(*flags, "--spot", command=pretrain("preempted"))
    uploaded = functools.partial(bucket.bucket().list_blobs, prefix="preempted/checkpoints/")
    until(lambda: process.poll() is not None or any(blob.name.endswith(".index") for blob in uploaded()), 300)
    if hosts == 2:
        preempted.preempt_worker(NAME, 1)
    else:
        preempted.preempt()
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 0, said
    assert len(preempted.calls("create")) == 2, said
    assert re.search(rf"from step [1-9]\d* of {STEPS}", said.replace(",", "")), said

    expected, found = lasting(bucket, "straight"), lasting(bucket, "preempted")
    assert f"checkpoints/model.ckpt-{STEPS}.data-00000-of-00001" in expected
    assert found.keys() == expected.keys()
    assert [name for name in expected if found[name] != expected[name]] == []
    assert straight.left == preempted.left == []
