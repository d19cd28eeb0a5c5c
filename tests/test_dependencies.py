"""A broken resolution of the dependencies is caught here, by name."""

import importlib
import importlib.metadata
import pathlib
import re

import pytest
from packaging import requirements

ROOT = pathlib.Path(__file__).parent.parent
LINES = [
    requirements.Requirement(line)
    for line in (ROOT / "requirements.txt").read_text().splitlines()
    if line and not line.startswith("#")
]
DIRECT = [r for r in LINES if r.marker is None or r.marker.evaluate()]
IMPORTED_AS = {
    "absl-py": "absl",
    "grpcio": "grpc",
    "protobuf": "google.protobuf",
    "scikit-learn": "sklearn",
    "tensorflow-serving-api": "tensorflow_serving.apis",
}


@pytest.mark.parametrize("requirement", DIRECT, ids=lambda r: r.name)
def test_direct_dependency_is_pinned_installed_and_importable(requirement):
    assert re.fullmatch(r"==[\w.]+", str(requirement.specifier))
    installed = importlib.metadata.version(requirement.name)
    assert requirement.specifier.contains(installed), installed
    name = requirement.name.replace("-", "_")
    importlib.import_module(IMPORTED_AS.get(requirement.name, name))


def test_tfds_makes_a_builder():
    # With a tensorflow-metadata that wants protobuf 5, `pip check` is clean
    # and this fails.
    import tensorflow_datasets as tfds

    builder = tfds.builder("cifar10")
    assert builder.info.features["label"].num_classes == 10
    assert builder.info.splits is not None


def test_the_pinned_releases_are_those_that_the_package_takes():
    declared = importlib.metadata.requires("supcon_tf")
    required = map(requirements.Requirement, declared)
    taken = {r.name: r.specifier for r in required if "extra" not in str(r)}
    assert taken.keys() == {requirement.name for requirement in LINES}
    for requirement in LINES:
        (pin,) = requirement.specifier
        assert taken[requirement.name].contains(pin.version), requirement
