"""The notebooks fit the package, run, and show what they promise."""

import copy
import json
import pathlib
import re

import nbclient
import nbformat
import pytest

from supcon_tf.keras_2 import PACKAGE
from tests import forks, python_text

TUTORIALS = pathlib.Path(__file__).parent.parent / "docs" / "tutorials"
NOTEBOOKS = {
    path.stem: nbformat.read(path, as_version=4)
    for path in sorted(TUTORIALS.glob("*.ipynb"))
}


# The cells that stand in a file, as a notebook runs them.
_CELLS = """
import json, sys
import matplotlib
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from matplotlib_inline import backend_inline

shell, outputs = InteractiveShell.instance(), []
backend = "module://matplotlib_inline.backend_inline"
matplotlib.use(backend)
# By itself only where pyplot comes later: Keras 3 has imported it.
backend_inline.configure_inline_support(shell, backend)
shell.display_formatter.active_types = ["text/plain", "image/png"]
with open(sys.argv[1]) as file:
    cells = json.load(file)
for cell in cells:
    with capture_output() as captured:
        result = shell.run_cell(cell)
    result.raise_error()
    outputs.append({"text": captured.stdout})
    outputs += ({"data": shown.data} for shown in captured.outputs)
    outputs.append({"data": shell.display_formatter.format(result.result)[0]})
with open(sys.argv[1], "w") as file:
    json.dump(outputs, file, default=str)
"""


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def plain_python(notebook):
    """The cells without the commands of a notebook, which %pip alone is."""
    text = "\n".join(cell.source for cell in code_cells(notebook))
    return text.replace("%pip", "pass  # ")


def outputs_of_cells(notebook, folder):
    """Runs the cells of a notebook, and returns its outputs."""
    file = folder / "cells.json"
    file.write_text(json.dumps([cell.source for cell in code_cells(notebook)]))
    process = forks.run(_CELLS, str(file), cwd=folder)
    assert process.returncode == 0, process.stdout + process.stderr
    return json.loads(file.read_text())


def outputs_of_kernel(notebook, folder):
    """Runs a notebook in a fresh kernel, and returns its outputs."""
    nbclient.NotebookClient(
        notebook,
        timeout=900,
        startup_timeout=900,
        resources={"metadata": {"path": str(folder)}},
    ).execute()
    return [o for cell in code_cells(notebook) for o in cell.outputs]


def pictures_and_text(outputs):
    """The PNG files in the outputs, and all that was printed."""
    data = [output.get("data", {}) for output in outputs]
    pictures = [part["image/png"] for part in data if "image/png" in part]
    return pictures, "".join(output.get("text", "") for output in outputs)


@pytest.mark.slow
def test_quickstart_runs_in_a_kernel(tmp_path):
    """With the network that the page has, for a third of its epochs."""
    notebook = copy.deepcopy(NOTEBOOKS["quickstart"])
    assert "epochs = 12\n" in plain_python(notebook)
    for cell in code_cells(notebook):
        cell.source = cell.source.replace("epochs = 12\n", "epochs = 4\n")
    outputs = outputs_of_kernel(notebook, tmp_path)
    pictures, text = pictures_and_text(outputs)
    assert len(pictures) == 2  # the views, and the representations
    assert all(len(picture) > 10_000 for picture in pictures)
    accuracies = re.search(r"linear top-1 (.+), k-NN top-1 (.+)", text)
    assert all(float(accuracy) > 0.95 for accuracy in accuracies.groups())
    assert outputs[-1]["data"]["text/plain"] == "TensorShape([64, 128])"


def test_quickstart_imports_the_package_alone():
    code = plain_python(NOTEBOOKS["quickstart"])
    modules = set(re.findall(r"^ *(?:from|import) (\w+)", code, re.M))
    assert modules == {"supcon_tf"} and "model.fit(" in code


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_tutorial_is_short_and_keeps_its_outputs(name):
    notebook = NOTEBOOKS[name]
    nbformat.validate(notebook)
    assert len(notebook.cells) <= 15
    assert (TUTORIALS / f"{name}.ipynb").stat().st_size < 400_000
    first, *_ = code_cells(notebook)
    assert first.source.startswith("try:\n    import supcon_tf\n")
    outputs = [o for cell in code_cells(notebook) for o in cell.outputs]
    assert outputs, "execute it, and keep the outputs"
    kinds = {output.output_type for output in outputs}
    assert kinds <= {"stream", "display_data", "execute_result"}
    assert all(output.get("name") != "stderr" for output in outputs)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_tutorial_fits_the_package(name):
    if name == "keras_3" and PACKAGE == "keras":
        pytest.skip("Keras 2 alone is installed")
    assert not python_text.misfits(plain_python(NOTEBOOKS[name]))


