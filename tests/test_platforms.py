"""One package on all platforms: which Keras, what TFA gives, the doctor."""

import ast
import importlib.metadata
import importlib.util
import os
import pathlib
import platform
import re
import runpy
import subprocess
import sys
import types

import pytest
import tensorflow as tf

import supcon_tf
from supcon_tf import doctor, losses, text
from supcon_tf.keras_2 import PACKAGE, keras

ONE_DNN = "TF_ENABLE_ONEDNN_OPTS"
SOURCES = pathlib.Path(__file__).parent.parent / "supcon_tf"
both_keras = pytest.mark.skipif(
    importlib.metadata.version("keras").startswith("2."),
    reason="`tf.keras` is Keras 2 alone",
)


def run(code, *arguments):
    """In a process of its own, where no Keras has been chosen."""
    environment = dict(os.environ)
    environment.pop("TF_USE_LEGACY_KERAS", None)
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        cwd=SOURCES.parent,
        env=environment,
    )


def errors(process):
    start = "supcon_tf.exceptions.MissingPackage: "
    return [
        line for line in process.stderr.splitlines() if line.startswith(start)
    ]


USERS = {
    "tf.keras": "import tensorflow as tf; tf.keras.Sequential()",
    "tensorflow.keras": "from tensorflow.keras import layers",
    "keras": "import keras",
    "keras_hub": "import keras_hub",
}
OURS = "from supcon_tf import losses, models, training, text"
TRAINS = f"""
import os, sys
import numpy as np
import tensorflow as tf
{OURS}
from supcon_tf.keras_2 import keras

text.import_transformers()
encoder = keras.Sequential([keras.layers.Conv2D(4, 3, 4)])
model = models.SupConModel(encoder, models.ProjectionHead(8, (8,)))
model.compile(keras.optimizers.SGD(0.1), losses.SupConLoss())
model.fit(np.zeros([4, 2, 8, 8, 3], np.uint8), np.arange(4), verbose=0)
assert isinstance(losses.SupConLoss(), keras.losses.Loss)
assert os.environ.get("TF_USE_LEGACY_KERAS") == before
print(tf.keras.Model.__module__, keras.Model.__module__)
"""


@both_keras
@pytest.mark.slow(
    but=["True-tf.keras", "False-tf.keras", "True-keras", "False-keras_hub"]
)
@pytest.mark.parametrize("users", USERS)
@pytest.mark.parametrize("is_first", [True, False])
def test_two_kerases_stand_side_by_side(users, is_first):
    """Whichever is imported first; `tf.keras` stays that of its user."""
    if users == "keras_hub" and importlib.util.find_spec(users) is None:
        pytest.skip("KerasHub is not installed")
    before = USERS[users] if is_first else f"{OURS}\n{USERS[users]}"
    process = run(f"before = None\n{before}\n{TRAINS}")
    assert process.returncode == 0, process.stderr[-2000:]
    user_keras, package_keras = process.stdout.split()
    assert user_keras.startswith("keras.") and package_keras.startswith(
        "tf_keras."
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "sets",
    [
        'import os; os.environ["TF_USE_LEGACY_KERAS"] = "1"',
        "import transformers; transformers.TFPreTrainedModel",
    ],
)
def test_who_asks_for_keras_2_has_it(sets):
    """By the variable, where tf-keras is not there too."""
    process = run(f"{sets}\nbefore = '1'\n{TRAINS}")
    assert process.returncode == 0, process.stderr[-2000:]
    user_keras, package_keras = process.stdout.split()
    assert user_keras == package_keras


