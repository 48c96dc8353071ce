"""Test the command line: help, mistakes, unsupported paths, interrupts. Each error is one line with a remedy."""

import ast
import os
import re
import subprocess
import sys

import pytest

from beambert import cli
from beambert.trainers.commands import convert
from tests.conftest import ROOT

DESTINATIONS = [name for name in cli.COMMANDS if name.startswith("submit ")]
PATHS = ("DIR", "DST", "FILE", "GLOB", "NAME|FILE.json", "PATH", "SHARD", "SRC")
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
TPU = ("--project", "p", "--zone", "us-west4-a", "--accelerator_type", "v5litepod-8", "--dry_run")
PRETRAIN = ("pretrain", "--data", "gs://b/data", "--output", "gs://b/run")


def run(capsys, *argv: str) -> tuple[int, str, str]:
    try:
        code = cli.main(list(argv))
    except SystemExit as stop:
        code = stop.code
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def fails(capsys, *argv: str) -> str:
    """Run a wrong command line and return its error, which must be one line."""
    code, out, err = run(capsys, *argv)
    assert (code, out) == (2, ""), (code, out, err)
    assert err.count("\n") == 1, err
    assert err.startswith("beambert")
    return err.rstrip("\n")


# Version and help


@pytest.mark.parametrize("word", ["--version", "version", "-V"])
def test_the_version_is_that_of_setup_py(capsys, word):
    version = re.search(r'version="([^"]+)"', (ROOT / "setup.py").read_text(encoding="utf-8"))[1]
    assert run(capsys, word) == (0, f"beambert {version}\n", "")


def test_help_with_a_command_prints_what_the_command_prints_with_help(capsys):
    for name in cli.COMMANDS:
        code, expected, _ = run(capsys, *name.split(), "--help")
        assert code == 0
        for word in ("help", "--help", "-h"):
            assert run(capsys, word, *name.split()) == (0, expected, "")


def test_help_alone_and_help_with_submit_list_commands(capsys):
    code, out, _ = run(capsys, "help")
    assert code == 0
    assert all(f"  {name} " in out for name in cli.COMMANDS)
    assert run(capsys) == (2, out, "")
    code, out, _ = run(capsys, "help", "submit")
    assert code == 0
    assert {line.split("  ")[1] for line in out.splitlines() if line.startswith("  ")} == set(DESTINATIONS)
    code, out, _ = run(capsys, "help", "quality")
    assert code == 0
    assert out.startswith("usage: beambert quality train [--flags]\n\n  quality train  ")
    assert run(capsys, "help", "help")[0] == 0


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["help", "bulid"], "unknown command 'bulid'; did you mean build?"),
        (["help", "quality", "tran"], "unknown word 'tran': use train; did you mean train?"),
        (["quality", "--good", "a"], "quality requires train and its flags"),
        (["help", "submit", "tpus"], "unknown destination 'tpus': use flink, dataflow or tpu; did you mean tpu?"),
    ],
)
def test_help_with_an_unknown_command_is_an_error(capsys, argv, says):
    assert says in fails(capsys, *argv)


