"""A broken resolution of the dependencies is caught here, by name."""

import importlib
import importlib.metadata
import pathlib
import platform
import sys

import pytest
from packaging import requirements

ROOT = pathlib.Path(__file__).parent.parent
LOCKS = {
    name: [
        requirements.Requirement(line)
        for line in (ROOT / name).read_text().splitlines()
        if line and not line.startswith("#")
    ]
    for name in ("requirements.txt", "requirements-newest.txt")
}
HERE = ".".join(platform.python_version_tuple()[:2])
LOCK = f"requirements{'-newest' if sys.version_info >= (3, 12) else ''}.txt"
DECLARED = [
    requirements.Requirement(line)
    for line in importlib.metadata.requires("supcon_tf")
]


def declared(python_version, *extras):
    """What a Python and some extras need, by name."""
    environments = [
        {"python_version": python_version, "extra": extra} for extra in extras
    ]
    return {
        requirement.name: requirement
        for requirement in DECLARED
        if requirement.name != "supcon_tf"
        if not requirement.marker
        or any(map(requirement.marker.evaluate, environments))
    }


IMPORTED_AS = {
    "absl-py": "absl",
    "grpcio": "grpc",
    "protobuf": "google.protobuf",
    "scikit-learn": "sklearn",
    "tensorflow-serving-api": "tensorflow_serving.apis",
}


@pytest.mark.parametrize(
    "pin",
    [r for r in LOCKS[LOCK] if not r.marker or r.marker.evaluate()],
    ids=lambda pin: pin.name,
)
def test_what_is_pinned_is_installed(pin):
    installed = importlib.metadata.version(pin.name)
    assert pin.specifier.contains(installed), installed


@pytest.mark.parametrize("name", declared(HERE, "", "serving"))
def test_what_is_required_can_be_imported(name):
    importlib.import_module(IMPORTED_AS.get(name, name.replace("-", "_")))


def test_tfds_makes_a_builder():
    # With a tensorflow-metadata that wants protobuf 5, `pip check` is clean
    # and this fails beside TensorFlow 2.15.
    import tensorflow_datasets as tfds

    builder = tfds.builder("cifar10")
    assert builder.info.features["label"].num_classes == 10
    assert builder.info.splits is not None


@pytest.mark.parametrize(
    ("name", "python_version"), zip(LOCKS, ("3.11", "3.12"), strict=True)
)
def test_a_lock_pins_what_the_package_declares(name, python_version):
    extras = (
        "corruptions docs hub notebook onnx search serving text dev".split()
    )
    needed = declared(python_version, "", *extras)
    assert needed.keys() == {pin.name for pin in LOCKS[name]}
    for pin in LOCKS[name]:
        ((operator, version),) = [
            (specifier.operator, specifier.version)
            for specifier in pin.specifier
        ]
        assert operator == "==", pin
        assert needed[pin.name].specifier.contains(version), pin
