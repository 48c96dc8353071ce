"""What runs on a TPU's machine: the rewritten command, what is refused, and copies of an output that grows."""

import json
import shutil
import threading
from pathlib import Path

import pytest

import beambert
from deploy.tpu import worker
from deploy.tpu.job import job_of, python_of, runtime_version
from pipelines.errors import SubmitError


def pretrain(*flags):
    return beambert.read_command("pretrain", [*flags])


def test_places_in_buckets_become_paths_and_nothing_else_changes():
    command = pretrain("--data", "gs://b/d128/", "gs://c/d/512", "--output=gs://b/runs/1", "--best_metric", "gs")
    job = job_of(command)
    assert job.argv == [
        *("pretrain", "--data", "places/b/d128", "places/c/d/512", "--output=places/b/runs/1", "--best_metric", "gs"),
        *("--strategy", "tpu"),
    ]
    assert job.inputs == [("gs://b/d128", "places/b/d128"), ("gs://c/d/512", "places/c/d/512")]
    assert job.output == ("gs://b/runs/1", "places/b/runs/1")


def test_a_strategy_that_is_given_stays():
    assert job_of(pretrain("--data=gs://b/d", "--output=gs://b/r", "--strategy=single")).argv.count("--strategy") == 0


def test_every_path_of_a_fine_tuning_is_brought_there():
    flags = (
        "squad --train_file gs://b/t.json --predict_file gs://b/p.json --init_checkpoint gs://b/m.zip --output gs://b/r"
    )
    job = job_of(beambert.read_command("finetune", flags.split()))
    assert sorted(place for place, _ in job.inputs) == ["gs://b/m.zip", "gs://b/p.json", "gs://b/t.json"]
    assert job.argv[:4] == ["finetune", "squad", "--train_file", "places/b/t.json"]


def test_a_shape_in_a_file_is_brought_there_and_a_name_is_not():
    assert job_of(pretrain("--data=gs://b/d", "--output=gs://b/r", "--model=tiny")).inputs == [
        ("gs://b/d", "places/b/d")
    ]
    inputs = job_of(pretrain("--data=gs://b/d", "--output=gs://b/r", "--model=gs://b/c.json")).inputs
    assert ("gs://b/c.json", "places/b/c.json") in inputs


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            ("--data", "d128", "--output", "gs://b/r"),
            r"--data d128 is a local path.*cp --recursive d128 gs://BUCKET/",
        ),
        (("--data", "a b;c", "--output", "gs://b/r"), r"cp --recursive 'a b;c' gs://BUCKET/"),
        (("--data", "gs://b/d", "--output", "run"), r"--output run would be deleted with the TPU VM"),
        (("--data", "gs://b/d", "--output", "gs://b/r", "--model", "m.json"), r"--model m.json is a local path"),
        (("--data", "gs://b/d", "--output", "gs://b"), r"gs://b/? is a bucket: use a path in it"),
        (("--data", "gs://b/d", "--output", "gs://b/"), r"gs://b/? is a bucket: use a path in it"),
        (("--data", "gs://b/d", "--output", "gs://b/../r"), r"contains \.\."),
        (("--data", "gs://b/d*", "--output", "gs://b/r"), r"wildcard character"),
        (("--data", "gs://b/d", "--output", "gs://b/d/r"), r"overlap: use a separate"),
        (("--data", "gs://b/d/x", "--output", "gs://b/d"), r"overlap: use a separate"),
        (("--data", "gs://b/d", "--output", "gs://b/r", "--tpu_name", "n"), r"--tpu_name does not apply"),
    ],
)
def test_what_cannot_work_there_is_refused_in_one_line(flags, message):
    with pytest.raises(SubmitError, match=message) as caught:
        job_of(pretrain(*flags))
    assert "\n" not in str(caught.value)


def test_a_cache_beside_the_output_is_refused():
    flags = "mrpc --data_dir gs://b/d --init_checkpoint gs://b/m --output gs://b/r --cache_dir gs://b/c"
    with pytest.raises(SubmitError, match="--cache_dir"):
        job_of(beambert.read_command("finetune", flags.split()))