# Mistyped command lines


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["bulid"], "unknown command 'bulid'; did you mean build?"),
        (["BUILD"], "unknown command 'BUILD'; did you mean build?"),
        (["pretraining_data"], "did you mean pretraining-data?"),
        ([""], "unknown command ''"),
        (["--output", "x", "build"], "--output precedes the command; put flags after it: beambert build --output"),
        (["--project", "p", "submit", "tpu"], "put flags after it: beambert submit --project"),
        (["--verison"], "unknown argument --verison; did you mean --version?"),
        (["build", "--inptu", "x"], "unknown argument --inptu; did you mean --input?"),
        (["build", "--max-seq-length", "9"], "did you mean --max_seq_length?"),
        (["build", "--output", "x", "--direct_num_worker=2"], "did you mean --direct_num_workers?"),
        (["pretrain", "--data", "d", "--output", "x", "--runner", "FlinkRunner"], "unknown argument --runner"),
        (["submit", "flink", "--flink_master", "h:1", "build", "--vocab_sze", "9"], "did you mean --vocab_size?"),
        (["build"], "the following arguments are required: --output"),
        (["build", "--output", "x", "--do_lower_case", "perhaps"], "'perhaps' is neither true nor false"),
        (["build", "foo"], "unexpected argument 'foo'; build takes flags only, each followed by its value"),
        (["build", "--output", "x", "--", "foo"], "unexpected argument 'foo'"),
        (["build", "--"], "the following arguments are required: --output"),
        (["convert", "a", "b", "c", "--to", "native"], "unexpected argument 'c'; convert takes SRC DST, then flags"),
        (["fill-mask", "model"], "required: TEXT"),
        (["build", "-output", "x"], "unknown argument -output; did you mean --output?"),
        (["build", "---output=x"], "unknown argument ---output; did you mean --output?"),
        (["build", "-help"], "unknown argument -help; did you mean --help?"),
        # Only its dashes are those of --help, so that --help is not suggested.
        (["fill-mask", "--model", "m"], "unknown argument --model; see"),
        # Word processors replace two hyphens with a dash.
        (["build", "\u2013output", "x"], "unknown argument \u2013output; did you mean --output?"),
        (["build", "\u2014input=x", "--output", "x"], "unknown argument \u2014input; did you mean --input?"),
        (["submit", "flnk", "build"], "unknown destination 'flnk': use flink, dataflow or tpu; did you mean flink?"),
        (["submit", "--project", "p", "tpu", "pretrain"], "submit requires a destination (flink, dataflow or tpu)"),
    ],
)
def test_a_mistyped_command_line_is_a_one_line_error_with_a_remedy(capsys, argv, says):
    assert says in fails(capsys, *argv)


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["build", "--output", "a", "--output", "b"], "--output is given twice; use it once"),
        (["build", "--output=a", "--input", "t", "--output=a"], "--output is given twice; use it once"),
        (["pretrain", "--data", "a", "b", "--data", "c"], "--data is given twice; put all values after one --data"),
        (["pretrain", "--recipe", "tiny-cpu", "--model", "a.json", "--model", "b.json"], "--model is given twice"),
        (["submit", "tpu", *TPU, "--wheel", "a", "--wheel", "b", *PRETRAIN], "--wheel is given twice"),
    ],
)
def test_a_path_that_is_given_twice_is_refused(capsys, argv, says):
    assert says in fails(capsys, *argv)


def test_other_flags_may_be_given_twice_and_lists_may_grow():
    twice = ["a", "--top_k", "1", "--top_k", "2", "b", "c"]
    config = cli.read_command("fill-mask", twice).configure()
    assert (config.top_k, config.texts) == (2, ("b", "c"))
    command = cli.read_command("build", ["--output", "o", "--input", "a", "b", "--input", "c"])
    assert command.path_arguments == [("--input", "a"), ("--input", "b"), ("--input", "c"), ("--output", "o")]
    # A flag that overrides the recipe does not count as given twice.
    argv = ["--recipe", "tiny-cpu", "--model", "own.json", "--data", "d", "--output", "o"]
    assert cli.read_command("pretrain", argv).configure().model == "own.json"


def test_the_default_in_the_help_is_the_default():
    compared = 0
    for name in cli.COMMANDS:
        for action in cli.make_parser(name)[0]._actions:
            stated = re.search(r"\(default: (-?[\d.,]*\de?[-\d]*)[;,)]", action.help or "")
            if stated and isinstance(action.default, int | float):
                assert float(stated[1].replace(",", "")) == action.default, (name, action.option_strings)
                compared += 1
    assert compared > 10


# Flags of `pretrain` and `build` in modules of the trainers that `finetune` uses too, in messages that it cannot print.
NOT_OF_FINETUNE = {
    "data/dynamic_masking.py": {"--mask_rate_schedule", "--masking", "--max_predictions_per_seq"},
    "data/shard_reader.py": {"--on_corrupt_record"},
    "data/tf_dataset.py": {"--format"},
    "metrics/diagnosis.py": {
        "--drop_near_duplicates",
        "--drop_repeated_paragraphs",
        "--no_next_sentence",
        "--num_train_steps",
        "--num_warmup_steps",
        "--vocab_size",
    },
    "optimization/schedule.py": {"--batch_ramp", "--data", "--schedule"},
    "training/several_processes.py": {"--max_train_time", "--num_train_steps"},
    # Printed only for a run without a task.
    "training/run_manifest.py": {"--batch_ramp"},
}
ONLY_OTHERS = ("commands", "evaluation", "inference", "pretraining")