TOGETHER = """
import pathlib
import sys

import keras
import keras_hub
import numpy as np
import tensorflow as tf
import transformers

from supcon_tf import keras_3, losses, models, text
from supcon_tf.keras_2 import keras as keras_2
from tests import language_model, networks_3

folder = pathlib.Path(sys.argv[1])
language_model.write_model(folder)
digits = np.arange(4 * 2 * 32 * 32 * 3).reshape(4, 2, 32, 32, 3) % 251
views, labels = digits.astype(np.uint8), np.array([0, 0, 1, 1])
tokens = np.zeros([4, 2, 4, 2], np.int32)
tokens[:, :, 1:, 0] = 5 + labels[:, np.newaxis, np.newaxis]
rows = np.random.default_rng(0).normal(size=[4, 2, 6]).astype(np.float32)


def step(encoder, inputs):
    model = models.SupConModel(encoder, models.ProjectionHead(8, (8,)))
    model.compile(keras_2.optimizers.SGD(0.1), losses.SupConLoss())
    (loss,) = model.fit(inputs, labels, verbose=0).history["loss"]
    assert np.isfinite(loss), encoder


for _ in range(2):  # and again, once all have been used
    step(models.Encoder("vgg8", width=0.05), views)
    step(keras_3.Backbone(networks_3.transformer()), views)
    step(text.TextEncoder.from_pretrained(folder), tokens)
    layer = keras.layers.Dense(4)
    theirs = keras.Sequential([keras.Input([2, 6]), layer])
    theirs.compile("sgd", keras_3.SupConLoss())
    history = theirs.fit(rows, labels, epochs=2, verbose=0).history["loss"]
    assert history[1] < history[0]
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert tokenizer("a b")["input_ids"] == [2, 5, 6, 3]

assert issubclass(keras_hub.models.Backbone, keras.Model)
assert issubclass(transformers.TFBertModel, keras_2.Model)
assert tf.keras.Model is keras.Model is not keras_2.Model
print("together")
"""


@both_keras
def test_keras_3_keras_hub_and_transformers_live_in_one_process(tmp_path):
    process = run(TOGETHER, str(tmp_path))
    assert process.stdout.endswith("together\n"), process.stderr[-2000:]


def test_a_system_without_locks_is_named(monkeypatch):
    """As Windows is, where the first lock would fail instead."""
    monkeypatch.setitem(sys.modules, "fcntl", None)
    with pytest.raises(ImportError, match="must run on Linux, .* in WSL 2"):
        runpy.run_path(supcon_tf.__file__)


def test_transformers_without_tensorflow_is_named(monkeypatch):
    """As sentence-transformers 6 needs it."""
    newer = types.ModuleType("transformers")
    newer.__version__ = "5.24.0"
    monkeypatch.setitem(sys.modules, "transformers", newer)
    message = "must have transformers before 4.55, .* got 5.24.0: pip install"
    with pytest.raises(ImportError, match=message):
        text.import_transformers()


@pytest.mark.skipif(
    platform.system() != "Linux" or platform.machine() != "x86_64",
    reason="the variable is for x86",
)
@pytest.mark.parametrize("value, is_on", [(None, True), ("0", False)])
def test_one_dnn_is_on_whatever_the_processor(monkeypatch, value, is_on):
    monkeypatch.delenv(ONE_DNN, raising=False)
    if value is not None:
        monkeypatch.setenv(ONE_DNN, value)
    process = run(
        "import supcon_tf; from tensorflow.python.framework import test_util; "
        "print(test_util.IsMklEnabled())"
    )
    assert process.stdout.split() == [str(is_on)], process.stderr[-2000:]


@both_keras
def test_data_do_not_import_keras_2():
    rooms = "from supcon_tf import augment, data, measures"
    process = run(f"{rooms}; import sys; print('tf_keras' in sys.modules)")
    assert process.stdout.split() == ["False"], process.stderr[-2000:]


def test_keras_2_is_that_of_tensorflow_where_there_is_no_other():
    # Of one Keras 2 there may be two modules, tensorflow.keras and keras.
    is_same = keras.Model is tf.keras.Model
    assert is_same == (PACKAGE == "keras")
    assert issubclass(losses.SupConLoss, keras.losses.Loss)
    assert hasattr(keras.losses.Reduction, "AUTO")


@both_keras
def test_a_missing_tf_keras_is_named():
    missing = "import sys; sys.modules['tf_keras'] = None"
    process = run(f"{missing}\nfrom supcon_tf import models")
    (message,) = errors(process)
    assert message.endswith("pip install tf-keras of the same release")


@both_keras
def test_the_doctor_tells_of_a_missing_tf_keras():
    missing = "import sys; sys.modules['tf_keras'] = None"
    process = run(f"{missing}\nimport supcon_tf; supcon_tf.doctor.main()")
    (line,) = [
        line for line in process.stdout.splitlines() if line.startswith("BAD")
    ]
    assert line.startswith("BAD Keras        supcon_tf needs Keras 2")
    assert line.endswith("pip install tf-keras of the same release")


