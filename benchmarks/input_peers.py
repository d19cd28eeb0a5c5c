"""The peers of the input benchmark: their pipelines, as they document them."""

from __future__ import annotations

import importlib.util
import types
from collections.abc import Callable, Iterator

import numpy as np

from benchmarks import measuring

# The random crop of all implementations.
CROP_AREA, CROP_ASPECT = (0.08, 1.0), (3 / 4, 4 / 3)

# From a path, or an image [H, W, 3] in memory, to its augmented view.
Augment = Callable[[str | np.ndarray], np.ndarray]


def make(job: measuring.Job, files: list[str]) -> Iterator[object]:
    """Batches [batch_size, SIZE, SIZE, 3] uint8 of a peer."""
    if job.implementation == "tfm":
        return make_tfm(job, files)
    return load_in_workers(job, files, IN_WORKERS[job.implementation](job))


def make_tfm(job: measuring.Job, files: list[str]) -> Iterator[object]:
    """The Model Garden's policy, as it is documented: an image at a time.

    Its tables and levels are its own, as torchvision's; the kind and the number
    of operations per image are ours. Files are decoded and cropped at once.
    """
    import tensorflow as tf

    # The file alone: its package imports all of the Model Garden.
    (package,) = importlib.util.find_spec("official").submodule_search_locations
    peer = measuring.load_file(f"{package}/vision/ops/augment.py")
    distort = {
        "identity": lambda: lambda image: image,
        "autoaugment": lambda: peer.AutoAugment().distort,
        "randaugment": lambda: peer.RandAugment(2, 10.0).distort,
    }[job.policy]()

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
        image = tf.image.resize(crop, [job.size, job.size])
        image = tf.image.random_flip_left_right(image)
        return tf.saturate_cast(image, tf.uint8)

    sources = tf.data.Dataset.from_tensor_slices(files)
    if job.input == "memory":
        arrays = tf.constant(np.load(f"{job.folder}/{job.size}.npy"))
        sources = tf.data.Dataset.range(len(arrays))
    return iter(
        sources.repeat()
        .map(
            lambda source: distort(
                tf.gather(arrays, source)
                if job.input == "memory"
                else read(source)
            ),
            num_parallel_calls=tf.data.AUTOTUNE,
        )
        .batch(job.batch_size, drop_remainder=True)
        .prefetch(tf.data.AUTOTUNE)
    )


def make_pil(job: measuring.Job) -> Augment:
    """What torchvision documents, on Pillow images.

    Its AutoAugment has no v0: the table is that for ImageNet. RandAugment is
    at the end of its range of magnitudes, as ours at level 10.
    """
    from PIL import Image
    from torchvision import transforms

    augment = make_torchvision(job, transforms)

    def read_and_augment(source: str | np.ndarray) -> np.ndarray:
        if isinstance(source, str):
            return np.array(augment(Image.open(source).convert("RGB")))
        return np.array(augment(Image.fromarray(source)))

    return read_and_augment


def make_torchvision_v2(job: measuring.Job) -> Augment:
    """The same of torchvision's second version, on tensors [3, H, W]."""
    import torch
    from PIL import Image
    from torchvision.transforms import v2

    augment = make_torchvision(job, v2)

    def read_and_augment(source: str | np.ndarray) -> np.ndarray:
        if isinstance(source, str):
            source = np.array(Image.open(source).convert("RGB"))
        image = torch.from_numpy(source).permute(2, 0, 1)
        return augment(image).permute(1, 2, 0).numpy()

    return read_and_augment


def make_torchvision(
    job: measuring.Job, transforms: types.ModuleType
) -> Callable[[object], object]:
    """A policy, behind crop and flip for files, by either version."""
    jitter = transforms.ColorJitter(0.4, 0.4, 0.4, 0.1)  # strength 0.5
    blur = transforms.GaussianBlur(job.size // 10 // 2 * 2 + 1, (0.1, 2.0))
    steps = {
        "identity": [],
        "autoaugment": [transforms.AutoAugment()],
        "randaugment": [transforms.RandAugment(2, 10, num_magnitude_bins=11)],
        "simclr": [
            transforms.RandomApply([jitter], 0.8),
            transforms.RandomGrayscale(0.2),
            transforms.RandomApply([blur], 0.5),
        ],
    }[job.policy]
    if job.input == "jpeg":
        crop = transforms.RandomResizedCrop(job.size, CROP_AREA, CROP_ASPECT)
        steps = [crop, transforms.RandomHorizontalFlip(), *steps]
    return transforms.Compose(steps) if steps else lambda image: image


def make_albumentations(job: measuring.Job) -> Augment:
    """The same of albumentations 2, on arrays [H, W, 3]."""
    import albumentations
    import cv2

    cv2.setNumThreads(0)  # a worker is a core
    steps = []
    if job.input == "jpeg":
        steps += [
            albumentations.RandomResizedCrop(
                (job.size, job.size), CROP_AREA, CROP_ASPECT
            ),
            albumentations.HorizontalFlip(p=0.5),
        ]
    if job.policy == "simclr":
        side = job.size // 10 // 2 * 2 + 1
        steps += [
            albumentations.ColorJitter(0.4, 0.4, 0.4, 0.1, p=0.8),
            albumentations.ToGray(p=0.2),
            albumentations.GaussianBlur((side, side), (0.1, 2.0), p=0.5),
        ]
    augment = albumentations.Compose(steps)

    def read_and_augment(source: str | np.ndarray) -> np.ndarray:
        if isinstance(source, str):
            source = cv2.imread(source, cv2.IMREAD_COLOR_RGB)
        return augment(image=source)["image"]

    return read_and_augment


IN_WORKERS = {
    "pil": make_pil,
    "torchvision_v2": make_torchvision_v2,
    "albumentations": make_albumentations,
}


def load_in_workers(
    job: measuring.Job, files: list[str], augment: Augment
) -> Iterator[object]:
    """Batches of PyTorch's DataLoader, whose workers read and augment."""
    import torch
    from torch.utils import data

    sources = files
    if job.input == "memory":
        sources = np.load(f"{job.folder}/{job.size}.npy")

    class Images:
        def __len__(self):
            return 2**31

        def __getitem__(self, index):
            image = augment(sources[index % len(sources)])
            return torch.from_numpy(np.ascontiguousarray(image))

    loader = data.DataLoader(
        Images(),
        batch_size=job.batch_size,
        num_workers=job.workers or job.threads,
        prefetch_factor=4,
        # Workers get closures; this process has no threads yet.
        multiprocessing_context="fork",
    )
    return iter(loader)
