"""Kubernetes manifests, as the tests of deploy/ and serving/ read them."""

from __future__ import annotations

import yaml


def documents(path):
    """The objects of a file, in their order."""
    return [d for d in yaml.safe_load_all(path.read_text()) if d]


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
    return {m["mountPath"]: m["name"] for m in container["volumeMounts"]}
