"""Test `--seeds` and `tune` with an --output that contains runs.

No run is deleted, and no run with other options counts as complete.
"""

import argparse
import hashlib
import json
import shutil

import pytest

from beambert import cli
from beambert.trainers.commands.finetune import add_arguments, configure
from beambert.trainers.finetuning import run_comparison

EPOCH = ("--max_seq_length", "48", "--train_batch_size", "8", "--num_train_epochs", "1")


def tree(directory):
    """Return the SHA-256 of every file below a directory, by its path."""
    files = [path for path in sorted(directory.rglob("*")) if path.is_file()]
    return {str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def runs_of(output):
    return {name: tree(output / name) for name in ("seed-7", "seed-8")}


def seeds(data, initial, output, *flags):
    argv = ["finetune", "rte", "--data_dir", str(data), "--init_checkpoint", str(initial), "--output", str(output)]
    return cli.main([*argv, *EPOCH, "--seeds", "2", "--seed", "7", *flags])


@pytest.fixture(scope="module")
def finished(rte, initial, tmp_path_factory):
    """An output directory with two finished runs, which tests copy."""
    output = tmp_path_factory.mktemp("finished") / "output"
    assert seeds(rte, initial, output) == 0
    return output


@pytest.fixture
def output(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "output")


def test_options_that_change_no_result_leave_finished_runs(output, rte, initial, tmp_path, monkeypatch, capsys):
    before = runs_of(output)
    for flags in (
        ("--eval_batch_size", "5"),
        ("--save_checkpoints_steps", "2", "--keep_checkpoint_max", "1", "--iterations_per_loop", "3"),
        ("--max_predict_samples", "3"),
    ):
        assert seeds(rte, initial, output, *flags) == 0
        assert runs_of(output) == before
    # The same files under another path, and the same content in another directory.
    monkeypatch.chdir(rte.parent)
    assert seeds(f"./{rte.name}", initial, output) == 0
    moved = shutil.copytree(rte, tmp_path / "moved")
    model = shutil.copytree(initial, tmp_path / "model")
    assert seeds(moved, model, output) == 0
    assert runs_of(output) == before
    assert "Run 1 of 2: seed-7 (complete)" in capsys.readouterr().out
    # An option that affects only rounding: the runs are kept, and a message names the option.
    assert seeds(rte, initial, output, "--xla", "on") == 0
    assert runs_of(output) == before
    assert "is not bit-identical: --xla (auto before, on now)" in capsys.readouterr().out


def test_options_that_change_results_are_refused_by_name(output, rte, initial, tmp_path, capsys):
    before = tree(output)
    for flags, named in (
        (("--learning_rate", "1e-3"), "--learning_rate (5e-05 before, 0.001 now)"),
        (("--max_train_samples", "16"), "--max_train_samples (not set before, 16 now)"),
        (("--do_lower_case", "false"), "--do_lower_case (not set before, false now)"),
    ):
        assert seeds(rte, initial, output, *flags) == 1
        error = capsys.readouterr().err
        assert f"contains a run with other options: {named}; use another --output" in error
        assert error.count("\n") == 1
        assert tree(output) == before
    # Other examples in a file of the same name.
    changed = shutil.copytree(rte, tmp_path / "changed")
    text = (changed / "dev.tsv").read_text(encoding="utf-8")
    (changed / "dev.tsv").write_text(text.replace("a", "e"), encoding="utf-8")
    assert seeds(changed, initial, output) == 1
    assert f"--data_dir ({rte} before, {changed} now)" in capsys.readouterr().err
    assert tree(output) == before


def test_files_of_the_user_in_place_of_a_run_are_refused(rte, initial, tmp_path, output, capsys):
    notes = tmp_path / "new" / "seed-8"
    notes.mkdir(parents=True)
    (notes / "notes.txt").write_text("mine")
    assert seeds(rte, initial, notes.parent) == 1
    assert f"{notes} exists and is not a run of this command" in capsys.readouterr().err
    assert tree(notes.parent) == {"seed-8/notes.txt": hashlib.sha256(b"mine").hexdigest()}
    # The same holds where they replace a recorded run.
    shutil.rmtree(output / "seed-7")
    (output / "seed-7").mkdir()
    (output / "seed-7" / "notes.txt").write_text("mine")
    before = tree(output)
    assert seeds(rte, initial, output) == 1
    assert tree(output) == before


def test_a_stopped_run_resumes_with_the_same_files_under_another_path(output, rte, initial, tmp_path, capsys):
    outcomes = json.loads((output / "runs.json").read_text())
    del outcomes["seed-8"]
    (output / "runs.json").write_text(json.dumps(outcomes))
    moved = shutil.copytree(rte, tmp_path / "moved")
    model = shutil.copytree(initial, tmp_path / "model")
    before = tree(output)
    # Other files are refused.
    text = (moved / "dev.tsv").read_text(encoding="utf-8")
    (moved / "dev.tsv").write_text(text.replace("a", "e"), encoding="utf-8")
    assert seeds(moved, model, output) == 1
    assert f"--data_dir ({rte} before, {moved} now)" in capsys.readouterr().err
    assert tree(output) == before
    (moved / "dev.tsv").write_text(text, encoding="utf-8")
    assert seeds(moved, model, output, "--learning_rate", "1e-3") == 1
    assert "seed-7 contains a run with other options: --learning_rate" in capsys.readouterr().err
    assert seeds(moved, model, output) == 0
    assert list(json.loads((output / "runs.json").read_text())) == ["seed-7", "seed-8"]


def asked(*flags):
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    args = parser.parse_args(["rte", "--data_dir", "d", "--output", "o", *flags])
    return configure(args).to_json()


# Options whose change leaves the scores of a finished run valid.
FREE = {
    *("output", "cache_dir", "seeds", "do_train", "do_eval", "do_predict", "max_predict_samples", "eval_batch_size"),
    *("save_checkpoints_steps", "keep_checkpoint_max", "keep_checkpoint_every_n_hours", "iterations_per_loop"),
    *("peak_tflops", "tpu_name", "tpu_zone", "gcp_project", "coordinator_address", "num_processes", "process_id"),
    # They follow from the number of examples.
    *("num_train_steps", "num_warmup_steps"),
    # Rounding only.
    *("backend", "strategy", "cpu_devices", "gradient_accumulation_steps", "xla", "activation_checkpointing"),
    *("shard_optimizer_state", "deterministic_ops"),
}


@pytest.mark.parametrize(
    "name", sorted(asked().keys() - {"best_metric", *run_comparison._DATA, *run_comparison._MODEL})
)
def test_every_option_either_matters_or_is_listed_as_free(name):
    there, now = asked(), {**asked(), name: "another"}
    contents = {"data": "0"}
    assert len(run_comparison.differences(there, contents, now, contents)) == (0 if name in FREE else 1)


def test_paths_are_compared_by_content_first():
    there, now = {**asked(), "init_checkpoint": "a"}, {**asked(), "init_checkpoint": "b"}
    same, other = {"data": "0", "init_checkpoint": "1"}, {"data": "0", "init_checkpoint": "2"}
    assert run_comparison.differences(there, same, now, same) == []
    assert run_comparison.differences(there, same, now, other) == ["--init_checkpoint (a before, b now)"]
    assert run_comparison.differences(there, same, there, other) == ["--init_checkpoint a, which has changed"]
    # run.json alone has no digests of the contents.
    assert run_comparison.differences(there, {}, {**now, "init_checkpoint": "./a"}, same) == []
    assert run_comparison.differences(there, {}, now, same) == ["--init_checkpoint (a before, b now)"]
