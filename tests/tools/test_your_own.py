"""docs/guides/your_own.md: its functions and commands, and what is refused."""

import json
import re
import shlex
import shutil
import types

import numpy as np
import pytest

from supcon_tf import config, data, run_files
from supcon_tf.evaluation import by_functions
from supcon_tf.host import trust
from supcon_tf.training import builders, input_pipeline, runs
from tests import forks, processes

PAGE = (processes.ROOT / "docs/guides/your_own.md").read_text()
PRETRAIN, TRAIN_LINEAR, EVALUATE = re.findall(
    r"^python (tools/\w+\.py .*)$", PAGE, re.MULTILINE
)
# Beside those of the page: what returns the wrong thing.
OTHERS = """
def as_floats(images, seeds):
    return tf.cast(images, tf.float32) / 255


def nothing(settings):
    return None


def arrays(split, data_dir):
    return np.zeros([8, 8, 8, 3]), np.zeros([8])


def gray(split, data_dir):
    return data.from_arrays(np.zeros([8, 8, 8], np.uint8), [0] * 8, channels=1)


def dotted(representations, labels):
    return {"a.b": 1.0}


def words(representations, labels):
    return {"a": "far"}


def nan(representations, labels):
    return {"a": float("nan")}


number = 3
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """mine.py of the page, arrays, and the run of its first command."""
    root = tmp_path_factory.mktemp("mine")
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (root / "mine.py").write_text("\n".join([*blocks, OTHERS]))
    (root / "arrays").mkdir()
    rng = np.random.default_rng(0)
    for split, count in (("train", 48), ("test", 24)):
        labels = np.arange(count) % 3
        levels = 40 + 80 * labels[:, None, None, None]
        images = rng.normal(levels, 20, [count, 16, 16, 3])
        np.savez(
            root / "arrays" / f"{split}.npz",
            images=np.clip(images, 0, 255).astype(np.uint8),
            labels=labels,
        )
    process = tool(root, PRETRAIN)
    assert process.returncode == 0, process.stderr[-3000:]
    assert "mine:neighbours: a loss of your own" in process.stdout
    return root


@pytest.fixture
def working_dir(folder, monkeypatch):
    """The folder as that in which this process was started."""
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    return folder


def tool(root, command, *flags):
    program, *arguments = shlex.split(command)
    return forks.run(processes.ROOT / program, *arguments, *flags, cwd=root)


def refused(root, command, *flags):
    """The one line in which a command ends."""
    process = tool(root, command, *flags)
    assert process.returncode == 1, process.stderr
    (line,) = process.stderr.splitlines()
    return line


def test_a_data_set(folder):
    run = run_files.RunDirectory(folder / "runs/shapes")
    assert run.class_names() == ("circle", "square", "star")
    assert run.flags()["data_dir"] == str(folder / "arrays")
    unnamed = TRAIN_LINEAR.replace("--dataset=mine:shapes", "")
    assert "--dataset must name mine:shapes again" in refused(folder, unnamed)
    process = tool(folder, TRAIN_LINEAR)
    assert process.returncode == 0, process.stderr
    assert "mine:shapes: 48 train images of 3 classes" in process.stdout
    unnamed = EVALUATE.replace("--dataset=mine:shapes", "")
    assert "--dataset must name mine:shapes again" in refused(folder, unnamed)
    gray = EVALUATE.replace("mine:shapes", "mine:gray")
    assert "be that of runs/shapes, mine:shapes, got" in refused(folder, gray)
    # The commands of a report name what they need.
    *_, evaluate, export = run.commands("linear")
    assert "--dataset=mine:shapes" in evaluate and "mine:" in export


def test_an_augmentation(working_dir):
    settings = runs.Run.open("runs/shapes", dataset="mine:shapes").settings
    images = np.full([3, 8, 8, 3], 128, np.uint8)
    seeds = np.array([[0, 1], [0, 2], [0, 1]], np.int32)
    changed = input_pipeline.augmentation(settings)(images, seeds).numpy()
    assert (changed[0] == changed[2]).all() and changed[0].any()
    assert (changed[0] != changed[1]).all()
    shutil.copytree("runs/shapes", "runs/again")
    resume = "--resume", "--run_dir=runs/again"
    # Of the run's own flagfile alone nothing is imported, of one's own it is.
    command = "tools/pretrain.py --flagfile=runs/again/settings.flags"
    functions = "--dataset=mine:shapes", "--objective=mine:neighbours"
    line = refused(working_dir, command, *resume, *functions)
    assert "--augmentation must name mine:darker again" in line
    shutil.copy("runs/again/settings.flags", "mine.flags")
    command = "tools/pretrain.py --flagfile=mine.flags"
    process = tool(working_dir, command, *resume)
    assert process.returncode == 0, process.stderr
    assert "resumed" in process.stdout


def test_an_objective(working_dir):
    settings = runs.Run.open("runs/shapes", dataset="mine:shapes").settings
    loss = builders.loss(settings)
    assert type(loss).__name__ == "Neighbours" and loss.temperature == 0.1
    flags = dict(flag.split("=") for flag in shlex.split(PRETRAIN)[1:])
    assert settings.objective == flags["--objective"] == "mine:neighbours"
    process = tool(
        working_dir,
        PRETRAIN,
        *("--objective=mine:neighbours+ce", "--run_dir=runs/joint"),
        "--epochs=0",
    )
    assert process.returncode == 0, process.stderr
    assert "a loss of your own, weight 0.5; cross-entropy" in process.stdout
    with pytest.raises(
        ValueError, match="--mixing must be left out with --obj"
    ):
        config.PretrainSettings("x", objective="mine:loss", mixing="cutmix")


def test_a_measure(folder):
    stage = run_files.RunDirectory(folder / "runs/shapes/linear")
    if not stage.exists():
        assert tool(folder, TRAIN_LINEAR).returncode == 0
    process = tool(folder, EVALUATE)
    assert process.returncode == 0, process.stderr
    measured = json.loads(stage.evaluation_file.read_text())["measures"]
    assert measured.keys() == {"class_gap"} and 0 < measured["class_gap"] < 2
    (row,) = [
        line for line in process.stdout.splitlines() if "class_gap" in line
    ]
    assert row.split() == ["class_gap", f"{measured['class_gap']:.4f}"]
    # The report is made anew from the files alone.
    report = "tools/report.py runs/shapes/linear --run_dir=runs/page"
    assert tool(folder, report).returncode == 0
    page = (folder / "runs/page/report.html").read_text()
    row = re.search(r"class_gap(?:<[^>]*>|\s)+([\d.]+)", page)
    assert row[1] == f"{measured['class_gap']:.3f}"
    wrong = EVALUATE.replace("mine:gap", "mine:words")
    assert "--measures mine:words must return a dict" in refused(folder, wrong)
    again = json.loads(stage.evaluation_file.read_text())["measures"]
    assert again == measured


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("words", "mine:words must return a dict of finite numbers by names "),
        ("dotted", "mine:dotted must return a dict of finite numbers by name"),
        ("nan", "mine:nan must return a dict of finite numbers by names with"),
        ("gap gap", "must return other names than those before it, got class"),
        ("gone", "must be package.module:function that can be imported, got "),
        ("neighbours", "must be a function of .representations, labels., got"),
    ],
)
def test_a_wrong_measure_is_named(names, message, working_dir):
    test = types.SimpleNamespace(
        representations=np.eye(6, dtype=np.float32), labels=np.arange(6) % 2
    )
    functions = [f"mine:{name}" for name in names.split()]
    with pytest.raises(ValueError, match=f"`measures` .*{message}"):
        by_functions.measure(functions, test)


WRONG = (
    ("dataset", "arrays", "mine:arrays must return a data.Source, as data.fr"),
    ("dataset", "gray", "--channels must be those of mine:gray, 1, got 3"),
    ("dataset", "number", "(split, data_dir), got <class 'int'>"),
    ("augmentation", "as_floats", "shape and dtype that it takes, ("),
    ("objective", "nothing", "must return a keras.losses.Loss, got <class '"),
    ("objective", "gone+ce", "imported, got mine:gone+ce: module 'mine' has"),
)


@pytest.mark.parametrize(
    ("flag", "function", "words"), WRONG, ids=[row[1] for row in WRONG]
)
def test_what_is_wrong_is_one_line_and_begins_no_run(
    flag, function, words, folder
):
    flags = f"--{flag}=mine:{function}", "--run_dir=runs/wrong"
    assert words in refused(folder, PRETRAIN, *flags)
    assert not (folder / "runs/wrong").exists()


def test_python_takes_the_same_names(working_dir):
    source = data.load("mine:shapes", "test", "arrays")
    assert (source.name, source.split) == ("mine:shapes", "test")
    assert source.num_examples == 24
    with pytest.raises(ValueError, match="`data_dir` must be None|must be tra"):
        data.load("mine:shapes", "validation", "arrays")


def test_every_flag_of_the_page_is_one_of_trust():
    rows = re.findall(r"^\| `--(\w+)`.*?`function\((.*?)\)`", PAGE, re.M)
    assert {
        flag: names.split(", ") if names else [] for flag, names in rows
    } == {flag: [*names] for flag, names in trust.FLAGS.items()}
