"""docs/coming_from.md: its arguments and defaults exist, its numbers agree.

Both columns of its tables are run: ours always, theirs where the library is
installed. SupContrast and SimCLR are no packages and stand here as formulas;
SUPCONTRAST_PATH=losses.py runs the file of SupContrast too.
"""

import dataclasses
import inspect
import os
import pathlib
import re
import runpy

import numpy as np
import pytest

from supcon_tf import augment, config, data, losses, models, settings

PAGE = pathlib.Path(__file__).parent.parent / "docs" / "coming_from.md"
TEXT = PAGE.read_text()
SECTIONS = {
    text.partition("\n")[0]: text for text in re.split("^## ", TEXT, flags=re.M)
}
OURS = {
    name: value
    for room in (augment, data, losses, models)
    for name, value in vars(room).items()
}


def rows(section, header):
    """The two cells of each row below a header, without their backticks."""
    table = SECTIONS[section].split(f"| theirs | {header} |\n|---|---|\n")[1]
    lines = table.split("\n\n")[0].strip().splitlines()
    return [
        [cell.strip(" `") for cell in line.split("|")[1:3]] for line in lines
    ]


def check_argument(cell, names):
    """A cell like Name(argument=value) or Name(argument), by the signature."""
    name, argument, value = re.fullmatch(r"(.+?)\((\w+)=?(.*)\)", cell).groups()
    default = inspect.signature(eval(name, names)).parameters[argument].default
    expected = "" if default is inspect.Parameter.empty else repr(default)
    assert (value and repr(eval(value))) == expected, cell


ARGUMENTS = [
    ours
    for section, text in SECTIONS.items()
    if "| theirs | ours |" in text
    for _, ours in rows(section, "ours")
]


@pytest.mark.parametrize("cell", ARGUMENTS)
def test_ours_exists_and_has_this_default(cell):
    if not cell.startswith("--"):
        return check_argument(cell, OURS)
    name, _, value = cell[2:].partition("=")
    fields = {
        field.name: field
        for field in dataclasses.fields(config.PretrainSettings)
    }
    default = fields[name].default
    assert value == ("" if default is None else settings.to_text(default))


def log_shares(z, temperature):
    """[M, M] log(exp(z_i.z_j / tau) / sum over a != i), 0 on the diagonal."""
    logits = z @ z.T / temperature
    np.fill_diagonal(logits, -np.inf)
    logits -= np.logaddexp.reduce(logits, axis=1, keepdims=True)
    np.fill_diagonal(logits, 0)
    return logits


class SupContrast:
    """tau / base_temperature times the mean of Eq. 2 over the anchors."""

    def __init__(
        self, temperature=0.07, contrast_mode="all", base_temperature=0.07
    ):
        self.temperature = temperature
        self.anchors = {"all": None, "one": 1}[contrast_mode]
        self.scale = temperature / base_temperature

    def forward(self, features, labels=None, mask=None):
        batch, views, dim = features.shape
        if mask is None:
            labels = np.arange(batch) if labels is None else labels
            mask = labels[:, None] == labels
        weights = np.kron(mask, np.ones([views, views]))
        np.fill_diagonal(weights, 0)
        shares = log_shares(features.reshape(-1, dim), self.temperature)
        counts = weights.sum(axis=1)
        by_anchor = -(weights * shares).sum(axis=1) / np.maximum(counts, 1e-6)
        anchor_losses = by_anchor.reshape(batch, views)[:, : self.anchors]
        return self.scale * anchor_losses.mean()

    __call__ = forward


