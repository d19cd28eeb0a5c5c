"""The test images of a run under corruptions: made here, or read from TFDS."""

from __future__ import annotations

import contextlib
import itertools
import os
import pickle
import queue
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent import futures

import numpy as np

from supcon_tf import config, data, exceptions, measures
from supcon_tf.host import cores
from supcon_tf.robustness import corrupted_image
from supcon_tf.training import runs

Condition = tuple[str, int]  # a corruption and its severity
# From a split to the predictions of each classifier, by its name.
Classify = Callable[[data.Source], dict[str, measures.Predictions]]
# Positions in the test split [n], images [n, S, S, 3] uint8 and labels [n].
_Chunk = tuple[np.ndarray, np.ndarray, np.ndarray]

SEED = 0  # of the drawn images and of the noise
# Images held at once, uint8, beside as many corrupted: 175,000 of 32 pixels,
# 3,500 of 224. More are read again for each corruption and severity.
_HELD_BYTES = 2**29
_READ_BATCH = 64
# Corrupting this many is worth the start of a process.
_IMAGES_PER_PROCESS = 1000
# Images of one request to a process; 32 of 224 pixels are 5 MB.
_REQUEST = 32
# TFDS' own names of configurations, where they are not the benchmark's.
_TFDS_NAMES = {
    "cifar10_corrupted": {
        "glass_blur": "frosted_glass_blur",
        "elastic_transform": "elastic",
    }
}


class CorruptedImages:
    """The test images of a run, or some of them, under every condition.

    Generated ones are made of centre crops of the run's size, as the encoder
    sees them; those of a TFDS set that has this size are taken as they are.

    Args:
      settings: with --corruptions other than none.
      run: whose test images they are; a TFDS set lies in the same folder as
        its data, if that is TFDS' too.

    Raises:
      ImportError: the extra `corruptions` is not installed and needed.
      RuntimeError: a corrupted set of TFDS could not be prepared.
      ValueError: the images are floats, too small or too few, or a corrupted
        set of TFDS is not there or not one of the test images.
    """

    def __init__(self, settings: config.EvaluateSettings, run: runs.Run):
        self._settings = settings
        self._run = run
        self._test = run.source("test")
        exceptions.require(
            self._test.dtype == np.uint8,
            "--corruptions must be none for images that are no bytes",
            settings.corruptions,
        )
        self._size = run.settings.image_size
        self._positions = self._draw()
        self._is_generated = settings.corruptions == "generated"
        if self._is_generated:
            check_library()
            exceptions.require(  # the limit of imagecorruptions
                self._size >= 32,
                "--corruptions=generated must have images of at least 32 "
                "pixels",
                self._size,
            )
        self._sources: dict[Condition | None, data.Source] = {None: self._test}
        for condition in itertools.product(
            settings.corruption_names, settings.corruption_severities
        ):
            self._sources[condition] = (
                self._test
                if self._is_generated
                else self._tfds_source(*condition)
            )

    def classified(
        self, classify: Classify
    ) -> Iterator[tuple[Condition | None, dict[str, measures.Predictions]]]:
        """Classifies the images as they are, None, then under each condition.

        In parts, each a split with the name and the classes of the run's.

        Yields:
          The condition, and the predictions of each classifier by its name.
        """
        test, count = self._test, len(self._positions)
        test_chunks = None
        if count * self._size**2 * 3 <= _HELD_BYTES:
            test_chunks = list(self._chunks(test))  # read once
        num_generated = self._is_generated * (len(self._sources) - 1) * count
        processes = min(cores.usable(), num_generated // _IMAGES_PER_PROCESS)
        with Corruptor(processes) as corruptor:
            for condition, source in self._sources.items():
                chunks = test_chunks if source is test else None
                parts = []
                for positions, images, labels in chunks or self._chunks(source):
                    if condition and self._is_generated:
                        images = corruptor.corrupt(
                            images, positions, *condition, SEED
                        )
                    part = data.from_arrays(
                        images, labels, test.class_names, test.name, test.split
                    )
                    parts.append(classify(part))
                yield (
                    condition,
                    {
                        name: measures.Predictions.join(
                            [part[name] for part in parts]
                        )
                        for name in parts[0]
                    },
                )

    def _draw(self) -> np.ndarray:
        """Positions of the drawn images in a split, rising."""
        count = self._settings.corruption_images
        num_images = self._test.num_examples
        exceptions.require(
            count is None or count <= num_images,
            f"--corruption_images must be at most {num_images}, the test "
            "images there are",
            count,
        )
        if count is None:
            return np.arange(num_images)
        rng = np.random.default_rng(SEED)
        return np.sort(rng.choice(np.arange(num_images), count, replace=False))

    def _chunks(self, source: data.Source) -> Iterator[_Chunk]:
        """Reads drawn centre crops, as many at once as may be held."""
        batches = data.make_examples(
            source,
            _READ_BATCH,
            image_size=self._size,
            positions=self._positions,
        ).as_numpy_iterator()
        held_batches = _HELD_BYTES // (_READ_BATCH * self._size**2 * 3)
        remaining = self._positions
        while group := list(itertools.islice(batches, max(held_batches, 1))):
            images, labels = map(np.concatenate, zip(*group, strict=True))
            positions, remaining = np.split(remaining, [len(labels)])
            yield positions, images, labels

    def _tfds_source(self, corruption: str, severity: int) -> data.Source:
        """One configuration of the TFDS set, prepared if need be."""
        data_set = self._settings.corruptions.removeprefix("tfds:")
        name, colon, version = data_set.partition(":")
        tfds_name = _TFDS_NAMES.get(name, {}).get(corruption, corruption)
        stage_1, test = self._run.data_settings, self._test
        is_of_tfds = stage_1.dataset.startswith("tfds:")
        source = data.load(
            f"tfds:{name}/{tfds_name}_{severity}{colon}{version}",
            "test",
            stage_1.data_dir if is_of_tfds else None,
        )
        exceptions.require(
            source.class_names == test.class_names,
            f"--corruptions must have the classes of {test.name}, in their "
            "order",
            f"other classes in {source.name}",
        )
        exceptions.require(
            source.num_examples == test.num_examples,
            f"--corruptions must have the {test.num_examples} test images of "
            f"{test.name}",
            f"{source.num_examples} in {source.name}",
        )
        return source


def check_library() -> None:
    """Imports the library of most corruptions, before anything is computed.

    Raises:
      ImportError: the library, or a package that it needs, is not installed.
    """
    exceptions.import_extra(
        "corruptions",
        "imagecorruptions",
        remedy="; where OpenCV misses libGL.so.1, then also pip install "
        "--force-reinstall --no-deps 'opencv-contrib-python-headless<5'",
    )


class Corruptor(contextlib.AbstractContextManager):
    """Corrupts images as ImageNet-C does, in processes that are kept.

    Use it in a `with` statement, which ends them. A process imports no
    TensorFlow and is ready after half a second. The extra `corruptions` must be
    installed.

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
        options = name, severity, seed
        if not self._programs:
            return corrupted_image.corrupted_images(images, indices, *options)

        def ask(first: int) -> np.ndarray:
            part = slice(first, first + _REQUEST)
            return self._answer((images[part], indices[part], *options))

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
        except (BrokenPipeError, EOFError, pickle.UnpicklingError) as error:
            raise exceptions.Failed(
                "a process that corrupts images ended, exit status "
                f"{program.wait()}"
            ) from error
        finally:
            self._idle.put(program)
        if isinstance(answer, Exception):
            raise answer
        return answer
