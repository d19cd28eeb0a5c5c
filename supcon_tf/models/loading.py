"""Weights from files: all of them, or an error."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

import tensorflow as tf

from supcon_tf import exceptions

# A weight in Keras' own format, not one of what a compiled model has besides.
_WEIGHT = re.compile(r"(?!metrics/|optimizer/).*\bvars/\d+")


class Model(tf.keras.Model):
    """A Keras model that raises where a file leaves weights as they were.

    Keras' load_weights finds none to fill before `build`, and of its formats
    some pass over what only the model or only the file has.
    """

    def load_weights(
        self, filepath: str | os.PathLike[str], *args: object, **kwargs: object
    ) -> object:
        """Keras' load_weights.

        Raises:
          ValueError: the model is not built, or the file is not of its weights.
        """
        if not self.built:
            raise exceptions.InvalidValue(
                f"`{type(self).__name__}` must be built before `load_weights`, "
                f"got no weights to load {filepath} into: call it once, or "
                "build it, as in encoder.build((None, size, size, 3))"
            )
        status = super().load_weights(filepath, *args, **kwargs)
        if status is not None:  # TensorFlow's format
            self._check_matched(filepath)
        return status

    def _check_matched(self, prefix: str | os.PathLike[str]) -> None:
        """Raises ValueError for weights that a checkpoint does not have."""
        if tf.saved_model.contains_saved_model(prefix):
            prefix = os.path.join(prefix, "variables", "variables")
        # The status has asserts too, but they want the optimizer's state.
        view = tf.train.CheckpointView(os.fspath(prefix))
        found = {id(trackable) for trackable in view.match(self).values()}
        missing = [x.name for x in self.weights if id(x) not in found]
        if missing:
            raise exceptions.InvalidValue(
                f"`filepath` must have all weights of `{type(self).__name__}`, "
                f"got {prefix} without {len(missing)} such as {missing[0]}"
            )

    def load_own_variables(self, store: Mapping[str, object]) -> None:
        """Keras' step on its way through .weights.h5 and .keras files.

        Raises:
          ValueError: the file has more or fewer weights below this model.
        """
        places: list[str] = []
        if hasattr(store, "parent"):  # a group of the file, {} without one
            store.parent.visit(places.append)
        saved = sum(_WEIGHT.fullmatch(place) is not None for place in places)
        parts = [x for x in self.submodules if hasattr(x, "weights")]
        own = len({id(weight) for part in parts for weight in part.weights})
        if saved != own:
            raise exceptions.InvalidValue(
                f"`filepath` must have the {own} weights of "
                f"`{type(self).__name__}`, got {saved}"
            )
        super().load_own_variables(store)
