"""Test `beambert submit tpu` against a stand-in of gcloud and the cloud: requests, waiting, log, restarts and deletion.

On the machine, a few lines of Python run in place of beambert's training; test_tpu_training.py runs real training.
"""

import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from beambert.deploy.tpu.gcloud import Lines, print_line
from beambert.deploy.tpu.service import Tpu
from beambert.deploy.tpu.session import Interrupted, Signals
from tests.deploy.tpu.tpu_cloud import NAME, OUTPUT, PRETRAIN, until

DELETE = f"gcloud compute tpus queued-resources delete {NAME} --force --project=p --zone=us-west4-a --quiet"
# A program that writes its arguments to a file.
SHOW = f"""{OUTPUT}
(output / "argv.json").write_text(json.dumps(sys.argv[1:]))
print("trained")
"""
# A program that increments a count in its output up to --num_train_steps, and saves when it receives SIGTERM.
COUNT = (
    OUTPUT
    + """
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
count = int((output / "count").read_text()) if (output / "count").exists() else 0
while count < int(sys.argv[sys.argv.index("--num_train_steps") + 1]) and not asked:
    count += 1
    print(f"step {count}", flush=True)
    (output / ".count").write_text(str(count))
    (output / ".count").replace(output / "count")
    time.sleep(0.05)
if asked:
    (output / "saved").touch()
    sys.exit(143)
"""
)
COUNTING = (*PRETRAIN[:-1], "100000")
HOSTILE = (
    "two words",
    "$(touch pwned)",
    "`touch pwned`",
    "'; touch pwned; '",
    '"; touch pwned; "',
    "a\nb; touch pwned",
    "*",
    "\\",
    "~",
    "--flag=&& touch pwned",
    "\u202eüñ\U0001f600",
    "",
)


@pytest.fixture
def cloud(empty_cloud):
    empty_cloud.command(SHOW)
    return empty_cloud


def test_a_straight_run_creates_installs_runs_shows_the_log_and_deletes(cloud):
    result = cloud.submit("--spot", "--service_account=me@p.iam", command=PRETRAIN)
    assert result.returncode == 0, result.stderr + result.stdout
    assert cloud.left == []
    (create,) = cloud.calls("create")
    assert {"--spot", "--service-account=me@p.iam", "--runtime-version=v2-alpha-tpuv5-lite", f"--node-id={NAME}"} <= {
        *create
    }
    for state in ("WAITING_FOR_RESOURCES", "PROVISIONING"):
        assert f"{NAME}: {state}" in result.stdout
    assert "trained" in result.stdout.splitlines()
    # The command that deletes the TPU by hand is printed before the TPU exists.
    assert result.stdout.index(DELETE) < result.stdout.index("PROVISIONING")
    argv = json.loads((cloud.bucket("gs://bucket/run") / "argv.json").read_text())
    assert argv[:7] == [
        *("pretrain", "--data", "gs://bucket/data", "--output", "gs://bucket/run", "--num_train_steps", "5")
    ]


def test_no_argument_is_read_by_a_shell(cloud):
    url = "gs://bucket/a b'$(touch pwned);\"c/"
    # --best_metric accepts any text; only the command itself may check the value.
    flags = tuple(f"--best_metric={text}" for text in HOSTILE)
    result = cloud.submit(command=("pretrain", f"--data={url}", *PRETRAIN[3:], *flags))
    assert result.returncode == 0, result.stderr
    argv = json.loads((cloud.bucket("gs://bucket/run") / "argv.json").read_text())
    assert argv[1] == f"--data={url}"
    assert tuple(argv[6 : 6 + len(flags)]) == flags
    assert not list(cloud.state.rglob("pwned"))
    for call in cloud.calls("ssh"):
        (sent,) = [word.removeprefix("--command=") for word in call if word.startswith("--command=")]
        assert re.fullmatch(r"python3 beambert-job/tpu_worker\.py (install|start|follow \d+|stop)", sent)


def test_no_more_restarts_than_allowed(cloud):
    cloud.plan(states=[["SUSPENDED"]] * 3)
    result = cloud.submit("--max_restarts=2", command=PRETRAIN)
    assert result.returncode == 1
    assert "--max_restarts" in result.stderr
    assert len(cloud.calls("create")) == 3
    assert cloud.left == []


@pytest.mark.slow
def test_a_request_that_another_process_deletes_is_not_created_again(cloud):
    cloud.command("import time; time.sleep(600)")
    cloud.plan(states=[["ACTIVE", {"state": "SUSPENDING", "stateInitiator": "USER"}]])
    result = cloud.submit(command=PRETRAIN)
    assert result.returncode == 1
    assert "deleted by another process" in result.stderr
    assert len(cloud.calls("create")) == 1
    assert cloud.left == []


