"""The notebooks run, one in a fresh kernel, and show what they promise."""

import ast
import json
import pathlib
import re

import nbclient
import nbformat
import pytest

from supcon_tf.keras_2 import PACKAGE
from tests import forks

NOTEBOOKS = pathlib.Path(__file__).parent.parent / "docs" / "tutorials"
QUICKSTART = NOTEBOOKS / "quickstart.ipynb"
PATHS = sorted(NOTEBOOKS.glob("*.ipynb"))


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


def shown_by_cells(notebook, folder):
    """Runs the cells of a notebook, and returns its outputs."""
    code = [c.source for c in notebook.cells if c.cell_type == "code"]
    file = folder / "cells.json"
    file.write_text(json.dumps(code))
    process = forks.run(_CELLS, str(file), cwd=folder)
    assert process.returncode == 0, process.stdout + process.stderr
    return json.loads(file.read_text())


def executed(notebook, folder):
    """Runs a notebook in a fresh kernel, and returns its outputs."""
    nbclient.NotebookClient(
        notebook,
        timeout=900,
        startup_timeout=900,
        resources={"metadata": {"path": str(folder)}},
    ).execute()
    return [o for cell in notebook.cells for o in cell.get("outputs", [])]


@pytest.mark.parametrize(
    "epochs", [3, pytest.param(12, marks=pytest.mark.slow)]
)
def test_quickstart_runs_and_shows_its_pictures(epochs, tmp_path):
    notebook = nbformat.read(QUICKSTART, as_version=4)
    (cell,) = [c for c in notebook.cells if "\nepochs = 12\n" in c.source]
    cell.source = cell.source.replace("epochs = 12", f"epochs = {epochs}")
    if epochs < 12:  # and a smaller network
        for cell in notebook.cells:
            cell.source = cell.source.replace("width=0.5", "width=0.125")
    in_kernel = epochs == 12
    outputs = (executed if in_kernel else shown_by_cells)(notebook, tmp_path)
    pictures = [o for o in outputs if "image/png" in o.get("data", {})]
    assert len(pictures) == 2  # the views, and the representations
    assert all(len(o["data"]["image/png"]) > 10_000 for o in pictures)
    text = "".join(o.get("text", "") for o in outputs)
    linear, knn = re.search(
        r"linear top-1 (.+), k-NN top-1 (.+)", text
    ).groups()
    assert float(linear) > 0.95 and float(knn) > 0.95
    dim = 128 if epochs == 12 else 32
    assert outputs[-1]["data"]["text/plain"] == f"TensorShape([64, {dim}])"


def test_quickstart_is_short_and_imports_nothing_else():
    notebook = nbformat.read(QUICKSTART, as_version=4)
    nbformat.validate(notebook)
    assert len(notebook.cells) <= 13
    code = [
        c.source.replace("%pip", "pass  # ")
        for c in notebook.cells
        if c.cell_type == "code"
    ]
    assert code[0].startswith("try:\n    import supcon_tf\n")
    imported = {
        name.split(".")[0]
        for node in ast.walk(ast.parse("\n".join(code)))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            [node.module]
            if isinstance(node, ast.ImportFrom)
            else [alias.name for alias in node.names]
        )
    }
    assert imported == {"supcon_tf"}
    assert "model.fit(" in "\n".join(code)


def test_a_language_model_learns_in_plain_keras(tmp_path):
    notebook = nbformat.read(NOTEBOOKS / "texts.ipynb", as_version=4)
    nbformat.validate(notebook)
    outputs = shown_by_cells(notebook, tmp_path)
    text = "".join(o.get("text", "") for o in outputs)
    accuracy = re.search("accuracy (.+)", text)[1]
    assert float(accuracy) > 0.9


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_tutorial_is_short_and_keeps_what_a_run_has_shown(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert len(notebook.cells) <= 15
    assert path.stat().st_size < 400_000
    code = [c for c in notebook.cells if c.cell_type == "code"]
    assert code[0].source.startswith("try:\n    import supcon_tf\n")
    outputs = [o for cell in code for o in cell.outputs]
    assert outputs, "execute it, and keep the outputs"
    kinds = {o.output_type for o in outputs}
    assert kinds <= {"stream", "display_data", "execute_result"}
    assert all(o.get("name") != "stderr" for o in outputs)


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
    "serving": (
        {"epochs = 12\n": "epochs = 1\n", "width=0.25": "width=0.1"},
        1,
        "float32 differs by (.+)",
        (0, 1e-3),
    ),
}

if PACKAGE != "keras":  # Keras 3 is there too
    small = {"epochs = 30\n": "epochs = 2\n", "epochs=10": "epochs=2"}
    TOYS["keras_3"] = (small, 1, "two views: test accuracy (.+)", (0.6, 1))


@pytest.mark.slow(but=["galleries", "keras"])
@pytest.mark.parametrize("name", TOYS)
def test_a_tutorial_runs_small(name, image_folder, tmp_path):
    (tmp_path / "photos").symlink_to(image_folder)
    replaced, pictures, pattern, (minimum, maximum) = TOYS[name]
    notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    for before, after in replaced.items():
        assert any(before in c.source for c in notebook.cells), before
        for cell in notebook.cells:
            cell.source = cell.source.replace(before, after)
    outputs = shown_by_cells(notebook, tmp_path)
    figures = [o for o in outputs if "image/png" in o.get("data", {})]
    assert len(figures) == pictures
    text = "".join(o.get("text", "") for o in outputs)
    assert minimum <= float(re.search(pattern, text)[1]) <= maximum
