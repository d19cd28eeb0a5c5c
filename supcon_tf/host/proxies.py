"""HTTP proxies of the environment, which must not stand before this machine.

http_proxy and its like are meant for the internet. gRPC, and so TensorFlow,
sends requests to other processes of this machine there too, and waits.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import urllib.request
from urllib.parse import urlsplit

# In the order in which gRPC reads them.
_GRPC_VARIABLES = ("grpc_proxy", "https_proxy", "http_proxy")


def is_this_machine(host: str) -> bool:
    """Whether a name or an IP address is of this machine, without any DNS.

    Example:
      >>> from supcon_tf.host import proxies
      >>> proxies.is_this_machine("localhost"), proxies.is_this_machine("a.org")
      (True, False)
    """
    host = host.strip("[]").lower()
    if host in ("", "localhost", socket.gethostname().lower()):
        return True
    try:
        is_new = ipaddress.ip_address(host).version == 6
    except ValueError:
        return False
    family = socket.AF_INET6 if is_new else socket.AF_INET
    try:
        with socket.socket(family) as listener:
            listener.bind((host, 0))
    except OSError:
        return False
    return True


def used_by_grpc(host: str = "any.other.machine") -> str:
    """The words of an error on gRPC's proxy for a host; "" for none."""
    # gRPC reads the second where the first is empty.
    bypassed = os.environ.get("no_grpc_proxy") or os.environ.get("no_proxy", "")
    if is_this_machine(host) or urllib.request.proxy_bypass_environment(
        host, {"no": bypassed}
    ):
        return ""
    for name in _GRPC_VARIABLES:
        if address := os.environ.get(name):
            return _describe(name, address)
    return ""


def used_by_urllib(url: str) -> str:
    """The words of an error on Python's proxy for a URL; "" for none."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if is_this_machine(host) or urllib.request.proxy_bypass(host):
        return ""
    address = urllib.request.getproxies().get(parts.scheme, "")
    return address and _describe(f"{parts.scheme}_proxy", address)


def go_around(*hosts: str) -> None:
    """Lets TensorFlow's gRPC reach this machine, and `hosts`, without a proxy.

    If there is a proxy, this extends no_proxy in the environment of this
    process, which gRPC reads for each new channel.
    """
    if not any(os.environ.get(name) for name in _GRPC_VARIABLES):
        return
    local = "localhost", "127.0.0.1", "::1", socket.gethostname()
    bypassed = [host.strip("[]") for host in (*local, *hosts)]
    values = {"no_proxy": os.environ.get("NO_PROXY", "")}
    for name in ("no_proxy", "no_grpc_proxy"):
        if value := os.environ.get(name):
            values[name] = value
    for name, value in values.items():
        listed = [part.strip() for part in value.split(",") if part.strip()]
        os.environ[name] = ",".join(dict.fromkeys((*listed, *bypassed)))


def _describe(variable: str, address: str) -> str:
    """The words of an error on a proxy, without a password in its address."""
    parts = urlsplit(address if "//" in address else f"//{address}")
    server = parts.netloc.rpartition("@")[2]
    return (
        f", through the proxy {server} of {variable}; no_proxy names servers "
        "that need none"
    )
