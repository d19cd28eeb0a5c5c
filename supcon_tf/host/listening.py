"""Ports that TensorFlow opens: for this machine alone, or with a warning.

Its servers listen on every network, ask for no password, and run the graphs of
any client, which read and write files with the rights of the process.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
from collections.abc import Iterator

from absl import logging

_LOOPBACK = b"lo"  # Linux' network inside of a machine


def is_loopback(host: str) -> bool:
    """Whether a name or address is reached from its own machine alone.

    Example:
      >>> from supcon_tf.host import listening
      >>> [listening.is_loopback(x) for x in ("localhost", "[::1]", "10.0.0.1")]
      [True, True, False]
    """
    host = host.strip("[]")
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


@contextlib.contextmanager
def opened(subject: str, *hosts: str) -> Iterator[None]:
    """Closes ports that are opened in a block to other machines.

    A connection that was made before the end of the block stays.

    Args:
      subject: the process that listens, in the words of a warning.
      *hosts: names by which clients reach it. If one is not a loopback name,
        the ports stay open, and a warning says so. A warning also comes where
        ports cannot be closed: Linux before 5.7 needs CAP_NET_RAW.
    """
    before = set(_listening())
    yield
    ports = {key: fd for key, fd in _listening().items() if key not in before}
    reason = f"it is to be reached at {', '.join(hosts)}"
    if all(map(is_loopback, hosts)):
        try:
            for fd in ports.values():
                with socket.socket(fileno=os.dup(fd)) as listener:
                    listener.setsockopt(
                        socket.SOL_SOCKET, socket.SO_BINDTODEVICE, _LOOPBACK
                    )
            if ports:
                return
            reason = "its ports cannot be found"
        except (OSError, AttributeError) as error:
            reason = f"it cannot be closed here ({error})"
    logging.warning(
        "%s is open to every machine that reaches this one (%s), asks for no "
        "password, and reads and writes files for whoever asks: keep it "
        "inside a private network, see docs/security.md",
        subject,
        reason,
    )


def _listening() -> dict[int, int]:
    """The TCP sockets of this process that listen: inode to descriptor."""
    descriptors = {}
    with contextlib.suppress(OSError):
        for name in os.listdir("/dev/fd"):
            with contextlib.suppress(OSError):
                duplicate = os.dup(int(name))
                with socket.socket(fileno=duplicate) as candidate:
                    is_tcp = candidate.family in (
                        socket.AF_INET,
                        socket.AF_INET6,
                    )
                    if is_tcp and candidate.getsockopt(
                        socket.SOL_SOCKET, socket.SO_ACCEPTCONN
                    ):
                        descriptors[os.fstat(int(name)).st_ino] = int(name)
    return descriptors
