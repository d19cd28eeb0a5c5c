"""Runs that start from the encoder of another, or from a file."""

import dataclasses
import shutil

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import training
from supcon_tf.training import initial, runs


@pytest.fixture(scope="module")
def source(finished_run):
    return runs.Run.open(finished_run.path)


def assert_equal(layer, other):
    for a, b in zip(layer.weights, other.weights, strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_encoder_of_a_run_starts_another(source, tiny_settings, tmp_path):
    """Other data, classes and size; its architecture need not be said."""
    settings = tiny_settings(
        tmp_path / "run",
        dataset="digits",
        data_dir=None,
        image_size=24,
        epochs=0,
        init_from=str(source.files.path),
        architecture="resnet50",  # the default: not given
        width=1.0,
    )
    training.pretrain(settings)
    run = runs.Run.open(tmp_path / "run")
    assert run.settings.architecture == source.settings.architecture
    assert run.settings.width == source.settings.width
    assert len(run.class_names) == 10
    assert_equal(run.encoder, source.encoder)
    weights = str(tmp_path / "encoder.weights.h5")
    training.load_encoder(source.files.path).save_weights(weights)
    training.pretrain(tiny_settings(tmp_path / "b", epochs=0, weights=weights))
    assert_equal(training.load_encoder(tmp_path / "b"), source.encoder)


def test_the_head_comes_too(source, tiny_settings, tmp_path):
    """And what began so goes on where that is no more."""
    moved = tmp_path / "moved"
    shutil.copytree(source.files.path, tmp_path / "first")
    options = {"init_from": str(tmp_path / "first"), "init_head": True}
    settings = tiny_settings(tmp_path / "second", epochs=0, **options)
    training.pretrain(settings)
    heads = [
        {
            name: value
            for name, value in stored(run).items()
            if name.startswith("projection_head/") and "OPTIM" not in name
        }
        for run in (source.files, training.RunDirectory(tmp_path / "second"))
    ]
    assert heads[0] and heads[0].keys() == heads[1].keys()
    for name, value in heads[0].items():
        np.testing.assert_array_equal(value, heads[1][name])
    (tmp_path / "first").rename(moved)
    training.pretrain(dataclasses.replace(settings, resume=True))


def stored(run):
    """The arrays of the newest checkpoint by their names."""
    path = f"{run.latest_checkpoint()}/variables"
    return {
        name: tf.train.load_variable(path, name)
        for name, _ in tf.train.list_variables(path)
    }


@pytest.mark.slow
def test_the_head_comes_too_and_what_was_begun_goes_on(
    source, tiny_settings, tmp_path
):
    moved = tmp_path / "moved"
    first = tiny_settings(tmp_path / "first", epochs=0)
    training.pretrain(first)
    second = tiny_settings(
        tmp_path / "second",
        epochs=1,
        init_from=str(tmp_path / "first"),
        init_head=True,
        layer_decay=0.5,
        freeze=("stage0",),
    )
    training.pretrain(second)
    before, after = (
        training.load_encoder(tmp_path / name) for name in ("first", "second")
    )
    assert_equal(before.stack.convs[0], after.stack.convs[0])
    old, new = (
        encoder.stack.convs[2].conv.kernel for encoder in (before, after)
    )
    assert 0 < np.abs(old - new).max() < 0.1
    (tmp_path / "first").rename(moved)
    # What it was started from is needed no more.
    training.pretrain(
        tiny_settings(
            tmp_path / "second",
            epochs=2,
            init_from=str(tmp_path / "first"),
            init_head=True,
            layer_decay=0.5,
            freeze=("stage0",),
            resume=True,
        )
    )
    assert runs.Run.open(tmp_path / "second").settings.epochs == 2


def test_the_stem_stays_at_another_size(tiny_settings):
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
def test_mistakes_begin_no_run(
    source, tiny_settings, tmp_path, overrides, message
):
    if overrides.get("init_from") == "":
        overrides = overrides | {"init_from": str(source.files.path)}
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        training.pretrain(tiny_settings(tmp_path / "run", **overrides))
    assert not (tmp_path / "run").exists()
