"""Test that the services of the local runner are closed to all but its own workers."""

import ipaddress
import json
import os
import socket
import struct
import subprocess
import sys
from pathlib import Path

import grpc
import pytest
from apache_beam.portability.api import (
    beam_artifact_api_pb2,
    beam_artifact_api_pb2_grpc,
    beam_fn_api_pb2,
    beam_fn_api_pb2_grpc,
    beam_runner_api_pb2,
)

from tests.conftest import with_slow

# Modes of the local runner, with the number of workers.
MODES = [("multi_processing", 1), ("multi_processing", 2), ("multi_threading", 1), ("multi_threading", 2)]
_LISTENING = "0A"


def listening(pids: list[int]) -> set[tuple[str, int]]:
    """Return the addresses and ports on which processes listen."""
    inodes = set()
    for pid in pids:
        for link in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                target = str(link.readlink())
            except OSError:
                continue
            inodes |= {target.removeprefix("socket:[").removesuffix("]")} if target.startswith("socket:") else set()
    addresses = set()
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTENING and fields[9] in inodes:
                host, port = fields[1].split(":")
                # Words of four bytes, each in the order of this machine.
                words = [int(host[start : start + 8], 16) for start in range(0, len(host), 8)]
                address = ipaddress.ip_address(struct.pack(f"={len(words)}I", *words))
                addresses.add((str(getattr(address, "ipv4_mapped", None) or address), int(port, 16)))
    return addresses


def read_file(channel: grpc.Channel) -> bytes:
    """Read a file by the service for the files of a pipeline."""
    payload = beam_runner_api_pb2.ArtifactFilePayload(path="/etc/passwd").SerializeToString()
    artifact = beam_runner_api_pb2.ArtifactInformation(type_urn="beam:artifact:type:file:v1", type_payload=payload)
    service = beam_artifact_api_pb2_grpc.ArtifactRetrievalServiceStub(channel)
    request = beam_artifact_api_pb2.GetArtifactRequest(artifact=artifact)
    metadata = [("worker_id", "worker_0")]
    return b"".join(part.data for part in service.GetArtifact(request, timeout=5, metadata=metadata))


def read_instructions(channel: grpc.Channel) -> bytes:
    """Register as a worker and return its first instruction."""
    service = beam_fn_api_pb2_grpc.BeamFnControlStub(channel)
    replies = service.Control(iter([beam_fn_api_pb2.InstructionResponse()]), timeout=5)
    return next(replies).SerializeToString()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(("mode", "workers"), with_slow(MODES, MODES[:1] + MODES[2:3]))
def test_only_workers_reach_the_services(tmp_path, mode, workers):
    lines = [json.dumps({"text": f"Document {n} has the word w{n}."}) for n in range(100)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    argv = ["corpus", "--input", tmp_path / "a.jsonl", "--output", tmp_path / "out", "--vocab_size", "200"]
    argv += ["--direct_running_mode", mode, "--direct_num_workers", workers]
    command = [sys.executable, "-m", "beambert", *map(str, argv)]
    addresses, answers, failures = set(), [], set()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True) as process:
        while process.poll() is None:
            found = subprocess.run(["pgrep", "-s", str(process.pid)], capture_output=True, text=True, check=False)
            new = listening([int(pid) for pid in found.stdout.split()]) - addresses
            addresses |= new
            for _, port in new:
                for attack in (read_file, read_instructions):
                    with grpc.insecure_channel(f"localhost:{port}") as channel:
                        try:
                            answers.append(attack(channel))
                        except grpc.RpcError as error:
                            failures.add(error.code())
    others = {address for address, _ in addresses if not ipaddress.ip_address(address).is_loopback}
    assert (others, answers) == (set(), [])
    # A server that is about to end refuses or cancels calls.
    ending = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED}
    assert failures - ending == {grpc.StatusCode.UNIMPLEMENTED}
    assert len({port for _, port in addresses}) >= 4, addresses
    assert process.returncode == 0


def test_a_port_that_is_half_taken_prints_nothing():
    # Beam's services listen on localhost, in IPv6 and IPv4; another process may have the same port of one of them.
    program = (
        "import contextlib\n"
        "from concurrent import futures\n"
        "from beambert import cli\n"
        "cli.main(['--version'])\n"
        "import grpc\n"
        "server = grpc.server(futures.ThreadPoolExecutor(1), options=[('grpc.so_reuseport', 0)])\n"
        "with contextlib.suppress(RuntimeError):  # without IPv6 no address is left\n"
        "    server.add_insecure_port('localhost:{port}')\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "GRPC_VERBOSITY"}
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = subprocess.run(
            [sys.executable, "-c", program.format(port=taken.getsockname()[1])],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
    assert done.stderr == ""
