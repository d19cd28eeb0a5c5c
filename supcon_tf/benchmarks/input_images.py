"""Images of the input benchmark: JPEG files, and arrays of every size.

  python -m supcon_tf.benchmarks.input_images '{"folder": "...", ...}'

Started once by `benchmarks.input` through `benchmarks.processes`.
"""

from __future__ import annotations

import itertools
import os
import pathlib

import numpy as np

from supcon_tf import exceptions
from supcon_tf.benchmarks import libraries, processes

_MOST_FILES = 512
_QUALITY = 90  # Of the JPEG files that are made here.


def find_jpegs(data_dir: str) -> list[str]:
    """Paths of up to 512 JPEG files, spread evenly over all in the folder.

    Raises:
      ValueError: there is no such folder, or no JPEG file in it.
    """
    root = pathlib.Path(data_dir)
    if not root.is_dir():
        raise exceptions.InvalidValue(
            f"--data_dir must be a folder, got {data_dir}"
        )
    found = sorted(
        str(path.resolve())
        for path in root.rglob("*")
        if path.suffix.lower() in (".jpg", ".jpeg")
    )
    if not found:
        raise exceptions.InvalidValue(
            f"--data_dir must hold .jpg or .jpeg files, got none in {data_dir}"
        )
    count = min(len(found), _MOST_FILES)
    return [found[at * len(found) // count] for at in range(count)]


def prepare(job: processes.Point) -> processes.Point:
    """Fills a folder with what all implementations read.

    Args:
      job: `folder`, empty; `paths` of JPEG files, or none for variants of
        scikit-learn's photographs; `sizes` in pixels; `batch_size`; `threads`.

    Returns:
      `distinct`, the number of different files. The folder then is an image
      folder of one class, of links to these files, again and again until there
      are 512 and a batch; and holds SIZE.npy for every size, their central
      squares, [distinct, SIZE, SIZE, 3] uint8.
    """
    libraries.import_tensorflow(job["threads"])
    folder = pathlib.Path(job["folder"])
    paths = job["paths"] or make_jpegs(folder / "made")
    count = max(_MOST_FILES, job["batch_size"])
    _link(list(itertools.islice(itertools.cycle(paths), count)), folder)
    for size in job["sizes"]:
        np.save(array_path(folder, size), _central_squares(paths, size))
    return {"distinct": len(paths)}


def link_directory(folder: str | pathlib.Path) -> pathlib.Path:
    """Where `prepare` puts its links: one class of a training split."""
    return pathlib.Path(folder) / "train" / "photographs"


def array_path(folder: str | pathlib.Path, size: int) -> pathlib.Path:
    """Where `prepare` puts the images of a size."""
    return pathlib.Path(folder) / f"{size}.npy"


def make_jpegs(folder: pathlib.Path) -> list[str]:
    """Writes scikit-learn's photographs and their mirror images: 8 files."""
    import sklearn.datasets
    import tensorflow as tf

    folder.mkdir()
    originals = pathlib.Path(sklearn.datasets.__file__).parent / "images"
    paths = []
    for original in sorted(originals.glob("*.jpg")):
        image = tf.io.decode_jpeg(tf.io.read_file(str(original)))
        for down, across in itertools.product((1, -1), repeat=2):
            variant = tf.io.encode_jpeg(
                image[::down, ::across], quality=_QUALITY
            )
            paths.append(str(folder / f"{len(paths)}.jpg"))
            tf.io.write_file(paths[-1], variant)
    return paths


def _link(paths: list[str], folder: pathlib.Path) -> None:
    """Makes an image folder of these; its test split is the first of them."""
    links = link_directory(folder)
    test = folder / "test" / links.name
    for directory, linked in ((links, paths), (test, paths[:1])):
        directory.mkdir(parents=True)
        for number, path in enumerate(linked):
            os.symlink(path, directory / f"{number:06}.jpg")


def _central_squares(paths: list[str], size: int) -> np.ndarray:
    """The files' central squares, [files, size, size, 3] uint8."""
    import tensorflow as tf

    from supcon_tf import augment, data

    decoded = tf.data.Dataset.from_tensor_slices(paths).map(
        lambda path: augment.central_view(
            data.decode_image(tf.io.read_file(path)), size
        ),
        num_parallel_calls=tf.data.AUTOTUNE,
    )
    return np.stack(list(decoded.as_numpy_iterator()))


if __name__ == "__main__":
    processes.answer(prepare)
