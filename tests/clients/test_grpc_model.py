"""The gRPC client, on a server that speaks the real messages."""

from __future__ import annotations

import gc

import grpc
import pytest

from supcon_tf.clients import grpc_model, model, rest_model


def connected(server, *arguments, **options):
    address = server.grpc.removeprefix("grpc://")
    return grpc_model.GrpcModel(address, *arguments, **options)


def test_the_answers_are_those_of_rest(server):
    asked = connected(server, "lengths", 1)
    other = rest_model.RestModel(server.rest, "lengths", 1)
    signatures = asked.signatures()
    assert set(signatures) == set(other.signatures())
    files = [b"abc", b"\xff" * 61]
    for name in ("serving_default", "represent"):
        rows = asked.predict(signatures[name], files)
        assert rows == other.predict(other.signatures()[name], files)
    assert server.batch_sizes == [2] * 4


def test_a_photograph_of_many_megabytes_is_sent(server):
    asked = connected(server, "lengths")
    (row,) = asked.predict(asked.signatures()["represent"], [bytes(2**23)])
    assert row["representation"][0] == 2**23


def test_its_channel_is_closed_with_it(monkeypatch):
    closed = []

    class Channel:
        def unary_unary(self, *args, **options):
            pass

        def close(self):
            closed.append(self)

    monkeypatch.setattr(
        grpc_model.grpc, "insecure_channel", lambda *_, **__: Channel()
    )
    asked = grpc_model.GrpcModel("localhost:1", "lengths")
    assert not closed
    del asked
    gc.collect()
    assert len(closed) == 1


def test_errors_say_what_to_do(server):
    asked = connected(server, "lengths")
    represent = asked.signatures()["represent"]
    with pytest.raises(model.Refused, match=r"empty, got one of\] \[0\]$"):
        asked.predict(represent, [b"", b"a"])
    server.reset(fail_first=1)
    with pytest.raises(model.Unavailable, match="is not there: queue is full"):
        asked.predict(represent, [b"a"])
    server.reset(fail_first=1, fail_with=grpc.StatusCode.RESOURCE_EXHAUSTED)
    with pytest.raises(model.Overloaded, match="answers RESOURCE_EXHAUSTED: q"):
        asked.predict(represent, [b"a"])
    for name, version, servable in (
        ("other", None, r"Latest\(other\)"),
        ("lengths", 7, r"Specific\(lengths, 7\)"),
    ):
        with pytest.raises(RuntimeError, match=f"NOT_FOUND: .*{servable}"):
            connected(server, name, version).signatures()
    server.reset(delay=60)
    slow = connected(server, "lengths", timeout=0.1)
    with pytest.raises(RuntimeError, match="within --timeout=0.1 seconds"):
        slow.predict(represent, [b"a"])
    away = grpc_model.GrpcModel("localhost:1", "lengths")
    with pytest.raises(model.Unavailable, match="localhost:1 is not there"):
        away.signatures()
