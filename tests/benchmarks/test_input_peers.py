"""Pipelines of the peers, with a made-up peer where none is installed."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf.benchmarks import input_images, input_peers, input_pipelines

PEER = """
class AutoAugment:
    def distort(self, image):
        return 255 - image
"""


@pytest.fixture(scope="module")
def make_work(tmp_path_factory):
    """Work on three smooth files and the same images as arrays."""
    folder = tmp_path_factory.mktemp("prepared")
    slope = np.arange(48)
    images = [
        np.stack([np.add.outer(slope, slope) + 40 * index] * 3, axis=-1)
        for index in range(3)
    ]
    files = []
    for index, image in enumerate(images):
        files.append(folder / f"{index}.jpg")
        encoded = tf.io.encode_jpeg(image.astype(np.uint8), quality=100)
        files[-1].write_bytes(encoded.numpy())
    input_images._link([str(file) for file in files], folder)
    np.save(input_images.array_path(folder, 48), np.uint8(images))

    def make(of, policy):
        return input_pipelines.Work(of, 48, policy, 4, str(folder), 2, 0)

    return make


@pytest.fixture
def peer(tmp_path, monkeypatch):
    """A package `official` that inverts, in place of the Model Garden's."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    file = tmp_path / "official" / "vision" / "ops" / "augment.py"
    file.parent.mkdir(parents=True)
    file.write_text(PEER)
    (tmp_path / "official" / "__init__.py").write_text("raise ImportError\n")
    return file


def test_the_model_garden_is_found_without_its_package(peer):
    assert input_peers.tfm_file() == peer
    peer.unlink()
    assert input_peers.tfm_file() is None


def test_the_model_garden_distorts_every_image(peer, make_work):
    work = make_work("memory", "autoaugment")
    batches = input_peers.tfm_memory(work)
    got = np.concatenate([next(batches) for _ in range(2)])
    arrays = input_pipelines.load_arrays(work)
    np.testing.assert_array_equal(got, 255 - arrays[np.arange(8) % 3])


def test_the_model_garden_crops_files_in_turn(peer, make_work):
    """Crops of these slopes differ in range, but not the file they are of."""
    batch = next(input_peers.tfm_jpeg(make_work("jpeg", "identity"))).numpy()
    assert batch.shape == (4, 48, 48, 3) and batch.dtype == np.uint8
    inverted = next(input_peers.tfm_jpeg(make_work("jpeg", "autoaugment")))
    for index, (one, other) in enumerate(zip(batch, inverted, strict=True)):
        low = 40 * (index % 3)
        assert low - 3 <= one.min() and one.max() <= low + 97
        assert low - 3 <= 255 - np.max(other)
        assert 255 - np.min(other) <= low + 97


@pytest.mark.parametrize("of", ["memory", "jpeg"])
def test_torchvision_gives_the_same_batches(of, make_work):
    pytest.importorskip("torchvision")
    run = {"memory": input_peers.pil_memory, "jpeg": input_peers.pil_jpeg}[of]
    work = make_work(of, "identity")
    batch = next(run(work)).numpy()
    assert batch.shape == (4, 48, 48, 3) and batch.dtype == np.uint8
    if of == "memory":
        arrays = input_pipelines.load_arrays(work)
        np.testing.assert_array_equal(batch, arrays[[0, 1, 2, 0]])
    for policy in ("autoaugment", "randaugment", "simclr"):
        other = next(run(make_work(of, policy))).numpy()
        assert other.shape == batch.shape and np.any(other != batch)
    with pytest.raises(ValueError, match="pil has no simaugment"):
        run(make_work(of, "simaugment"))