def add_contrastive_loss(hidden, hidden_norm=True, temperature=1.0):
    """SimCLR: mean over samples of the sum over both views, view-major."""
    if hidden_norm:
        hidden = hidden / np.linalg.norm(hidden, axis=1, keepdims=True)
    rows = np.arange(len(hidden))
    other_view = np.roll(rows, len(rows) // 2)
    by_row = -log_shares(hidden, temperature)[rows, other_view]
    return 2 * by_row.mean(), None, None


class SupervisedContrastiveLoss:
    """keras.io: the mean of Eq. 2 over one view of each image."""

    def __init__(self, temperature=0.05):
        self.temperature = temperature

    def __call__(self, labels, feature_vectors):
        z = feature_vectors
        z = z / np.linalg.norm(z, axis=1, keepdims=True)
        positive = (labels[:, None] == labels) & ~np.eye(len(z), dtype=bool)
        shares = positive * log_shares(z, self.temperature)
        counts = positive.sum(axis=1) + 1e-8
        return -np.mean(shares.sum(axis=1) / counts)


FORMULAS = {
    "keras.io's example": {
        "SupervisedContrastiveLoss": SupervisedContrastiveLoss
    },
    "SupContrast": {"SupConLoss": SupContrast},
    "SimCLR": {"add_contrastive_loss": add_contrastive_loss},
}
MODULES = {
    "TensorFlow Similarity": (
        "tensorflow_similarity.losses",
        "tensorflow_similarity.samplers",
    ),
    "pytorch-metric-learning": (
        "pytorch_metric_learning.losses",
        "pytorch_metric_learning.samplers",
    ),
    "lightly": (
        "lightly.loss",
        "lightly.transforms",
        "lightly.models.modules.heads",
    ),
}


def names_of(library):
    """The public names of a library that is installed."""
    imported = map(pytest.importorskip, MODULES[library])
    return {
        name: value for room in imported for name, value in vars(room).items()
    }


@pytest.fixture(scope="module")
def block():
    """The names that the page's Python defines."""
    names = {}
    exec(re.search("```python\n(.*?)```", TEXT, re.DOTALL)[1], names)
    return names


def test_the_layouts_are_what_the_comments_say(block):
    h, z = block["h"].numpy(), block["z"].numpy()
    assert z.shape == (8, 2, 16)
    np.testing.assert_array_equal(h.reshape(2, 8, 16), z.swapaxes(0, 1))


def check_section(section, names, block, converter=np.array):
    """Their defaults and numbers, by `names` of theirs."""
    for cell, _ in rows(section, "ours"):
        if not cell.startswith("--"):
            check_argument(cell, names)
    arrays = {
        name: converter(value.numpy()) if hasattr(value, "numpy") else value
        for name, value in block.items()
    }
    for theirs, ours in rows(section, "ours, the same number"):
        value = float(eval(theirs, {**arrays, **names}))
        expected = float(eval(ours, {**block}))
        np.testing.assert_allclose(value, expected, 1e-5, err_msg=theirs)


@pytest.mark.parametrize("section", FORMULAS)
def test_formulas_agree(block, section):
    check_section(section, FORMULAS[section], block)


def test_supcontrast_agrees(block):
    torch = pytest.importorskip("torch")
    path = os.environ.get("SUPCONTRAST_PATH")
    if not path:
        pytest.skip("needs SUPCONTRAST_PATH=losses.py")
    check_section("SupContrast", runpy.run_path(path), block, torch.tensor)


def test_tensorflow_similarity_agrees(block):
    library = "TensorFlow Similarity"
    check_section(library, names_of(library), block)


@pytest.mark.parametrize("library", ["pytorch-metric-learning", "lightly"])
def test_torch_libraries_agree(block, library):
    torch = pytest.importorskip("torch")
    check_section(library, names_of(library), block, torch.tensor)


def test_one_class_is_0_in_pytorch_metric_learning(block):
    torch = pytest.importorskip("torch")
    loss = names_of("pytorch-metric-learning")["SupConLoss"]()
    assert loss(torch.tensor(block["za"].numpy()), torch.zeros(8)) == 0
    ours = losses.supcon_loss(block["za"], np.zeros(8, np.int32))
    assert ours.numpy().min() > 0
