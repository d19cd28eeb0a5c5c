"""Several workers on this machine, as environments of their processes."""

from __future__ import annotations

import json
import os
import socket


def environments(count: int) -> list[dict[str, str]]:
    """The environment of each worker of a cluster on free ports."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("localhost", 0))
    addresses = [f"localhost:{one.getsockname()[1]}" for one in sockets]
    for one in sockets:
        one.close()
    tasks = [{"type": "worker", "index": index} for index in range(count)]
    return [
        {
            **os.environ,
            "TF_CONFIG": json.dumps(
                {"cluster": {"worker": addresses}, "task": task}
            ),
        }
        for task in tasks
    ]
