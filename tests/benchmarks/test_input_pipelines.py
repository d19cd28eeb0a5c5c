"""Our pipelines, as the input benchmark runs them."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import config
from supcon_tf.benchmarks import input_images, input_pipelines


@pytest.fixture(scope="module")
def make_work(tmp_path_factory):
    """Work on five small files and three arrays of noise."""
    folder = tmp_path_factory.mktemp("prepared")
    rng = np.random.default_rng(0)
    files = []
    for index in range(5):
        noise = rng.integers(0, 256, [30, 40, 3], np.uint8)
        files.append(folder / f"{index}.jpg")
        files[-1].write_bytes(tf.io.encode_jpeg(noise).numpy())
    input_images._link([str(file) for file in files], folder)
    arrays = rng.integers(0, 256, [3, 24, 24, 3], np.uint8)
    np.save(input_images.array_path(folder, 24), arrays)

    def make(of, policy):
        return input_pipelines.Work(of, 24, policy, 4, str(folder), 1, 7)

    return make


def test_every_policy_is_ours():
    names = {
        type(input_pipelines.make_policy(name)).__name__
        for name in config.INPUT_POLICIES
    }
    assert names == {
        "AutoAugment",
        "Identity",
        "RandAugment",
        "SimAugment",
        "StackedRandAugment",
    }
    assert input_pipelines.make_policy("simclr").warp_probability == 0
    assert input_pipelines.make_policy("autoaugment").policy == "v0"


def test_arrays_come_in_turn(make_work):
    work = make_work("memory", "identity")
    batches = input_pipelines.our_memory(work)
    got = np.concatenate([next(batches) for _ in range(3)])
    arrays = input_pipelines.load_arrays(work)
    np.testing.assert_array_equal(got, arrays[np.arange(12) % 3])


def test_no_two_images_have_the_same_seeds(make_work, monkeypatch):
    monkeypatch.setattr(
        input_pipelines, "make_policy", lambda _: lambda images, seeds: seeds
    )
    batches = input_pipelines.our_memory(make_work("memory", "identity"))
    seeds = np.concatenate([next(batches) for _ in range(3)])
    assert len(np.unique(seeds, axis=0)) == 12


def test_views_are_those_of_training(make_work):
    work = make_work("views", "identity")
    both = next(input_pipelines.our_views(work))
    twice = next(input_pipelines.our_views_twice(work))
    assert both.shape == twice.shape == (8, 24, 24, 3)
    assert both.dtype == twice.dtype == tf.uint8
    # The first views are of one seed, the second of one and of another.
    np.testing.assert_array_equal(both[::2], twice[::2])
    for views in (both, twice):
        assert np.all(np.any(views[::2] != views[1::2], axis=(1, 2, 3)))
    assert np.any(twice[1::2] != both[1::2])
