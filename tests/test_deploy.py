"""The manifests of deploy/ are sound, and their commands parse."""

from __future__ import annotations

import pathlib

import pytest
from absl import flags

from supcon_tf import config, settings
from tests import manifests

ROOT = pathlib.Path(__file__).parent.parent
MANIFESTS = sorted((ROOT / "deploy").glob("*.yaml"))


@pytest.fixture(autouse=True)
def at_root(monkeypatch):
    """Where the flagfiles of the commands are."""
    monkeypatch.chdir(ROOT)


def containers():
    for path in MANIFESTS:
        for pod in manifests.pod_specs(manifests.documents(path)):
            for container in pod["containers"]:
                yield path, pod, container


def parse_command(command):
    """The settings of `python tools/pretrain.py --flag ...`."""
    assert command[:2] == ["python", "tools/pretrain.py"]
    values = flags.FlagValues()
    flags.DEFINE_string("flagfile", "", "", flag_values=values)
    settings.define_flags(config.PretrainSettings, values)
    values(command[1:])
    return settings.from_flags(config.PretrainSettings, values)


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_manifests_are_kubernetes_objects_that_say_how_to_use_them(path):
    assert f"kubectl apply -f deploy/{path.name}" in path.read_text()
    assert manifests.documents(path)
    for document in manifests.documents(path):
        assert {"apiVersion", "kind", "metadata", "spec"} <= set(document)
        assert document["metadata"]["name"]


def test_every_flag_exists_and_fits_the_others():
    commands = [c["command"] for _, _, c in containers()]
    assert commands
    for command in commands:
        parse_command(command)
    with pytest.raises(flags.Error, match="no_such_flag"):
        parse_command([*commands[0], "--no_such_flag=1"])


def test_mounted_volumes_exist_and_hold_what_the_command_names():
    for path, pod, container in containers():
        mounts = manifests.mounts(container)
        assert set(mounts.values()) == {v["name"] for v in pod["volumes"]}, path
        pretraining = parse_command(container["command"])
        for value in (pretraining.run_dir, pretraining.data_dir):
            assert any(value.startswith(f"{m}/") for m in mounts)


def test_the_job_is_one_that_the_operator_runs_and_restarts():
    (job,) = manifests.documents(ROOT / "deploy" / "tfjob.yaml")
    assert (job["apiVersion"], job["kind"]) == ("kubeflow.org/v1", "TFJob")
    assert list(job["spec"]["tfReplicaSpecs"]) == ["Worker"]
    workers = job["spec"]["tfReplicaSpecs"]["Worker"]
    assert workers["restartPolicy"] == "ExitCode"
    pod = workers["template"]["spec"]
    (container,) = pod["containers"]
    assert container["name"] == "tensorflow"
    assert container["ports"] == [{"name": "tfjob-port", "containerPort": 2222}]
    pretraining = parse_command(container["command"])
    assert pretraining.strategy == "multi_worker" and pretraining.resume
    assert pretraining.checkpoint_steps and not pretraining.jit_compile
    gpus = container["resources"]["limits"]["nvidia.com/gpu"]
    assert pretraining.batch_size % (workers["replicas"] * gpus) == 0
    assert workers["replicas"] == 2
