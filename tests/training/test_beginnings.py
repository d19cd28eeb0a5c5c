"""What is found, or found again, before a stage begins."""

import dataclasses
import json
import shutil

import numpy as np
import pytest

import supcon_tf
from supcon_tf import config, training


def test_images_of_one_class_teach_nothing(
    image_folder, tiny_settings, tmp_path
):
    for split in ("train", "test"):
        shutil.copytree(image_folder / split / "mid", tmp_path / split / "mid")
    for objective in ("supcon", "ce"):
        with pytest.raises(ValueError, match="two classes or more .* got mid;"):
            training.pretrain(
                tiny_settings(data_dir=str(tmp_path), objective=objective)
            )
    training.pretrain(
        tiny_settings(data_dir=str(tmp_path), objective="simclr", epochs=0)
    )


def test_a_bad_test_image_is_found_before_the_training(
    image_folder, tiny_settings, tmp_path
):
    shutil.copytree(image_folder, tmp_path / "images")
    (tmp_path / "images/test/mid/bad.png").write_bytes(b"torn")
    data_dir = str(tmp_path / "images")
    settings = tiny_settings(tmp_path / "run", data_dir=data_dir, epochs=0)
    with pytest.raises(ValueError, match="1 bad files of 22 .*t/mid/bad.png"):
        training.pretrain(settings)
    assert not (tmp_path / "run").exists()
    run = training.pretrain(dataclasses.replace(settings, skip_bad_images=True))
    record = json.loads(run.images_file.read_text())
    assert record["skipped"] == ["test/mid/bad.png"]
    assert len(record["trained_on"]) == 48


def test_a_linear_stage_that_cannot_begin_leaves_nothing(finished_run):
    settings = config.LinearSettings(
        str(finished_run.path), name="retried", epochs=1, batch_size=49
    )
    with pytest.raises(ValueError, match="must be in 1..num_examples, got 49"):
        training.train_linear(settings)
    assert not finished_run.stage("retried").path.exists()
    training.train_linear(
        dataclasses.replace(settings, batch_size=48, epochs=0)
    )


def test_a_trained_encoder_is_loaded_in_one_call(finished_run):
    encoder = supcon_tf.load_encoder(str(finished_run.path))
    images = np.random.default_rng(0).integers(
        0, 256, [5, 16, 16, 3], dtype=np.uint8
    )
    restored = training.load_encoder(finished_run.path)
    np.testing.assert_array_equal(encoder(images), restored(images))
    with pytest.raises(ValueError, match="must be a run directory"):
        supcon_tf.load_encoder(finished_run.path / "none")
