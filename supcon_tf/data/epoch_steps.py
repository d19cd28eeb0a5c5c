"""What endless batches tell Keras: how long an epoch is, and where to go on.

`models.base` reads it from the attribute `epochs` of a dataset: `fit` and
`evaluate` need no steps, and a second `fit` does not repeat the views of the
first. What `map` makes of such a dataset has it too, of what else is made of
it nobody knows.
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
      trained: steps that each model has been fitted to them.
    """

    steps: int
    start_step: int
    make: Callable[[int], tf.data.Dataset]
    trained: weakref.WeakKeyDictionary = dataclasses.field(
        default_factory=weakref.WeakKeyDictionary
    )


def told(
    make: Callable[..., tf.data.Dataset],
) -> Callable[..., tf.data.Dataset]:
    """Lets a function of (source, batch_size, ..., start_step) tell them."""

    @functools.wraps(make)
    def making(
        source: sources.Source,
        batch_size: int,
        *args: object,
        start_step: int = 0,
        **kwargs: object,
    ) -> tf.data.Dataset:
        def from_step(step: int) -> tf.data.Dataset:
            return make(source, batch_size, *args, start_step=step, **kwargs)

        batches = from_step(start_step)  # which checks the arguments
        steps = source.num_examples // batch_size
        return _telling(batches, Epochs(steps, start_step, from_step))

    return making


def _telling(batches: tf.data.Dataset, epochs: Epochs) -> tf.data.Dataset:
    """The batches with their epochs, as what is mapped of them has."""
    change = batches.map

    def mapped(*args: object, **kwargs: object) -> tf.data.Dataset:
        def from_step(step: int) -> tf.data.Dataset:
            return epochs.make(step).map(*args, **kwargs)

        own = Epochs(epochs.steps, epochs.start_step, from_step)
        return _telling(change(*args, **kwargs), own)

    batches.epochs, batches.map = epochs, mapped
    return batches
