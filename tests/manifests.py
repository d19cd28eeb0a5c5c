"""Kubernetes manifests, as the tests of deploy/ and serving/ read them."""

from __future__ import annotations

import yaml


def documents(path):
    """The objects of a file, in their order."""
    return [*filter(None, yaml.safe_load_all(path.read_text()))]


def pod_specs(value):
    """Every pod specification anywhere in a document."""
    if isinstance(value, dict):
        if "containers" in value:
            yield value
        value = list(value.values())
    for item in value if isinstance(value, list) else ():
        yield from pod_specs(item)


def mounts(container):
    """Volume names by the directory where a container finds them."""
    volumes = container["volumeMounts"]
    return {volume["mountPath"]: volume["name"] for volume in volumes}
