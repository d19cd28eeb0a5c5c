"""Jobs: the settings of a training, decided once."""

import dataclasses

import numpy as np
import pytest

from supcon_tf import config, data, run_files, training
from supcon_tf.training import devices, initial, jobs, loop, stages


def prepare(settings):
    return jobs.prepare(settings, stages._splits, decide=initial.inherited)


def test_a_job_has_the_recorded_settings_and_reads_them_once(
    tiny_settings, tmp_path, monkeypatch
):
    settings = tiny_settings(
        tmp_path / "run", image_size=None, dataset="digits", data_dir=None,
        batch_size=None, learning_rate=None, warmup_epochs=None, epochs=0,
    )  # fmt: skip
    job = prepare(settings)
    assert not job.run.path.exists()
    assert job.recorded is None
    run = training.pretrain(settings)
    recorded = run.recorded(config.PretrainSettings)
    assert job.settings == recorded
    paths, read = [], run_files.RunDirectory.recorded

    def counted(run, settings_class):
        paths.append(run.settings_file)
        return read(run, settings_class)

    monkeypatch.setattr(run_files.RunDirectory, "recorded", counted)
    resumed = prepare(dataclasses.replace(settings, resume=True))
    with loop.open_run(resumed) as resumes:
        assert resumes
    assert resumed.recorded == recorded
    assert resumed.settings == dataclasses.replace(recorded, resume=True)
    assert paths == [run.settings_file]
    run.checkpoints.rmtree()  # killed before the first checkpoint
    with loop.open_run(resumed) as resumes:
        assert not resumes


def blank(images, classes):
    pixels = np.zeros([images, 8, 8, 3], np.uint8)
    return data.from_arrays(pixels, np.arange(images) % classes)


@pytest.mark.parametrize(
    ("images", "options", "expected"),
    [
        (100_000, {}, 256),
        (1024, {}, 256),
        (1023, {}, 128),
        (48, {}, 8),
        (3, {}, 2),
        (48, {"gradient_cache_chunks": 6}, 6),
        (1024, {"images_per_class": 8}, 24),
        (48, {"images_per_class": 3}, 9),
    ],
)
def test_the_default_batch_leaves_an_epoch_some_steps(
    images, options, expected
):
    source = blank(images, 3)
    settings = config.PretrainSettings("x", epochs=20, **options)
    resolved = jobs.resolved(settings, source)
    assert resolved.batch_size == expected
    assert resolved.warmup_epochs == 2.0
    linear = config.LinearSettings("x")
    assert jobs.resolved(linear, source).batch_size == {
        100_000: 512, 1024: 256, 1023: 128, 48: 8, 3: 2,
    }[images]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "rate", "decay"),
    [
        ({}, 5, 1e-5),  # over and times the temperature
        ({"temperature": 0.5, "objective": "simclr"}, 1, 5e-5),
        ({"scale_by_temperature": False}, 0.5, 1e-4),
        ({"objective": "ce"}, 1, 1e-4),
        ({"objective": "supcon+ce"}, 1, 1e-4),
        ({"optimizer": "adam"}, 0.001, 1e-5),
        ({"optimizer": "adamw", "learning_rate": 0.02}, 0.02, 1e-4),
        ({"optimizer": "lars", "weight_decay": 0.0}, 8, 0),
    ],
)
def test_the_default_optimizer_suits_the_loss(options, rate, decay):
    source = blank(48, 2)
    settings = config.PretrainSettings("x", **options)
    resolved = jobs.resolved(settings, source)
    assert resolved.learning_rate == pytest.approx(rate)
    assert resolved.weight_decay == pytest.approx(decay)


def test_the_default_batch_can_be_shared():
    source = blank(48, 2)
    settings = config.PretrainSettings("x")
    assert jobs.resolved(settings, source, 3).batch_size == 6
    settings = config.PretrainSettings("x", batch_size=8)
    with pytest.raises(ValueError, match="of the 3 replicas .* got 8: take 6"):
        devices.check_batch(settings, 3)


@pytest.mark.parametrize(
    ("texts", "options", "replicas", "expected"),
    [
        (1000, {}, 1, 16),
        (20, {}, 1, 16),  # few-shot: a step an epoch
        (14, {}, 1, 8),
        (3, {}, 1, 2),
        (14, {"examples_per_class": 3}, 1, 9),
        (14, {}, 3, 6),
        (1000, {"gradient_cache_chunks": 3}, 1, 15),
    ],
)
def test_the_default_batch_of_texts_fits(texts, options, replicas, expected):
    settings = config.FinetuneTextSettings(
        "x", model="model", train_file="train.tsv", **options
    )
    resolved = jobs.resolved(settings, blank(texts, 3), replicas)
    assert resolved.batch_size == expected
    explicit_settings = dataclasses.replace(settings, batch_size=12)
    explicit_settings = jobs.resolved(explicit_settings, blank(texts, 3))
    assert explicit_settings.batch_size == 12
