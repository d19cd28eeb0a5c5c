"""README.md and WORKSPACE.md say what is there, and their commands run."""

import pathlib
import re
import shlex
import subprocess

import pytest
from absl import flags

from supcon_tf import settings
from supcon_tf.cli import commands
from tests import forks, python_text
from tests.tool_settings import BENCHMARKS, PROGRAMS, TOOLS

ROOT = pathlib.Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
WORKSPACE = (ROOT / "WORKSPACE.md").read_text()
PAGES = [
    ROOT / "README.md",
    ROOT / "WORKSPACE.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
DOCS = [path.read_text() for path in PAGES[2:]]


def _unwrapped(text):
    """A document with each `code` of its prose on one line."""
    prose_and_blocks = text.split("```")
    prose_and_blocks[::2] = (
        re.sub("`[^`]+`", lambda code: code[0].replace("\n", " "), prose)
        for prose in prose_and_blocks[::2]
    )
    return "```".join(prose_and_blocks)


def documented_commands():
    """Every command of the documents, docstrings and preset headers."""
    texts = [_unwrapped(text) for text in (README, WORKSPACE, *DOCS)]
    for folder in ("tools", "benchmarks"):
        texts += [path.read_text() for path in (ROOT / folder).glob("*.py")]
    texts.append((ROOT / "supcon_tf" / "cli" / "commands.py").read_text())
    texts += [path.read_text() for path in (ROOT / "flags").glob("*.flags")]
    commands = set()
    for text in texts:
        text = text.replace("\\\n", " ")
        commands |= set(
            re.findall(r"python (?:tools|benchmarks)/[^`\n#]+", text)
        )
    # A process of theirs, not for users.
    commands = {
        line for line in commands if "benchmarks/measuring.py" not in line
    }
    return sorted(command.strip() for command in commands)


@pytest.mark.parametrize("command", documented_commands())
def test_documented_commands_parse(command, monkeypatch):
    monkeypatch.chdir(ROOT)
    _, script, *arguments = shlex.split(command)
    assert (ROOT / script).exists()
    if script == "tools/doctor.py":  # which has no flags
        assert not arguments
        return
    settings_class = PROGRAMS[script]
    values = flags.FlagValues()
    flags.DEFINE_string("flagfile", "", "", flag_values=values)
    settings.define_flags(settings_class, values)
    _, *paths = values([script, *arguments])
    positional = {}
    if paths:
        name = commands.POSITIONAL[pathlib.Path(script).stem]
        positional = {name: tuple(paths)}
    settings.from_flags(settings_class, values, **positional)


def test_every_tool_and_preset_is_documented():
    names = {path.stem for path in (ROOT / "tools").glob("*.py")}
    assert names == {*TOOLS, "checkout", "doctor"}
    for name in names - {"demo", "checkout"}:
        assert any(f"tools/{name}.py" in text for text in [README, *DOCS])
    for name in BENCHMARKS:
        assert any(f"benchmarks/{name}.py" in text for text in DOCS)
    for path in (ROOT / "flags").glob("*.flags"):
        if not path.stem.startswith("linear_"):
            mentions = [
                f"flags/{path.name}" in text for text in [README, *DOCS]
            ]
            assert any(mentions), path.name


def test_every_flag_has_a_task():
    """In a page of docs/, README.md or a preset, beside its own help."""
    presets = [path.read_text() for path in (ROOT / "flags").rglob("*.flags")]
    flag_texts = "\n".join([README, *DOCS, *presets])
    for tool in TOOLS.values():
        for field in settings.shown_fields(tool):
            assert re.search(rf"--(no)?{field.name}\b", flag_texts), field.name


def test_documented_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text()
    contributing = (ROOT / "docs" / "CONTRIBUTING.md").read_text()
    texts = README + WORKSPACE + contributing
    for target in set(re.findall(r"make ([\w-]+)", texts)):
        if target in ("demo", "test", "lint", "docs", "release-check"):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    assert re.search(r"^make demo", README, re.MULTILINE)
    assert re.search(r"^make test", README, re.MULTILINE)
    assert "make test" in (ROOT / ".ci" / "run").read_text()


@pytest.mark.parametrize(
    "path", PAGES, ids=lambda path: str(path.relative_to(ROOT))
)
def test_the_python_of_a_page_fits_the_package(path):
    blocks = re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL)
    assert not python_text.misfits("\n".join(blocks))


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("import supcon_tf\nsupcon_tf.lead('x')", "has no attribute 'lead'"),
        ("from supcon_tf import data\ndata.load(7, way=1)", "argument 'way'"),
        ("from supcon_tf import losses\nlosses.SupConLoss(tau=1)", "'tau'"),
        ("from supcon_tf import config\nconfig.DemoSettings(epoch=1)", "epoch"),
        ("from supcon_tf import data\ndata = {}\ndata.loads(7)", None),
    ],
)
def test_python_that_does_not_fit_is_found(code, error):
    lines = python_text.misfits(code)
    assert not lines if error is None else error in lines[0]


def test_the_readmes_python_runs(tmp_path):
    three_lines, code = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    names = re.findall(r"supcon_tf\.(\w+)|model\.(\w+)", three_lines)
    assert names == [("finetune", ""), ("", "predict")]
    assert "epochs=3," in code and "width=0.5" in code
    # The policy takes longest to trace.
    code = code.replace("SimAugment()", "Identity()")
    code = code.replace("epochs=3,", "epochs=1,").replace("0.5)", "0.1)")
    code += "\nassert representations.shape == (360, 26), representations"
    process = forks.run(code, cwd=tmp_path)
    assert process.returncode == 0, process.stderr[-2000:]


