"""A model in this process, from its SavedModel."""

from __future__ import annotations

import os
from collections.abc import Sequence

import tensorflow as tf

from supcon_tf.clients import model

_REFUSED = (tf.errors.InvalidArgumentError, tf.errors.ResourceExhaustedError)


class SavedModel:
    """A SavedModel of this machine.

    Args:
      directory: with saved_model.pb.
    """

    def __init__(self, directory: str | os.PathLike[str]):
        self._functions = tf.saved_model.load(str(directory)).signatures

    def signatures(self) -> dict[str, model.Signature]:
        """The signatures that take image files, by their names."""
        signatures = {}
        for name, function in self._functions.items():
            inputs = function.structured_input_signature[1]
            if [spec.dtype for spec in inputs.values()] == [tf.string]:
                outputs = tuple(function.structured_outputs)
                signatures[name] = model.Signature(name, *inputs, outputs)
        return signatures

    def predict(
        self, signature: model.Signature, contents: Sequence[bytes]
    ) -> list[model.Row]:
        """The outputs of each of the files.

        Raises:
          Refused: the model does not take them.
        """
        function = self._functions[signature.name]
        try:
            outputs = function(**{signature.input: tf.constant(contents)})
        except _REFUSED as error:
            raise model.Refused(model.reason(error.message)) from None
        return model.rows({n: v.numpy().tolist() for n, v in outputs.items()})
