"""Options and fixtures of the whole suite."""

import ctypes
import functools
import gc
import multiprocessing
import os
import signal
import subprocess
import sys

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# As `import supcon_tf` does, where a test imports TensorFlow first.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
# No test may reach for a GPU: the suite is the same everywhere.
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
# Nor leave anything in the cache of whoever runs the suite.
os.environ["XDG_CACHE_HOME"] = os.path.abspath(".pytest_cache/cache_home")


# A suite that a shell started in the background ignores Ctrl-C, and so would
# the processes that it starts, some of which are to be ended by it.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser):
    parser.addoption("--run_slow", action="store_true")
    parser.addoption("--quick", action="store_true")


# The longest files, the longest first: begun early, they do not end last.
_LONG_FILES = [
    f"test_{name}"
    for name in "notebooks run saving of_keras_3 tiled images stages platforms "
    "texts labels tools fine_tuning docstrings pipeline paper suites named"
    "".split()
]


def pytest_collection_modifyitems(config, items):
    ranks = {name: rank for rank, name in enumerate(_LONG_FILES)}
    items.sort(key=lambda item: ranks.get(item.path.stem, len(_LONG_FILES)))
    if not config.getoption("--run_slow"):
        for item in filter(is_slow, items):
            item.add_marker(pytest.mark.skip(reason="needs --run_slow"))
    if config.getoption("--quick"):  # of each test, the first case that runs
        first = {}
        for item in items:
            if not is_slow(item) and not item.get_closest_marker("not_quick"):
                first.setdefault((item.path, item.originalname), item)
        items[:] = first.values()


def is_slow(item):
    """Whether `make test` leaves a test out; of a parametrized one, a case."""
    marker = item.get_closest_marker("slow")
    if marker is None:
        return False
    return not (marker.kwargs and item.callspec.id in marker.kwargs["but"])


@pytest.fixture(scope="session", autouse=True)
def quick(request):
    """With --quick, a test is skipped where it first starts what takes long.

    That is a process, a training, an export, or a second replica.
    """
    if not request.config.getoption("--quick"):
        yield
        return
    import tensorflow as tf

    from supcon_tf.keras_2 import keras
    from supcon_tf.training import loop

    def skip(*_, **__):
        pytest.skip("--quick: starts a process, a training or an export")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess.Popen, "__init__", skip)
        patch.setattr(multiprocessing.process.BaseProcess, "start", skip)
        patch.setattr(loop, "fit", skip)  # a run of no epochs, too
        for name in ("fit", "train_on_batch", "save"):
            patch.setattr(keras.Model, name, skip)
        patch.setattr(tf.saved_model, "save", skip)
        yield


@pytest.fixture(scope="session")
def mirrored_strategy(request):
    """The process's one MirroredStrategy, on two logical CPU devices.

    A second strategy of another size in the same process breaks TensorFlow's
    collectives, so every in-process test shares this one.
    """
    if request.config.getoption("--quick"):
        pytest.skip("--quick: a second replica")
    import tensorflow as tf

    from supcon_tf import distribute

    assert len(tf.config.list_logical_devices("CPU")) == 2
    return distribute.make_strategy("mirrored")


@pytest.fixture(scope="session", autouse=True)
def two_logical_cpus(request):
    """Splits the CPU before TensorFlow starts; ordinary tests use one.

    With --quick, TensorFlow does not rewrite graphs before it runs them: that
    takes a fifth of the time, most of it for pipelines of a few batches.
    """
    import tensorflow as tf

    if request.config.getoption("--quick"):
        tf.config.optimizer.set_experimental_options(
            {"disable_meta_optimizer": True}
        )

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


@pytest.fixture(autouse=True)
def no_open_figures():
    """Closes the figures that are pyplot's once some test has imported it.

    Matplotlib warns at the 21st open figure, whichever tests drew them.
    """
    yield
    if pyplot := sys.modules.get("matplotlib.pyplot"):
        pyplot.close("all")


@pytest.fixture
def float32_policy():
    """Restores the global precision policy after a test that changes it."""
    from supcon_tf.keras_2 import keras

    policy = keras.mixed_precision.global_policy()
    yield
    keras.mixed_precision.set_global_policy(policy)


@pytest.fixture(scope="session")
def image_folder(tmp_path_factory):
    """A folder of three classes of image files, see `runs.write_images`."""
    from tests import runs

    return runs.shared_folder(tmp_path_factory, "images", runs.write_images)


@pytest.fixture(scope="session")
def tiny_settings(image_folder, tmp_path_factory):
    """Makes settings of a pretraining that takes seconds."""
    from tests import runs

    def make(run_dir=None, **overrides):
        run_dir = run_dir or tmp_path_factory.mktemp("run") / "run"
        return runs.image_settings(
            run_dir, **{"data_dir": image_folder, **overrides}
        )

    return make


@pytest.fixture(scope="session")
def image_run(image_folder, tmp_path_factory):
    """The folder of a run with both stages, which no test changes."""
    from tests import runs

    def train(path):
        runs.train_on_images(path, image_folder)

    return runs.shared_folder(tmp_path_factory, "image_run", train)


@pytest.fixture(scope="session")
def copy_run(image_run):
    """Copies a run with both stages, as it was trained, to a path."""
    from tests import runs

    return functools.partial(runs.copy, image_run)


@pytest.fixture(scope="session")
def copy_evaluated_run(image_run, tmp_path_factory):
    """Copies a run with both stages and an evaluation to a path."""
    from tests import runs

    def evaluate(path):
        runs.evaluate_images(path, image_run)

    source = runs.shared_folder(tmp_path_factory, "evaluated_run", evaluate)
    return functools.partial(runs.copy, source)


@pytest.fixture(scope="session")
def finished_run(copy_run, tmp_path_factory):
    """A run with both stages for the tests of later tools, which may write."""
    return copy_run(tmp_path_factory.mktemp("run") / "run")


@pytest.fixture(scope="session")
def small_run(tmp_path_factory):
    """The directory of a run with the export of `small_export`."""
    from tests import runs, small_export

    return runs.shared_folder(tmp_path_factory, "mine", small_export.write)


@pytest.fixture(scope="session")
def text_folder(tmp_path_factory):
    """A language model with sentences, see `runs.write_texts`."""
    from tests import runs

    return runs.shared_folder(tmp_path_factory, "texts", runs.write_texts)


@pytest.fixture(scope="session")
def finished_text_run(text_folder, tmp_path_factory):
    """A run on texts that has learned, with a test file, not evaluated."""
    from tests import runs

    def train(path):
        runs.train_on_texts(path, text_folder)

    source = runs.shared_folder(tmp_path_factory, "text_run", train)
    return runs.copy(source, tmp_path_factory.mktemp("text_run") / "run")