# Error messages of the service, from github.com/marin-community/marin pull request 1612 and issue 87, and from
# github.com/hashicorp/terraform-provider-google issue 21243.
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            "RESOURCE_EXHAUSTED: Quota limit 'TPUV6EPreemptiblePerProjectPerRegionForTPUAPI' has been exceeded. "
            "Limit: 0 in region us-east5.",
            "TPUV6EPreemptiblePerProjectPerRegionForTPUAPI, Limit: 0 in region us-east5",
        ),
        (
            "Quota 'TPUV5sPreemptibleLitepodPerProjectPerRegionForTPUAPI' exhausted.\n"
            "      Limit 10000 in region us-west4",
            "TPUV5sPreemptibleLitepodPerProjectPerRegionForTPUAPI, Limit 10000 in region us-west4",
        ),
        (
            'There is no more capacity in the zone "us-central1-c"; you can try in another zone where Cloud TPU Nodes '
            "are offered (see https://cloud.google.com/tpu/docs/regions) [EID: 0x9f48947a7d57c8d]",
            "no more capacity in the zone",
        ),
        ("PERMISSION_DENIED: Permission 'tpu.nodes.create' denied", "Permission 'tpu.nodes.create' denied"),
    ],
)
def test_a_refusal_names_the_quota(words, expected):
    line = str(Tpu("p", "us-west4-a", NAME)._rejection("the request", words))
    assert expected in line
    assert "\n" not in line
    if "uota" in words:
        assert "https://console.cloud.google.com/iam-admin/quotas?project=p" in line
        assert "gcloud compute tpus queued-resources list" in line


def test_a_request_that_fails_in_the_queue_is_one_line_and_leaves_nothing(cloud):
    words = "There is no more capacity in the zone."
    failed = {"state": "FAILED", "failedData": {"error": {"code": 8, "message": words}}}
    cloud.plan(states=[["WAITING_FOR_RESOURCES", failed]])
    result = cloud.submit(command=PRETRAIN)
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert words in line
    assert cloud.left == []


def test_a_request_that_is_never_granted_is_deleted(cloud):
    cloud.plan(states=[["WAITING_FOR_RESOURCES"]])
    result = cloud.submit("--timeout=0.02", command=PRETRAIN)
    assert result.returncode == 1
    assert "WAITING_FOR_RESOURCES" in result.stderr
    assert "--timeout" in result.stderr
    assert cloud.left == []


def test_a_name_that_is_taken_is_left_alone(cloud):
    (cloud.state / "requests" / f"{NAME}.json").write_text(json.dumps({"states": ["ACTIVE"]}))
    result = cloud.submit(command=PRETRAIN)
    assert result.returncode == 1
    assert "in use by another request" in result.stderr
    assert cloud.calls("delete") == []
    assert cloud.left == [NAME]


@pytest.mark.parametrize(
    ("phase", "number"),
    [
        ("run", signal.SIGINT),
        *(
            pytest.param(phase, number, marks=pytest.mark.slow)
            for phase, number in [
                *((phase, signal.SIGINT) for phase in ("create", "install", "start", "delete")),
                *(("wait", number) for number in (signal.SIGTERM, signal.SIGHUP)),
            ]
        ),
    ],
)
def test_a_signal_in_any_phase_deletes(cloud, phase, number):
    cloud.command(COUNT)
    plans = {
        "create": {"create_seconds": 2},
        "wait": {"states": [["WAITING_FOR_RESOURCES"]]},
        "install": {"ssh_fails": True},
        "start": {"start_seconds": 60},
        "run": {},
        "delete": {"delete_seconds": 2},
    }
    cloud.plan(**plans[phase])
    process = cloud.begin(command=COUNTING if phase != "delete" else PRETRAIN)
    reached = {
        "create": lambda: cloud.calls("create"),
        "wait": lambda: cloud.calls("describe"),
        "install": lambda: cloud.calls("scp"),
        "start": lambda: cloud.bucket("gs://bucket/run/count").exists(),
        "run": lambda: cloud.bucket("gs://bucket/run/count").exists(),
        "delete": lambda: cloud.calls("delete"),
    }
    until(reached[phase])
    process.send_signal(number)
    said, _ = process.communicate(timeout=300)
    # A run that finished before the signal counts as finished.
    assert process.returncode == (0 if phase == "delete" else 128 + number), said
    assert "Traceback" not in said
    assert cloud.left == [], said
    assert (
        "mine is being deleted" in said
        if phase == "delete"
        else "run the same command to resume from gs://bucket/run" in said
    )
    if phase in ("start", "run"):
        assert cloud.bucket("gs://bucket/run/saved").exists()


class InterruptedOutput(io.StringIO):
    """A text stream after whose first write the process receives SIGTERM."""

    def write(self, text):
        first = not self.getvalue()
        length = super().write(text)
        if first:
            os.kill(os.getpid(), signal.SIGTERM)
        return length


def test_a_signal_while_a_line_is_printed_leaves_it_whole():
    output = InterruptedOutput()
    with contextlib.redirect_stdout(output), Signals().as_interrupts():
        with pytest.raises(Interrupted):
            print_line("step 15")
        print_line("Stopping")
    assert output.getvalue().splitlines() == ["step 15", "Stopping"]


