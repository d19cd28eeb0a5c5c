"""The epochs of endless batches, for Keras: their length, and where to go on.

`models.base` reads them from the attribute `epochs` of a dataset: `fit` and
`evaluate` need no steps, and a second `fit` does not repeat the views of the
first. `map` passes the attribute on; other transformations lose it.
"""

from __future__ import annotations

import dataclasses
import functools
import weakref
from collections.abc import Callable

import tensorflow as tf

from supcon_tf.data import sources


@dataclasses.dataclass(eq=False)
class Epochs:
    """The epochs of endless batches.

    Attributes:
      steps: batches of an epoch.
      start_step: step of the whole run whose batch comes first.
      make: from another `start_step` to the same batches from there on.
      trained: steps that each model has taken on the batches.
      backups: from a folder of backups to the step of the fit that began them.
    """

    steps: int
    start_step: int
    make: Callable[[int], tf.data.Dataset]
    trained: weakref.WeakKeyDictionary = dataclasses.field(
        default_factory=weakref.WeakKeyDictionary
    )
    backups: dict[str | None, int] = dataclasses.field(default_factory=dict)


def with_epochs(
    make: Callable[..., tf.data.Dataset],
) -> Callable[..., tf.data.Dataset]:
    """Adds epochs to the batches of make(source, batch_size, ...)."""

    @functools.wraps(make)
    def make_with_epochs(
        source: sources.Source,
        batch_size: int,
        *args: object,
        start_step: int = 0,
        **kwargs: object,
    ) -> tf.data.Dataset:
        def from_step(step: int) -> tf.data.Dataset:
            return make(source, batch_size, *args, start_step=step, **kwargs)

        batches = from_step(start_step)  # checks the arguments first
        steps = source.num_examples // batch_size
        return _attach_epochs(batches, Epochs(steps, start_step, from_step))

    return make_with_epochs


def _attach_epochs(batches: tf.data.Dataset, epochs: Epochs) -> tf.data.Dataset:
    """Sets the epochs of batches; `map` sets those of its result."""
    original_map = batches.map

    def map_with_epochs(*args: object, **kwargs: object) -> tf.data.Dataset:
        def from_step(step: int) -> tf.data.Dataset:
            return epochs.make(step).map(*args, **kwargs)

        mapped_epochs = Epochs(epochs.steps, epochs.start_step, from_step)
        return _attach_epochs(original_map(*args, **kwargs), mapped_epochs)

    batches.epochs, batches.map = epochs, map_with_epochs
    return batches
