"""Options and fixtures of the whole suite."""

from __future__ import annotations

import os

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# No test may reach for a GPU: the suite is the same everywhere.
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")


def pytest_addoption(parser):
    parser.addoption("--run_slow", action="store_true")


def pytest_collection_modifyitems(config, items):
    if config.getoption("--run_slow"):
        return
    for item in items:
        if "slow" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="needs --run_slow"))


@pytest.fixture(scope="session")
def mirrored_strategy():
    """The process's one MirroredStrategy, on two logical CPU devices.

    A second strategy of another size in the same process breaks TensorFlow's
    collectives, so every in-process test shares this one.
    """
    import tensorflow as tf

    from supcon_tf import distribute

    assert len(tf.config.list_logical_devices("CPU")) == 2
    return distribute.make_strategy("mirrored")


@pytest.fixture(scope="session", autouse=True)
def two_logical_cpus():
    """Splits the CPU before TensorFlow starts; ordinary tests use one."""
    import tensorflow as tf

    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * 2,
    )


@pytest.fixture
def float32_policy():
    """Restores the global precision policy after a test that changes it."""
    import tensorflow as tf

    before = tf.keras.mixed_precision.global_policy()
    yield
    tf.keras.mixed_precision.set_global_policy(before)
