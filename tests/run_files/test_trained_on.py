"""The record of the training examples, and checks of data by it."""

import json

import numpy as np
import pytest

from supcon_tf import config, run_files


def test_a_run_records_its_images(tmp_path):
    run = run_files.RunDirectory(tmp_path / "run")
    trained_on = ["a/1.png", "b/2.png"]
    skipped = ("a/bad.png", "b/worse.png")
    run.create(config.PretrainSettings("x"), ("a", "b"), trained_on, skipped)
    assert json.loads(run.images_file.read_text()) == {
        "trained_on": ["a/1.png", "b/2.png"],
        "skipped": ["a/bad.png", "b/worse.png"],
    }
    assert run.trained_on.digests().size == 0  # as of an earlier version
    digests = np.array([2**62, 5])
    other = run_files.RunDirectory(tmp_path / "other")
    options = config.PretrainSettings("x"), ("a", "b"), trained_on
    other.create(*options, digests=digests)
    np.testing.assert_array_equal(other.trained_on.digests(), digests)
    run.trained_on.check_same(trained_on)
    refused = "1 others and 1 missing: b/2.png, b/3.png; restore the folder"
    with pytest.raises(ValueError, match=refused):
        run.trained_on.check_same(["a/1.png", "b/3.png"])


def test_a_run_on_texts_names_texts(tmp_path):
    run = run_files.RunDirectory(tmp_path / "run")
    settings = config.FinetuneTextSettings("x", model="m", train_file="a.tsv")
    run.create(settings, ("0", "1"), ["a.tsv:2", "a.tsv:3"])
    refused = "training texts of .* missing: a.tsv:3, a.tsv:4; restore the file"
    with pytest.raises(ValueError, match=refused):
        run.trained_on.check_same(["a.tsv:2", "a.tsv:4"])
    with pytest.raises(ValueError, match="the training texts of"):
        run.trained_on.check_contained(["a.tsv:2"])


def test_test_images_of_the_training_are_refused(tmp_path):
    run = run_files.RunDirectory(tmp_path / "run")
    trained_on = [f"a/{i}.png" for i in range(9)] + ["b/1.png"]
    run.create(config.PretrainSettings("x"), ("a", "b"), trained_on)

    def check(*ids):
        run.trained_on.check_unseen(ids)

    check("a/11.png", "b/2.png")
    with pytest.raises(ValueError) as raised:
        check("a/10.png", *trained_on)
    assert str(raised.value) == (
        f"the test images must be none that {run.path} was trained on, got 10 "
        "of 11: a/0.png, a/1.png, a/2.png, a/3.png, a/4.png, ..."
    )
    # Sorted into train/ and test/ after the training.
    with pytest.raises(ValueError, match="got 1 of 2: test/b/1.png"):
        check("test/a/77.png", "test/b/1.png")
    run.trained_on.check_unseen(None)  # images without names
    # A run whose split depended on all files of the folder.
    run.images_file.unlink()
    with pytest.raises(ValueError, match="have an images.json.*pretrain a"):
        check("a/1.png", "b/1.png")
    check("val/a/1.png", "val/b/1.png")


def test_a_list_may_have_equal_names_in_two_folders(tmp_path):
    run = run_files.RunDirectory(tmp_path / "run")
    settings = config.PretrainSettings("x", data_dir="photos.csv")
    run.create(settings, ("a", "b"), ["1.png", "2.png"])
    run.trained_on.check_unseen(["test/1.png", "test/2.png"])
    with pytest.raises(ValueError, match="got 1 of 2: 2.png"):
        run.trained_on.check_unseen(["test/1.png", "2.png"])


def test_data_without_images_of_the_training_are_refused(tmp_path):
    run = run_files.RunDirectory(tmp_path / "run")
    run.create(config.PretrainSettings("x"), ("a", "b"), ["a/1.png", "b/2.png"])
    run.trained_on.check_contained(["a/1.png", "b/2.png", "b/3.png"])
    run.trained_on.check_contained(["train/a/1.png", "train/b/2.png"])
    with pytest.raises(ValueError, match="got none of 1 of 2: b/2.png"):
        run.trained_on.check_contained(["a/1.png", "b/3.png"])
