"""Images per second of the input pipeline beside public peers, on the CPU.

  python benchmarks/input.py --data_dir=FOLDER_OF_JPEG_FILES

For every size and policy: the policy alone, on images in memory, and the whole
pipeline from JPEG files to batches of views; with --views, also pairs of views
per second, from one decode and (`twice`) from two pipelines of ours. `tfm` is
the Model Garden's augmentation (tf-models-official); `pil` is torchvision on
Pillow images, `torchvision_v2` its second version on tensors, `albumentations`
works on arrays, each in the DataLoader of PyTorch. What is installed is
measured; with all, the defaults take some forty minutes. Without a folder, on
two photographs:

  python benchmarks/input.py --sizes=32 --policies=randaugment --views
"""

from __future__ import annotations

import dataclasses
import importlib.util
import itertools
import pathlib
import time
from collections.abc import Callable, Iterator

import checkout  # noqa: F401
import numpy as np

from benchmarks import harness, input_peers, measuring, results
from supcon_tf import exceptions, settings

_MOST_FILES = 512

_POLICIES = (
    *("identity", "autoaugment", "randaugment", "simclr"),
    *("simaugment", "stacked_randaugment"),
)
# Those that each has.
_HAS = {
    "ours": _POLICIES,
    "tfm": _POLICIES[:3],
    "pil": _POLICIES[:4],
    "torchvision_v2": _POLICIES[:4],
    "albumentations": ("identity", "simclr"),
}
# tf.data chooses its parallelism within the first seconds.
_MOST_WARM_UP = 2.0
_LEAST_BATCHES = 8


@dataclasses.dataclass(frozen=True)
class InputBench(harness.Bench):
    """Settings of benchmarks/input.py."""

    NEEDS = {
        "ours": (),
        "tfm": ("official",),
        "pil": ("torch", "torchvision", "PIL"),
        "torchvision_v2": ("torch", "torchvision", "PIL"),
        "albumentations": ("torch", "albumentations", "cv2"),
    }
    AXES = {"input": "inputs", "size": "sizes", "policy": "policies"}
    COLUMNS = (results.IMAGES, results.SPREAD)
    PEERS = ("ours",)

    run_dir: str = "runs/bench_input"
    sizes: tuple[int, ...] = (32, 224)
    """Sides in pixels."""
    policies: tuple[str, ...] = settings.setting(
        ("autoaugment", "randaugment"), choices=_POLICIES
    )
    """What augments; simclr is simaugment without the warp."""
    inputs: tuple[str, ...] = settings.setting(
        ("memory", "jpeg"), choices=("memory", "jpeg", "tfrecord")
    )
    """memory: the policy alone on images in memory; jpeg: reading and decoding
    files, random crop, flip, policy; tfrecord: the same of TFRecord files, ours
    alone."""
    views: bool = False
    """Also pairs of views, ours alone."""
    data_dir: str | None = settings.setting(None, path=True)
    """Folder with JPEG files; default: scikit-learn's two photographs."""
    batch_size: int = settings.setting(64, at_least=1)
    """Images per batch."""
    seconds: float = settings.setting(5.0, at_least=0)
    """Seconds that are timed."""
    workers: int = settings.setting(0, at_least=0)
    """Processes of the DataLoader; 0 for one per core."""
    seed: int = settings.setting(0, at_least=0)
    """Seed of our augmentation."""

    def jobs(self, names: list[str]) -> list[dict]:
        """Of who has the policy; and pairs of views, of ours in two ways."""
        jobs = [
            job
            for job in super().jobs(names)
            if job["policy"] in _HAS[job["implementation"]]
            and (job["input"] != "tfrecord" or job["implementation"] == "ours")
        ]
        pairs = [
            job | {"input": "pairs"} | way
            for job in jobs
            if (job["input"], job["implementation"]) == (self.inputs[0], "ours")
            for way in ({}, {"label": "twice"})
        ]
        return jobs + pairs * self.views

    def prepare(self, folder: str) -> str:
        """Files and arrays."""
        return prepare(folder, self.data_dir, self.sizes, self.batch_size)