def test_features_are_asked_for_and_not_versions():
    """And one module alone takes anything from TensorFlow Addons."""
    takers = []
    for path in SOURCES.rglob("*.py"):
        tree = ast.parse(path.read_text())
        imports = [
            node.module if isinstance(node, ast.ImportFrom) else alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        ]
        if any("tensorflow_addons" in (name or "") for name in imports):
            takers.append(path.relative_to(SOURCES).as_posix())
        for node in ast.walk(tree):
            if isinstance(node, ast.Compare):
                comparison = ast.unparse(node)
                # Of an older one even the safe reader runs code.
                comparison = comparison.replace("torch.__version__", "")
                assert "__version__" not in comparison, path
    assert takers == ["optimizers/lamb.py"]


def test_the_doctor_finds_nothing_here(capsys):
    assert doctor.main() == 0
    lines = capsys.readouterr().out.splitlines()
    names = "machine packages extras Keras devices datasets".split()
    assert [line.split()[:2] for line in lines] == [["ok", n] for n in names]
    for name in ("tensorflow", "numpy"):
        assert f"{name} {importlib.metadata.version(name)}" in lines[1]


def test_the_doctor_knows_all_extras(monkeypatch, capsys):
    """By the metadata of the package, and by what each needs in turn."""
    metadata = importlib.metadata.metadata("supcon_tf")
    extras = {*metadata.get_all("Provides-Extra")}
    assert len(extras) >= 8
    version = importlib.metadata.version
    installed = {"torch": "2.4.0", "torchvision": None}
    installed |= {"nbclient": None, "transformers": "5.1.0"}

    def installed_version(name):
        release = installed[name] if name in installed else version(name)
        if release is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return release

    monkeypatch.setattr(importlib.metadata, "version", installed_version)
    doctor.main()
    lines = capsys.readouterr().out.splitlines()
    (line,) = [line for line in lines if line.startswith("ok  extras ")]
    present, absent = line.removeprefix("ok  extras").split("; not installed: ")
    assert {*re.findall(r"\w+", re.sub(r"\(.*?\)", "", line))} >= extras
    assert "serving" in present and "text" in present
    assert "notebook (without nbclient)" in absent
    assert "torch (without torchvision)" in absent
    assert "dev (without nbclient)" in absent
    wrong = [line for line in lines if line.startswith("BAD extras ")]
    told = "text, transformers is 5.1.0: pip install 'transformers<4.55,>=4.50'"
    assert [line.partition(" of ")[2] for line in wrong] == [told]


def test_the_doctor_needs_neither_an_installation_nor_tensorflow(monkeypatch):
    """A checkout without metadata, and an environment with next to nothing."""
    hidden = (
        "import importlib.metadata, importlib.util, sys\n"
        "def none(name):\n"
        "    raise importlib.metadata.PackageNotFoundError(name)\n"
        "importlib.metadata.metadata = none\n"
        "find = importlib.util.find_spec\n"
        "importlib.util.find_spec = (\n"
        "    lambda name: None if name == 'tensorflow' else find(name)\n"
        ")\n"
        "sys.argv = ['supcon', 'doctor']\n"
        "from supcon_tf.cli import commands; commands.main()"
    )
    process = run(hidden)
    assert process.returncode == 1 and not process.stderr
    _, packages, tensorflow = process.stdout.splitlines()
    assert packages.startswith("ok  packages     not known: pip install -e .")
    assert tensorflow.startswith("BAD TensorFlow   is missing: pip install")


def test_the_doctor_names_each_trap(monkeypatch, capsys):
    version = importlib.metadata.version

    def installed(name):
        if name == "tqdm":
            raise importlib.metadata.PackageNotFoundError(name)
        return "1.0" if name == "numpy" else version(name)

    monkeypatch.setattr(importlib.metadata, "version", installed)
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    assert doctor.main() == 4
    bad = [
        line
        for line in capsys.readouterr().out.splitlines()
        if line[:3] == "BAD"
    ]
    for line, expected in zip(
        bad,
        (
            "packages     numpy is 1.0: pip install 'numpy<3,>=1.26'",
            "packages     tqdm is missing: pip install 'tqdm<5,>=4.66'",
            "devices      CPU: there is an NVIDIA driver, but TensorFlow sees",
            "datasets     TensorFlow Datasets must import: pip install 'tensor",
        ),
        strict=True,
    ):
        assert line.startswith(f"BAD {expected}"), line
