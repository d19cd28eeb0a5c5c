"""Several workers on this machine, as environments of their processes."""

import json
import os
import socket

# Held for as long as this process lives, so that no other process is given
# one of these ports before its worker listens there.
_RESERVED: list[socket.socket] = []


def environments(count: int) -> list[dict[str, str]]:
    """The environment of each worker of a cluster on ports of its own."""
    addresses = [f"localhost:{_reserve_port()}" for _ in range(count)]
    tasks = [{"type": "worker", "index": index} for index in range(count)]
    return [
        {
            **os.environ,
            "TF_GRPC_REUSE_PORT": "true",
            # That of a company, which knows nothing of this machine.
            "http_proxy": "http://localhost:9",
            "no_proxy": "",
            "TF_CONFIG": json.dumps(
                {"cluster": {"worker": addresses}, "task": task}
            ),
        }
        for task in tasks
    ]


def _reserve_port() -> int:
    """A port that only a server of the same user can share."""
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    reserved.bind(("localhost", 0))
    _RESERVED.append(reserved)
    return reserved.getsockname()[1]
