"""A model in this process, from its SavedModel."""

from __future__ import annotations

import os
from collections.abc import Sequence

import tensorflow as tf

from supcon_tf import exceptions
from supcon_tf.clients import model
from supcon_tf.disk import files

_REFUSED = (tf.errors.InvalidArgumentError, tf.errors.ResourceExhaustedError)


class SavedModel(model.Model):
    """A SavedModel of this machine, by its directory.

    Raises:
      ValueError: the files of the SavedModel are damaged, or of another kind.
    """

    def __init__(self, directory: str | os.PathLike[str]):
        try:
            loaded = tf.saved_model.load(files.literal(directory))
        except exceptions.Error:
            raise
        except Exception as error:  # TensorFlow raises many kinds
            raise exceptions.InvalidValue(
                f"{directory} must be a whole SavedModel that TensorFlow can "
                f"load, got {exceptions.one_line(error)}; copy or export it "
                "again"
            ) from error
        self._functions = loaded.signatures

    def _tensors(self) -> model.Tensors:
        for name, function in self._functions.items():
            inputs = function.structured_input_signature[1].items()
            dtypes = {key: spec.dtype.name for key, spec in inputs}
            yield name, dtypes, function.structured_outputs

    def predict(
        self, signature: model.Signature, contents: Sequence[bytes]
    ) -> list[model.Row]:
        """See `model.Model.predict`."""
        function = self._functions[signature.name]
        try:
            outputs = function(**{signature.input: tf.constant(contents)})
        except _REFUSED as error:
            raise model.Refused(exceptions.reason(error.message)) from None
        columns = {n: v.numpy().tolist() for n, v in outputs.items()}
        for name, column in columns.items():
            # A SavedModel of another program may answer in any shape.
            exceptions.require(
                isinstance(column, list) and len(column) == len(contents),
                f"--signature must have outputs with a row for each input, "
                f"{len(contents)}",
                f"{signature.name} with {name} {list(outputs[name].shape)}",
            )
        return model.rows(columns)
