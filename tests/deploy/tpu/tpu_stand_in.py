"""A `gcloud` for tests that implements the commands of `beambert submit tpu`, and the cloud, in a directory.

    requests/NAME.json    a request for a TPU: its nodes, and its current and later states
    machines/NODE/        the machine of a node: a directory in which the commands sent over ssh are run;
                          machines/NODE/w-N/ if the node has several workers
    nodes/NODE            the state of a node whose machines were taken away
    buckets/BUCKET/...    Cloud Storage, to which logs are copied, and the output of programs in place of beambert
    script.json           failures, delays and states by name; see `Cloud.plan` in tpu_cloud.py
    calls.jsonl           every call, as a list of words

The environment variable TPU_STAND_IN names the directory. Errors are worded as the service and gcloud 528 word them.
Flags that gcloud 528 does not have are rejected.
"""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

STATE = Path(os.environ["TPU_STAND_IN"])
HERE = Path(__file__).resolve()
# Workers of the types that the tests request, from the pages "TPU v5e" and "TPU v5p" of cloud.google.com/tpu/docs.
WORKERS = {"v5litepod-8": 1, "v5p-8": 1, "v5p-16": 2, "v5litepod-16": 4}
CREATE_FLAGS = {
    "--node-id",
    "--node-count",
    "--node-prefix",
    "--accelerator-type",
    "--runtime-version",
    "--labels",
    "--async",
    "--spot",
    "--reserved",
    "--service-account",
    "--network",
    "--subnetwork",
    "--internal-ips",
}
FLAGS = {
    ("queued-resources", "create"): CREATE_FLAGS,
    ("queued-resources", "describe"): {"--format"},
    ("queued-resources", "delete"): {"--force"},
    ("queued-resources", "list"): {"--limit", "--format"},
    ("tpu-vm", "describe"): {"--format"},
    ("tpu-vm", "ssh"): {"--command", "--ssh-flag", "--internal-ip", "--worker"},
    ("tpu-vm", "scp"): {"--recurse", "--scp-flag", "--internal-ip", "--worker"},
}


def main() -> int:
    words = sys.argv[1:]
    with (STATE / "calls.jsonl").open("a") as calls:
        calls.write(json.dumps(words) + "\n")
    if words[0] == "storage":
        return storage(words[1], [word for word in words[2:] if word != "--quiet"])
    assert words[:2] == ["compute", "tpus"], words
    group, verb = words[2:4]
    names = [word for word in words[4:] if not word.startswith("--")]
    pairs = [word.partition("=") for word in words[4:] if word.startswith("--")]
    flags = {name: value for name, _, value in pairs}
    unknown = flags.keys() - FLAGS[group, verb] - {"--project", "--zone", "--quiet"}
    assert not unknown, f"gcloud compute tpus {group} {verb} has no {unknown}"
    assert "--quiet" in flags, "it would ask, and nobody answer"
    return COMMANDS[group, verb](names, flags)


def script(name: str, default=None):
    """Return the value of a name in script.json; from a list, remove and return the first item."""
    with (STATE / "script.json").open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        content = json.load(file)
        value = content.get(name, default)
        if isinstance(value, list):
            first, content[name] = (value[0], value[1:]) if value else (default, [])
            file.seek(0)
            file.truncate()
            json.dump(content, file)
            return first
        return value


def error(command: str, text: str, code: int = 1) -> int:
    sys.stderr.write(f"ERROR: (gcloud.{command}) {text}\n")
    return code


def request(name: str) -> Path:
    return STATE / "requests" / f"{name}.json"


def machine(node: str, worker: int | None = None) -> Path:
    return STATE / "machines" / node / ("" if worker is None else f"w-{worker}")


def workers(node: str) -> list[int | None]:
    """Return the numbers of a node's workers; None stands for the only one."""
    numbers = [int(path.name[2:]) for path in machine(node).glob("w-*")]
    return sorted(numbers) or [None]


def resource(name: str, flags: dict[str, str]) -> str:
    return f"projects/{flags['--project']}/locations/{flags['--zone']}/queuedResources/{name}"


