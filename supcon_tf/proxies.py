"""HTTP proxies of the environment: none stands before this machine.

http_proxy and its like are meant for the internet. gRPC, and so TensorFlow,
sends what is for other processes of this machine there too, and waits.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import urllib.request
from urllib.parse import urlsplit

# In the order in which gRPC looks for them.
_GRPC_VARIABLES = ("grpc_proxy", "https_proxy", "http_proxy")


def is_this_machine(host: str) -> bool:
    """Whether a name or an IP address is of this machine, without any DNS.

    Example:
      >>> from supcon_tf import proxies
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
    """The proxy that gRPC asks for a host, as an error says it; "" for none."""
    # gRPC looks into the second where the first is empty.
    excepted = os.environ.get("no_grpc_proxy") or os.environ.get("no_proxy", "")
    if is_this_machine(host) or urllib.request.proxy_bypass_environment(
        host, {"no": excepted}
    ):
        return ""
    for name in _GRPC_VARIABLES:
        if address := os.environ.get(name):
            return _told(name, address)
    return ""


def used_by_urllib(url: str) -> str:
    """The proxy that Python asks for a URL, as an error says it; or ""."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if is_this_machine(host) or urllib.request.proxy_bypass(host):
        return ""
    address = urllib.request.getproxies().get(parts.scheme, "")
    return address and _told(f"{parts.scheme}_proxy", address)


def go_around(*hosts: str) -> None:
    """Lets TensorFlow's gRPC reach this machine, and `hosts`, by itself.

    Where there is a proxy, it extends no_proxy in the environment of this
    process, which gRPC reads whenever it makes a channel.
    """
    if not any(os.environ.get(name) for name in _GRPC_VARIABLES):
        return
    here = "localhost", "127.0.0.1", "::1", socket.gethostname()
    wanted = [host.strip("[]") for host in (*here, *hosts)]
    values = {"no_proxy": os.environ.get("NO_PROXY", "")}
    for name in ("no_proxy", "no_grpc_proxy"):
        if value := os.environ.get(name):
            values[name] = value
    for name, value in values.items():
        known = [part.strip() for part in value.split(",") if part.strip()]
        os.environ[name] = ",".join(dict.fromkeys((*known, *wanted)))


def _told(variable: str, address: str) -> str:
    """What an error says of a proxy; a password in its address stays secret."""
    parts = urlsplit(address if "//" in address else f"//{address}")
    shown = parts.netloc.rpartition("@")[2]
    return (
        f", through the proxy {shown} of {variable}; no_proxy names servers "
        "that need none"
    )
