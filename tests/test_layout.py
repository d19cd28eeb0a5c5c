"""The import direction of WORKSPACE.md, proven on the source."""

import ast
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
import setuptools
from setuptools.config import pyprojecttoml

ROOT = pathlib.Path(__file__).parent.parent
PACKAGE = ROOT / "supcon_tf"
FILES = sorted(PACKAGE.rglob("*.py"))

# Package -> what it may import of supcon_tf, besides itself.
BELOW = {
    "defaults": set(),
    "disk": set(),
    "display": set(),
    "keras_2": set(),
    "pixels": set(),
    "scores": set(),
    "tracing": set(),
    "datasets": {"disk", "host"},
    "host": {"disk"},
    "settings": {"disk", "host"},
    "distribute": {"defaults", "host"},
    "run_files": {"disk", "host", "settings"},
    "config": {
        *("datasets", "defaults", "disk", "host", "run_files", "settings")
    },
    "measures": {"host", "tracing"},
    "augment": {"defaults", "keras_2", "tracing"},
    "losses": {"defaults", "distribute", "keras_2", "tracing"},
    "models": {"defaults", "disk", "host", "keras_2", "pixels", "tracing"},
}
BELOW["optimizers"] = {"keras_2"}
BELOW["data"] = {
    *("augment", "datasets", "defaults", "disk", "host", "pixels", "tracing")
}
BELOW["text"] = {"data", "disk", "host", "keras_2", "models", "tracing"}
BELOW["training"] = {*BELOW} - {"display"}
for above in ("robustness", "transfer", "serving", "conversion"):
    BELOW[above] = BELOW["training"] | {"display", "training"}
BELOW["evaluation"] = BELOW["transfer"] | {"robustness", "transfer"}
# Of what is exported, so without the model's code.
BELOW["clients"] = {"config", "disk", "host", "run_files", "settings"}
# From files alone, so without TensorFlow.
BELOW["reports"] = BELOW["clients"] | {"display", "scores"}
BELOW["gallery"] = BELOW["training"] | {"clients", "reports", "training"}
BELOW["gallery"] |= {"display"}
BELOW["serving"] |= {"clients", "gallery"}
BELOW["sweeps"] = BELOW["evaluation"] | {"evaluation"}
BELOW["finetuning"] = BELOW["sweeps"] | {"clients", "gallery", "serving"}
BELOW["cli"] = {*BELOW}
# Nothing here imports it: it is for models of users.
BELOW["keras_3"] = {"keras_2", "losses", "models"}
# What all may raise.
BELOW = {room: below | {"exceptions"} for room, below in BELOW.items()}
BELOW["exceptions"] = set()


def room(module: str) -> str:
    return module.split(".")[1]


