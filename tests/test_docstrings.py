"""The examples in docstrings of public names run.

They run in a folder that has photographs, texts and a run with both stages.
"""

import dataclasses
import doctest
import importlib.util
import pathlib
import re

import griffe
import pytest

import supcon_tf
from tests import language_model, python_text


def _public():
    """What the rooms export and is ours, each once, by its name.

    A name that an earlier room has for something else comes after its room.
    """
    values = {}
    for room in supcon_tf.__all__:
        value = getattr(supcon_tf, room)
        # Of a room its names, and a name itself. `settings` is a mechanism.
        is_room = hasattr(value, "__path__") and room != "settings"
        names = vars(value) if is_room else {room: value}
        for name, public in names.items():
            module = str(getattr(public, "__module__", ""))
            is_ours = name[0] != "_" and module.startswith("supcon_tf.")
            if is_ours and all(public is not each for each in values.values()):
                values[f"{room}.{name}" if name in values else name] = public
    return values


PUBLIC = _public()
EXAMPLES = {
    name: example
    for name, public in PUBLIC.items()
    for example in doctest.DocTestFinder(recurse=False).find(public, name)
    if example.examples
}


class _Ends(doctest.OutputChecker):
    """A tool prints lines before what an example shows at its end."""

    def check_output(self, want, got, optionflags):
        return f"\n{got}".endswith(f"\n{want}")


@pytest.fixture(scope="module")
def folder(copy_run, image_folder, tmp_path_factory):
    """`photos/`, `texts/` with a language model, `runs/mine`."""
    root = tmp_path_factory.mktemp("examples")
    copy_run(root / "runs/mine")
    (root / "photos").symlink_to(image_folder)
    (root / "texts").mkdir()
    language_model.write_model(root / "texts")
    language_model.write_sentences(root / "texts/train.tsv", 40)
    language_model.write_sentences(root / "texts/test.tsv", 12)
    return root


# Each takes a second or more, and other tests run what it shows.
LONG = {
    *("finetune", "finetune_images", "finetune_text", "pretrain"),
    *("train_linear", "run_sweep", "convert", "write_report"),
    *("search", "Searcher", "GraphTokenizer"),
    *("show_augment", "plot_operations", "plot_gradients"),
    *("predict", "index", "open_gallery", "transfer_encoder", "evaluate"),
    *("export", "export_saved_model", "to_tflite", "to_onnx", "views_of"),
    *("MomentumSupConModel", "BackboneEncoder", "named_encoder"),
    "finetuning.load",
    *("class_balanced", "accuracy_curve", "make_views"),
}


@pytest.mark.slow(but=[name for name in EXAMPLES if name not in LONG])
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs(name, folder, monkeypatch):
    monkeypatch.chdir(folder)
    example = EXAMPLES[name]
    is_tool = re.search(r"Settings\(|supcon_tf\.finetune\(", example.docstring)
    checker = _Ends() if is_tool else None
    outcome = doctest.DocTestRunner(checker, verbose=False).run(example)
    assert outcome.failed == 0


# The others run in `make test`.
@pytest.mark.parametrize("name", sorted(LONG))
def test_an_example_fits_the_package(name):
    code = "".join(example.source for example in EXAMPLES[name].examples)
    assert not python_text.misfits(code)


def test_every_public_name_has_an_example():
    assert LONG <= EXAMPLES.keys()
    # Settings are shown by what takes them.
    names = {name for name in PUBLIC if not name.endswith("Settings")}
    assert sorted(names - EXAMPLES.keys()) == []


ROOT = pathlib.Path(__file__).parent.parent


@pytest.fixture(scope="module")
def hooks():
    """The module that makes the pages of the reference."""
    path = ROOT / "docs/hooks.py"
    spec = importlib.util.spec_from_file_location("hooks", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _pages(kind, make):
    """The text of the pages of a kind that the navigation names."""
    navigation = (ROOT / "mkdocs.yml").read_text()
    names = re.findall(rf"reference/{kind}/(\w+)\.md", navigation)
    return "\n".join(map(make, names))


def test_the_reference_shows_every_flag(hooks):
    shown = re.findall(r"\| `--(\w+)` \|", _pages("flags", hooks.flags_page))
    flags = {
        field.name
        for tool in hooks._TOOLS.values()
        for field in dataclasses.fields(tool)
        if not field.metadata["decided"]
    }
    assert sorted(flags - set(shown)) == []


def test_the_reference_shows_every_example(hooks):
    """Not a module in the place of the function that has its name."""
    package = griffe.load("supcon_tf", search_paths=[ROOT])
    paths = re.findall("::: supcon_tf.(.+)", _pages("api", hooks.api_page))
    without = [
        path
        for path in paths
        if package[path].is_module
        or package[path].name in EXAMPLES
        and ">>>" not in package[path].docstring.value
    ]
    assert not without
    # The pages of flags have the names of `config`.
    of_config = {x for x in EXAMPLES if hasattr(supcon_tf.config, x)}
    shown = {path.rpartition(".")[2] for path in paths}
    names = {name.rpartition(".")[2] for name in EXAMPLES.keys() - of_config}
    assert sorted(names - shown) == []
    assert "keras_3.Backbone" in paths