def create(names: list[str], flags: dict[str, str]) -> int:
    command = "compute.tpus.queued-resources.create"
    time.sleep(script("create_seconds", 0))
    refusal = script("refuse")
    if refusal:
        return error(command, refusal)
    if request(names[0]).exists():
        return error(command, f"ALREADY_EXISTS: Resource '{resource(names[0], flags)}' already exists")
    states = script("states") or ["WAITING_FOR_RESOURCES", "PROVISIONING", "ACTIVE"]
    count = int(flags.get("--node-count", 1))
    assert ("--node-id" in flags) == (count == 1), "exactly one of both; --node-count is greater than 1"
    nodes = [flags["--node-id"]] if count == 1 else [f"{flags['--node-prefix']}-{number}" for number in range(count)]
    content = {"states": states, "nodes": nodes, "workers": WORKERS[flags["--accelerator-type"]]}
    request(names[0]).write_text(json.dumps(content))
    sys.stderr.write(f"Create request issued for: [{names[0]}]\n")
    return 0


def list_requests(names: list[str], flags: dict[str, str]) -> int:
    assert not names
    refusal = script("refuse_list")
    if refusal:
        return error("compute.tpus.queued-resources.list", refusal)
    print(json.dumps([{"name": resource(path.stem, flags)} for path in (STATE / "requests").iterdir()]))
    return 0


def describe(names: list[str], flags: dict[str, str]) -> int:
    command = "compute.tpus.queued-resources.describe"
    assert flags["--format"] == "json"
    silence = script("describe_error")
    if silence:
        return error(command, silence)
    if not request(names[0]).exists():
        return error(command, f"NOT_FOUND: Resource '{resource(names[0], flags)}' was not found")
    content = json.loads(request(names[0]).read_text())
    state, *rest = content["states"]
    if rest:
        request(names[0]).write_text(json.dumps({**content, "states": rest}))
    answer = state if isinstance(state, dict) else {"state": state}
    for node in content.get("nodes", []):
        if answer["state"] == "ACTIVE" and not machine(node).exists() and not (STATE / "nodes" / node).exists():
            for worker in [None] if content["workers"] == 1 else range(content["workers"]):
                boot(node, worker)
    answer.setdefault("stateInitiator", "SERVICE")
    json.dump({"name": resource(names[0], flags), "state": answer, "tpu": {"nodeSpec": [{}]}}, sys.stdout)
    return 0


def describe_node(names: list[str], flags: dict[str, str]) -> int:
    taken = STATE / "nodes" / names[0]
    if not machine(names[0]).exists() and not taken.exists():
        return error("compute.tpus.tpu-vm.describe", f"NOT_FOUND: Resource '{names[0]}' was not found")
    state = taken.read_text() if taken.exists() else "READY"
    addresses = [{"ipAddress": f"127.0.0.{(number or 0) + 1}"} for number in workers(names[0])]
    answer = {"name": names[0], "state": state, "health": "HEALTHY", "networkEndpoints": addresses}
    json.dump(answer, sys.stdout)
    return 0


def delete(names: list[str], flags: dict[str, str]) -> int:
    command = "compute.tpus.queued-resources.delete"
    assert "--force" in flags, "FAILED_PRECONDITION: the request has nodes"
    time.sleep(script("delete_seconds", 0))
    refusal = script("refuse_delete")
    if refusal:
        return error(command, refusal)
    if not request(names[0]).exists():
        return error(command, f"NOT_FOUND: Resource '{resource(names[0], flags)}' was not found")
    for node in json.loads(request(names[0]).read_text()).get("nodes", []):
        take_away(node)
        (STATE / "nodes" / node).unlink(missing_ok=True)
    request(names[0]).unlink()
    return 0


def on_workers(node: str, flags: dict[str, str], run) -> int:
    """Run a function at the same time on the workers that the flag names, and return the first exit code other than 0.

    Like gcloud 528, it waits for all workers.
    """
    chosen = workers(node)
    if flags.get("--worker", "0") != "all":
        chosen = [number for number in chosen if number in (None, int(flags.get("--worker", "0")))]
    codes = {}
    threads = [threading.Thread(target=lambda number=number: codes.update({number: run(number)})) for number in chosen]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return next((codes[number] for number in chosen if codes[number]), 0)


def is_reachable(node: str, worker: int | None) -> bool:
    return machine(node, worker).exists() and f"{node}/{worker}" not in script("unreachable", "")


def ssh(names: list[str], flags: dict[str, str]) -> int:
    if not machine(names[0]).exists():
        return error("compute.tpus.tpu-vm.ssh", f"NOT_FOUND: Resource '{names[0]}' was not found")
    return on_workers(names[0], flags, lambda worker: ssh_worker(names[0], worker, flags["--command"]))


