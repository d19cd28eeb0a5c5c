"""One package on all platforms: which Keras, what TFA gives, the doctor."""

import ast
import importlib.metadata
import os
import pathlib
import subprocess
import sys

import pytest

from supcon_tf import doctor

PACKAGE = pathlib.Path(__file__).parent.parent / "supcon_tf"
both_keras = pytest.mark.skipif(
    importlib.metadata.version("keras").startswith("2."),
    reason="`tf.keras` is Keras 2 alone",
)


def run(code):
    """In a process of its own, where no Keras has been chosen."""
    environment = dict(os.environ)
    environment.pop("TF_USE_LEGACY_KERAS", None)
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=PACKAGE.parent,
        env=environment,
    )


def errors(done):
    start = "supcon_tf.exceptions.MissingPackage: "
    return [x for x in done.stderr.splitlines() if x.startswith(start)]


@both_keras
@pytest.mark.parametrize(
    "before",
    [
        "",
        "import tensorflow as tf; from tensorflow import keras",
        "import keras",
    ],
)
def test_importing_the_package_chooses_keras_2(before):
    done = run(
        f"{before}\n"
        "import supcon_tf\n"
        "import tensorflow as tf\n"
        "from tensorflow.keras import layers\n"
        "assert layers.Layer is tf.keras.layers.Layer\n"
        "assert issubclass(supcon_tf.Encoder, layers.Layer)\n"
        "assert hasattr(tf.keras.losses.Reduction, 'AUTO')\n"
    )
    assert done.returncode == 0, done.stderr[-2000:]


@both_keras
@pytest.mark.parametrize(
    "before",
    [
        "import tensorflow as tf; tf.keras.layers.Dense(1)",
        "from tensorflow.keras import layers",
    ],
)
def test_too_late_is_an_error_with_the_line_to_add(before):
    (message,) = errors(run(f"{before}\nfrom supcon_tf import losses"))
    assert "`tf.keras` has been used as Keras 3: put `import supcon" in message
    line = message.partition("all others: ")[2]
    done = run(f"{line}\n{before}\nfrom supcon_tf import losses")
    assert done.returncode == 0, done.stderr[-2000:]


@both_keras
def test_a_missing_tf_keras_is_named():
    missing = "import sys; sys.modules['tf_keras'] = None"
    done = run(f"{missing}\nfrom supcon_tf import models")
    (message,) = errors(done)
    assert message.endswith("pip install tf-keras of the same release")


@both_keras
@pytest.mark.parametrize(
    ("before", "told"),
    [
        ("import sys; sys.modules['tf_keras'] = None", "pip install tf-keras"),
        ("from tensorflow.keras import layers", "used as Keras 3: put"),
    ],
)
def test_the_doctor_tells_of_keras(before, told):
    done = run(f"{before}\nimport supcon_tf; supcon_tf.doctor.main()")
    (line,) = [x for x in done.stdout.splitlines() if x.startswith("BAD")]
    assert line.startswith("BAD Keras        supcon_tf needs Keras 2")
    assert told in line


def test_features_are_asked_for_and_not_versions():
    """And one module alone takes anything from TensorFlow Addons."""
    takers = []
    for path in PACKAGE.rglob("*.py"):
        tree = ast.parse(path.read_text())
        imports = [
            node.module if isinstance(node, ast.ImportFrom) else alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        ]
        if any("tensorflow_addons" in (name or "") for name in imports):
            takers.append(path.relative_to(PACKAGE).as_posix())
        for node in ast.walk(tree):
            if isinstance(node, ast.Compare):
                assert "__version__" not in ast.unparse(node), path
    assert takers == ["training/lamb.py"]


def test_the_doctor_finds_nothing_here(capsys):
    assert doctor.main() == 0
    lines = capsys.readouterr().out.splitlines()
    names = "machine packages extras Keras devices datasets".split()
    assert [line.split()[:2] for line in lines] == [["ok", n] for n in names]
    for name in ("tensorflow", "numpy"):
        assert f"{name} {importlib.metadata.version(name)}" in lines[1]


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
    bad = [x for x in capsys.readouterr().out.splitlines() if x[:3] == "BAD"]
    for line, text in zip(
        bad,
        (
            "packages     numpy is 1.0: pip install 'numpy<3,>=1.26'",
            "packages     tqdm is missing: pip install 'tqdm<5,>=4.66'",
            "devices      CPU: there is an NVIDIA driver, but TensorFlow sees",
            "datasets     TensorFlow Datasets must import: pip install 'tensor",
        ),
        strict=True,
    ):
        assert line.startswith(f"BAD {text}"), line
