"""Our pipelines and the peers', with a made-up peer where none is installed."""

from __future__ import annotations

import argparse
import itertools
import json
import pathlib
import re
import sys

import numpy as np
import pytest
import tensorflow as tf

from benchmarks import harness
from benchmarks import input as suite
from supcon_tf import augment, data
from tests import forks
from tests.clock import Clock

ROOT = pathlib.Path(__file__).parent.parent.parent
PEER = """
class AutoAugment:
    def distort(self, image):
        return 255 - image
"""


def test_jobs_are_of_who_has_the_policy():
    bench = suite.InputBench(
        sizes=(32, 64),
        policies=("simclr", "randaugment", "simaugment"),
        views=True,
    )
    jobs = [tuple(job.values()) for job in bench.jobs(["ours", "tfm", "pil"])]
    names = {"simclr": "ours pil", "randaugment": "ours tfm pil"}
    assert jobs[:12] == [
        ("memory", size, policy, name)
        for size in (32, 64)
        for policy in bench.policies
        for name in names.get(policy, "ours").split()
    ]
    assert jobs[12:24] == [("jpeg", *job[1:]) for job in jobs[:12]]
    pairs = itertools.product((32, 64), bench.policies, ((), ("twice",)))
    assert jobs[24:] == [
        ("pairs", size, policy, "ours", *label) for size, policy, label in pairs
    ]


def test_all_implementations_find_what_they_read(tmp_path, monkeypatch, here):
    def run(function, job):
        assert function == "input.make_arrays"
        return suite.make_arrays(argparse.Namespace(**job))

    monkeypatch.setattr(harness, "run", run)
    monkeypatch.setattr(suite, "_MOST_FILES", 5)
    told = suite.prepare(str(tmp_path), None, (8, 12), least=7)
    assert re.match("2 JPEG files of .*/sklearn/datasets/images, ", told)
    files = suite.list_files(str(tmp_path))
    contents = [pathlib.Path(file).read_bytes() for file in files]
    assert len(files) == 7 and contents[2:] == contents[:5]
    assert data.load("folder", "train", str(tmp_path)).num_examples == 7
    for size in (8, 12):
        arrays = np.load(tmp_path / f"{size}.npy")
        assert arrays.shape == (2, size, size, 3) and arrays.dtype == np.uint8
        view = augment.central_view(data.decode_image(contents[0]), size)
        np.testing.assert_array_equal(arrays[0], view)


def test_files_are_spread_over_the_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(harness, "run_or_fail", lambda function, job: None)
    monkeypatch.setattr(suite, "_MOST_FILES", 2)
    for name in ("a/0.JPG", "a/1.jpeg", "a/2.png", "b/c/3.jpg", "4.jpg"):
        path = tmp_path / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    suite.prepare(str(tmp_path / "to"), str(tmp_path / "images"), ())
    files = suite.list_files(str(tmp_path / "to"))
    texts = [pathlib.Path(file).read_text() for file in files]
    assert texts == ["4.jpg", "a/1.jpeg"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="--data_dir must be a folder with .j"):
        suite.prepare(str(tmp_path / "to"), str(tmp_path / "empty"), ())


@pytest.fixture(scope="module")
def make_job(tmp_path_factory):
    """Jobs on three smooth files and the same images as arrays."""
    folder = tmp_path_factory.mktemp("prepared")
    slope = np.arange(48)
    images = [
        np.stack([np.add.outer(slope, slope) + 40 * index] * 3, axis=-1)
        for index in range(3)
    ]
    np.save(folder / "48.npy", np.uint8(images))
    for split in ("train", "test"):
        (folder / split / "slopes").mkdir(parents=True)
        for index, image in enumerate(np.uint8(images)):
            encoded = tf.io.encode_jpeg(image, quality=100).numpy()
            (folder / split / "slopes" / f"{index}.jpg").write_bytes(encoded)
    # Of an epoch that has a batch.
    copy = folder / "train" / "slopes" / "3.jpg"
    copy.symlink_to(folder / "train" / "slopes" / "0.jpg")

    def make(of, policy, **more):
        return argparse.Namespace(
            **{"implementation": "ours", "input": of, "policy": policy},
            **{"size": 48, "batch_size": 4, "seed": 7, "seconds": 0.0},
            **{"workers": 2, "threads": 1, "folder": str(folder)},
            **more,
        )

    return make


def take(make, job, count):
    batches = make(job)
    return np.concatenate([next(batches) for _ in range(count)])


def test_every_policy_is_ours():
    policies = {name: suite.make_policy(name) for name in suite._POLICIES}
    assert {type(policy).__name__ for policy in policies.values()} == {
        *("AutoAugment", "Identity", "RandAugment", "SimAugment"),
        "StackedRandAugment",
    }
    assert policies["simclr"].warp_probability == 0
    assert policies["autoaugment"].policy == "v0"


def test_arrays_come_in_turn_each_with_its_seeds(make_job, monkeypatch):
    job = make_job("memory", "identity")
    arrays = np.load(f"{job.folder}/48.npy")
    got = take(suite.make_ours, job, 3)
    np.testing.assert_array_equal(got, arrays[np.arange(12) % 3])
    monkeypatch.setattr(
        suite, "make_policy", lambda name: lambda images, seeds: seeds
    )
    seeds = take(suite.make_ours, job, 3)
    assert len(np.unique(seeds, axis=0)) == 12


