"""The test images of a run, corrupted: made here, or read from a TFDS set."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from supcon_tf import config, cores, data, exceptions
from supcon_tf.evaluation import corruptor
from supcon_tf.training import runs

Condition = tuple[str, int]  # a corruption and its severity
# Positions in the test split [n], images [n, S, S, 3] uint8 and labels [n].
_Chunk = tuple[np.ndarray, np.ndarray, np.ndarray]

# Images held at once, uint8, beside as many corrupted: 175,000 of 32 pixels,
# 3,500 of 224. More are read again for each corruption and severity.
_HELD_BYTES = 2**29
_READ_BATCH = 64
# Corrupting this many is worth the start of a process.
_IMAGES_PER_PROCESS = 1000
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
      ValueError: the images are too small or too few, or a corrupted set of
        TFDS is not there or not one of the test images.
    """

    def __init__(self, settings: config.EvaluateSettings, run: runs.Run):
        self._settings = settings
        self._run = run
        self._test = run.images("test")
        self._size = run.settings.image_size
        self._positions = self._draw()
        self._sources: dict[Condition | None, data.Source] = {None: self._test}
        conditions = itertools.product(
            settings.corruption_names, settings.corruption_severities
        )
        if settings.corruptions != "generated":
            self._sources |= {x: self._tfds_source(*x) for x in conditions}
            return
        self._sources |= dict.fromkeys(conditions, self._test)
        corruptor.check_library()
        exceptions.require(  # the limit of imagecorruptions
            self._size >= 32,
            "--corruptions=generated must have images of at least 32 pixels",
            self._size,
        )

    def splits(
        self,
    ) -> Iterator[tuple[Condition | None, Iterator[data.Source]]]:
        """Yields the images as they are, None, then under each condition.

        Each in parts, as a split with the name and the classes of the run's.
        """
        test, seed = self._test, self._settings.corruption_seed
        count = len(self._positions)
        made_here = [x for x, of in self._sources.items() if x and of is test]
        held = None
        if count * self._size**2 * 3 <= _HELD_BYTES:
            held = list(self._chunks(test))  # read once

        def parts(condition: Condition | None) -> Iterator[data.Source]:
            source = self._sources[condition]
            chunks = held if held and source is test else self._chunks(source)
            for positions, images, labels in chunks:
                if condition in made_here:
                    images = made.corrupt(images, positions, *condition, seed)
                yield data.from_arrays(
                    images, labels, test.class_names, test.name, test.split
                )

        total = count * len(made_here)
        processes = min(cores.usable(), total // _IMAGES_PER_PROCESS)
        with corruptor.Corruptor(processes) as made:
            for condition in self._sources:
                yield condition, parts(condition)

    def _draw(self) -> np.ndarray:
        """Positions of the drawn images in a split, rising."""
        count = self._settings.corruption_images
        seed, there = self._settings.corruption_seed, self._test.num_examples
        exceptions.require(
            count is None or count <= there,
            f"--corruption_images must be at most {there}, the test images "
            "there are",
            count,
        )
        exceptions.require(
            seed < 2**32, "--corruption_seed must be below 2^32", seed
        )
        if count is None:
            return np.arange(there)
        rng = np.random.default_rng(seed)
        return np.sort(rng.choice(np.arange(there), count, replace=False))

    def _chunks(self, source: data.Source) -> Iterator[_Chunk]:
        """Reads drawn centre crops, as many at once as may be held."""
        batches = data.make_examples(
            source,
            _READ_BATCH,
            image_size=self._size,
            positions=self._positions,
        ).as_numpy_iterator()
        batch_bytes = _READ_BATCH * self._size**2 * 3
        first = 0
        while group := list(
            itertools.islice(batches, max(1, _HELD_BYTES // batch_bytes))
        ):
            images, labels = map(np.concatenate, zip(*group, strict=True))
            last = first + len(labels)
            yield self._positions[first:last], images, labels
            first = last

    def _tfds_source(self, corruption: str, severity: int) -> data.Source:
        """One configuration of the TFDS set, prepared if need be."""
        known = self._settings.corruptions.removeprefix("tfds:")
        name, colon, version = known.partition(":")
        known_as = _TFDS_NAMES.get(name, {}).get(corruption, corruption)
        stage_1, test = self._run.settings, self._test
        of_tfds = stage_1.dataset.startswith("tfds:")
        source = data.load(
            f"tfds:{name}/{known_as}_{severity}{colon}{version}",
            "test",
            stage_1.data_dir if of_tfds else None,
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
