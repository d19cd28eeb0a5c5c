"""Checks of an installation: versions, devices, known traps, a line each.

  python tools/doctor.py

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
    versions, core = [], set()
    for requirement, installed in _requirements(_PACKAGE):
        core.add(requirement.name)
        if _fits(requirement, installed):
            versions.append(f"{requirement.name} {installed}")
        else:
            yield "packages", False, _remedy(requirement, installed)
    yield "packages", True, ", ".join(versions)
    present, absent = [], []
    for extra in sorted(extras or ()):
        extra_requirements = [*_requirements(_PACKAGE, extra)]
        releases = {
            requirement.name: installed
            for requirement, installed in extra_requirements
            if requirement.name not in core
        }
        missing = [
            name for name, installed in releases.items() if not installed
        ]
        for requirement, installed in () if missing else extra_requirements:
            if not _fits(requirement, installed):
                text = _remedy(requirement, installed)
                yield "extras", False, f"of {extra}, {text}"
        if not missing:
            present.append(extra)
        elif len(missing) == len(releases):
            absent.append(extra)
        else:
            ellipsis = ", ..." * (len(missing) > 3)
            names = ", ".join(missing[:3]) + ellipsis
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
        applies = not requirement.marker or requirement.marker.evaluate(
            {"extra": extra}
        )
        always = not requirement.marker or requirement.marker.evaluate(
            {"extra": ""}
        )
        if not applies or (extra and always):
            continue
        if requirement.name != _PACKAGE:
            try:
                yield requirement, importlib.metadata.version(requirement.name)
            except importlib.metadata.PackageNotFoundError:
                yield requirement, None
        for other in sorted(requirement.extras) if extra else ():
            yield from _requirements(requirement.name, other)


def _fits(requirement: requirements.Requirement, installed: str | None) -> bool:
    return bool(installed) and requirement.specifier.contains(installed)


def _remedy(
    requirement: requirements.Requirement, installed: str | None
) -> str:
    state = f"is {installed}" if installed else "is missing"
    specifier = f"{requirement.name}{requirement.specifier}"
    return f"{requirement.name} {state}: pip install '{specifier}'"


def _no_tensorflow() -> Iterator[tuple[str, bool, str]]:
    yield "TensorFlow", False, "is missing: pip install -e . brings it"


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
