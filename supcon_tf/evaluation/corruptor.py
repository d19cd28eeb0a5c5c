"""The 15 corruptions of ImageNet-C, made in parallel."""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import subprocess
import sys
from concurrent import futures

import numpy as np

from supcon_tf import exceptions
from supcon_tf.evaluation import corrupted_image

# Images of one request; 32 of 224 pixels are 5 MB.
_REQUEST = 32


def check_library() -> None:
    """Imports what makes most corruptions, before anything is computed.

    Raises:
      ImportError: it, or something that it needs, is not installed.
    """
    try:
        import imagecorruptions  # noqa: F401
    except ImportError as error:
        raise exceptions.MissingPackage(
            "generated corruptions must have the extra `corruptions`: pip "
            "install 'supcon_tf[corruptions]'; where OpenCV misses "
            "libGL.so.1, then also pip install --force-reinstall --no-deps "
            f"opencv-contrib-python-headless==4.11.0.86, got: {error}"
        ) from error


class Corruptor:
    """Corrupts images as ImageNet-C does, in processes that are kept.

    Use it in a `with` statement, which ends them, after `check_library`. A
    process imports no TensorFlow and is ready after half a second.

    The parameters are those of ImageNet-C at every size. CIFAR-10-C has
    milder ones, so errors on 32-pixel images corrupted here are higher and
    not to be compared with those on its files (`tfds:cifar10_corrupted`).
    Motion blur, elastic transform and pixelate are the library's versions:
    without ImageMagick, without ImageNet-C's random affine map, and enlarged
    by repetition. No image is compressed afterwards, which ImageNet-C's are,
    as JPEG of quality 85.

    Args:
      processes: how many; 0 corrupts in this process.

    Reference: Hendrycks and Dietterich 2019, https://arxiv.org/abs/1903.12261,
    Sec. 4.1; made by https://github.com/bethgelab/imagecorruptions.
    """

    def __init__(self, processes: int) -> None:
        self._programs = [
            subprocess.Popen(
                [sys.executable, corrupted_image.__file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                # A core each: the libraries would start a thread per core.
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
            for _ in range(processes)
        ]
        self._idle = queue.SimpleQueue()
        for program in self._programs:
            self._idle.put(program)

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
        images: np.ndarray,
        indices: np.ndarray,
        name: str,
        severity: int,
        seed: int,
    ) -> np.ndarray:
        """Corrupts [N, height, width, 3] images, N >= 1.

        Each becomes what `corrupted_image.corrupted` makes of it: the same in
        any part of the set and with any number of processes, on one machine
        with one version of the libraries.
        """
        if not self._programs:
            return corrupted_image.corrupted_images(
                images, indices, name, severity, seed
            )

        def ask(first: int) -> np.ndarray:
            part = slice(first, first + _REQUEST)
            request = images[part], indices[part], name, severity, seed
            return self._answer(request)

        with futures.ThreadPoolExecutor(len(self._programs)) as threads:
            answers = threads.map(ask, range(0, len(images), _REQUEST))
            return np.concatenate(list(answers))

    def _answer(self, request: tuple[object, ...]) -> np.ndarray:
        """What a process that has nothing to do makes of a request."""
        program = self._idle.get()
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
            self._idle.put(program)
        if isinstance(answer, Exception):
            raise answer
        return answer