def test_messages_of_finetune_name_flags_of_finetune():
    known = {flag for name in ("finetune", "tune") for action in cli.make_parser(name)[0]._actions
             for flag in action.option_strings}  # fmt: skip
    found = {}
    for path in sorted((ROOT / "trainers").rglob("*.py")):
        name = str(path.relative_to(ROOT / "trainers"))
        if name.split("/")[0] in ONLY_OTHERS or "_flags" in name:
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        texts = {
            node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }
        documentation = {
            ast.get_docstring(node, clean=False) for node in ast.walk(tree) if isinstance(node, DOCUMENTED)
        }
        # A flag that an f-string completes ends in an underscore.
        flags = {
            flag for text in texts - documentation for flag in re.findall(r"(?<![\w-])--[a-z][a-z_]*[a-z]\b(?!_)", text)
        }
        if others := flags - known:
            found[name] = others - {"--xla_gpu_deterministic_ops", "--average"}
    assert {name: flags for name, flags in found.items() if flags} == NOT_OF_FINETUNE


def path_flags() -> list[tuple[str, str]]:
    """Return (command, flag) of every flag whose metavar or name shows that its value is a path."""
    flags = []
    for name in cli.COMMANDS:
        for action in cli.make_parser(name)[0]._actions:
            named_like_a_path = action.dest.endswith(("_file", "_dir", "_checkpoint")) or action.dest in (
                "output",
                "input",
            )
            if action.metavar in PATHS or named_like_a_path:
                flags += [(name, flag) for flag in action.option_strings[:1]]
    return flags


def test_an_empty_path_is_refused_by_every_command(capsys):
    for name, flag in path_flags():
        trailing = ["build", "--output", "o"] if name in ("submit flink", "submit dataflow") else []
        trailing = list(PRETRAIN) if name == "submit tpu" else trailing
        positionals = {"finetune": ["mrpc"], "tune": ["mrpc"]}.get(name, [])
        for argv in ([f"{flag}="], [flag, " \t\n"]):
            assert f"{flag} is empty; give a path" in fails(capsys, *name.split(), *positionals, *argv, *trailing)


@pytest.mark.parametrize(
    ("argv", "name"),
    [
        (["fill-mask", "", "a [MASK]"], "DIR"),
        (["convert", "a", "", "--to", "native"], "DST"),
        (["inspect", "a", " "], "SHARD"),
        (["pretrain", "--data", "a", "", "--output", "o"], "--data"),
        (["build", "--input", "a", "--input", "", "--output", "o"], "--input"),
        (["submit", "flink", "--flink_master", "h:1", "build", "--input", "t", "--output", ""], "--output"),
        (["submit", "tpu", *TPU, "pretrain", "--data", "gs://b/d", "--output="], "--output"),
    ],
)
def test_an_empty_path_is_refused_wherever_it_is(capsys, argv, name):
    assert f"{name} is empty; give a path" in fails(capsys, *argv)


# submit: flags on either side of the command


@pytest.mark.parametrize("flag", [("--name", "tune"), ("--name=tune",)])
def test_a_flag_of_submit_may_have_the_name_of_a_command_as_its_value(capsys, flag):
    code, out, err = run(capsys, "submit", "tpu", *flag, *TPU, *PRETRAIN)
    assert code == 0, err
    assert "queued-resources create tune " in out
    assert "beambert pretrain --data gs://b/data" in out


def test_values_named_like_commands_are_values_for_every_destination():
    for name in DESTINATIONS:
        parser, module = cli.make_parser(name)
        for action in parser._actions:
            if action.nargs is None:
                for word in module.RUNS:
                    assert cli.find_command(parser, [action.option_strings[0], word, module.RUNS[0]], module.RUNS) == 2


def test_a_wrong_value_named_like_a_command_is_named_as_a_value(capsys):
    argv = ["--project", "my-project", "--region", "build", "--temp_location", "gs://bkt/t"]
    err = fails(capsys, "submit", "dataflow", *argv, "corpus", "--input", "gs://b/i", "--output", "gs://b/o")
    assert "argument --region: 'build' is not a region" in err


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["dataflow", "build", "--project", "x"], "--project is a flag of submit dataflow; put it before build"),
        (["flink", "corpus", "--input", "i", "--flink_master=h:1"], "--flink_master is a flag of submit flink; put it"),
        (["tpu", "tune", "mrpc", "--zone", "z"], "--zone is a flag of submit tpu; put it before tune"),
        (["flink", "--flink_master", "h:1", "--input", "x", "build"], "--input is a flag of build; put it after build"),
        (["tpu", "--data", "gs://b/d", *TPU, "pretrain"], "--data is a flag of pretrain; put it after pretrain"),
        (["tpu", *TPU], "the command to run is missing after the flags of submit tpu: pretrain, finetune or tune"),
        (
            ["tpu", *TPU, "pretrian", "--data", "x"],
            "cannot run 'pretrian', only pretrain, finetune or tune; did you mean",
        ),
        (["tpu", *TPU, "build"], "submit tpu cannot run 'build', only pretrain, finetune or tune"),
        (["tpu", "--name", *PRETRAIN[1:]], "--name: expected one argument"),
    ],
)
def test_a_flag_on_the_wrong_side_of_the_command_is_explained(capsys, argv, says):
    assert says in fails(capsys, "submit", *argv)