@pytest.mark.slow
@pytest.mark.parametrize("phase", ["run", "wait", "delete"])
def test_without_a_reader_of_its_output_it_deletes(cloud, phase):
    cloud.command(COUNT if phase == "run" else SHOW)
    plans = {
        "run": {},
        # A closed terminal sends a signal, and nothing can be printed any longer.
        "wait": {"states": [["WAITING_FOR_RESOURCES"]]},
        # The failure of the first deletion is the first line that cannot be printed.
        "delete": {"delete_seconds": 2, "refuse_delete": ["UNAVAILABLE: The service is currently unavailable.", None]},
    }
    cloud.plan(**plans[phase])
    process = cloud.begin(command=COUNTING if phase == "run" else PRETRAIN)
    reached = {
        "run": lambda: cloud.bucket("gs://bucket/run/count").exists(),
        "wait": lambda: cloud.calls("describe"),
        "delete": lambda: cloud.calls("delete"),
    }
    until(reached[phase])
    process.stdout.close()
    if phase == "wait":
        process.send_signal(signal.SIGHUP)
    assert process.wait(300) == (0 if phase == "delete" else 128 + signal.SIGPIPE)
    assert cloud.left == []
    if phase == "run":
        assert cloud.bucket("gs://bucket/run/saved").exists()


@pytest.mark.slow
def test_without_a_reader_a_failed_deletion_is_an_error(cloud):
    cloud.command(COUNT)
    cloud.plan(refuse_delete="PERMISSION_DENIED: Permission 'tpu.nodes.delete' denied")
    process = cloud.begin(command=COUNTING, stderr=subprocess.PIPE)
    until(lambda: cloud.bucket("gs://bucket/run/count").exists())
    process.stdout.close()
    assert process.wait(300) == 1
    assert process.stderr.read() == (
        f"beambert submit tpu: error: {NAME} could not be deleted and is still billed; delete it by hand: {DELETE}\n"
    )


def test_a_deletion_without_gcloud_fails_in_a_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not Tpu("p", "us-west4-a", NAME).delete(0.0)
    assert capsys.readouterr().out.splitlines()[0].startswith(f"Deleting {NAME} failed: gcloud is not installed")


@pytest.mark.slow
def test_a_second_signal_does_not_wait_for_the_run(cloud):
    cloud.command(COUNT.replace("and not asked", ""))
    process = cloud.begin(command=COUNTING)
    until(cloud.bucket("gs://bucket/run/count").exists)
    process.send_signal(signal.SIGINT)
    until(lambda: any("stop" in word for call in cloud.calls("ssh") for word in call))
    # A signal within a second of the first would count as the same one.
    time.sleep(1.2)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 130, said
    assert cloud.left == []


def test_keep_leaves_it_and_says_how_to_delete_it(cloud):
    result = cloud.submit("--keep", command=PRETRAIN)
    assert result.returncode == 0
    assert cloud.left == [NAME, NAME]
    assert f"is kept and billed until it is deleted: {DELETE}" in result.stdout


@pytest.mark.slow
def test_keep_does_not_keep_a_preempted_tpu(cloud):
    cloud.plan(states=[["SUSPENDED"], ["ACTIVE"]])
    result = cloud.submit("--keep", command=PRETRAIN)
    assert result.returncode == 0, result.stderr
    assert len(cloud.calls("create")) == 2
    assert len(cloud.calls("delete")) == 1


def test_a_deletion_that_fails_is_said_loudly_and_is_a_failure(cloud):
    cloud.plan(refuse_delete="PERMISSION_DENIED: Permission 'tpu.nodes.delete' denied")
    result = cloud.submit(command=PRETRAIN)
    assert result.returncode == 1
    assert f"{NAME} COULD NOT BE DELETED AND IS STILL BILLED" in result.stdout
    assert result.stdout.rstrip().splitlines()[-2].strip() == DELETE
    assert "Permission 'tpu.nodes.delete' denied" in result.stdout


@pytest.mark.slow
def test_a_connection_that_breaks_again_and_again_shows_every_line_once_and_the_exit_code(cloud):
    cloud.command(
        "import sys, time\nfor n in range(30):\n    print('line', n, flush=True)\n    time.sleep(0.02)\nsys.exit(2)\n"
    )
    cloud.plan(cut_follow_after=3)
    result = cloud.submit(command=PRETRAIN)
    assert result.returncode == 2, result.stderr
    shown = [line for line in result.stdout.splitlines() if line.startswith("line ")]
    assert shown == [f"line {n}" for n in range(30)]
    assert cloud.left == []


def test_a_carriage_return_does_not_end_a_line():
    """Progress bars write it, and the offset is only at the start of a line."""
    text = "7\tstep 1\rstep 2\n9\tdone\r\n"
    lines = Lines([sys.executable, "-c", f"print({text!r}, end='')"], None)
    assert list(lines) == ["7\tstep 1\rstep 2", "9\tdone"]


def test_temporary_errors_of_the_service_are_retried(cloud):
    silence = "UNAVAILABLE: The service is currently unavailable."
    cloud.plan(describe_error=[silence, None], refuse_delete=[silence, None])
    result = cloud.submit(command=PRETRAIN)
    assert result.returncode == 0, result.stderr
    assert "retrying" in result.stdout
    assert cloud.left == []
