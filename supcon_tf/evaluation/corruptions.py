"""Corrupted images: the 15 corruptions of ImageNet-C, made in parallel."""

from __future__ import annotations

import contextlib
import os
import pathlib
import pickle
import queue
import subprocess
import sys
from collections.abc import Iterator
from concurrent import futures

import numpy as np
import numpy.typing as npt

from supcon_tf import config, cores, exceptions
from supcon_tf.evaluation import corrupted_image

MIN_SIDE = 32  # pixels; the limit of imagecorruptions.

_PROGRAM = pathlib.Path(corrupted_image.__file__)
# Images of one request; 32 of 224 pixels are 5 MB.
_REQUEST = 32
# Corrupting this many is worth the start of a process.
_IMAGES_PER_PROCESS = 1000


_REMEDY = (
    "generated corruptions must have the extra `corruptions`: pip install "
    "'supcon_tf[corruptions]'; where OpenCV misses libGL.so.1, then also pip "
    "install --force-reinstall --no-deps "
    "opencv-contrib-python-headless==4.11.0.86"
)


def check_library() -> None:
    """Imports what makes most corruptions, before anything is computed.

    Raises:
      ImportError: it, or something that it needs, is not installed.
    """
    try:
        import imagecorruptions  # noqa: F401
    except ImportError as error:
        raise exceptions.MissingPackage(f"{_REMEDY}, got: {error}") from error


class Corruptor:
    """Corrupts images in processes that are kept from call to call.

    Use it in a `with` statement, which ends them. A process imports no
    TensorFlow and is ready after half a second.

    Args:
      processes: how many; 0 corrupts in this process.

    Raises:
      ImportError: the extra `corruptions` is not installed.
    """

    def __init__(self, processes: int) -> None:
        check_library()
        self._programs = [
            subprocess.Popen(
                [sys.executable, str(_PROGRAM)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                # A core each: the libraries would start a thread per core.
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
            for _ in range(processes)
        ]

    def __enter__(self) -> Corruptor:
        return self

    def __exit__(self, *_: object) -> None:
        for program in self._programs:
            with contextlib.suppress(BrokenPipeError):
                program.stdin.close()
            program.stdout.close()
            program.wait()

    def corrupt(
        self,
        images: npt.NDArray[np.uint8],
        name: str,
        severity: int,
        seed: int,
        indices: npt.ArrayLike | None = None,
    ) -> npt.NDArray[np.uint8]:
        """Corrupts images; see the function `corrupt`."""
        indices = _checked(images, name, severity, seed, indices)
        options = (name, severity, seed)
        if not self._programs:
            return corrupted_image.corrupted_images(images, indices, *options)
        requests = (
            (images[i : i + _REQUEST], indices[i : i + _REQUEST], *options)
            for i in range(0, len(images), _REQUEST)
        )
        return np.concatenate(list(self._answers(requests)))

    def _answers(
        self, requests: Iterator[tuple[object, ...]]
    ) -> Iterator[np.ndarray]:
        """Yields the answers in the order of the requests."""
        idle = queue.SimpleQueue()
        for program in self._programs:
            idle.put(program)

        def ask(request: tuple[object, ...]) -> np.ndarray:
            program = idle.get()
            try:
                pickle.dump(request, program.stdin, pickle.HIGHEST_PROTOCOL)
                program.stdin.flush()
                answer = pickle.load(program.stdout)
            except (BrokenPipeError, EOFError) as error:
                raise exceptions.Failed(
                    "a process that corrupts images ended, exit status "
                    f"{program.wait()}"
                ) from error
            finally:
                idle.put(program)
            if isinstance(answer, Exception):
                raise answer
            return answer

        with futures.ThreadPoolExecutor(len(self._programs)) as threads:
            yield from threads.map(ask, requests)


def corrupt(
    images: npt.NDArray[np.uint8],
    name: str,
    severity: int,
    seed: int,
    processes: int | None = None,
    indices: npt.ArrayLike | None = None,
) -> npt.NDArray[np.uint8]:
    """Corrupts images as ImageNet-C does, of any size from 32 pixels.

    An image becomes a function of itself, `name`, `severity`, `seed` and its
    index alone: the same in any part of the set and with any number of
    processes, on one machine with one version of the libraries.

    The parameters are those of ImageNet-C at every size. CIFAR-10-C has
    milder ones, so errors on 32-pixel images corrupted here are higher and
    not to be compared with those on its files (`tfds:cifar10_corrupted`).
    Motion blur, elastic transform and pixelate are the library's versions:
    without ImageMagick, without ImageNet-C's random affine map, and enlarged
    by repetition. No image is compressed afterwards, which ImageNet-C's are,
    as JPEG of quality 85.

    Args:
      images: [N, height, width, 3] uint8, both sides 32 pixels or more.
      name: one of `config.CORRUPTIONS`.
      severity: 1 to 5.
      seed: of the whole set, 0 to 2^32 - 1.
      processes: how many are started for it; 0 for none but this one, None
        for what N is worth, at most one per core.
      indices: [N] integers from 0, the places of the images in their set;
        None for 0..N-1.

    Returns:
      [N, height, width, 3] uint8.

    Raises:
      ImportError: the extra `corruptions` is not installed.
      ValueError: an argument breaks the rules above.

    Reference: Hendrycks and Dietterich 2019, https://arxiv.org/abs/1903.12261,
    Sec. 4.1; made by https://github.com/bethgelab/imagecorruptions.
    """
    if processes is None:
        processes = useful_processes(len(images))
    with Corruptor(processes) as corruptor:
        return corruptor.corrupt(images, name, severity, seed, indices)


def useful_processes(num_images: int) -> int:
    """How many processes so many corrupted images are worth starting."""
    return min(cores.usable(), num_images // _IMAGES_PER_PROCESS)


def _checked(
    images: np.ndarray,
    name: str,
    severity: int,
    seed: int,
    indices: npt.ArrayLike | None,
) -> np.ndarray:
    """Checks the arguments of `corrupt`; returns the indices, [N]."""
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] != 3:
        raise exceptions.InvalidValue(
            "`images` must be [N, height, width, 3] uint8, got "
            f"{list(images.shape)} {images.dtype}"
        )
    if not len(images) or min(images.shape[1:3]) < MIN_SIDE:
        raise exceptions.InvalidValue(
            "`images` must be one or more, with sides of at least "
            f"{MIN_SIDE} pixels, got {list(images.shape)}"
        )
    if name not in config.CORRUPTIONS:
        raise exceptions.InvalidValue(
            f"`name` must be one of {', '.join(config.CORRUPTIONS)}, got {name}"
        )
    if severity not in range(1, 6):
        raise exceptions.InvalidValue(
            f"`severity` must be 1 to 5, got {severity}"
        )
    if not 0 <= seed < 2**32:
        raise exceptions.InvalidValue(
            f"`seed` must be in 0..2^32-1, got {seed}"
        )
    if indices is None:
        return np.arange(len(images))
    indices = np.asarray(indices)
    if indices.shape != (len(images),) or not np.all(indices >= 0):
        raise exceptions.InvalidValue(
            f"`indices` must be {len(images)} integers from 0, one per image, "
            f"got {indices}"
        )
    return indices
