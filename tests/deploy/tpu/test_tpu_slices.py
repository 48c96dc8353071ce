"""Test `beambert submit tpu` on slices of several hosts: a process and a directory per host, and the chief's log.

On each host, a few lines of Python run in place of beambert's training. The hosts wait for each other as in training.
"""

import json
import re
import signal

import pytest

from beambert import cli
from tests.deploy.tpu.tpu_cloud import NAME, OUTPUT, PRETRAIN, until

SLICES = ("--accelerator_type=v5p-16", "--num_slices=2")
NODES = (f"{NAME}-0", f"{NAME}-1")
FOREVER = (*PRETRAIN[:-1], "100000")
# A program whose hosts run each step together. After a step, a host waits until all others have finished it, and exits
# with 1 if one of them does not. SIGTERM to one host stops all after the step; the saved step of the chief reaches the
# bucket.
LOCKSTEP = (
    OUTPUT
    + """
node, worker = re.search(r"machines/([^/]+)/w-(\\d+)", os.getcwd()).groups()
rank = f"{node}-{worker}"
everyone = [f"mine{n}-{w}" for n in ("-0", "-1") for w in range(2)] if node != "mine" else ["mine-0", "mine-1"]
shared = pathlib.Path(os.getcwd()).parents[3] / "shared"
shared.mkdir(exist_ok=True)
steps = int(sys.argv[sys.argv.index("--num_train_steps") + 1])
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
slices = {name: value for name, value in os.environ.items() if name.startswith("MEGASCALE")}
is_chief = rank == everyone[0]
if is_chief:
    (output / "environment.json").write_text(json.dumps(slices))
print("flags", *sys.argv[-6:], flush=True)
print(f"I am {rank}", json.dumps(slices, sort_keys=True), flush=True)
step = int((output / "count").read_text()) if (output / "count").exists() else 0
print(f"resumes at {step}", flush=True)
while step < steps:
    step += 1
    (shared / f".{rank}").write_text(json.dumps([step, bool(asked)]))
    (shared / f".{rank}").replace(shared / rank)
    end, states = time.monotonic() + WAIT, []
    while len(states) < len(everyone):
        if time.monotonic() > end:
            print(f"a host is lost at step {step}", flush=True)
            sys.exit(1)
        files = [shared / name for name in everyone]
        states = [json.loads(file.read_text()) for file in files if file.exists()]
        states = [state for state in states if state[0] == step or state[0] == step + 1]
        time.sleep(0.005)
    if is_chief:
        (output / ".count").write_text(str(step))
        (output / ".count").replace(output / "count")
        print(f"step {step}", flush=True)
    if any(stopped for number, stopped in states if number == step):
        if is_chief:
            (output / "saved").touch()
        sys.exit(143)
    time.sleep(0.05)
"""
)
RUN = LOCKSTEP.replace("WAIT", "20")


@pytest.fixture
def cloud(empty_cloud):
    empty_cloud.command(RUN)
    return empty_cloud


def logs(cloud, start=0):
    """Return the logs of the hosts in the bucket, by name."""
    (submission,) = cloud.bucket("gs://bucket/run-worker-logs").iterdir()
    return {path.name: path.read_text() for path in (submission / f"start-{start}").iterdir()}


def steps(text):
    return [int(line.split()[1]) for line in text.splitlines() if line.startswith("step ")]


@pytest.mark.slow
def test_every_host_of_every_slice_runs_the_command_and_the_chief_writes(cloud):
    result = cloud.submit(*SLICES, command=PRETRAIN)
    assert result.returncode == 0, result.stderr + result.stdout
    assert cloud.left == []
    (create,) = cloud.calls("create")
    assert {"--node-count=2", f"--node-prefix={NAME}", "--accelerator-type=v5p-16"} <= {*create}
    assert not any(word.startswith("--node-id") for word in create)
    for verb in ("scp", "ssh"):
        calls = [call for call in cloud.calls(verb) if "--worker=all" in call]
        assert {node for node in NODES for call in calls if any(word.startswith(node) for word in call)} == {*NODES}
    # The terminal shows the chief's log, and the bucket has the log of every host.
    assert steps(result.stdout) == [1, 2, 3, 4, 5]
    expected = {
        f"slice-{slice_id}-worker-{worker}.log": f"I am {NAME}-{slice_id}-{worker}"
        for slice_id in range(2)
        for worker in range(2)
    }
    found = logs(cloud)
    assert found.keys() == expected.keys()
    assert all(text in found[name] for name, text in expected.items())
    assert "I am mine-0-0" in result.stdout
    assert "I am mine-0-1" not in result.stdout
    # Each host of a slice has the number of the slice; all have the address of the chief.
    for name, text in found.items():
        variables = json.loads(text[text.index("{") : text.index("}") + 1])
        assert variables == {
            "MEGASCALE_COORDINATOR_ADDRESS": "127.0.0.1:8081",
            "MEGASCALE_PORT": "8081",
            "MEGASCALE_NUM_SLICES": "2",
            "MEGASCALE_SLICE_ID": name.split("-")[1],
        }
        # Each host has its number among all hosts, counted slice by slice.
        process = 2 * int(name.split("-")[1]) + int(name[-5])
        group = f"flags --coordinator_address 127.0.0.1:8482 --num_processes 4 --process_id {process}"
        assert group in text.splitlines()
    assert json.loads((cloud.bucket("gs://bucket/run/environment.json")).read_text())["MEGASCALE_SLICE_ID"] == "0"
    assert not list(cloud.bucket("gs://bucket/run").rglob("*.log"))