def prepare(
    folder: str, data_dir: str | None, sizes: tuple[int, ...], least: int = 1
) -> str:
    """Fills an image folder of one class; with what, in words.

    It holds links to up to 512 JPEG files, again and again until there are 512
    and `least`; their central squares as [files, SIZE, SIZE, 3] SIZE.npy; and
    TFRecord files of them in records/.
    """
    sklearn = pathlib.Path(importlib.util.find_spec("sklearn").origin).parent
    root = pathlib.Path(data_dir or sklearn / "datasets" / "images")
    files = [
        file.resolve()
        for file in sorted(root.rglob("*"))
        if file.suffix.lower() in (".jpg", ".jpeg")
    ]
    if not files:
        raise exceptions.InvalidValue(
            f"--data_dir must be a folder with .jpg or .jpeg files, got {root}"
        )
    # Spread evenly over all of them.
    count = min(len(files), _MOST_FILES)
    files = [files[index * len(files) // count] for index in range(count)]
    # A folder of images has a test split.
    for split, least_of in (("train", max(_MOST_FILES, least)), ("test", 1)):
        directory = pathlib.Path(folder, split, "photographs")
        directory.mkdir(parents=True)
        linked = itertools.islice(itertools.cycle(files), least_of)
        for number, file in enumerate(linked):
            (directory / f"{number:06}.jpg").symlink_to(file)
    job = {"folder": folder, "files": list(map(str, files)), "sizes": sizes}
    harness.run_or_fail("input.make_arrays", job | {"threads": 1})
    kilobytes = sum(file.stat().st_size for file in files) / count / 1e3
    return f"{count} JPEG files of {root}, {kilobytes:.0f} kB on average"


def make_arrays(job: measuring.Job) -> dict[str, object]:
    """Writes SIZE.npy and TFRecord files, where TensorFlow is imported."""
    tf = measuring.import_tensorflow(job.threads)
    from supcon_tf import augment, data

    for size in job.sizes:
        decoded = (data.decode_image(tf.io.read_file(f)) for f in job.files)
        views = [augment.central_view(image, size) for image in decoded]
        np.save(f"{job.folder}/{size}.npy", views)
    splits = {
        name: data.load("folder", name, job.folder)
        for name in ("train", "test")
    }
    data.write_tfrecords(splits, f"{job.folder}/records")
    return {}


def list_files(folder: str) -> list[str]:
    """Paths of the JPEG files, in order."""
    return sorted(map(str, pathlib.Path(folder, "train").rglob("*.jpg")))


def measure(job: measuring.Job) -> dict[str, float]:
    """Seconds of an image, or of a pair, with all cores it may use."""
    measuring.pin(job.threads)
    if job.implementation in input_peers.IN_WORKERS:
        measuring.import_torch(job.threads)
    else:
        measuring.import_tensorflow(job.threads)
    if job.implementation == "ours":
        batches = make_ours(job)
    else:
        batches = input_peers.make(job, list_files(job.folder))
    seconds, batch = time_batches(batches, job.seconds)
    views = job.batch_size * (2 if job.input == "pairs" else 1)
    batch, shape = np.asarray(batch), (views, job.size, job.size, 3)
    if batch.dtype != np.uint8 or batch.shape != shape or not np.ptp(batch):
        raise RuntimeError(f"{batch.shape} {batch.dtype} are no {shape} images")
    return {"seconds": seconds / job.batch_size}


def time_batches(
    batches: Iterator[object], seconds: float
) -> tuple[float, object]:
    """Seconds of a batch in the steady state, and the last one.

    The warm-up begins when the first batch is there, and takes two seconds, or
    as long as what is timed where that is less.
    """
    next(batches)
    for least in (min(seconds, _MOST_WARM_UP), seconds):
        count, started, duration = 0, time.perf_counter(), 0.0
        while count < _LEAST_BATCHES or duration < least:
            batch = next(batches)
            count += 1
            duration = time.perf_counter() - started
    return duration / count, batch


def make_policy(name: str) -> Callable[[object, object], object]:
    """Our policy of that name: [n, H, W, 3] uint8 images, [n, 2] seeds."""
    from supcon_tf import augment

    return {
        "identity": augment.Identity,
        "autoaugment": lambda: augment.AutoAugment(policy="v0"),
        "randaugment": lambda: augment.RandAugment(2, 10.0),
        "simaugment": augment.SimAugment,
        "simclr": lambda: augment.SimAugment(warp_probability=0.0),
        "stacked_randaugment": augment.StackedRandAugment,
    }[name]()


def make_ours(job: measuring.Job) -> Iterator[object]:
    """Ours, as training uses it, or the policy on batches in memory."""
    import tensorflow as tf

    from supcon_tf import augment, data

    policy = make_policy(job.policy)
    if job.input == "memory":
        arrays = tf.constant(np.load(f"{job.folder}/{job.size}.npy"))
        run_seeds = tf.constant([job.seed, 0], tf.int32)

        def make_batch(step: tf.Tensor) -> tf.Tensor:
            within = tf.range(job.batch_size, dtype=tf.int64)
            positions = step * job.batch_size + within
            seeds = augment.fold_in(run_seeds, step)
            seeds = augment.fold_in(seeds, positions)
            return policy(tf.gather(arrays, positions % len(arrays)), seeds)

        steps = tf.data.Dataset.counter()
        batches = steps.map(make_batch, num_parallel_calls=tf.data.AUTOTUNE)
        return iter(batches.prefetch(tf.data.AUTOTUNE))

    dataset, folder = "folder", job.folder
    if job.input == "tfrecord":
        dataset, folder = "tfrecord", f"{job.folder}/records"

    def make_views(views: int, seed: int) -> tf.data.Dataset:
        return data.make_views(
            data.load(dataset, "train", folder),
            job.batch_size,
            views,
            policy,
            seed,
            image_size=job.size,
            crop_area=input_peers.CROP_AREA,
            crop_aspect=input_peers.CROP_ASPECT,
        )

    if getattr(job, "label", "") == "twice":  # each with its own decode
        halves = [make_views(1, job.seed + half) for half in range(2)]
        pairs = tf.data.Dataset.zip(tuple(halves)).map(
            lambda left, right: (
                tf.concat([left[0], right[0]], axis=1),
                left[1],
            )
        )
        batches = pairs.prefetch(tf.data.AUTOTUNE)
    else:
        batches = make_views(2 if job.input == "pairs" else 1, job.seed)
    shape = [-1, job.size, job.size, 3]
    return (tf.reshape(views, shape) for views, _ in batches)


if __name__ == "__main__":
    harness.main(InputBench)
