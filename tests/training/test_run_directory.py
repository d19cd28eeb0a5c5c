"""The run directory: nothing is mixed, nothing is half-written."""

from __future__ import annotations

import dataclasses

import pytest

from supcon_tf import config, training


@pytest.fixture
def run(tmp_path):
    run = training.RunDirectory(tmp_path / "run")
    run.create(config.PretrainSettings(str(run.path)), ("cat", "öl"))
    return run


def test_settings_and_classes_are_read_back(run):
    assert run.pretrain_settings() == config.PretrainSettings(str(run.path))
    assert run.class_names() == ("cat", "öl")


def test_a_taken_directory_is_refused(run):
    with pytest.raises(ValueError, match="holds a run already; choose ano"):
        run.check_free(overwrite=False)
    run.check_free(overwrite=True)


def test_a_directory_of_somebody_else_is_never_taken(tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    run = training.RunDirectory(tmp_path)
    for overwrite in (True, False):
        with pytest.raises(ValueError, match="must be empty or a run dir"):
            run.check_free(overwrite)


def test_overwriting_removes_outputs_and_stages_but_nothing_else(run):
    stage = run.stage("linear")
    stage.create(config.LinearSettings(str(run.path)), ("cat", "öl"))
    run.checkpoints.mkdir()
    (run.checkpoints / "epoch-1.index").write_text("old")
    run.metrics_file.write_text("{}\n")
    run.projector.mkdir(parents=True)
    for file in (
        run.evaluation_file,
        run.predictions_file,
        run.representations_file,
        run.samples_file,
        run.report_file,
        run.projector / "metadata.tsv",
    ):
        file.write_text("old")
    (run.path / "notes.txt").write_text("mine")
    run.create(config.PretrainSettings(str(run.path)), ("dog", "cat"))
    assert sorted(p.name for p in run.path.iterdir()) == [
        "classes.json",
        "notes.txt",
        "settings.flags",
    ]
    assert run.class_names() == ("dog", "cat")


def test_other_classes_are_listed(run):
    run.check_classes(("cat", "öl"))
    with pytest.raises(ValueError, match=r"got -öl \+dog"):
        run.check_classes(("cat", "dog"))
    with pytest.raises(ValueError, match="got another order"):
        run.check_classes(("öl", "cat"))


def test_missing_parts_are_named(run, tmp_path):
    with pytest.raises(ValueError, match="must hold a checkpoint, but has no"):
        run.latest_checkpoint()
    with pytest.raises(ValueError, match="has no settings.flags"):
        training.RunDirectory(tmp_path / "none").pretrain_settings()


def test_a_run_goes_on_with_its_own_settings_only(tmp_path):
    chosen = config.PretrainSettings(str(tmp_path / "run"), temperature=0.2)
    run = training.RunDirectory(chosen.run_dir)
    run.create(chosen, ("a", "b"))
    # Where it runs, how often it saves and what is shown do not change it.
    run.check_same(
        dataclasses.replace(
            chosen,
            run_dir=str(tmp_path / "." / "run"),
            strategy="mirrored",
            checkpoint_steps=5,
            keep_checkpoints=9,
            knn_every=2,
            resume=True,
        )
    )
    changed = dataclasses.replace(chosen, temperature=0.1, hidden_dims=(8,))
    with pytest.raises(ValueError, match="--resume must come with") as raised:
        run.check_same(changed)
    message = str(raised.value)
    assert "got --hidden_dims=8 (was 2048), --temperature=0.1 (was" in message
    assert f"--flagfile={run.settings_file} repeats them" in message