def test_types_of_several_hosts_are_refused_and_say_why():
    assert runtime_version("v5litepod-8") == "v2-alpha-tpuv5-lite"
    with pytest.raises(SubmitError, match=r"v5litepod-16 has several hosts, which is not supported"):
        runtime_version("v5litepod-16")
    with pytest.raises(SubmitError, match=r"unknown --accelerator_type tpu7x-8"):
        runtime_version("tpu7x-8")


def test_a_wheel_says_which_python_it_is_for():
    assert python_of(Path("beambert-0.1.0-cp312-cp312-linux_x86_64.whl")) == "3.12"
    assert python_of(Path("beambert-0.1.0-cp311-cp311-manylinux_2_28_x86_64.whl")) == "3.11"
    for name in ("beambert-0.1.0-cp312-cp312-macosx_14_0_arm64.whl", "other-1-py3-none-any.whl", "beambert.zip"):
        with pytest.raises(SubmitError, match="Linux on x86-64"):
            python_of(Path(name))


def test_the_front_door_needs_neither_beam_nor_tensorflow_to_plan_a_run(capsys):
    own = ["--project=p", "--zone=z", "--accelerator_type=v6e-8", "--spot", "--dry_run"]
    run = ["pretrain", "--data=gs://b/d", "--output=gs://b/r"]
    assert beambert.main(["submit", "tpu", *own, *run]) == 0
    said = capsys.readouterr().out
    assert "--runtime-version=v2-alpha-tpuv6e" in said
    assert "beambert pretrain --data=places/b/d --output=places/b/r --strategy tpu" in said


def make_checkpoint(folder, step, parts=("data-00000-of-00001", "state.json")):
    folder.mkdir(parents=True, exist_ok=True)
    for part in (*parts, "index"):
        (folder / f"model.ckpt-{step}.{part}").write_text(f"{step} {part}")


