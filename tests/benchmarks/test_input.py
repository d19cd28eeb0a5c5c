"""Our pipelines and the peers', with a made-up peer where none is installed."""

import argparse
import functools
import pathlib
import re
import sys

import numpy as np
import pytest
import tensorflow as tf

from benchmarks import harness, input_peers
from benchmarks import input as suite
from supcon_tf import augment, data

PEER = """
class AutoAugment:
    def distort(self, image):
        return 255 - image
"""


def test_jobs_are_of_who_has_the_policy():
    policies = ("simclr", "randaugment", "simaugment")
    bench = suite.InputBench(
        sizes=(32,), policies=policies, inputs=("jpeg",), views=True
    )
    names = ["ours", "tfm", "pil", "albumentations"]
    jobs = [tuple(job.values()) for job in bench.jobs(names)]
    assert [policy + " " + name for _, _, policy, name in jobs[:7]] == [
        *("simclr ours", "simclr pil", "simclr albumentations"),
        *("randaugment ours", "randaugment tfm", "randaugment pil"),
        "simaugment ours",
    ]
    assert jobs[7:9] == [
        ("pairs", 32, "simclr", "ours"),
        ("pairs", 32, "simclr", "ours", "twice"),
    ]
    assert len(jobs) == 13


def test_all_implementations_find_what_they_read(
    tmp_path, monkeypatch, measure
):
    monkeypatch.setattr(suite, "_MOST_FILES", 5)
    text = suite.prepare(str(tmp_path), None, (8, 12), least=7)
    assert re.match("2 JPEG files of .*/sklearn/datasets/images, ", text)
    files = suite.list_files(str(tmp_path))
    contents = [pathlib.Path(file).read_bytes() for file in files]
    assert len(files) == 7 and contents[2:] == contents[:5]
    assert data.load("folder", "train", str(tmp_path)).num_examples == 7
    for size in (8, 12):
        arrays = np.load(tmp_path / f"{size}.npy")
        assert arrays.shape == (2, size, size, 3) and arrays.dtype == np.uint8
        view = augment.central_view(data.decode_image(contents[0]), size)
        np.testing.assert_array_equal(arrays[0], view)


@pytest.fixture(scope="module")
def make_job(tmp_path_factory):
    """Jobs on three smooth files, one of them twice, and them as arrays."""
    folder = tmp_path_factory.mktemp("prepared")
    slope = np.add.outer(np.arange(48), np.arange(48))
    images = [np.uint8(np.stack([slope + low] * 3, -1)) for low in (0, 40, 80)]
    np.save(folder / "48.npy", images)
    for split in ("train", "test"):
        (folder / split / "slopes").mkdir(parents=True)
        for index in range(4):
            encoded = tf.io.encode_jpeg(images[index % 3], quality=100).numpy()
            (folder / split / "slopes" / f"{index}.jpg").write_bytes(encoded)

    def make(of, policy, **more):
        return argparse.Namespace(
            **{"implementation": "ours"} | more,
            **{"input": of, "policy": policy},
            **{"size": 48, "batch_size": 4, "seed": 7, "seconds": 0.0},
            **{"workers": 2, "threads": 1, "folder": str(folder)},
        )

    return make


def make_peer(job):
    return input_peers.make(job, suite.list_files(job.folder))


def take(make, job, count=1):
    batches = make(job)
    return np.concatenate([next(batches) for _ in range(count)])


def test_arrays_come_in_turn_each_with_its_seeds(make_job, monkeypatch):
    job = make_job("memory", "identity")
    arrays = np.load(f"{job.folder}/48.npy")
    batches = take(suite.make_ours, job, 3)
    np.testing.assert_array_equal(batches, arrays[np.arange(12) % 3])
    monkeypatch.setattr(
        suite, "make_policy", lambda name: lambda images, seeds: seeds
    )
    seeds = take(suite.make_ours, job, 3)
    assert len(np.unique(seeds, axis=0)) == 12


@pytest.mark.slow
def test_pairs_are_those_of_training(make_job):
    pairs = take(suite.make_ours, make_job("pairs", "identity"))
    twice = take(suite.make_ours, make_job("pairs", "identity", label="twice"))
    assert pairs.shape == twice.shape == (8, 48, 48, 3)
    assert pairs.dtype == twice.dtype == np.uint8
    # The first views are of one seed, the second of one and of another.
    np.testing.assert_array_equal(pairs[::2], twice[::2])
    for views in (pairs, twice):
        assert np.all(np.any(views[::2] != views[1::2], axis=(1, 2, 3)))
    assert np.any(twice[1::2] != pairs[1::2])


def test_the_model_garden_distorts_every_image(make_job, tmp_path, monkeypatch):
    """Its file is found without its package, which would import all of it."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    file = tmp_path / "official" / "vision" / "ops" / "augment.py"
    file.parent.mkdir(parents=True)
    file.write_text(PEER)
    (tmp_path / "official" / "__init__.py").write_text("raise ImportError\n")
    names, _ = harness.choose(suite.InputBench(implementations=("tfm",)))
    assert names == ["tfm"]
    make_job = functools.partial(make_job, implementation="tfm")
    job = make_job("memory", "autoaugment")
    arrays = np.load(f"{job.folder}/48.npy")
    batches = take(make_peer, job, 2)
    np.testing.assert_array_equal(batches, 255 - arrays[np.arange(8) % 3])
    # Crops of these slopes differ in range, but not the file they are of.
    cropped = take(make_peer, make_job("jpeg", "autoaugment"))
    assert cropped.shape == (4, 48, 48, 3) and cropped.dtype == np.uint8
    for index, image in enumerate(255 - cropped):
        low = 40 * (index % 3)
        assert low - 3 <= image.min() and image.max() <= low + 97


@pytest.mark.parametrize("name", ["pil", "torchvision_v2", "albumentations"])
@pytest.mark.parametrize("kind", ["memory", "jpeg"])
def test_peers_give_the_same_batches(kind, name, make_job):
    for module in suite.InputBench.NEEDS[name]:
        pytest.importorskip(module)

    def load(policy):
        return take(make_peer, make_job(kind, policy, implementation=name))

    batch = load("identity")
    assert batch.shape == (4, 48, 48, 3) and batch.dtype == np.uint8
    if kind == "memory":
        arrays = np.load(f"{make_job(kind, 'identity').folder}/48.npy")
        np.testing.assert_array_equal(batch, arrays[[0, 1, 2, 0]])
    for policy in {*suite._HAS[name]} - {"identity"}:
        other = load(policy)
        assert other.shape == batch.shape and np.any(other != batch)


@pytest.mark.slow
def test_the_input_pipeline_is_measured(image_folder, measure):
    text, written = measure(
        "input",
        **{"data_dir": str(image_folder), "implementations": ("ours",)},
        **{"sizes": (8,), "policies": ("stacked_randaugment",)},
        **{"inputs": ("jpeg",), "batch_size": 16, "rounds": 1, "seconds": 0.0},
    )
    # Half of the train and test images are JPEG files, the others PNG.
    assert written["prepared"].startswith(f"33 JPEG files of {image_folder}, ")
    assert len(written["points"]) == 1
    assert re.search(r"policy stacked_randaugment \| +ours \| +[\d.]+ \|", text)
