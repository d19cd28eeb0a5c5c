"""The command line of tools: help, wrong flags, and errors in one line."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

from supcon_tf import settings
from tests import forks
from tests.tool_settings import PROGRAMS

ROOT = pathlib.Path(__file__).parents[2]
HELP = """
import io, contextlib, pathlib, runpy, sys
sys.modules["tensorflow"] = None  # to import it would raise
sys.path.insert(0, "tools")
for program in sys.argv[1:]:
    for flag in ("--help", "--helpfull"):
        sys.argv = [program, flag]
        runpy.run_path(program, run_name="__main__")
        print("=====")
"""


def test_help_shows_the_flags_and_imports_no_tensorflow():
    command = [sys.executable, "-c", HELP, *PROGRAMS]
    process = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert (process.returncode, process.stderr) == (0, "")
    texts = process.stdout.split("=====\n")[:-1]
    flags = [
        set(re.findall(r"^  --(?:\[no\])?(\w+)", text, re.M)) for text in texts
    ]
    for number, (program, settings_class) in enumerate(PROGRAMS.items()):
        short, full = flags[2 * number : 2 * number + 2]
        names = {field.name for field in settings.shown_fields(settings_class)}
        assert full == names, program
        assert short <= names and "run_dir" in short, program
        assert f"python {program}" in texts[2 * number]
        assert "--flagfile=FILE" in texts[2 * number]
    pretrain = list(PROGRAMS).index("tools/pretrain.py")
    assert 15 <= len(flags[2 * pretrain]) <= 25 < len(flags[2 * pretrain + 1])
    assert "--helpfull shows all" in texts[2 * pretrain]
    # By subject: what is about checkpoints stands together.
    together = r"\nCheckpoints of a run [^\n]*:\n  --\[no\]overwrite"
    assert re.search(together, texts[2 * pretrain])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--bogus=1"], "Unknown command line flag 'bogus'"),
        (["--epochs=ten"], "invalid literal for int"),
        (["--run_dir=x", "--temperature=-1"], "--temperature must be above 0"),
        (["--run_dir=x", "--crop_area=a,b"], "must be numbers separated by"),
        (["--run_dir=x", "extra"], "error: arguments must be flags, got extra"),
        (["--formulation=up"], "value should be one of <out|in>"),
    ],
)
def test_a_wrong_flag_is_one_clear_line(arguments, message):
    process = forks.run(ROOT / "tools" / "pretrain.py", *arguments)
    assert process.returncode != 0
    assert message in process.stderr + process.stdout
    assert "Traceback" not in process.stderr
    assert len((process.stderr + process.stdout).splitlines()) <= 2


def run_main(statement, *arguments):
    """Runs a tool whose work is one statement, and takes words as arguments."""
    return forks.run(
        "from supcon_tf import exceptions\n"
        "from supcon_tf.cli import command_line\n"
        "from tests.settings.test_settings import Lists\n"
        f"def main(settings):\n    {statement}\n"
        "command_line.run(main, Lists, 'words', 'Help.')",
        "--run_dir=here",
        *arguments,
    )


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["a,b", "c"], "('a,b', 'c')"),
        ([], "()"),
        (["--words=z"], "('z',)"),
        (["--colors=red", "a", "--limit=2", "b"], "('a', 'b')"),
    ],
)
def test_arguments_without_a_flag_fill_a_list(arguments, expected):
    process = run_main("print(settings.words)", *arguments)
    assert process.stdout.strip() == expected, process.stderr


@pytest.mark.parametrize(
    ("error", "line"),
    [
        ("exceptions.InvalidValue('`limit` must be 2, `lim` not')",
         "error: --limit must be 2, `lim` not"),
        ("exceptions.Failed('no answer')", "error: no answer"),
        ("PermissionError(13, 'Permission denied', 'here/deeper')",
         "error: --run_dir must be a path that can be read and written, got "
         "here/deeper: Permission denied"),
        ("KeyboardInterrupt", "interrupted"),
    ],
)  # fmt: skip
def test_what_a_user_can_mend_is_one_line(error, line):
    process = run_main(f"raise {error}")
    assert process.returncode and process.stderr == line + "\n"


@pytest.mark.parametrize(
    "statement",
    [
        "list(zip([1], [], strict=True))",  # a ValueError
        "open('here/settings')",  # of a file that we forgot to write
        "raise PermissionError(13, 'Permission denied', 'elsewhere')",
        "raise RuntimeError('a defect')",
    ],
)
def test_a_defect_of_ours_keeps_its_traceback(statement):
    process = run_main(statement)
    assert process.returncode and "Traceback" in process.stderr


# A tool that prints `été`.
PRINTING = """
import os, sys
from supcon_tf import settings
from supcon_tf.cli import command_line
def main(given):
    for number in range(2000):
        print("epoch", f"{number} \\u00e9t\\u00e9")
    import matplotlib.figure, matplotlib.pyplot
    open("done", "w").write(matplotlib.get_backend().lower())
command_line.run(main, settings.Settings, about="")
"""


@pytest.mark.parametrize(
    "run",
    [
        "{} --run_dir=x >&- 2>&-",  # closed
        "{} --run_dir=x | head -1",  # who reads has enough
        # In a notebook, whose backend is not there.
        "LC_ALL=C PYTHONUTF8=0 PYTHONCOERCECLOCALE=0 "
        "MPLBACKEND=module://not_here.backend {} --run_dir=x",
    ],
    ids=["closed", "head", "ascii"],
)
def test_no_output_is_a_reason_to_stop(run, tmp_path):
    (tmp_path / "tool.py").write_text(PRINTING)
    process = subprocess.run(
        run.format(f"{sys.executable} tool.py"),
        shell=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0 and "Error" not in process.stderr, (
        process.stderr
    )
    assert (tmp_path / "done").read_text() == "agg"
