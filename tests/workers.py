"""Several workers on this machine, as environments of their processes."""

import json
import os
import socket

# Held until this process ends, so that the system gives these ports to no other
# process before a worker listens.
_RESERVED: list[socket.socket] = []


def environments(count: int) -> list[dict[str, str]]:
    """The environment of each worker of a cluster on free ports."""
    addresses = [f"localhost:{_reserve_port()}" for _ in range(count)]
    tasks = [{"type": "worker", "index": index} for index in range(count)]
    return [
        {
            **os.environ,
            "TF_GRPC_REUSE_PORT": "true",
            # A proxy of a company, which cannot reach this machine.
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
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listener.bind(("localhost", 0))
    _RESERVED.append(listener)
    return listener.getsockname()[1]
