"""The notebooks run from a fresh kernel, and show what they promise."""

import ast
import pathlib
import re

import nbclient
import nbformat
import pytest

NOTEBOOKS = pathlib.Path(__file__).parent.parent / "notebooks"
QUICKSTART = NOTEBOOKS / "quickstart.ipynb"


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
            cell.source = cell.source.replace("width=0.5", "width=0.25")
    outputs = executed(notebook, tmp_path)
    pictures = [o for o in outputs if "image/png" in o.get("data", {})]
    assert len(pictures) == 2  # the views, and the representations
    assert all(len(o["data"]["image/png"]) > 10_000 for o in pictures)
    text = "".join(o.get("text", "") for o in outputs)
    linear, knn = re.search(
        r"linear top-1 (.+), k-NN top-1 (.+)", text
    ).groups()
    assert float(linear) > 0.95 and float(knn) > 0.95
    dim = 128 if epochs == 12 else 64
    assert outputs[-1]["data"]["text/plain"] == f"TensorShape([64, {dim}])"


def test_quickstart_is_short_and_imports_two_packages():
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
    assert imported == {"supcon_tf", "tensorflow"}
    assert "model.fit(" in "\n".join(code)
    assert not any(c.get("outputs") for c in notebook.cells), "clear outputs"


def test_a_network_of_keras_goes_from_fit_to_export(tmp_path):
    notebook = nbformat.read(NOTEBOOKS / "backbone.ipynb", as_version=4)
    nbformat.validate(notebook)
    (cell,) = [c for c in notebook.cells if c.source.startswith("epochs = 12")]
    cell.source = cell.source.replace("epochs = 12", "epochs = 1")
    outputs = executed(notebook, tmp_path)
    text = "".join(o.get("text", "") for o in outputs)
    assert float(re.search("k-NN top-1 (.+)", text)[1]) > 0.15
    assert outputs[-1]["data"]["text/plain"] == "TensorShape([8, 256])"


def test_a_language_model_learns_in_plain_keras(tmp_path):
    notebook = nbformat.read(NOTEBOOKS / "texts.ipynb", as_version=4)
    nbformat.validate(notebook)
    text = "".join(o.get("text", "") for o in executed(notebook, tmp_path))
    accuracy = re.search("accuracy (.+)", text)[1]
    assert float(accuracy) > 0.9
