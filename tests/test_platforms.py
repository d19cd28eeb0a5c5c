"""One package on all platforms: which Keras, what TFA gives, the doctor."""

import ast
import importlib.metadata
import os
import pathlib
import re
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
                asked = ast.unparse(node)
                # Of an older one even the safe reader runs code.
                asked = asked.replace("torch.__version__", "")
                assert "__version__" not in asked, path
    assert takers == ["training/lamb.py"]


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
        found = installed[name] if name in installed else version(name)
        if found is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return found

    monkeypatch.setattr(importlib.metadata, "version", installed_version)
    doctor.main()
    lines = capsys.readouterr().out.splitlines()
    (line,) = [x for x in lines if x.startswith("ok  extras ")]
    here, absent = line.removeprefix("ok  extras").split("; not installed: ")
    assert {*re.findall(r"\w+", re.sub(r"\(.*?\)", "", line))} >= extras
    assert "serving" in here and "text" in here
    assert "notebook (without nbclient)" in absent
    assert "torch (without torchvision)" in absent
    assert "dev (without nbclient)" in absent
    wrong = [x for x in lines if x.startswith("BAD extras ")]
    told = "text, transformers is 5.1.0: pip install 'transformers<4.55,>=4.50'"
    assert [x.partition(" of ")[2] for x in wrong] == [told]


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
        "from supcon_tf import commands; commands.main()"
    )
    done = run(hidden)
    assert done.returncode == 1 and not done.stderr
    _, packages, tensorflow = done.stdout.splitlines()
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