@pytest.mark.slow
def test_one_slice_of_several_hosts_has_one_node_and_no_multislice_variables(cloud):
    result = cloud.submit("--accelerator_type=v5p-16", command=PRETRAIN)
    assert result.returncode == 0, result.stderr + result.stdout
    (create,) = cloud.calls("create")
    assert f"--node-id={NAME}" in create
    assert json.loads((cloud.bucket("gs://bucket/run/environment.json")).read_text()) == {}
    assert logs(cloud).keys() == {"slice-0-worker-0.log", "slice-0-worker-1.log"}


REASONS = {
    "host": f"the TPU was preempted (the TPU VM {NODES[1]} is PREEMPTED)",
    # The service does not report the loss yet.
    "lost host": f"1 of 2 hosts of {NODES[1]} answer, and the run failed",
    "stopped host": "the run was stopped by SIGTERM on a TPU VM",
    "slice": "the TPU was preempted (the request is SUSPEND",
}


@pytest.mark.slow
@pytest.mark.parametrize("taken", REASONS)
def test_without_one_host_all_are_replaced_and_the_run_resumes(cloud, taken):
    # The time for which hosts wait for a lost one: shorter or longer than the detection of a preemption takes.
    cloud.command(LOCKSTEP.replace("WAIT", "5" if "lost" in taken else "60"))
    process = cloud.begin(*SLICES, "--spot", command=FOREVER)
    count = cloud.bucket("gs://bucket/run/count")
    until(lambda: count.exists() and int(count.read_text()) > 3)
    if taken == "slice":
        cloud.preempt()
    elif taken == "host":
        cloud.preempt_worker(NODES[1], 1)
    elif taken == "lost host":
        cloud.lose_worker(NODES[1], 1)
    else:
        cloud.stop_worker(NODES[1], 0)
    until(lambda: len(cloud.calls("create")) == 2 or process.poll() is not None)
    before = int(count.read_text())
    until(lambda: int(count.read_text()) > before + 3 or process.poll() is not None)
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 143, said
    first, requested, second = said.partition("requesting another TPU")
    assert requested, said
    assert f"{REASONS[taken]}" in first
    assert "restart 1 of 10" in second
    # The second request continues from the step in the bucket, on all hosts.
    assert steps(second)[0] > 4
    assert all(re.search(r"^resumes at [1-9]", text, re.MULTILINE) for text in logs(cloud, 1).values())
    assert len(logs(cloud, 1)) == 4
    assert cloud.left == []
    assert len(cloud.calls("delete")) == 2
    # A signal to the submission stops all hosts after a step.
    assert (cloud.bucket("gs://bucket/run/saved")).exists()


@pytest.mark.slow
def test_a_host_that_fails_is_named_with_the_end_of_its_log(cloud):
    fails = 'if rank == "mine-1-1" and step == 3:\n        print("its data differs", flush=True)\n        sys.exit(4)'
    cloud.command(LOCKSTEP.replace("WAIT", "2").replace("    step += 1\n", f"    step += 1\n    {fails}\n"))
    result = cloud.submit(*SLICES, command=PRETRAIN)
    assert result.returncode == 1
    _, named, end = result.stdout.partition(f"The first host that failed is worker 1 of {NODES[1]}")
    assert named, result.stdout
    assert "  its data differs" in end
    assert len(cloud.calls("create")) == 1
    assert cloud.left == []


@pytest.mark.slow
def test_a_host_that_ssh_does_not_reach_is_named_in_one_line(cloud):
    cloud.plan(unreachable=f"{NODES[1]}/1")
    result = cloud.submit(*SLICES, command=PRETRAIN)
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert "copying files to the TPU VM" in line
    assert NODES[1] in line
    assert cloud.left == []


FINETUNE = ("mrpc", "--data_dir=gs://b/d", "--init_checkpoint=gs://b/m", "--output=gs://b/r")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("tune", *FINETUNE), "tune and finetune --seeds do not run on v5p-16, which has several hosts"),
        (("finetune", *FINETUNE, "--seeds=2"), "tune and finetune --seeds do not run on v5p-16"),
        ((*PRETRAIN, "--backend=tensorflow"), "--backend tensorflow does not run on --accelerator_type v5p-16"),
    ],
)
@pytest.mark.parametrize("engine", [("--project=p", "--zone=us-west4-a"), ("--engine=gke", "--image=i")])
def test_a_command_that_several_hosts_cannot_run_is_one_line(command, message, engine, capsys):
    assert cli.main(["submit", "tpu", *engine, "--accelerator_type=v5p-16", "--dry_run", *command]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_evaluation_and_fine_tuning_run_on_several_hosts(capsys):
    request = ["submit", "tpu", "--project=p", "--zone=us-west4-a", "--accelerator_type=v5p-16", "--dry_run"]
    for command in (("pretrain", "--data=gs://b/d", "--output=gs://b/r", "--do_eval"), ("finetune", *FINETUNE)):
        assert cli.main([*request, *command]) == 0
        assert "2 hosts" in capsys.readouterr().out
