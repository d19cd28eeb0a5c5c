"""A proxy of the environment: not before this machine, and never unnamed."""

import os
import socket
import socketserver
import threading

import pytest

from supcon_tf import exceptions
from supcon_tf.clients import rest_model
from supcon_tf.host import proxies
from tests import model_server
from tests.clients import exports

VARIABLES = ("grpc_proxy", "https_proxy", "http_proxy", "all_proxy")
ELSEWHERE = "models.example"


@pytest.fixture(autouse=True)
def no_variables(monkeypatch):
    for name in (*VARIABLES, "no_proxy", "no_grpc_proxy"):
        for spelled in (name, name.upper()):
            # Set first, so that what a test leaves there goes.
            monkeypatch.setenv(spelled, "")
            monkeypatch.delenv(spelled)


@pytest.fixture
def proxy(monkeypatch):
    """The address of a proxy that reaches nothing, and what it was asked."""
    asked = []

    class Handler(socketserver.StreamRequestHandler):
        def handle(self):
            asked.append(self.rfile.readline().split()[:2])
            while self.rfile.readline().strip():
                pass
            self.wfile.write(b"HTTP/1.1 502 No\r\nContent-Length: 0\r\n\r\n")

    with socketserver.ThreadingTCPServer(("localhost", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(
            target=server.serve_forever, args=(0.02,), daemon=True
        ).start()
        address = f"localhost:{server.server_address[1]}"
        monkeypatch.setenv("http_proxy", f"http://me:secret@{address}")
        yield address, asked
        server.shutdown()


@pytest.fixture(scope="module")
def lengths_server(tmp_path_factory):
    directory = exports.write_lengths(tmp_path_factory.mktemp("lengths"))
    with model_server.ModelServer(directory, "lengths") as server:
        yield server


def test_this_machine_is_known_by_its_names():
    here = ("localhost", "LOCALHOST", "127.0.0.1", "127.0.3.7", "[::1]")
    for host in (*here, socket.gethostname()):
        assert proxies.is_this_machine(host), host
    for host in ("10.255.255.1", "localhost.example", ELSEWHERE):
        assert not proxies.is_this_machine(host), host


def test_this_machine_is_asked_without_it(proxy, lengths_server):
    _, asked = proxy
    server = lengths_server
    by_rest = rest_model.RestModel(server.rest, "lengths")
    assert "represent" in by_rest.signatures() and not by_rest.through
    assert asked == []


def test_an_error_behind_it_names_it(proxy):
    address, asked = proxy
    told = f"through the proxy {address} of http_proxy; no_proxy names"
    by_rest = rest_model.RestModel(f"http://{ELSEWHERE}:8501", "m")
    with pytest.raises(exceptions.Failed, match=told) as said:
        by_rest.signatures()
    assert "secret" not in str(said.value)
    assert [method for method, _ in asked] == [b"GET"]
    by_grpc = proxies.used_by_grpc(ELSEWHERE)
    assert told in by_grpc and "secret" not in by_grpc


def test_what_no_proxy_names_is_asked_without_it(proxy, monkeypatch):
    _, asked = proxy
    monkeypatch.setenv("no_proxy", ".example")
    by_rest = rest_model.RestModel(f"http://{ELSEWHERE}:1", "m", timeout=5)
    assert not by_rest.through and not proxies.used_by_grpc(ELSEWHERE)
    with pytest.raises(exceptions.Failed, match=r"not there: [^;]*$"):
        by_rest.signatures()
    assert asked == []


def test_no_proxy_is_extended_where_there_is_a_proxy(monkeypatch):
    proxies.go_around("a.example")
    assert "no_proxy" not in os.environ
    monkeypatch.setenv("https_proxy", "proxy.example:80")
    monkeypatch.setenv("NO_PROXY", "b.example, localhost")
    for _ in range(2):
        proxies.go_around("[::1]", "a.example")
    known = os.environ["no_proxy"].split(",")
    assert known[:2] == ["b.example", "localhost"]
    assert {"127.0.0.1", "::1", "a.example"} <= {*known}
    assert len({*known}) == len(known)
    assert "no_grpc_proxy" not in os.environ
    monkeypatch.setenv("no_grpc_proxy", "c.example")
    proxies.go_around()
    assert os.environ["no_grpc_proxy"].startswith("c.example,localhost,")
    assert os.environ["no_proxy"].split(",") == known
    told = proxies.used_by_grpc(ELSEWHERE)
    assert told.startswith(", through the proxy proxy.example:80 of https_prox")