def test_the_readme_is_one_page():
    assert len(README.split()) <= 650
    prose = re.sub(r"```.*?```", "", README, flags=re.DOTALL)
    codes = re.findall(r"`[^`]+`", prose)
    assert len(codes) <= 0.03 * len(prose.split()), codes
    for line in README.splitlines():
        assert len(line) <= 120 or line.startswith("|"), line


def test_speeds_of_the_readme_are_those_of_one_machine():
    """Of a table of docs/benchmarks, whose machine the README names."""
    page = (ROOT / "docs" / "benchmarks" / "loss.md").read_text()
    machine = "2 cores of an AMD EPYC"
    (row,) = re.findall(r"^\| 12,288, the.*", page, re.M)
    assert machine in page.partition(row)[0]
    cells = [
        re.findall(r"[\d,]+(?= ms| MB)", column)
        for column in row.split("|")[2:5]
    ]
    (ours, official, torch) = (
        [int(number.replace(",", "")) for number in cell] for cell in cells
    )
    (sentence,) = re.findall(
        rf"on {machine}, (google.*? as long)\.", " ".join(README.split())
    )
    assert sentence == (
        f"google-research's loss takes {official[0] / ours[0]:.1f} times as "
        f"long as ours and {official[1] / ours[1]:.0f} times the memory, "
        f"SupContrast's (PyTorch) {torch[0] / ours[0]:.1f} times as long"
    )


@pytest.mark.parametrize("path", PAGES[2:], ids=lambda path: path.stem)
def test_pages_are_short_and_so_are_sentences(path):
    text = path.read_text()
    assert len(text.split()) <= 1200
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    prose = re.sub(r"^(\||    |#|!\[).*", "", prose, flags=re.MULTILINE)
    prose = re.sub(r"`[^`]*`|\]\([^)]*\)", "code", prose)
    sentences = [
        sentence
        for sentence in re.split(r"[.:?!;]\s", prose)
        if " " in sentence
    ]
    words = sum(len(sentence.split()) for sentence in sentences)
    assert words <= 25 * max(1, len(sentences))


def anchors(text: str) -> set[str]:
    """What links of a Markdown page may point to, as GitHub names them."""
    heads = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    titles = [re.sub(r"[^\w\- ]", "", head).lower() for head in heads]
    return {head.replace(" ", "-") for head in titles}


@pytest.mark.parametrize(
    "path", PAGES, ids=lambda path: str(path.relative_to(ROOT))
)
def test_links_between_documents_lead_somewhere(path):
    links = re.findall(r"\]\(([^)]+)\)", path.read_text())
    for link in links:
        if "://" not in link:
            file, _, anchor = link.partition("#")
            target = path.parent / file if file else path
            assert target.exists(), link
            assert not anchor or anchor in anchors(target.read_text()), link


def test_what_may_be_opened_is_tested_row_by_row():
    page = (ROOT / "docs" / "security.md").read_text().partition("\n## ")[0]
    rows = [line for line in page.splitlines() if line.startswith("| ")][1:]
    assert len(rows) >= 17
    for row in rows:
        mentions = re.findall(r"`([\w/]+\.py)::(test_\w+)`", row)
        assert mentions, row
        for file, test in mentions:
            assert f"\ndef {test}(" in (ROOT / "tests" / file).read_text()


# Tests of several modules at once.
WHOLE = {
    "test_compilation",
    "test_configs",
    "test_derivatives",
    "test_draws",
    "test_monitoring",
    "test_nan",
    "test_nearest_neighbors",
    "test_optimizers",
    "test_precision",
    "test_replicas",
    "test_settings",
    "test_suites",
    "test_texts",
    "test_xla_rules",
}


def test_tests_mirror_the_package():
    for path in (ROOT / "tests").glob("*/test_*.py"):
        room = path.parent.name
        name = path.stem.removeprefix("test_") + ".py"
        parent = ROOT if room == "benchmarks" else ROOT / "supcon_tf"
        if room not in ("tools", "faults") and path.stem not in WHOLE:
            assert (parent / room / name).exists(), path


def test_make_says_how_to_get_python(tmp_path):
    command = ["make", f"VENV={tmp_path / 'venv'}", "PYTHON=", "demo"]
    process = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert process.returncode != 0
    message = process.stderr.splitlines()[0]
    assert message.startswith("supcon_tf needs Python 3.10 to 3.13")
    assert "install python3.11" in message
    assert not (tmp_path / "venv").exists()


@pytest.mark.parametrize(
    ("version", "lock"),
    [
        ("3.10.4", "requirements.txt"),
        ("3.11.9", "requirements.txt"),
        ("3.12.1", "requirements-newest.txt"),
        ("3.13.0", "requirements-newest.txt"),
    ],
)
def test_make_takes_the_versions_of_the_python(tmp_path, version, lock):
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho Python {version}\n")
    python.chmod(0o755)
    command = ["make", "-n", f"VENV={tmp_path}/v", f"PYTHON={python}", "demo"]
    process = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert f"pip install --quiet --no-compile -c {lock} " in process.stdout
    assert f"{python} -m venv --clear {tmp_path}/v\n" in process.stdout
