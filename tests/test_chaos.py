"""Test a sample of `make chaos`, and the checks that judge its cases."""

import random
import signal

import pytest
from chaos import disturbances, judgement, results
from chaos.case import Case, cases_of, complete_round, run_case, run_reference
from chaos.commands import BY_NAME, COMMANDS, prepare, required
from chaos.disturbances import KINDS, kinds_of

from beambert import cli

SAMPLE = [("corpus", "kill-all")]
# Commands without an output, and those that run other commands.
WITHOUT_CASES = {"demo", "inspect", "fill-mask", "plan", "submit flink", "submit dataflow", "submit tpu"}


@pytest.fixture(scope="module")
def slot(tmp_path_factory):
    """The directory of a slot, and the undisturbed runs that the sample needs, by command."""
    slot = tmp_path_factory.mktemp("chaos")
    names = sorted({name for name, _ in SAMPLE})
    return slot, {command.name: run_reference(command, slot) for command in required(names)}


@pytest.mark.slow
@pytest.mark.parametrize(("command", "kind"), SAMPLE)
def test_the_result_after_a_disturbance_is_that_of_an_undisturbed_run(command, kind, slot):
    directory, references = slot
    outcome = run_case(Case(command, kind, seed=1, number=0), directory, references[command])
    (directory / "case").rename(directory / f"{command}-{kind}")
    assert outcome.faults == [], outcome


def test_cases_are_drawn_from_the_seed_alone():
    names = [command.name for command in COMMANDS]
    cases = cases_of(names, 7, 0, 60)
    assert cases == cases_of(names, 7, 0, 60)
    assert cases[41:43] == cases_of(names, 7, 41, 2)
    assert cases != cases_of(names, 8, 0, 60)
    # The commands take turns, and each kind of a command occurs once before any kind occurs twice.
    assert {case.command for case in cases[: len(names)]} == set(names)
    kinds = [case.kind for case in cases_of(["corpus"], 7, 0, len(kinds_of(BY_NAME["corpus"])))]
    assert sorted(kinds) == sorted(kinds_of(BY_NAME["corpus"]))


def test_every_command_that_writes_has_cases_of_every_kind(monkeypatch):
    monkeypatch.setattr(disturbances.disks, "can_mount", lambda: True)
    names = {name.split()[0] for name in set(cli.COMMANDS) - WITHOUT_CASES}
    assert {command.arguments[0] for command in COMMANDS} == names
    assert {kind for command in COMMANDS for kind in kinds_of(command)} == set(KINDS)
    names = [command.name for command in COMMANDS]
    cases = {(case.command, case.kind) for case in cases_of(names, 1, 0, complete_round(names))}
    assert cases == {(command.name, kind) for command in COMMANDS for kind in kinds_of(command)}
    asked = {"kill-all", "interrupt-all", "full-disk", "delete-file", "delete-input", "change-input", "second-writer"}
    assert all(asked <= {*kinds_of(command)} for command in COMMANDS)


GOOD = "beambert build: error: work/out cannot be written: the disk is full; free some space and run the same again\n"


@pytest.mark.parametrize(
    ("code", "text", "words"),
    [
        (1, GOOD, ""),
        (-signal.SIGTERM, "", "exit code -15"),
        (0, GOOD, "exit code 0 with an error"),
        (1, GOOD + GOOD, "2 error lines"),
        (1, GOOD + "more\n", "more lines after"),
        (1, f"beambert build: error: {'x' * 400}\n", "423 characters"),
    ],
)
def test_ending_errors_are_detected(code, text, words):
    assert words in "".join(judgement.ending_errors(code, text)) if words else not judgement.ending_errors(code, text)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_termination_by_the_sent_signal_is_no_fault(number):
    assert judgement.ending_errors(-number, "", signaled=number) == []
    assert judgement.ending_errors(128 + number, "", signaled=number) == []
    assert judgement.ending_errors(-signal.SIGKILL, "", signaled=number)


@pytest.mark.parametrize(
    "text",
    [
        "Traceback (most recent call last):\n  File ...\nValueError: x\n",
        "Fatal Python error: Segmentation fault\n",
        "W0000 00:00:1700000000.1 10 x.cc:1] words\n",
        "Exception ignored in: <function f>\n",
        "beambert build: error: [Errno 28] No space left on device\n",
    ],
)
def test_output_errors_are_detected(text):
    assert len(judgement.output_errors(f"Corpus: 2 input files\n{text}")) >= 1
    assert judgement.output_errors("Corpus: 2 input files\n") == []


def test_a_difference_of_the_results_is_seen():
    reference = {"a": "1", "checkpoints/model.ckpt-2.index": "2", "checkpoints/model.ckpt-4.index": "3"}
    assert results.difference(reference, reference) == ""
    assert results.difference({**reference, "a": "2"}, reference) == "other content: a (1)"
    assert results.difference({**reference, "../x.tmp": "2"}, reference) == "left over: ../x.tmp (1)"
    fewer = {name: content for name, content in reference.items() if "ckpt-2" not in name}
    assert results.difference(fewer, reference) == "missing: checkpoints/model.ckpt-2.index (1)"
    assert results.difference(fewer, reference, other_checkpoints=True) == ""
    last = {**reference, "checkpoints/model.ckpt-4.index": "4"}
    assert results.difference(last, reference, other_checkpoints=True) != ""


def test_a_manifest_without_its_files_is_seen(tmp_path):
    command = BY_NAME["corpus"]
    prepare(command, tmp_path / "case", tmp_path)
    output = tmp_path / "case" / command.output
    output.mkdir()
    reference = {"corpus.json": "1", "vocab.txt": "2"}
    assert results.incomplete(command, tmp_path / "case", reference) == ""
    (output / "corpus.json").write_text('{"shards": []}', encoding="utf-8")
    assert "without vocab.txt" in results.incomplete(command, tmp_path / "case", reference)
    (output / "vocab.txt").write_text("x", encoding="utf-8")
    assert results.incomplete(command, tmp_path / "case", reference) == ""


@pytest.mark.parametrize("how", ["empty", "half", "noise", "byte", "appended"])
def test_damage_changes_a_file(how, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"some content of a file")
    disturbances.damage(path, how, random.Random(1))
    assert path.read_bytes() != b"some content of a file"
