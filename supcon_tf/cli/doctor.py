"""Checks of an installation: versions, devices, known traps, a line each.

  python tools/doctor.py

In a notebook: `supcon_tf.doctor.main()`.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import itertools
import os
import platform
import shutil
import sys
from collections.abc import Iterator

from packaging import requirements

from supcon_tf import exceptions

_PACKAGE = "supcon_tf"


def main() -> int:
    """Prints all findings; returns the number of bad ones."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    num_bad, checks = 0, [_machine, _packages, _keras, _devices, _datasets]
    if importlib.util.find_spec("tensorflow") is None:
        checks[2:] = [_no_tensorflow]
    for check in checks:
        for name, is_good, text in check():
            print(
                f"{'ok ' if is_good else 'BAD'} {name:<12} {text}", flush=True
            )
            num_bad += not is_good
    return num_bad


def _machine() -> Iterator[tuple[str, bool, str]]:
    yield (
        "machine",
        True,
        f"Python {platform.python_version()} on {platform.platform()}, "
        f"{os.cpu_count()} cores",
    )


def _packages() -> Iterator[tuple[str, bool, str]]:
    """Each package that is missing, or is not within the tested releases.

    Packages of an extra that is not installed are no findings: a line names the
    extras.
    """
    try:
        extras = importlib.metadata.metadata(_PACKAGE).get_all("Provides-Extra")
    except importlib.metadata.PackageNotFoundError:
        yield "packages", True, "not known: pip install -e . records them"
        return
    core = [*_requirements(_PACKAGE)]
    for remedy in filter(None, itertools.starmap(_remedy, core)):
        yield "packages", False, remedy
    good = [
        f"{requirement.name} {version}"
        for requirement, version in core
        if not _remedy(requirement, version)
    ]
    yield "packages", True, ", ".join(good)
    present, absent = [], []
    core_names = {requirement.name for requirement, _ in core}
    for extra in sorted(extras or ()):
        packages = [*_requirements(_PACKAGE, extra)]
        versions = {
            requirement.name: version
            for requirement, version in packages
            if requirement.name not in core_names
        }
        missing = [name for name, version in versions.items() if not version]
        if not missing:
            present.append(extra)
            for remedy in filter(None, itertools.starmap(_remedy, packages)):
                yield "extras", False, f"of {extra}, {remedy}"
        elif len(missing) == len(versions):
            absent.append(extra)
        else:
            names = exceptions.listed(missing, limit=3)
            absent.append(f"{extra} (without {names})")
    text = ", ".join(present) or "none"
    if absent:
        text += f"; not installed: {', '.join(absent)}"
    yield "extras", True, text


def _requirements(
    package: str, extra: str = ""
) -> Iterator[tuple[requirements.Requirement, str | None]]:
    """The requirements of a package, or of its extra, and installed releases.

    Extras of an extra are followed.
    """
    try:
        lines = importlib.metadata.requires(package) or ()
    except importlib.metadata.PackageNotFoundError:
        return
    for requirement in map(requirements.Requirement, lines):
        marker = requirement.marker
        extras = [
            name
            for name in {"", extra}
            if not marker or marker.evaluate({"extra": name})
        ]
        if extras != [extra]:  # of another extra, or needed by all
            continue
        if requirement.name != _PACKAGE:
            try:
                yield requirement, importlib.metadata.version(requirement.name)
            except importlib.metadata.PackageNotFoundError:
                yield requirement, None
        for nested_extra in sorted(requirement.extras) if extra else ():
            yield from _requirements(requirement.name, nested_extra)


def _remedy(requirement: requirements.Requirement, version: str | None) -> str:
    """The command for a package that is missing, or of another release."""
    name, specifier = requirement.name, requirement.specifier
    if version and specifier.contains(version):
        return ""
    state = f"is {version}" if version else "is missing"
    return f"{name} {state}: pip install '{name}{specifier}'"


def _no_tensorflow() -> Iterator[tuple[str, bool, str]]:
    yield "TensorFlow", False, "is missing: pip install -e . installs it"


def _keras() -> Iterator[tuple[str, bool, str]]:
    """The release of Keras 2, and a trap of two packages of it."""
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
    """The devices of TensorFlow; a GPU that it does not see is a trap."""
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