def imported_modules(path: pathlib.Path) -> set[str]:
    """Full names of the supcon_tf modules that a file imports, anywhere."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in names if name.startswith("supcon_tf.")}


def test_imports_go_one_way():
    wrong = [
        f"{path} imports {module}"
        for path in FILES
        for module in sorted(imported_modules(path))
        if room(module) not in may_import(path)
    ]
    assert not wrong, "\n".join(wrong)


def may_import(path: pathlib.Path) -> set[str]:
    """The rooms that a file may import, its own among them."""
    if path == PACKAGE / "__init__.py":
        return set()
    room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    return BELOW[room] | {room}


def test_every_room_has_its_rule():
    rooms = {
        p.name.removesuffix(".py")
        for p in PACKAGE.iterdir()
        if not p.name.startswith("_") and not p.is_symlink()
    }
    assert rooms == set(BELOW)


def test_one_module_says_which_keras():
    """`tf.keras` is Keras 2 on one platform and Keras 3 on the other."""
    others = (ROOT / "benchmarks", ROOT / "tools", ROOT / "docs/tutorials")
    for path in [
        *FILES,
        *(file for room in others for file in room.glob("*.*")),
    ]:
        if path != PACKAGE / "keras_2.py":
            pattern = r"\b(tf|tensorflow)\.keras\b|TF_USE_LEGACY_KERAS"
            assert not re.search(pattern, path.read_text()), path


def test_benchmarks_are_outside():
    """Nothing imports them, and a wheel has the package alone."""
    for path in [*FILES, *(ROOT / "tools").glob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import | ast.ImportFrom):
                assert "benchmarks" not in ast.unparse(node), path
    options = (ROOT / "pyproject.toml").read_text()
    (include,) = re.findall(r'^include = \["(.*)"\]$', options, re.MULTILINE)
    packages = setuptools.find_packages(str(ROOT), include=[include])
    assert "supcon_tf.losses" in packages
    assert {name.split(".")[0] for name in packages} == {"supcon_tf"}


def test_benchmarks_import_no_library_at_the_top():
    """Their processes do, each its own; the peer's module is one's alone."""
    for path in (ROOT / "benchmarks").glob("*.py"):
        if path.stem == "supcontrast":
            continue
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                text = ast.unparse(node)
                assert not re.search("tensorflow|torch|sklearn", text), path
                if "from supcon_tf" in text:
                    names = {alias.name for alias in node.names}
                    assert names <= {
                        *("command_line", "cores", "exceptions"),
                        *("files", "palette", "settings"),
                    }, path


def test_a_wheel_carries_what_is_not_code():
    carried = {
        path
        for room, patterns in pyprojecttoml.load_file(ROOT / "pyproject.toml")[
            "tool"
        ]["setuptools"]["package-data"].items()
        for pattern in patterns
        for path in (ROOT / room.replace(".", "/")).glob(pattern)
    }
    assert (PACKAGE / "flags").samefile(ROOT / "flags")
    files = {path for path in PACKAGE.rglob("*") if path.is_file()}
    files |= set((PACKAGE / "flags").rglob("*.flags"))
    assert carried == {
        file for file in files if file.suffix not in (".py", ".pyc")
    }


def test_a_build_leaves_nothing_that_a_later_one_would_pack(tmp_path):
    shutil.copy(ROOT / "setup.py", tmp_path)
    (tmp_path / "module.py").touch()
    command = [sys.executable, "setup.py", "--quiet", "build"]
    subprocess.run(command, cwd=tmp_path, check=True)
    assert not (tmp_path / "build").exists()


def test_public_names_resolve_and_say_what_they_are():
    import supcon_tf

    for name in supcon_tf.__all__:
        assert name in dir(supcon_tf)
        room = getattr(supcon_tf, name)
        if hasattr(room, "__path__") and name != "config":
            for part, public in vars(room).items():
                assert part[0] == "_" or public.__doc__, f"{name}.{part}"
    assert "keras_3" not in dir(supcon_tf)  # which not every platform has
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = supcon_tf.Nothing


def functions_of(tree: ast.Module) -> list[ast.FunctionDef]:
    """Functions and methods, but not functions local to a function."""
    scopes = [tree, *(n for n in tree.body if isinstance(n, ast.ClassDef))]
    return [
        node
        for scope in scopes
        for node in scope.body
        if isinstance(node, ast.FunctionDef)
    ]


# Of Keras, which says what they do.
OVERRIDES = re.compile("on_.*|build|call|compile|get_config|.*_(step|state)")


def test_public_functions_have_docstrings_and_all_return_types():
    wrong = []
    for path in FILES:
        for node in functions_of(ast.parse(path.read_text())):
            if node.name.startswith("__"):
                continue
            where = f"{path}:{node.lineno} {node.name} has no"
            needs_none = node.name[0] == "_" or OVERRIDES.fullmatch(node.name)
            if not (needs_none or ast.get_docstring(node)):
                wrong.append(f"{where} docstring")
            if node.returns is None:
                wrong.append(f"{where} return type")
    assert not wrong, "\n".join(wrong)


# Rooms whose messages a notebook sees too, which has no flags.
BELOW_TRAINING = ("losses", "models", "augment", "data", "text", "measures")


def texts_of(tree: ast.Module) -> list[ast.Constant]:
    """The strings of a module that are no docstrings."""
    scopes = (ast.Module, ast.ClassDef, ast.FunctionDef)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, scopes) and isinstance(node.body[0], ast.Expr)
    }
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and id(node) not in docstrings
    ]


def test_messages_below_training_name_arguments_and_no_flags():
    """A tool says --x for `x`: see command_line."""
    wrong = {}
    for room in BELOW_TRAINING:
        for path in sorted((PACKAGE / room).glob("*.py")):
            for node in texts_of(ast.parse(path.read_text())):
                if re.search(r"(?<![\w-])--[a-z]\w+", node.value):
                    file = path.relative_to(PACKAGE).as_posix()
                    wrong.setdefault(file, []).append(node.lineno)
    assert not wrong


def test_slow_tests_keep_cases_that_exist(request):
    """A misspelt id would leave a case out of `make test` in silence."""
    cases = {}
    for item in request.session.items:
        marker = item.get_closest_marker("slow")
        if marker is not None and marker.kwargs:
            ids = cases.setdefault(item.nodeid.partition("[")[0], [set(), ()])
            ids[0].add(item.callspec.id)
            ids[1] = marker.kwargs["but"]
    for test, (ids, exceptions) in cases.items():
        if len(ids) > 1:  # not when a single case was asked for
            assert {*exceptions} <= ids, test
