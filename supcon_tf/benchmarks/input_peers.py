"""The input pipelines of the peers that `bench_input` can measure.

Each is what its documentation shows: an image at a time in a parallel map of
tf.data, or in the workers of a DataLoader. None is copied here. The policies
are the peers' own: tables and levels differ in details, the kind and the
number of operations per image do not.
"""

from __future__ import annotations

import importlib.util
import pathlib
from collections.abc import Callable

import numpy as np

from supcon_tf import exceptions
from supcon_tf.benchmarks import libraries
from supcon_tf.benchmarks.input_pipelines import (
    CROP_AREA,
    CROP_ASPECT,
    Batches,
    Work,
    list_files,
    load_arrays,
)

ImageFunction = Callable[[object], object]


def tfm_file() -> pathlib.Path | None:
    """The Model Garden's augmentation; None where it is not installed.

    The file alone is loaded: its package imports all of the Model Garden.
    """
    spec = importlib.util.find_spec("official")
    for folder in (spec and spec.submodule_search_locations) or ():
        file = pathlib.Path(folder) / "vision" / "ops" / "augment.py"
        if file.is_file():
            return file
    return None


def tfm_memory(work: Work) -> Batches:
    """The Model Garden on an image at a time, then batched."""
    import tensorflow as tf

    images = tf.constant(load_arrays(work))
    distort = tfm_distort(work.policy)
    return _mapped(
        tf.data.Dataset.counter(),
        lambda position: distort(tf.gather(images, position % len(images))),
        work,
    )


def tfm_jpeg(work: Work) -> Batches:
    """The Model Garden after TensorFlow's fused decoding of a random crop."""
    import tensorflow as tf

    distort = tfm_distort(work.policy)

    def read(path: tf.Tensor) -> tf.Tensor:
        contents = tf.io.read_file(path)
        begin, extent, _ = tf.image.sample_distorted_bounding_box(
            tf.io.extract_jpeg_shape(contents),
            tf.zeros([1, 0, 4]),
            aspect_ratio_range=CROP_ASPECT,
            area_range=CROP_AREA,
            max_attempts=10,
            use_image_if_no_bounding_boxes=True,
        )
        window = tf.concat([begin[:2], extent[:2]], axis=0)
        crop = tf.io.decode_and_crop_jpeg(contents, window, channels=3)
        image = tf.image.resize(crop, [work.size, work.size])
        image = tf.image.random_flip_left_right(image)
        return distort(tf.saturate_cast(image, tf.uint8))

    paths = tf.data.Dataset.from_tensor_slices(list_files(work))
    return _mapped(paths.repeat(), read, work)


def tfm_distort(policy: str) -> ImageFunction:
    """The Model Garden's policy for one [H, W, 3] uint8 image."""
    peer = libraries.load_file(tfm_file())
    policies = {
        "identity": lambda: lambda image: image,
        "autoaugment": lambda: peer.AutoAugment().distort,
        "randaugment": lambda: peer.RandAugment(2, 10.0).distort,
    }
    return _choose(policies, policy, "tfm")


def _mapped(images: object, function: ImageFunction, work: Work) -> Batches:
    """A tf.data pipeline of one image at a time, batched at its end."""
    import tensorflow as tf

    return iter(
        images.map(function, num_parallel_calls=tf.data.AUTOTUNE)
        .batch(work.batch_size, drop_remainder=True)
        .prefetch(tf.data.AUTOTUNE)
    )


def pil_memory(work: Work) -> Batches:
    """Policies of torchvision on Pillow images made of the arrays."""
    from PIL import Image

    arrays = load_arrays(work)
    policy = _pil_policy(work)
    return _loaded(
        lambda at: policy(Image.fromarray(arrays[at % len(arrays)])), work
    )


def pil_jpeg(work: Work) -> Batches:
    """Pillow's decoder, torchvision's random crop, flip and policy."""
    from PIL import Image
    from torchvision import transforms

    paths = list_files(work)
    augment = transforms.Compose(
        [
            transforms.RandomResizedCrop(work.size, CROP_AREA, CROP_ASPECT),
            transforms.RandomHorizontalFlip(),
            _pil_policy(work),
        ]
    )

    def read(at: int) -> object:
        with Image.open(paths[at % len(paths)]) as image:
            return augment(image.convert("RGB"))

    return _loaded(read, work)


def _pil_policy(work: Work) -> ImageFunction:
    """A policy of torchvision for one Pillow image.

    Its AutoAugment has no v0: the table is that for ImageNet. RandAugment is
    at the end of its range of magnitudes, as ours at level 10.
    """
    from torchvision import transforms

    jitter = transforms.ColorJitter(0.4, 0.4, 0.4, 0.1)  # strength 0.5
    blur = transforms.GaussianBlur(work.size // 10 // 2 * 2 + 1, (0.1, 2.0))
    policies = {
        "identity": lambda: lambda image: image,
        "autoaugment": transforms.AutoAugment,
        "randaugment": lambda: transforms.RandAugment(
            2, magnitude=10, num_magnitude_bins=11
        ),
        "simclr": lambda: transforms.Compose(
            [
                transforms.RandomApply([jitter], 0.8),
                transforms.RandomGrayscale(0.2),
                transforms.RandomApply([blur], 0.5),
            ]
        ),
    }
    return _choose(policies, work.policy, "pil")


class _Images:
    """A data set, as a DataLoader wants it, of as many images as asked for."""

    def __init__(self, read: Callable[[int], object]):
        self._read = read

    def __len__(self):
        return 2**31

    def __getitem__(self, at):
        import torch

        return torch.from_numpy(np.array(self._read(at)))


def _loaded(read: Callable[[int], object], work: Work) -> Batches:
    """A DataLoader of these images; its workers collate."""
    from torch.utils import data

    return iter(
        data.DataLoader(
            _Images(read),
            batch_size=work.batch_size,
            num_workers=work.workers,
            prefetch_factor=4,
            # Workers get `read`, a closure; this process has no threads yet.
            multiprocessing_context="fork",
        )
    )


def _choose(
    policies: dict[str, Callable[[], ImageFunction]], policy: str, name: str
) -> ImageFunction:
    """The policy, made; a clear error where a peer has none."""
    if policy not in policies:
        raise exceptions.InvalidValue(f"{name} has no {policy}")
    return policies[policy]()
