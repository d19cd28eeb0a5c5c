"""What is installed, what computes, and which known trap applies: a line each.

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

_OWN = "supcon_tf"


def main() -> int:
    """Prints all findings; returns how many of them are to be mended."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    wrong, checks = 0, [_machine, _packages, _keras, _devices, _datasets]
    if importlib.util.find_spec("tensorflow") is None:
        checks[2:] = [_no_tensorflow]
    for check in checks:
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
    """Each package that is missing, or is not within the tested releases.

    Of an extra the packages that are there: which others there are is told in
    one line.
    """
    try:
        extras = importlib.metadata.metadata(_OWN).get_all("Provides-Extra")
    except importlib.metadata.PackageNotFoundError:
        yield "packages", True, "not known: pip install -e . records them"
        return
    found, core = [], set()
    for needed, installed in _needed(_OWN):
        core.add(needed.name)
        if _fits(needed, installed):
            found.append(f"{needed.name} {installed}")
        else:
            yield "packages", False, _remedy(needed, installed)
    yield "packages", True, ", ".join(found)
    here, absent = [], []
    for extra in sorted(extras or ()):
        needs = [*_needed(_OWN, extra)]
        own = {one.name: has for one, has in needs if one.name not in core}
        missing = [name for name, installed in own.items() if not installed]
        for needed, installed in () if missing else needs:
            if not _fits(needed, installed):
                text = _remedy(needed, installed)
                yield "extras", False, f"of {extra}, {text}"
        if not missing:
            here.append(extra)
        elif len(missing) == len(own):
            absent.append(extra)
        else:
            several = ", ..." * (len(missing) > 3)
            listed = ", ".join(missing[:3]) + several
            absent.append(f"{extra} (without {listed})")
    text = ", ".join(here) or "none"
    if absent:
        text += f"; not installed: {', '.join(absent)}"
    yield "extras", True, text


def _needed(
    package: str, extra: str = ""
) -> Iterator[tuple[requirements.Requirement, str | None]]:
    """What a package, or an extra of it, needs, and its release here.

    Those of an extra may be extras in turn, which are followed.
    """
    try:
        lines = importlib.metadata.requires(package) or ()
    except importlib.metadata.PackageNotFoundError:
        return
    for needed in map(requirements.Requirement, lines):
        applies = not needed.marker or needed.marker.evaluate({"extra": extra})
        always = not needed.marker or needed.marker.evaluate({"extra": ""})
        if not applies or (extra and always):
            continue
        if needed.name != _OWN:
            try:
                yield needed, importlib.metadata.version(needed.name)
            except importlib.metadata.PackageNotFoundError:
                yield needed, None
        for other in sorted(needed.extras) if extra else ():
            yield from _needed(needed.name, other)


def _fits(needed: requirements.Requirement, installed: str | None) -> bool:
    return bool(installed) and needed.specifier.contains(installed)


def _remedy(needed: requirements.Requirement, installed: str | None) -> str:
    has = f"is {installed}" if installed else "is missing"
    wanted = f"{needed.name}{needed.specifier}"
    return f"{needed.name} {has}: pip install '{wanted}'"


def _no_tensorflow() -> Iterator[tuple[str, bool, str]]:
    yield "TensorFlow", False, "is missing: pip install -e . brings it"


def _keras() -> Iterator[tuple[str, bool, str]]:
    """Keras 2, which is a package of its own beside Keras 3."""
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
