"""A module that a foreign run directory names is code, and does not run."""

import sys

import numpy as np
import pytest

from supcon_tf import config, evaluation, serving, sweeps, training
from supcon_tf.host import trust
from tests import forks, processes

NET = """
import pathlib
import supcon_tf

pathlib.Path({ran!r}).touch()


def make():
    return supcon_tf.Encoder("vgg8", width=0.1)
"""


@pytest.fixture
def with_module(copy_run, tmp_path):
    """A run with a net.py beside it, downloaded into the current folder."""
    run = copy_run(tmp_path / "theirs")
    (run.path / "net.py").write_text(NET.format(ran=str(tmp_path / "ran")))
    return run


@pytest.fixture
def theirs(with_module):
    """A run that names its net.py."""
    name_module(with_module, "theirs.net:make")
    return with_module


def name_module(run, architecture):
    text = run.settings_file.read_text()
    text = text.replace("--architecture=vgg8", f"--architecture={architecture}")
    text = text.replace("--width=0.1", "--width=1.0")
    run.settings_file.write_text(text)


def tool(folder, name, *flags):
    program = processes.ROOT / "tools" / f"{name}.py"
    return forks.run(program, *flags, cwd=folder)


COMMANDS = (
    *("evaluate", "train_linear --name=other", "export", "convert"),
    "transfer --dataset=digits",
    "pretrain --flagfile=theirs/settings.flags --resume",
    "pretrain --flagfile theirs/settings.flags --run_dir=mine",
    "pretrain --flagfile=ours.flags --run_dir=mine",
    "pretrain --dataset=digits --init_from=theirs --run_dir=mine",
)


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_imports_the_network_of_a_run(command, theirs, tmp_path):
    (tmp_path / "ours.flags").write_text("--flagfile=theirs/settings.flags\n")
    name, *flags = command.split()
    process = tool(tmp_path, name, "--run_dir=theirs", *flags)
    assert process.returncode == 1, process.stderr
    (line,) = process.stderr.splitlines()
    assert "--architecture must name theirs.net:make again" in line
    assert not (tmp_path / "ran").exists()
    # Nor where the command does name it, from inside of a run directory.
    named = "--architecture=theirs.net:make"
    process = tool(tmp_path, name, "--run_dir=theirs", *flags, named)
    assert process.returncode == 1
    (line,) = process.stderr.splitlines()
    assert "must import no code that lies in a run directory" in line
    assert not (tmp_path / "ran").exists()


PRETRAIN = "pretrain --flagfile=theirs/settings.flags --run_dir=mine"
OTHERS = (
    ("dataset", "folder", "evaluate --run_dir=theirs"),
    ("dataset", "folder", "train_linear --run_dir=theirs --name=other"),
    ("dataset", "folder", "export --run_dir=theirs --prototypes"),
    ("dataset", "folder", "convert --run_dir=theirs"),
    ("dataset", "folder", PRETRAIN),
    ("augmentation", "identity", PRETRAIN),
    ("objective", "supcon", PRETRAIN),
)


@pytest.mark.parametrize(("flag", "before", "command"), OTHERS)
def test_no_command_imports_other_functions_of_a_run(
    flag, before, command, with_module, tmp_path
):
    text = with_module.settings_file.read_text()
    assert f"--{flag}={before}" in text
    with_module.settings_file.write_text(
        text.replace(f"--{flag}={before}", f"--{flag}=theirs.net:make")
    )
    name, *flags = command.split()
    process = tool(tmp_path, name, *flags)
    assert process.returncode == 1, process.stdout
    (line,) = process.stderr.splitlines()
    assert f"--{flag} must name theirs.net:make again" in line
    process = tool(tmp_path, name, *flags, f"--{flag}=theirs.net:make")
    (line,) = process.stderr.splitlines()
    assert f"--{flag} must import no code that lies in a run dir" in line
    assert not (tmp_path / "ran").exists()