def files(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_a_snapshot_has_whole_checkpoints_and_nothing_half_written(tmp_path):
    output = tmp_path / "run"
    make_checkpoint(output / "checkpoints", 10)
    make_checkpoint(output / "seed-2/checkpoints", 7)
    # A checkpoint that is being removed, one being written, a file being written, and what is never without a name.
    (output / "checkpoints/model.ckpt-5.data-00000-of-00001").touch()
    make_checkpoint(output / "checkpoints/.unfinished", 20)
    (output / ".run.json.unfinished").touch()
    (output / "metrics.jsonl").write_text("{}\n")
    without, whole = tmp_path / "snapshot/without_indexes", tmp_path / "snapshot/whole"
    assert worker.snapshot(output, tmp_path / "snapshot") == (without, whole)
    data = {
        *("checkpoints/model.ckpt-10.data-00000-of-00001", "checkpoints/model.ckpt-10.state.json", "metrics.jsonl"),
        *("seed-2/checkpoints/model.ckpt-7.data-00000-of-00001", "seed-2/checkpoints/model.ckpt-7.state.json"),
    }
    assert files(without) == data
    assert files(whole) == {*data, "checkpoints/model.ckpt-10.index", "seed-2/checkpoints/model.ckpt-7.index"}
    # What is written on meanwhile stays as it was.
    with (output / "metrics.jsonl").open("a") as metrics:
        metrics.write("more")
    assert (whole / "metrics.jsonl").read_text() == "{}\n"


def test_a_checkpoint_that_is_removed_while_it_is_linked_is_left_out(tmp_path, monkeypatch):
    checkpoints = tmp_path / "run/checkpoints"
    make_checkpoint(checkpoints, 5)
    make_checkpoint(checkpoints, 6)
    link = worker._link

    def link_and_remove(path, new):
        link(path, new)
        if path.name == "model.ckpt-5.index":
            for part in ("index", "state.json", "data-00000-of-00001"):
                (checkpoints / f"model.ckpt-5.{part}").unlink()

    monkeypatch.setattr(worker, "_link", link_and_remove)
    _, whole = worker.snapshot(tmp_path / "run", tmp_path / "snapshot")
    kept = ("data-00000-of-00001", "state.json", "index")
    assert files(whole) == {f"checkpoints/model.ckpt-6.{part}" for part in kept}


def test_snapshots_are_whole_while_checkpoints_come_and_go(tmp_path):
    checkpoints = tmp_path / "run/checkpoints"
    make_checkpoint(checkpoints, 0)
    done = threading.Event()

    def come_and_go():
        step = 0
        while not done.is_set():
            make_checkpoint(tmp_path / "new", step + 1)
            for part in ("data-00000-of-00001", "state.json", "index"):
                (tmp_path / f"new/model.ckpt-{step + 1}.{part}").replace(checkpoints / f"model.ckpt-{step + 1}.{part}")
            for part in ("index", "data-00000-of-00001", "state.json"):
                (checkpoints / f"model.ckpt-{step}.{part}").unlink()
            step += 1

    thread = threading.Thread(target=come_and_go)
    thread.start()
    try:
        for _ in range(100):
            _, whole = worker.snapshot(tmp_path / "run", tmp_path / "snapshot")
            for index in whole.rglob("*.index"):
                step = index.name.split(".")[1].split("-")[1]
                assert files(whole) >= {
                    f"checkpoints/model.ckpt-{step}.{p}" for p in ("data-00000-of-00001", "state.json")
                }
            shutil.rmtree(tmp_path / "snapshot")
    finally:
        done.set()
        thread.join()


def test_a_file_that_changes_twice_in_a_second_is_copied_again(tmp_path, monkeypatch):
    monkeypatch.setenv("TPU_STAND_IN", str(tmp_path))
    from tests.deploy.tpu import tpu_stand_in

    def storage(*words, shown=True):
        source, target = Path(words[-2]), Path(words[-1])
        return tpu_stand_in.rsync(source, target, len(words) == 4, [str(source), str(target)]) == 0, ""

    (tmp_path / "script.json").write_text("{}")
    monkeypatch.setattr(worker, "SNAPSHOT", tmp_path / "snapshot")
    monkeypatch.setattr(worker, "_storage", storage)
    (tmp_path / "run").mkdir()
    for number in range(5):
        (tmp_path / "run/best.json").write_text(str(number))
        assert worker.upload(tmp_path / "run", str(tmp_path / "bucket"))
        assert (tmp_path / "bucket/best.json").read_text() == str(number)


def test_an_index_arrives_after_all_that_it_speaks_of(tmp_path, monkeypatch):
    """Plays a transfer that stops after any number of files: what has arrived by then is a run to go on from."""
    output, place = tmp_path / "run", tmp_path / "bucket"
    checkpoints_seen = []

    def storage(*words, shown=True):
        source, target = Path(words[-2]), Path(words[-1])
        for name in sorted(files(source), reverse=True):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source / name, target / name)
            check()
        if "--delete-unmatched-destination-objects" in words:
            for name in sorted(files(target) - files(source)):
                (target / name).unlink()
                check()
        return True, ""

    def check():
        there = files(place)
        whole = [int(name.split("-")[1].split(".")[0]) for name in there if name.endswith(".index")]
        if whole:
            parts = ("data-00000-of-00001", "state.json")
            assert there >= {f"model.ckpt-{max(whole)}.{part}" for part in parts}
            assert json.loads((place / "metrics.jsonl").read_text())["step"] >= max(whole)
        checkpoints_seen.append(max(whole, default=0))

    monkeypatch.setattr(worker, "SNAPSHOT", tmp_path / "snapshot")
    monkeypatch.setattr(worker, "_storage", storage)
    make_checkpoint(output, 1)
    for step in (2, 3):
        make_checkpoint(output, step)
        (output / "metrics.jsonl").write_text(json.dumps({"step": step}))
        (output / f"model.ckpt-{step - 1}.index").unlink()
        assert worker.upload(output, str(place))
    # There is one to go on from at every moment after the first is there.
    assert set(checkpoints_seen[checkpoints_seen.index(2) :]) == {2, 3}
    assert files(place) == {
        "metrics.jsonl",
        *(f"model.ckpt-3.{p}" for p in ("index", "data-00000-of-00001", "state.json")),
    }