def ssh_worker(node: str, worker: int | None, command: str) -> int:
    # Like gcloud, run the same command up to ten times if ssh itself fails.
    for _ in range(10):
        sys.stderr.write(f"SSH: Attempting to connect to worker {worker or 0}...\n")
        if script("ssh_fails") or not is_reachable(node, worker):
            sys.stderr.write("Retrying: SSH command error: [ssh] exited with return code [255].\n")
            time.sleep(0.05)
            continue
        cut = script("cut_follow_after") if " follow " in command else None
        process = subprocess.Popen(
            ["/bin/sh", "-c", command],
            cwd=machine(node, worker),
            env=environment(node, worker),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        for number, line in enumerate(process.stdout):
            os.write(1, line)
            if cut is not None and number + 1 >= cut:
                os.killpg(process.pid, signal.SIGKILL)
        code = process.wait()
        if command.endswith(" start"):
            time.sleep(script("start_seconds", 0))
        if code >= 0:
            return code
        sys.stderr.write("Retrying: SSH command error: [ssh] exited with return code [255].\n")
    return error("compute.tpus.tpu-vm.ssh", "[/usr/bin/ssh] exited with return code [255].", 255)


def scp(names: list[str], flags: dict[str, str]) -> int:
    source, target = names
    node, _, folder = target.partition(":")
    assert "--recurse" in flags
    assert not folder

    def copy(worker: int | None) -> int:
        if script("ssh_fails") or not is_reachable(node, worker):
            return error("compute.tpus.tpu-vm.scp", "[/usr/bin/scp] exited with return code [255].", 255)
        shutil.copytree(source, machine(node, worker) / Path(source).name, dirs_exist_ok=True)
        return 0

    return on_workers(node, flags, copy)


def boot(node: str, worker: int | None = None) -> None:
    """Create a machine like that of a TPU: with gcloud and a Python with pip, but without beambert."""
    tools = machine(node, worker) / "bin"
    tools.mkdir(parents=True)
    start = f"#!/bin/sh\nexec {sys.executable} -I -S {HERE}"
    write_program(tools / "gcloud", f'{start} "$@"\n')
    write_program(
        tools / "python3",
        f'#!/bin/sh\nif [ "$1 $2 $3" = "-I -m pip" ]; then shift 3; exec {sys.executable} -I '
        f'{HERE.with_name("tpu_pip.py")} pip "$@"; fi\nexec {sys.executable} "$@"\n',
    )


def environment(node: str, worker: int | None) -> dict[str, str]:
    home = machine(node, worker)
    return {
        "PATH": f"{home}/bin:/usr/bin:/bin",
        "HOME": str(home),
        "TPU_STAND_IN": str(STATE),
        # The test's metadata server, which takes the worker's number from the start of the path.
        "GCE_METADATA_HOST": f"{os.environ.get('TPU_METADATA', '')}/{worker or 0}",
        "OMP_NUM_THREADS": "1",
        "LANG": "C.UTF-8",
        # The cache in which the tests keep compiled programs, and the emulator of Cloud Storage.
        **{
            name: value
            for name, value in os.environ.items()
            if name.startswith(("JAX_COMPILATION_", "JAX_PERSISTENT_", "STORAGE_", "GOOGLE_", "NO_GCE_CHECK"))
        },
    }


def write_program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def take_away(node: str, worker: int | None = None) -> None:
    """Kill all processes on a machine and delete its disk; without a worker, on all machines of the node."""
    home = machine(node, worker)
    if not home.exists():
        return
    for _ in range(3):
        for process in Path("/proc").iterdir():
            if not process.name.isdigit() or int(process.name) == os.getpid():
                continue
            try:
                runs_there = (process / "cwd").resolve().is_relative_to(home.resolve())
                if runs_there:
                    os.kill(int(process.name), signal.SIGKILL)
            except OSError:
                continue
    # A killed process may still be writing files.
    for _ in range(20):
        shutil.rmtree(home, ignore_errors=True)
        if not home.exists():
            return
        time.sleep(0.05)


def storage(verb: str, words: list[str]) -> int:
    """Copy a single file to a URL."""
    assert verb == "cp"
    source, url = words
    target = STATE / "buckets" / url.removeprefix("gs://")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, target)
    return 0


COMMANDS = {
    ("queued-resources", "create"): create,
    ("queued-resources", "list"): list_requests,
    ("queued-resources", "describe"): describe,
    ("queued-resources", "delete"): delete,
    ("tpu-vm", "describe"): describe_node,
    ("tpu-vm", "ssh"): ssh,
    ("tpu-vm", "scp"): scp,
}

if __name__ == "__main__":
    sys.exit(main())