def test_pairs_are_those_of_training(make_job):
    both = take(suite.make_ours, make_job("pairs", "identity"), 1)
    job = make_job("pairs", "identity", label="twice")
    twice = take(suite.make_ours, job, 1)
    assert both.shape == twice.shape == (8, 48, 48, 3)
    assert both.dtype == twice.dtype == np.uint8
    # The first views are of one seed, the second of one and of another.
    np.testing.assert_array_equal(both[::2], twice[::2])
    for views in (both, twice):
        assert np.all(np.any(views[::2] != views[1::2], axis=(1, 2, 3)))
    assert np.any(twice[1::2] != both[1::2])


@pytest.fixture
def peer(tmp_path, monkeypatch):
    """A package `official` that inverts, in place of the Model Garden's."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    file = tmp_path / "official" / "vision" / "ops" / "augment.py"
    file.parent.mkdir(parents=True)
    file.write_text(PEER)
    (tmp_path / "official" / "__init__.py").write_text("raise ImportError\n")


def test_the_model_garden_distorts_every_image(peer, make_job):
    """Its file is found without its package, which would import all of it."""
    names, _ = harness.choose(suite.InputBench(implementations=("tfm",)))
    assert names == ["tfm"]
    job = make_job("memory", "autoaugment")
    arrays = np.load(f"{job.folder}/48.npy")
    got = take(suite.make_tfm, job, 2)
    np.testing.assert_array_equal(got, 255 - arrays[np.arange(8) % 3])


def test_the_model_garden_crops_files_in_turn(peer, make_job):
    """Crops of these slopes differ in range, but not the file they are of."""
    batch = take(suite.make_tfm, make_job("jpeg", "identity"), 1)
    assert batch.shape == (4, 48, 48, 3) and batch.dtype == np.uint8
    inverted = take(suite.make_tfm, make_job("jpeg", "autoaugment"), 1)
    for index, (one, other) in enumerate(zip(batch, inverted, strict=True)):
        low = 40 * (index % 3)
        assert low - 3 <= one.min() and one.max() <= low + 97
        assert low - 3 <= 255 - other.max() and 255 - other.min() <= low + 97


@pytest.mark.parametrize("of", ["memory", "jpeg"])
def test_torchvision_gives_the_same_batches(of, make_job):
    pytest.importorskip("torchvision")
    batch = take(suite.make_pil, make_job(of, "identity"), 1)
    assert batch.shape == (4, 48, 48, 3) and batch.dtype == np.uint8
    if of == "memory":
        arrays = np.load(f"{make_job(of, 'identity').folder}/48.npy")
        np.testing.assert_array_equal(batch, arrays[[0, 1, 2, 0]])
    for policy in ("autoaugment", "randaugment", "simclr"):
        other = take(suite.make_pil, make_job(of, policy), 1)
        assert other.shape == batch.shape and np.any(other != batch)


def test_batches_are_timed_after_a_warm_up(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(suite, "time", clock)

    def batches():
        clock.now += 0.25  # Tracing: not counted.
        for number in itertools.count(1):
            clock.now += 1 / 64
            yield number

    assert suite.time_batches(batches(), 0.5) == (1 / 64, 1 + 32 + 32)
    assert suite.time_batches(batches(), 0.0) == (1 / 64, 1 + 8 + 8)


def test_only_pictures_pass(make_job, here, monkeypatch):
    batch = np.zeros([4, 48, 48, 3], np.uint8)
    monkeypatch.setattr(
        suite, "make_ours", lambda job: itertools.repeat(batch.copy())
    )
    with pytest.raises(RuntimeError, match=r"\(4, 48, 48, 3\) uint8 are no"):
        suite.measure(make_job("jpeg", "identity"))
    batch[1, 2, 2, 0] = 8
    assert suite.measure(make_job("jpeg", "identity"))["seconds"] > 0
    with pytest.raises(RuntimeError, match=r"are no \(8, 48, 48, 3\) images"):
        suite.measure(make_job("pairs", "identity"))
    batch = batch.astype(np.float32)
    with pytest.raises(RuntimeError, match="float32 are no"):
        suite.measure(make_job("jpeg", "identity"))


def test_the_input_pipeline_is_measured(image_folder, tmp_path):
    done = forks.run(
        ROOT / "benchmarks" / "input.py",
        f"--data_dir={image_folder}",
        "--sizes=8",
        "--policies=identity",
        "--inputs=jpeg",
        "--implementations=ours",
        "--batch_size=16",
        "--rounds=1",
        "--seconds=0",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    written = tmp_path / "runs" / "bench_input"
    results = json.loads((written / "bench_input.json").read_text())
    # Half of the train and test images are JPEG files, the others PNG.
    assert results["prepared"].startswith(f"33 JPEG files of {image_folder}, ")
    (point,) = results["points"]
    assert point["libraries"] == {"tensorflow": tf.__version__}
    row = r"input jpeg, size 8, policy identity \| +ours \| +[\d.]+ \| +1.00 \|"
    assert re.search(row, done.stdout)
    png = (written / "bench_input.png").read_bytes()
    assert png.startswith(b"\x89PNG")
