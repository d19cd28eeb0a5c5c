"""The corrupted test images of a run, one split per corruption and severity."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from supcon_tf import config, data, exceptions
from supcon_tf.evaluation import corruptions

# Positions in the test split [n], images [n, S, S, 3] uint8 and labels [n].
Chunk = tuple[np.ndarray, np.ndarray, np.ndarray]

# Images held at once, uint8, beside as many corrupted: 175,000 of 32 pixels,
# 3,500 of 224. More are read again for each corruption and severity.
_HELD_BYTES = 2**29
_READ_BATCH = 64
# TFDS' own names of configurations, where they are not the benchmark's.
_TFDS_NAMES = {
    "cifar10_corrupted": {
        "glass_blur": "frosted_glass_blur",
        "elastic_transform": "elastic",
    }
}


def conditions(
    chosen: config.EvaluateSettings,
) -> Iterator[tuple[str, int]]:
    """The asked corruptions, each with the asked severities."""
    return itertools.product(
        chosen.corruption_names, chosen.corruption_severities
    )


def held_chunks(
    chosen: config.EvaluateSettings, source: data.Source, size: int
) -> Callable[[], Iterable[Chunk]]:
    """Makes what yields the drawn images, read once if all may be held.

    Args:
      chosen: the settings: how many, and the seed.
      source: a test split.
      size: side of the centre crops in pixels.

    Returns:
      A function that yields the images in chunks of at most 512 MiB.
    """
    count = chosen.corruption_images or source.num_examples
    if count * size * size * 3 > _HELD_BYTES:
        return lambda: _chunks(chosen, source, size)
    chunks = list(_chunks(chosen, source, size))
    return lambda: chunks


def as_source(test: data.Source, chunk: Chunk) -> data.Source:
    """The images of a chunk as a part of the test split."""
    _, images, labels = chunk
    return data.from_arrays(
        images, labels, test.class_names, test.name, test.split
    )


def generated(
    chosen: config.EvaluateSettings,
    test: data.Source,
    held: Callable[[], Iterable[Chunk]],
) -> Iterator[tuple[str, int, Iterator[data.Source]]]:
    """Corrupts the test images here.

    Args:
      chosen: the settings.
      test: the test split of the run.
      held: of `held_chunks`.

    Yields:
      Corruption, severity, and the images in parts.
    """
    count = chosen.corruption_images or test.num_examples
    total = count * len(list(conditions(chosen)))
    processes = corruptions.useful_processes(total)
    with corruptions.Corruptor(processes) as corruptor:
        for name, severity in conditions(chosen):
            corrupted = _corrupted(corruptor, chosen, held(), name, severity)
            yield name, severity, (as_source(test, c) for c in corrupted)


def of_tfds(
    chosen: config.EvaluateSettings,
    pretrained: config.PretrainSettings,
    test: data.Source,
) -> Iterator[tuple[str, int, Iterator[data.Source]]]:
    """Reads the corrupted images of a TFDS set; see `generated`."""
    for name, severity in conditions(chosen):
        source = tfds_source(chosen, pretrained, test, name, severity)
        chunks = _chunks(chosen, source, pretrained.image_size)
        yield name, severity, (as_source(test, chunk) for chunk in chunks)


def tfds_source(
    chosen: config.EvaluateSettings,
    pretrained: config.PretrainSettings,
    test: data.Source,
    corruption: str,
    severity: int,
) -> data.Source:
    """Loads one configuration of the TFDS set; prepares it if need be.

    Args:
      chosen: the settings, with --corruptions=tfds:NAME.
      pretrained: those of the run; if its data is TFDS', in the same folder.
      test: the test split of the run.
      corruption: one of the 15.
      severity: 1 to 5.

    Raises:
      RuntimeError: it could not be prepared.
      ValueError: it is not there, or has other classes or another number of
        images than `test`.
    """
    name, colon, version = chosen.corruptions.partition(":")[2].partition(":")
    known_as = _TFDS_NAMES.get(name, {}).get(corruption, corruption)
    source = data.load(
        f"tfds:{name}/{known_as}_{severity}{colon}{version}",
        "test",
        pretrained.data_dir if pretrained.dataset.startswith("tfds:") else None,
    )
    if source.class_names != test.class_names:
        raise exceptions.InvalidValue(
            f"--corruptions must have the classes of {test.name}, in their "
            f"order, got other classes in {source.name}"
        )
    if source.num_examples != test.num_examples:
        raise exceptions.InvalidValue(
            f"--corruptions must have the {test.num_examples} test images of "
            f"{test.name}, got {source.num_examples} in {source.name}"
        )
    return source


def _chunks(
    chosen: config.EvaluateSettings, source: data.Source, size: int
) -> Iterator[Chunk]:
    """Reads centre crops, as many at once as may be held."""
    positions = _drawn(chosen, source)
    batches = data.make_examples(
        source, _READ_BATCH, image_size=size, positions=positions
    ).as_numpy_iterator()
    batch_bytes = _READ_BATCH * size * size * 3
    first = 0
    while group := list(
        itertools.islice(batches, max(1, _HELD_BYTES // batch_bytes))
    ):
        images, labels = (
            np.concatenate(part) for part in zip(*group, strict=True)
        )
        yield positions[first : first + len(labels)], images, labels
        first += len(labels)


def _drawn(chosen: config.EvaluateSettings, source: data.Source) -> np.ndarray:
    """Positions of the drawn images in a split, ascending."""
    positions = np.arange(source.num_examples)
    if chosen.corruption_images is None:
        return positions
    rng = np.random.default_rng(chosen.corruption_seed)
    drawn = rng.choice(positions, chosen.corruption_images, replace=False)
    return np.sort(drawn)


def _corrupted(
    corruptor: corruptions.Corruptor,
    chosen: config.EvaluateSettings,
    chunks: Iterable[Chunk],
    name: str,
    severity: int,
) -> Iterator[Chunk]:
    """Corrupts chunk by chunk; an image goes by its position in the split."""
    for positions, images, labels in chunks:
        corrupted = corruptor.corrupt(
            images, name, severity, chosen.corruption_seed, positions
        )
        yield positions, corrupted, labels