# How a tutorial becomes small, its pictures, a number that it prints, and the
# least and the most that this may be.
TOYS = {
    "devices": (
        {
            "epochs = 3\n": "epochs = 1\n",
            "steps = data.steps_per_epoch(digits, 64)": "steps = 4",
            "512": "128",
            # Less to trace, three times.
            'models.Encoder("vgg8", width=0.25)': (
                "keras.Sequential([keras.layers.Conv2D("
                "8, 3, 4, input_shape=(32, 32, 3))])"
            ),
        },
        1,
        "two devices differ by (\\S+)",
        (0, 1e-4),
    ),
    "figure": (
        {
            "epochs = 12\n": "epochs = 4\n",
            "temperatures = [0.05, 0.1, 0.2, 0.5, 1.0]": (
                "temperatures = [0.1]"
            ),
        },
        1,
        "temperature 0.1: top-1 .+ and (.+)",
        (0.3, 1),
    ),
    "galleries": (
        {
            'architecture="keras:MobileNetV2"': 'architecture="vgg8"',
            'weights="imagenet"': 'width=0.1, augmentation="identity"',
            "image_size=160": "image_size=16",
            '"food"': '"mid"',
            "epochs=0,  # the weights as they are": "epochs=3",
        },
        1,
        "known kinds: (\\d+)%",
        (50, 100),
    ),
    "keras": (
        {"width=0.25": "width=0.125", "epochs = 5\n": "epochs = 3\n"},
        2,
        "test accuracy (.+)",
        (0.9, 1),
    ),
    "labels": (
        {
            "epochs = 30\n": "epochs = 4\n",
            "epochs=100": "epochs=20",
            "width=0.25": "width=0.125",
        },
        1,
        "SupCon, adjusted: .+ mean (.+)",
        (0.3, 1),
    ),
    "neighbours": (
        {"epochs = 12\n": "epochs = 3\n", "width=0.25": "width=0.125"},
        2,
        "first 50: precision (.+),",
        (0.8, 1),
    ),
    "photographs": (
        {
            '"keras:MobileNetV2"': '"vgg8"',
            '"weights": "imagenet"': (
                '"width": 0.1, "augmentation": "identity"'
            ),
            '"image_size": 96': '"image_size": 16',
            "epochs = 10\n": "epochs = 2\n",
            "epochs=100": "epochs=20",
        },
        1,
        "linear top-1 +(\\S+)",
        (0.3, 1),
    ),
    "quickstart": (
        {
            # Nothing but the jitter is slow to trace.
            'models.Encoder("vgg8", width=0.5)': (
                "models.BackboneEncoder(keras.Sequential(["
                "keras.layers.Conv2D(4, 4, 4, input_shape=(32, 32, 3)), "
                "keras.layers.Flatten()]))"
            ),
            "epochs = 12\n": "epochs = 2\n",
            "epochs=1,": "epochs=0,",
            "width=0.5": "width=0.1",
        },
        2,
        "linear top-1 .+, k-NN top-1 (.+)",
        (0.9, 1),
    ),
    "serving": (
        {"epochs = 12\n": "epochs = 1\n", "width=0.25": "width=0.1"},
        1,
        "float32 differs by (.+)",
        (0, 1e-3),
    ),
    "texts": ({}, 0, "accuracy (.+)", (0.9, 1)),
}

if PACKAGE != "keras":  # Keras 3 is there too
    small = {"epochs = 30\n": "epochs = 2\n", "epochs=10": "epochs=2"}
    TOYS["keras_3"] = (small, 1, "two views: test accuracy (.+)", (0.6, 1))


@pytest.mark.slow(but=["quickstart"])
@pytest.mark.parametrize("name", TOYS)
def test_a_tutorial_runs_small(name, image_folder, tmp_path):
    (tmp_path / "photos").symlink_to(image_folder)
    replaced, num_pictures, pattern, (minimum, maximum) = TOYS[name]
    notebook = copy.deepcopy(NOTEBOOKS[name])
    for before, after in replaced.items():
        assert before in plain_python(notebook), before
        for cell in notebook.cells:
            cell.source = cell.source.replace(before, after)
    outputs = outputs_of_cells(notebook, tmp_path)
    pictures, text = pictures_and_text(outputs)
    assert len(pictures) == num_pictures
    assert minimum <= float(re.search(pattern, text)[1]) <= maximum
