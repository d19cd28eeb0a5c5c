"""What is installed, what computes, and which known trap applies: a line each.

  python -m supcon_tf.doctor

In a notebook: `supcon_tf.doctor.main()`.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import sys
from collections.abc import Iterator

from packaging import requirements

from supcon_tf import exceptions

_EXTRAS = {
    "corruptions": "imagecorruptions",
    "onnx": "tf2onnx",
    "serving": "tensorflow_serving",
}


def main() -> int:
    """Prints all findings; returns how many of them are to be mended."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    wrong = 0
    for check in (_machine, _packages, _keras, _devices, _datasets):
        for name, good, text in check():
            print(f"{'ok ' if good else 'BAD'} {name:<12} {text}", flush=True)
            wrong += not good
    return wrong


def _machine() -> Iterator[tuple[str, bool, str]]:
    yield (
        "machine",
        True,
        f"Python {platform.python_version()} on {platform.platform()}, "
        f"{os.cpu_count()} cores",
    )


def _packages() -> Iterator[tuple[str, bool, str]]:
    """Each package that is missing, or is not within the tested releases."""
    declared = [
        requirements.Requirement(line)
        for line in importlib.metadata.requires("supcon_tf")
    ]
    found = []
    for one in declared:
        if one.marker and not one.marker.evaluate({"extra": ""}):
            continue
        try:
            installed = importlib.metadata.version(one.name)
        except importlib.metadata.PackageNotFoundError:
            installed = None
        if installed and one.specifier.contains(installed):
            found.append(f"{one.name} {installed}")
            continue
        has = f"is {installed}" if installed else "is missing"
        yield "packages", False, f"{one.name} {has}: pip install '{one}'"
    extras = [
        name
        for name, module in _EXTRAS.items()
        if importlib.util.find_spec(module)
    ]
    yield "packages", True, ", ".join(found)
    yield "extras", True, ", ".join(extras) or "none"


def _keras() -> Iterator[tuple[str, bool, str]]:
    """Importing this package chose Keras 2, unless that was too late."""
    try:
        from supcon_tf import keras_2
    except exceptions.MissingPackage as error:
        yield "Keras", False, str(error)
        return
    package = keras_2.PACKAGE
    yield "Keras", True, f"{importlib.metadata.version(package)}, by {package}"
    if package == "keras" and importlib.util.find_spec("tf_keras"):
        yield (
            "Keras",
            False,
            "tf-keras beside Keras 2: what imports it breaks the loading of "
            "saved models: pip uninstall tf-keras",
        )


def _devices() -> Iterator[tuple[str, bool, str]]:
    """What TensorFlow computes on; a GPU that it does not see is a trap."""
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    names = [
        tf.config.experimental.get_device_details(gpu).get("device_name", "GPU")
        for gpu in gpus
    ]
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    if gpus or hidden or not shutil.which("nvidia-smi"):
        yield "devices", True, ", ".join(names) or "CPU; there is no GPU"
    else:
        yield (
            "devices",
            False,
            "CPU: there is an NVIDIA driver, but TensorFlow sees no GPU: pip "
            "install 'supcon_tf[gpu]', which brings the CUDA it was built for",
        )


def _datasets() -> Iterator[tuple[str, bool, str]]:
    """A wrong tensorflow-metadata breaks TFDS while `pip check` is clean."""
    from supcon_tf.data import tfds_source

    try:
        tfds = tfds_source.import_tfds()
    except exceptions.MissingPackage as error:
        yield "datasets", False, " ".join(str(error).split())
    else:
        yield "datasets", True, f"TensorFlow Datasets {tfds.__version__}"


if __name__ == "__main__":
    sys.exit(min(main(), 1))
