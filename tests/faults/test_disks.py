"""A full disk: an error that names the file, and no file is lost or cut.

The disk is a small tmpfs where the machine allows mounts, or a limit on the
size of files.
"""

import dataclasses
import json
import resource

import pytest

from supcon_tf import config, evaluation, serving, training
from supcon_tf.disk import files
from tests import forks, processes
from tests.faults import disks


@pytest.fixture
def disk(tmp_path):
    with disks.small_disk(tmp_path / "disk", "24m") as folder:
        yield folder


def contents(run):
    """The files of an evaluation."""
    owner = run.evaluation_owner()
    names = "evaluation.json", "predictions.npz", "samples.npz"
    return [(owner.path / name).read_bytes() for name in names]


def test_evaluate_on_a_full_disk_keeps_the_earlier_evaluation(
    disk, copy_evaluated_run
):
    run = copy_evaluated_run(disk / "run")
    settings = config.EvaluateSettings(str(run.path), plotted_images=0)
    before = contents(run)
    filling = disks.fill(disk, 20_000)
    message = "linear/evaluation.json could not be written: No space"
    with pytest.raises(OSError, match=message):
        evaluation.evaluate(settings)
    assert contents(run) == before
    # No room for the representations either, which are mapped into memory.
    filling.unlink()
    run.encoded.rmtree()
    disks.fill(disk, 4_096)
    message = "encoded/test could not be written: No space left"
    with pytest.raises(OSError, match=message):
        evaluation.evaluate(settings)
    assert contents(run) == before
    assert disks.hidden(disk) == []


def test_export_on_a_full_disk_leaves_nothing(tmp_path, copy_run):
    run = copy_run(tmp_path / "run")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        message = "export/1 could not be written: File too large"
        with pytest.raises(OSError, match=message):
            serving.export(config.ExportSettings(str(run.path)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(run.export.iterdir()) == []


def test_a_tool_names_the_file_in_a_line(disk, image_folder):
    tool = processes.ROOT / "tools" / "make_tfrecords.py"
    flags = (
        "--dataset=folder",
        f"--data_dir={image_folder}",
        f"--run_dir={disk}/records",
    )
    filling = disks.fill(disk, 8_192)
    process = forks.run(tool, *flags)
    assert process.returncode == 1, process.stderr
    (line,) = process.stderr.splitlines()
    assert line.startswith("error: ")
    assert "records/train-00000-of-00001 could not be written: No sp" in line
    assert disks.hidden(disk) == []
    filling.unlink()
    process = forks.run(tool, *flags)
    assert process.returncode == 0, process.stderr


def test_resume_on_a_full_disk_keeps_the_settings(disk, copy_run):
    run = copy_run(disk / "run")
    content = run.settings_file.read_text()
    disks.fill(disk, 0)
    recorded = run.recorded(config.PretrainSettings)
    message = "settings.flags could not be written: No space left"
    with pytest.raises(OSError, match=message):
        training.pretrain(dataclasses.replace(recorded, epochs=3, resume=True))
    assert run.settings_file.read_text() == content
    assert disks.hidden(disk) == []


def test_a_full_disk_keeps_the_earlier_file(tmp_path):
    with disks.small_disk(tmp_path / "disk", "1m") as folder:
        path = folder / "a.json"
        files.write_json(path, {"old": 1})
        disks.fill(folder, 4_096)
        with pytest.raises(OSError, match=r"a\.json could not .*No space left"):
            files.write_json(path, ["x" * 100_000])
        assert json.loads(path.read_text()) == {"old": 1}
        assert {file.name for file in folder.iterdir()} == {"a.json", "filling"}