def test_commands_without_need_of_code_run_none(
    with_module, tmp_path, monkeypatch
):
    text = with_module.settings_file.read_text()
    for flag, before in (("augmentation", "identity"), ("objective", "sup")):
        assert f"--{flag}={before}" in text
        text = text.replace(f"--{flag}={before}", f"--{flag}=theirs.net:")
    with_module.settings_file.write_text(text)
    monkeypatch.chdir(tmp_path)
    evaluation.evaluate(config.EvaluateSettings("theirs", plotted_images=0))
    serving.export(config.ExportSettings("theirs"))
    samples = with_module.stage("linear").samples_file
    assert "views" not in np.load(samples)
    opened = training.Run.open(with_module.path)
    with pytest.raises(ValueError, match="a policy of supcon_tf, whose views"):
        evaluation.plot_gradients({"theirs": opened})
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "line",
    [
        "--sweep=objective=supcon,theirs.net:make",
        "--linear_flagfile=theirs.flags",
        "--evaluate_flagfile=theirs.flags",
    ],
)
def test_no_run_begins_a_sweep(line, with_module, tmp_path):
    text = with_module.settings_file.read_text()
    with_module.settings_file.write_text(
        text.replace("# end", f"{line}\n# end")
    )
    flags = "--flagfile=theirs/settings.flags", "--run_dir=mine"
    process = tool(tmp_path, "sweep", "--sweep=seed=0,1", *flags)
    assert process.returncode == 1
    (message,) = process.stderr.splitlines()
    assert "must be a setting, as no file of a run includes an" in message


def test_no_flagfile_in_a_run_names_the_code_of_a_sweep(with_module, tmp_path):
    for flag, text in (
        ("linear_flagfile", "--augmentation=theirs.net:make"),
        ("evaluate_flagfile", "--measures=theirs.net:make"),
    ):
        path = with_module.stage("linear").path / "theirs.flags"
        path.write_text(f"{text}\n")
        with pytest.raises(ValueError, match="must name theirs.net:make again"):
            sweeps.list_cells(
                config.SweepSettings(
                    str(tmp_path / "sweep"),
                    sweep=("seed=0,1",),
                    **{flag: str(path)},
                )
            )
    assert not (tmp_path / "ran").exists()


def test_a_module_of_the_command_is_imported(theirs, tmp_path, monkeypatch):
    (theirs.path / "net.py").rename(tmp_path / "net_of_ours.py")
    text = theirs.settings_file.read_text()
    text = text.replace("theirs.net:make", "net_of_ours:make")
    theirs.settings_file.write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    with pytest.raises(ValueError, match="must name net_of_ours:make again"):
        training.load_encoder("theirs")
    with pytest.raises(ValueError, match="that of theirs, net_of_ours:make, g"):
        training.load_encoder("theirs", "another:make")
    assert not (tmp_path / "ran").exists()
    encoder = training.load_encoder("theirs", "net_of_ours:make")
    assert encoder.representation_dim and (tmp_path / "ran").exists()


def test_modules_in_a_run_are_refused(theirs, tmp_path, monkeypatch):
    """By a link, a package, the current folder, or an import inside."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "linked.py").symlink_to("theirs/net.py")
    (theirs.path / "package").mkdir()
    (theirs.path / "package/__init__.py").write_text(
        (theirs.path / "net.py").read_text()
    )
    (tmp_path / "innocent.py").write_text("from theirs.net import make\n")
    names = ["linked", "theirs.package", "theirs.package.x", "innocent"]
    for name in names:
        with pytest.raises(ValueError, match="must import no code that lies"):
            trust.import_function(f"{name}:make")
    monkeypatch.chdir(theirs.path)
    with pytest.raises(ValueError, match="No module named 'net'"):
        trust.import_function("net:make")
    monkeypatch.syspath_prepend("")
    with pytest.raises(ValueError, match="must import no code that lies"):
        trust.import_function("net:make")
    assert not (tmp_path / "ran").exists()
