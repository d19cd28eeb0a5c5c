"""Where there is no Keras 3 on TensorFlow, one line says so."""

import importlib.metadata
import pathlib
import runpy

import pytest

from supcon_tf import exceptions
from supcon_tf.keras_2 import PACKAGE

MODULE = pathlib.Path("supcon_tf/keras_3/installed.py").resolve()


def refusal(kind):
    with pytest.raises(kind) as raised:
        runpy.run_path(str(MODULE))
    line = str(raised.value)
    assert "\n" not in line and len(line) <= 400
    return line


def test_the_newest_platform_is_named(monkeypatch):
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "2.15.0")
    line = refusal(exceptions.MissingPackage)
    assert "Python 3.12 or 3.13 with requirements-newest.txt" in line
    assert line.endswith("here is Keras 2.15.0")


@pytest.mark.skipif(PACKAGE != "keras", reason="Keras 3 is installed")
def test_importing_is_an_error_where_keras_2_is_alone():
    with pytest.raises(exceptions.MissingPackage, match="needs Keras 3"):
        from supcon_tf import keras_3  # noqa: F401


@pytest.mark.skipif(PACKAGE == "keras", reason="Keras 2 alone is installed")
def test_another_backend_is_refused(monkeypatch):
    import keras

    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    line = refusal(exceptions.InvalidValue)
    assert "KERAS_BACKEND=tensorflow" in line and line.endswith("got jax")
