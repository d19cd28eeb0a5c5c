"""Options and fixtures of the whole suite."""

import ctypes
import fcntl
import gc
import os
import shutil
import signal

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# No test may reach for a GPU: the suite is the same everywhere.
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
# Nor leave anything in the cache of whoever runs the suite.
os.environ["XDG_CACHE_HOME"] = os.path.abspath(".pytest_cache/cache_home")


# A suite that a shell started in the background ignores Ctrl-C, and so would
# the processes that it starts, some of which are to be ended by it.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser):
    parser.addoption("--run_slow", action="store_true")


# The longest files, the longest first: begun early, they do not end last.
_LONG_FILES = [
    f"test_{name}"
    for name in "notebooks tiled stages texts labels tools saving "
    "fine_tuning loop docstrings paper suites named".split()
]


def pytest_collection_modifyitems(config, items):
    ranks = {name: rank for rank, name in enumerate(_LONG_FILES)}
    items.sort(key=lambda item: ranks.get(item.path.stem, len(_LONG_FILES)))
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

    if "PYTEST_XDIST_WORKER" in os.environ:  # a core each
        tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * 2,
    )
    # Imported modules stay: no collection visits them again.
    gc.freeze()
    # Tracing makes objects by the million that stay until a file is `freed`.
    gc.set_threshold(100_000, 20, 100)


@pytest.fixture(scope="module", autouse=True)
def freed():
    """Frees what a file has traced, once it is done.

    TensorFlow never forgets a gradient that was made by `tf.custom_gradient`,
    nor a function that was given to `tf.numpy_function`, and with them graphs,
    models and all else that they refer to: gigabytes in the whole suite.
    """
    yield
    from tensorflow.python.framework import ops

    gradients = ops.gradient_registry._registry
    for name in [key for key in gradients if key.startswith("CustomGradient-")]:
        del gradients[name]
    getattr(ops.get_default_graph(), "_py_funcs_used_in_graph", []).clear()
    gc.collect()
    gc.freeze()  # objects of this file that stay are not visited again
    # Only glibc has this function.
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)


@pytest.fixture
def float32_policy():
    """Restores the global precision policy after a test that changes it."""
    from supcon_tf.keras_2 import keras

    policy = keras.mixed_precision.global_policy()
    yield
    keras.mixed_precision.set_global_policy(policy)


def shared_folder(tmp_path_factory, name, make):
    """A folder that one worker of the suite makes, for all of them to read."""
    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent
    with open(root / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (root / name).exists():
            make(root / name)
    return root / name


@pytest.fixture(scope="session")
def image_folder(tmp_path_factory):
    """A folder of real image files: three classes of coloured noise.

    JPEG and PNG, grey and RGB, none of them square; the classes differ in
    brightness, so that a tiny encoder can tell them apart.
    """
    import numpy as np
    from PIL import Image

    def make(root):
        rng = np.random.default_rng(0)
        for split, count in (("train", 16), ("test", 7)):
            for level, name in ((40, "dark"), (120, "mid"), (210, "bright")):
                directory = root / split / name
                directory.mkdir(parents=True)
                for index in range(count):
                    shape = [20, 24] if index % 4 == 0 else [20, 24, 3]
                    pixels = np.clip(rng.normal(level, 25, shape), 0, 255)
                    suffix = ("png", "jpg")[index % 2]
                    Image.fromarray(pixels.astype(np.uint8)).save(
                        directory / f"{index:02}.{suffix}"
                    )

    return shared_folder(tmp_path_factory, "images", make)


@pytest.fixture(scope="session")
def tiny_settings(image_folder, tmp_path_factory):
    """Makes settings of a pretraining that takes seconds.

    Without a policy, which would take longest to trace.
    """
    from supcon_tf import config

    def make(run_dir=None, **overrides):
        run_dir = run_dir or tmp_path_factory.mktemp("run") / "run"
        return config.PretrainSettings(
            **{
                "run_dir": str(run_dir),
                "dataset": "folder",
                "data_dir": str(image_folder),
                "image_size": 16,
                "architecture": "vgg8",
                "width": 0.1,
                "hidden_dims": (16,),
                "projection_dim": 8,
                "batch_size": 16,
                "epochs": 2,
                "warmup_epochs": 1.0,
                "learning_rate": 1.0,
                "augmentation": "identity",
                "crop_area": (0.5, 1.0),
                **overrides,
            }
        )

    return make


@pytest.fixture(scope="session")
def copy_run(tiny_settings, tmp_path_factory):
    """Copies a run with both stages to a path."""
    from supcon_tf import config, run_files, training

    def make(path):
        settings = tiny_settings(
            path, augmentation="simaugment", warp_probability=0.0
        )
        training.pretrain(settings)
        constant = {"crop_area": (), "horizontal_flip": False}  # views
        options = {"epochs": 20, "batch_size": 16, **constant}
        training.train_linear(config.LinearSettings(str(path), **options))

    template = shared_folder(tmp_path_factory, "finished_run", make)

    def copy(path):
        shutil.copytree(template, path)
        for file in path.rglob("settings.flags"):
            file.write_text(file.read_text().replace(str(template), str(path)))
        return run_files.RunDirectory(path)

    return copy


@pytest.fixture(scope="session")
def finished_run(copy_run, tmp_path_factory):
    """A run with both stages for the tests of later tools, which may write."""
    return copy_run(tmp_path_factory.mktemp("run") / "run")


@pytest.fixture(scope="session")
def finished_text_run(tmp_path_factory):
    """A trained run on texts, with a test file, not evaluated."""
    from supcon_tf import config, run_files, training
    from tests import language_model

    def make(path):
        path.mkdir()
        language_model.write_model(path)
        language_model.write_sentences(path / "train.tsv", 40)
        language_model.write_sentences(path / "test.tsv", 12)
        training.finetune_text(
            config.FinetuneTextSettings(
                str(path / "run"),
                model=str(path),
                train_file=str(path / "train.tsv"),
                test_file=str(path / "test.tsv"),
                validation_fraction=0.2,
                objective="ce",
                max_length=8,
                batch_size=8,
                epochs=8,
                learning_rate=5e-3,
            )
        )

    folder = shared_folder(tmp_path_factory, "finished_text_run", make)
    path = tmp_path_factory.mktemp("text_run") / "run"  # where tests may write
    shutil.copytree(folder / "run", path)
    return run_files.RunDirectory(path)
