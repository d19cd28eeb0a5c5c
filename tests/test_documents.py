"""README.md and WORKSPACE.md say what is there, and their commands run."""

from __future__ import annotations

import pathlib
import re
import shlex
import subprocess

import pytest
from absl import flags

from supcon_tf import settings
from tests import forks
from tests.tool_settings import BENCHMARKS, PROGRAMS, TOOLS

ROOT = pathlib.Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
WORKSPACE = (ROOT / "WORKSPACE.md").read_text()
DOCS = [path.read_text() for path in sorted((ROOT / "docs").glob("*.md"))]
DOCS.append((ROOT / "serving" / "README.md").read_text())


def documented_commands():
    """Every command of the documents, docstrings and preset headers."""
    texts = [README, WORKSPACE, *DOCS]
    for folder in ("tools", "benchmarks"):
        texts += [path.read_text() for path in (ROOT / folder).glob("*.py")]
    texts += [path.read_text() for path in (ROOT / "flags").glob("*.flags")]
    found = set()
    for text in texts:
        text = text.replace("\\\n", " ")
        found |= set(re.findall(r"python (?:tools|benchmarks)/[^`\n#]+", text))
    return sorted(command.strip() for command in found)


@pytest.mark.parametrize("command", documented_commands())
def test_documented_commands_parse(command, monkeypatch):
    monkeypatch.chdir(ROOT)
    _, script, *arguments = shlex.split(command)
    assert (ROOT / script).exists()
    settings_class = PROGRAMS[script]
    values = flags.FlagValues()
    flags.DEFINE_string("flagfile", "", "", flag_values=values)
    settings.define_flags(settings_class, values)
    values([script, *arguments])
    settings.from_flags(settings_class, values)


def test_every_tool_is_documented_and_tested():
    names = {path.stem for path in (ROOT / "tools").glob("*.py")}
    assert names == {*TOOLS, "checkout"}
    for name in names - {"demo", "checkout"}:
        assert any(f"tools/{name}.py" in text for text in [README, *DOCS])
    for name in BENCHMARKS:
        assert any(f"benchmarks/{name}.py" in text for text in DOCS)


def test_documented_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text()
    for target in set(re.findall(r"make (\w+)", README + WORKSPACE)):
        if target in ("demo", "test", "lint", "clean"):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    assert re.search(r"^make demo", README, re.MULTILINE)
    assert re.search(r"^make test", README, re.MULTILINE)


def test_the_readmes_python_runs(tmp_path):
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert "epochs=3," in code
    code = code.replace("epochs=3,", "epochs=1,")
    code += "\nassert representations.shape == (360, 256), representations"
    done = forks.run(code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]


def test_the_readme_is_one_page():
    assert len(README.splitlines()) <= 100


def test_presets_are_all_documented():
    for path in (ROOT / "flags").glob("*.flags"):
        if not path.stem.startswith("linear_"):
            named = [f"flags/{path.name}" in text for text in [README, *DOCS]]
            assert any(named), path.name


def documented_tree() -> set[str]:
    """Paths of the tree in WORKSPACE.md, from its indentation."""
    (block,) = re.findall(r"## Tree\n\n```\n(.*?)```", WORKSPACE, re.DOTALL)
    paths, parents = set(), []
    for line in block.splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        name = line.split()[0]
        parents = [*parents[:depth], name.rstrip("/")]
        if not name.endswith("/"):
            paths.add("/".join(parents))
    return paths


def test_the_workspaces_tree_is_the_tree():
    real = {
        str(path.relative_to(ROOT))
        for folder in (
            *("supcon_tf", "tools", "benchmarks", "flags", "notebooks"),
            "tests",
        )
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".flags", ".ipynb")
        and ".ipynb_checkpoints" not in path.parts
    }
    # Tests mirror the package; the tree names only those that do not.
    package = {path for path in real if not path.startswith("tests/")}
    documented = documented_tree()
    assert package - documented == set(), "missing in WORKSPACE.md"
    for path in documented:
        assert (ROOT / path).exists(), f"{path} is not there any more"


# Tests of several modules at once.
WHOLE = {
    "test_beginnings",
    "test_compilation",
    "test_model_server",
    "test_precision",
    "test_replicas",
}


def test_tests_mirror_the_package():
    for path in (ROOT / "tests").glob("*/test_*.py"):
        room = path.parent.name
        name = path.stem.removeprefix("test_") + ".py"
        parent = ROOT if room == "benchmarks" else ROOT / "supcon_tf"
        if room != "tools" and path.stem not in WHOLE:
            assert (parent / room / name).exists(), path


def test_make_says_how_to_get_python(tmp_path):
    done = subprocess.run(
        ["make", f"VENV={tmp_path / 'venv'}", "PYTHON=", "demo"],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.returncode != 0
    message = done.stderr.splitlines()[0]
    assert message.startswith("supcon_tf needs Python 3.10 or 3.11")
    assert "install python3.11" in message
    assert not (tmp_path / "venv").exists()


def test_ci_runs_the_tests():
    assert "make test" in (ROOT / ".ci" / "run").read_text()