def test_a_list_before_the_command_ends_at_the_command():
    parser, module = cli.make_parser("submit dataflow")
    argv = ["--labels", "a=1", "b=2", "build", "--labels_of_mine"]
    assert cli.find_command(parser, argv, module.RUNS) == 3


def test_help_after_the_command_is_that_of_the_command(capsys):
    _, expected, _ = run(capsys, "pretrain", "--help")
    assert run(capsys, "submit", "tpu", "pretrain", "--help") == (0, expected, "")


# Paths, failures and interrupts of any command


def test_python_without_docstrings_is_refused_in_a_line():
    environment = {**os.environ, "PYTHONOPTIMIZE": "2"}
    argv = [sys.executable, "-m", "beambert", "corpus", "--input", "a", "--output", "b"]
    result = subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == "beambert: error: Apache Beam needs docstrings; unset PYTHONOPTIMIZE, or set it to 1\n"


@pytest.mark.parametrize(
    ("argv", "flag"),
    [
        (["pretrain", "--data", "here", "s3://bucket/data", "--output", "run"], "--data s3://bucket/data"),
        (["finetune", "mrpc", "--data_dir", "d", "--output", "hdfs://bucket/run"], "--output hdfs://bucket/run"),
        (["convert", "http://bucket/run", "model", "--to", "native"], "SRC http://bucket/run"),
        (["finetune", "csv", "--output", "o", "--cache_dir", "gs://bucket/c"], "--cache_dir gs://bucket/c"),
    ],
)
def test_training_refuses_other_file_systems(capsys, argv, flag):
    code, _, err = run(capsys, *argv)
    assert code == 2
    assert f"{flag} is not supported; give a local path" in err
    assert ("gs://BUCKET/NAME" in err) != ("--cache_dir" in argv)
    assert err.count("\n") == 1


def test_a_text_argument_may_look_like_a_cloud_path(capsys):
    code, _, err = run(capsys, "predict", "nowhere", "gs://bucket/run")
    assert code == 1
    assert "bucket" not in err


def test_an_internal_error_keeps_its_traceback(monkeypatch):
    from beambert.pipelines.commands import build

    def fails(args):
        raise ValueError("a fault in beambert")

    monkeypatch.setattr(build, "configure", fails)
    with pytest.raises(ValueError, match="a fault in beambert"):
        cli.main(["build", "--output", "x"])


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (MemoryError(), ""),
        (MemoryError("Unable to allocate 9 GiB\nfor an array"), " (Unable to allocate 9 GiB for an array)"),
    ],
)
def test_a_lack_of_memory_is_one_line(capsys, monkeypatch, error, reason):
    def fails(config):
        raise error

    monkeypatch.setattr(convert, "run", fails)
    code, _, err = run(capsys, "convert", "--to", "native", "a", "b")
    remedy = "free some memory, or use a machine with more"
    assert (code, err) == (1, f"beambert convert: error: not enough memory{reason}; {remedy}\n")


def test_an_interrupt_that_a_library_turns_into_another_exception_is_an_interrupt(capsys, monkeypatch):
    """Test both exceptions: pybind11 raises the first, and code that cleans up raises the second."""

    def by_pybind(config):
        raise RuntimeError("MISMATCH of exception types: ORIGINAL InvalidArgumentError REPLACED BY KeyboardInterrupt")

    def while_cleaning_up(config):
        try:
            raise KeyboardInterrupt
        finally:
            raise ZeroDivisionError("broken by the interrupt")

    for fails in (by_pybind, while_cleaning_up):
        monkeypatch.setattr(convert, "run", fails)
        code, _, err = run(capsys, "convert", "--to", "native", "a", "b")
        assert (code, err) == (130, "beambert convert: interrupted; run the same command again to resume\n")

    def fault(config):
        raise ZeroDivisionError("a fault")

    monkeypatch.setattr(convert, "run", fault)
    with pytest.raises(ZeroDivisionError):
        run(capsys, "convert", "--to", "native", "a", "b")
