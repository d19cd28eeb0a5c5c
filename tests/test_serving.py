"""The configurations and the manifest of serving/ are sound, and agree."""

from __future__ import annotations

import json
import pathlib
import re

import kubernetes_validate
import pytest
from google.protobuf import text_format

from supcon_tf.serving import requests
from tests import manifests, tf_serving

FOLDER = tf_serving.FOLDER
MANIFEST = manifests.documents(FOLDER / "kubernetes.yaml")
KUBERNETES = ("1.25", "1.37")  # oldest and newest that are validated


def test_models_are_pinned_and_labels_point_to_their_versions():
    assert tf_serving.served_models()
    for model in tf_serving.served_models().values():
        tf_serving.check_model(model)
        assert model.model_platform == "tensorflow"
        assert re.match(r"/|gs://", model.base_path)
        assert pathlib.PurePath(model.base_path).name == model.name
    assert tf_serving.parse_config("monitoring.config").prometheus_config.enable
    assert tf_serving.monitoring_path().startswith("/")


def test_batching_parameters_fit_each_other():
    batching = tf_serving.parse_config("batching.config")
    sizes = list(batching.allowed_batch_sizes)
    assert sizes == sorted(set(sizes))
    assert sizes[-1] == batching.max_batch_size.value
    assert batching.num_batch_threads.value >= 1
    assert batching.max_enqueued_batches.value >= 1
    # A request with more images than a batch would be refused, and the
    # requests of the warm-up with it, and the model with them.
    assert batching.max_batch_size.value >= max(requests.BATCH_SIZES)
    # Padding would change images, and there is nothing else to pad.
    assert not batching.pad_variable_length_inputs
    with pytest.raises(text_format.ParseError, match="max_batch"):
        tf_serving.parse_config("batching.config", "max_batch { value: 1 }")


def manifest_document(kind):
    (document,) = [d for d in MANIFEST if d["kind"] == kind]
    return document


def container():
    (pod,) = manifests.pod_specs(manifest_document("Deployment"))
    (only,) = pod["containers"]
    return pod, only


def server_flags():
    binary, *arguments = container()[1]["command"]
    assert binary == "tensorflow_model_server"
    return tf_serving.parse_flags(arguments)


@pytest.mark.parametrize("version", KUBERNETES)
def test_the_manifest_is_valid(version):
    for document in MANIFEST:
        kubernetes_validate.validate(document, version, strict=True)
        assert document["metadata"] == {"name": "supcon-serving"}
    broken = json.loads(json.dumps(manifest_document("Deployment")))
    broken["spec"]["template"]["spec"]["containers"][0]["volumeMount"] = []
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, version, strict=True)


def test_every_reference_of_the_manifest_is_to_something_there():
    labels = manifest_document("Deployment")["spec"]["template"]["metadata"][
        "labels"
    ]
    for kind in ("Deployment", "PodDisruptionBudget"):
        assert (
            manifest_document(kind)["spec"]["selector"]["matchLabels"] == labels
        )
    assert manifest_document("Service")["spec"]["selector"] == labels
    target = manifest_document("HorizontalPodAutoscaler")["spec"][
        "scaleTargetRef"
    ]
    for key in ("apiVersion", "kind"):
        assert target[key] == manifest_document("Deployment")[key]
    assert target["name"] == manifest_document("Deployment")["metadata"]["name"]
    assert (
        "replicas" not in manifest_document("Deployment")["spec"]
    )  # two would set them


def test_ports_are_those_of_the_server_its_probes_and_its_service():
    _, server = container()
    ports = {p["name"]: p["containerPort"] for p in server["ports"]}
    flags = server_flags()
    assert ports == {
        "grpc": int(flags["port"]),
        "rest": int(flags["rest_api_port"]),
    }
    for port in manifest_document("Service")["spec"]["ports"]:
        assert port["name"] == port["targetPort"]
        assert port["port"] == ports[port["targetPort"]]
    for probe in ("startupProbe", "readinessProbe"):
        request = server[probe]["httpGet"]
        _, _, kind, model, endpoint = request["path"].split("/")
        assert (kind, endpoint, request["port"]) == (
            "models",
            "metadata",
            "rest",
        )
        assert model in tf_serving.served_models()
    assert server["livenessProbe"]["tcpSocket"]["port"] in ports
    template = manifest_document("Deployment")["spec"]["template"]["metadata"]
    assert template["annotations"] == {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": flags["rest_api_port"],
        "prometheus.io/path": tf_serving.monitoring_path(),
    }


def test_the_server_finds_its_models_and_configurations():
    pod, server = container()
    assert server["image"] == tf_serving.IMAGE
    assert all(m["readOnly"] for m in server["volumeMounts"])
    mounts = manifests.mounts(server)
    volumes = {v.pop("name"): v for v in json.loads(json.dumps(pod["volumes"]))}
    assert sorted(mounts.values()) == sorted(volumes)
    config_map = volumes[mounts["/config"]]["configMap"]["name"]
    assert config_map == manifest_document("ConfigMap")["metadata"]["name"]
    flags = server_flags()
    named = {v for n, v in flags.items() if n.endswith("_file")}
    texts = manifest_document("ConfigMap")["data"]
    assert named == {f"/config/{key}" for key in texts}
    for name, text in texts.items():
        assert tf_serving.parse_config(name, text) == tf_serving.parse_config(
            name
        )
    for model in tf_serving.served_models().values():
        volume = volumes[mounts[str(pathlib.Path(model.base_path).parent)]]
        assert volume["persistentVolumeClaim"]["readOnly"]
    # Threads are the CPUs that are asked for.
    cpus = str(server["resources"]["requests"]["cpu"])
    for which in ("intra", "inter"):
        assert flags[f"tensorflow_{which}_op_parallelism"] == cpus
    assert "memory" in server["resources"]["limits"]
