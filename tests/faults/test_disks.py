"""A full disk: one line that names the file, and nothing is lost or half made.

The disk is a small tmpfs where the machine allows, and else, or too, a limit on
the size of files.
"""

import json

import pytest

from supcon_tf.disk import files
from tests import forks
from tests.faults import disks


@pytest.fixture
def disk(tmp_path):
    with disks.small_disk(tmp_path / "disk", "24m") as folder:
        yield folder


def texts(run):
    """The files of an evaluation, as they are."""
    owner = run.evaluation_owner()
    names = "evaluation.json", "predictions.npz", "samples.npz"
    return [(owner.path / name).read_bytes() for name in names]


def test_evaluate_on_a_full_disk_keeps_the_earlier_evaluation(disk, copy_run):
    run = copy_run(disk / "run")
    flags = f"--run_dir={run.path}", "--batch_size=32"
    process = forks.run(disks.TOOLS / "evaluate.py", *flags)
    assert process.returncode == 0, process.stderr
    before = texts(run)
    filling = disks.fill(disk, 20_000)
    line = disks.run_tool("evaluate", *flags)
    assert "linear/evaluation.json could not be written: No space" in line
    assert texts(run) == before
    assert disks.hidden(disk) == []
    # Not even room for the representations, which are mapped into memory.
    filling.unlink()
    run.encoded.rmtree()
    disks.fill(disk, 4_096)
    line = disks.run_tool("evaluate", *flags)
    assert "encoded/test could not be written: No space left" in line
    assert texts(run) == before
    assert disks.hidden(disk) == []


@pytest.mark.parametrize("limit", [None, 100_000])
def test_export_on_a_full_disk_leaves_nothing(limit, tmp_path, copy_run):
    if limit is None:
        with disks.small_disk(tmp_path / "disk", "8m") as folder:
            _check_export(copy_run(folder / "run"), folder, None)
    else:
        _check_export(copy_run(tmp_path / "run"), None, limit)


def _check_export(run, disk, limit):
    if disk is not None:
        disks.fill(disk, 100_000)
    line = disks.run_tool("export", f"--run_dir={run.path}", limit=limit)
    reason = "No space left on device" if disk else "File too large"
    assert f"export/1 could not be written: {reason}" in line
    assert list(run.export.iterdir()) == []


def test_make_tfrecords_on_a_full_disk(disk, image_folder):
    flags = (
        "--dataset=folder",
        f"--data_dir={image_folder}",
        f"--run_dir={disk}/records",
    )
    filling = disks.fill(disk, 8_192)
    line = disks.run_tool("make_tfrecords", *flags)
    assert "records/train-00000-of-00001 could not be written: No sp" in line
    assert disks.hidden(disk) == []
    filling.unlink()
    process = forks.run(disks.TOOLS / "make_tfrecords.py", *flags)
    assert process.returncode == 0, process.stderr


def test_resume_on_a_full_disk_loses_nothing(disk, copy_run):
    run = copy_run(disk / "run")
    settings = run.settings_file.read_text()
    filling = disks.fill(disk, 0)
    flags = f"--flagfile={run.settings_file}", "--resume", "--epochs=3"
    line = disks.run_tool("pretrain", *flags)
    assert "settings.flags could not be written: No space left" in line
    assert run.settings_file.read_text() == settings
    assert disks.hidden(disk) == []
    filling.unlink()
    disks.fill(disk, 8_192)  # enough for the settings, not for a checkpoint
    line = disks.run_tool("pretrain", *flags)
    assert "No space left on device" in line and "ree some space" in line
    assert disks.hidden(disk) == []


def test_a_full_disk_leaves_a_file_as_it_was(tmp_path):
    with disks.small_disk(tmp_path / "disk", "1m") as folder:
        path = folder / "a.json"
        files.write_json(path, {"old": 1})
        disks.fill(folder, 4_096)
        with pytest.raises(OSError, match=r"a\.json could not .*No space left"):
            files.write_json(path, ["x" * 100_000])
        assert json.loads(path.read_text()) == {"old": 1}
        assert {file.name for file in folder.iterdir()} == {"a.json", "filling"}
