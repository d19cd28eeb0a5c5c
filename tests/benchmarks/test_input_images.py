"""Files and arrays of the input benchmark."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import augment, data
from supcon_tf.benchmarks import input_images, libraries


def test_files_are_spread_over_the_folder(tmp_path, monkeypatch):
    for name in ("a/0.JPG", "a/1.jpeg", "a/2.png", "b/c/3.jpg", "4.jpg"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    names = ["4.jpg", "a/0.JPG", "a/1.jpeg", "b/c/3.jpg"]
    expected = [str(tmp_path / name) for name in names]
    assert input_images.find_jpegs(str(tmp_path)) == expected
    monkeypatch.setattr(input_images, "_MOST_FILES", 2)
    assert input_images.find_jpegs(str(tmp_path)) == expected[::2]


def test_folders_without_files_are_named(tmp_path):
    with pytest.raises(ValueError, match="--data_dir must hold .jpg or .jpeg"):
        input_images.find_jpegs(str(tmp_path))
    with pytest.raises(ValueError, match="--data_dir must be a folder, got"):
        input_images.find_jpegs(str(tmp_path / "nowhere"))


def test_all_implementations_find_what_they_read(tmp_path, monkeypatch):
    # Threads are set once per process.
    monkeypatch.setattr(libraries, "import_tensorflow", lambda threads: tf)
    monkeypatch.setattr(input_images, "_MOST_FILES", 10)
    job = {"folder": str(tmp_path), "paths": [], "sizes": [8, 12]}
    done = input_images.prepare(job | {"batch_size": 11, "threads": 1})
    assert done == {"distinct": 8}
    links = sorted(input_images.link_directory(tmp_path).iterdir())
    assert len(links) == 11
    contents = [link.read_bytes() for link in links]
    assert len(set(contents)) == 8 and contents[8:] == contents[:3]
    # A photograph, and the same with its left on the right.
    first, mirrored = (
        data.decode_image(one).numpy().astype(int) for one in contents[:2]
    )
    assert np.abs(first - mirrored[:, ::-1]).mean() < 2
    assert np.abs(first - mirrored).mean() > 20
    source = data.load("folder", "train", str(tmp_path))
    assert source.num_examples == 11
    for size in (8, 12):
        arrays = np.load(input_images.array_path(tmp_path, size))
        assert arrays.shape == (8, size, size, 3) and arrays.dtype == np.uint8
        view = augment.central_view(first.astype(np.uint8), size)
        np.testing.assert_array_equal(arrays[0], view)
