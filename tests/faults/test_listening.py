"""Servers are reached from their machine alone, unless a user asks."""

import json
import os
import socket

import pytest

from supcon_tf.host import listening
from tests import forks, processes, workers

TOOL = processes.ROOT / "tools" / "data_service.py"
TIMEOUT = 10.0  # of a connection that nobody refuses; those of tests take ms


@pytest.fixture(scope="module")
def outer():
    """The address of this machine on a network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            pytest.skip("this machine is on no network")
        address = probe.getsockname()[0]
    if listening.is_loopback(address):
        pytest.skip("this machine is on no network")
    return address


@pytest.fixture
def service():
    """Starts tools/data_service.py, and returns it with its ports."""
    started = []

    def run(*flags):
        process = forks.Fork(TOOL, *flags)
        started.append(process)
        while process.read_line().split()[0] != "worker":
            pass
        return process, ports_of(process)

    yield run
    for process in started:
        process.kill()
        process.wait()


def ports_of(process):
    """The ports that a process listens at, by the tables of the system."""
    folder = f"/proc/{process._process.pid}"
    inodes = set()
    for name in os.listdir(f"{folder}/fd"):
        try:
            inodes.add(os.readlink(f"{folder}/fd/{name}"))
        except FileNotFoundError:
            continue
    ports = []
    for table in ("tcp", "tcp6"):
        with open(f"{folder}/net/{table}") as lines:
            for line in [*lines][1:]:
                _, local, _, state, *fields = line.split()
                if state == "0A" and f"socket:[{fields[5]}]" in inodes:
                    ports.append(int(local.rpartition(":")[2], 16))
    return ports


def reaches(address, port):
    try:
        socket.create_connection((address, port), TIMEOUT).close()
    except OSError:
        return False
    return True


def test_the_data_service_is_for_this_machine_alone(service, outer):
    process, ports = service("--port=0")
    assert len(ports) == 2
    for port in ports:
        assert reaches("localhost", port)
        assert not reaches(outer, port)
    process.kill()
    assert "password" not in process.communicate()[1]


def test_an_open_data_service_prints_warnings(service, outer):
    process, ports = service("--port=0", f"--host={outer}")
    for port in ports:
        assert reaches(outer, port)
    process.kill()
    warnings = process.communicate()[1].splitlines()
    roles = "the dispatcher", "the worker"
    for line, role in zip(warnings, roles, strict=True):
        assert f"{role} is open to every machine that reaches this one" in line
        assert f"(it is to be reached at {outer}), asks for no password" in line


CLUSTER = """
import threading
from supcon_tf import distribute
strategy = distribute.make_strategy("multi_worker")
print("ready", flush=True)
threading.Event().wait()
"""


def test_workers_of_a_machine_are_closed_to_others(outer):
    environments = workers.environments(2)
    cluster = json.loads(environments[0]["TF_CONFIG"])["cluster"]["worker"]
    ports = [int(address.rpartition(":")[2]) for address in cluster]
    started = [forks.Fork(CLUSTER, env=env) for env in environments]
    try:
        for process in started:
            assert process.read_line() == "ready\n"
        for port in ports:
            assert reaches("localhost", port) and not reaches(outer, port)
    finally:
        for process in started:
            process.kill()
            process.wait()


def test_sockets_outside_the_block_stay_open(outer):
    with socket.create_server(("", 0)) as mine:
        with listening.opened("a server", "localhost"):
            theirs = socket.create_server(("", 0))
        with theirs:
            assert reaches(outer, mine.getsockname()[1])
            assert not reaches(outer, theirs.getsockname()[1])
            assert reaches("127.0.0.1", theirs.getsockname()[1])


def test_ports_that_cannot_be_closed_have_a_warning(monkeypatch, caplog):
    monkeypatch.delattr(socket, "SO_BINDTODEVICE")
    with listening.opened("a server", "localhost"):
        server = socket.create_server(("", 0))
    server.close()
    (record,) = caplog.records
    assert "a server is open to every machine" in record.getMessage()
    assert "it cannot be closed here" in record.getMessage()
