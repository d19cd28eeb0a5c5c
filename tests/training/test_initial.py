"""Runs that start with the encoder of a run or of a file."""

import dataclasses
import shutil

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import training
from supcon_tf.training import builders, initial, jobs, runs, stages


@pytest.fixture(scope="module")
def source(finished_run):
    return runs.Run.open(finished_run.path)


def assert_equal(layer, other):
    for a, b in zip(layer.weights, other.weights, strict=True):
        np.testing.assert_array_equal(a, b)


def head_weights(run):
    path = f"{run.latest_checkpoint()}/variables"
    return {
        name: tf.train.load_variable(path, name)
        for name, _ in tf.train.list_variables(path)
        if name.startswith("projection_head/") and "OPTIM" not in name
    }


def test_a_run_starts_with_the_encoder_and_head_of_another(
    source, tiny_settings, tmp_path
):
    """On other data; the run resumes after the other run has moved."""
    shutil.copytree(source.files.path, tmp_path / "first")
    settings = tiny_settings(
        tmp_path / "second",
        dataset="digits",
        data_dir=None,
        image_size=24,
        epochs=0,
        init_from=str(tmp_path / "first"),
        init_head=True,
        architecture="resnet50",  # the default
        width=1.0,
    )
    training.pretrain(settings)
    run = runs.Run.open(tmp_path / "second")
    assert run.settings.architecture == source.settings.architecture
    assert run.settings.width == source.settings.width
    assert len(run.class_names) == 10
    assert_equal(run.encoder, source.encoder)
    expected, head = head_weights(source.files), head_weights(run.files)
    assert expected and expected.keys() == head.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(value, head[name])
    (tmp_path / "first").rename(tmp_path / "moved")
    settings = dataclasses.replace(settings, resume=True)
    job = jobs.prepare(settings, stages._splits, decide=initial.inherited)
    assert job.resumes


def test_a_file_of_weights_starts_an_encoder(source, tiny_settings, tmp_path):
    weights = str(tmp_path / "encoder.weights.h5")
    source.encoder.save_weights(weights)
    settings = tiny_settings(weights=weights)
    model = builders.model(settings, 3)
    initial.load(settings, model)
    assert_equal(model.encoder, source.encoder)


def test_another_image_size_keeps_the_stem(tiny_settings):
    for size, stem in ((32, "cifar"), (96, "imagenet")):
        settings = tiny_settings(
            architecture="resnet18", width=0.1, image_size=size
        )
        assert initial.network(settings)["stem"] == stem


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            {"init_from": "nowhere"},
            "nowhere must be a run .* tools/finetune.py or .*, got nothing",
        ),
        (
            {"init_from": "tests"},
            "tests must be a run .*, got a folder without settings.flags",
        ),
        (
            {"init_from": "", "width": 0.5},
            "--width must be left out with --ini",
        ),
        (
            {"init_from": "", "weights": "x.h5"},
            "--weights must be left out wit",
        ),
        ({"init_head": True}, "--init_head must be left out without --init_fr"),
        ({"weights": "none.h5"}, "`weights` must exist, got none.h5"),
        ({"weights": "imagenet"}, "must be a file for an architecture that is"),
        (
            {"freeze": ("stage9",)},
            "the name of a layer, of stage0_conv0, .*sta",
        ),
        ({"layer_decay": 1.5}, "--layer_decay must be at most 1, got 1.5"),
        ({"architecture": "resnet51"}, "or package.module:function, got resne"),
        ({"architecture": "keras:Net", "width": 1.0}, "keras: and one of Conv"),
        ({"architecture": "keras:VGG16"}, "--width must be left out with --ar"),
    ],
)
def test_wrong_settings_begin_no_run(
    source, tiny_settings, tmp_path, overrides, message
):
    if overrides.get("init_from") == "":
        overrides = overrides | {"init_from": str(source.files.path)}
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        training.pretrain(tiny_settings(tmp_path / "run", **overrides))
    assert not (tmp_path / "run").exists()
