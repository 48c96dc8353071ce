"""Test training with JAX on stand-ins of TPU hosts: a preempted run ends with the bytes of an uninterrupted run."""

import json
import os

import pytest

from beambert.trainers.monitoring.metrics_jsonl import TIMING_FIELDS
from tests.deploy.tpu.tpu_cloud import NAME, Cloud, until

SHAPE = {
    "vocab_size": 2000,
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 128,
}
STEPS = 60
FLAGS = (
    *("--data", "gs://bucket/data", "--output", "gs://bucket/run", "--model", "gs://bucket/shape.json"),
    *("--num_train_steps", str(STEPS), "--train_batch_size", "8", "--save_checkpoints_steps", "20"),
    *("--keep_checkpoint_max", "2", "--num_warmup_steps", "10", "--max_eval_steps", "2"),
)


@pytest.fixture
def cloud(tmp_path, built, wheel):
    def make(name):
        cloud = Cloud(tmp_path / name, wheel)
        cloud.bucket("gs://bucket").mkdir()
        cloud.bucket("gs://bucket/data").symlink_to(built)
        (cloud.bucket("gs://bucket") / "shape.json").write_text(json.dumps(SHAPE))
        return cloud

    return make


def lasting(run):
    """Return the contents of a run's files that must not depend on interruptions: without logs and times."""
    found = {}
    for path in sorted(run.rglob("*")):
        name = str(path.relative_to(run))
        if not path.is_file() or name.startswith("logs/") or name == "report.html":
            continue
        content = path.read_bytes()
        if name == "metrics.jsonl":
            lines = [json.loads(line) for line in content.splitlines()]
            content = [{key: value for key, value in line.items() if key not in TIMING_FIELDS} for line in lines]
        elif name.endswith(".state.json"):
            content = None
        found[name] = content
    return found


@pytest.mark.skipif(os.environ.get("BEAMBERT_LARGE") != "1", reason="takes minutes: make test-tpu runs it")
def test_a_preempted_run_of_two_hosts_ends_with_the_bytes_of_a_straight_one(cloud):
    flags = ["--accelerator_type=v5p-16"]
    # The evaluation of the last checkpoint needs a directory that all hosts share.
    command = (*FLAGS, "--do_train")
    straight = cloud("straight")
    result = straight.submit(*flags, "--sync_seconds=300", command=("pretrain", *command))
    assert result.returncode == 0, result.stdout + result.stderr

    preempted = cloud("preempted")
    process = preempted.begin(*flags, "--spot", "--sync_seconds=0.5", command=("pretrain", *command))
    checkpoints = preempted.bucket("gs://bucket/run/checkpoints")
    until(lambda: list(checkpoints.glob("*.index")) or process.poll() is not None, 300)
    preempted.preempt_worker(NAME, 1)
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 0, said
    assert len(preempted.calls("create")) == 2, said
    assert "Resuming from gs://bucket/run" in said

    expected, found = (lasting(one.bucket("gs://bucket/run")) for one in (straight, preempted))
    assert f"checkpoints/model.ckpt-{STEPS}.data-00000-of-00001" in expected
    assert found.keys() == expected.keys()
    assert [name for name in expected if found[name] != expected[name]] == []
    assert straight.left == preempted.left == []
