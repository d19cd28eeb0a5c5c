"""The interface of exported models, in this process or behind a server.

`rest_model.RestModel` and `saved_model.SavedModel` are a `Model`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from supcon_tf import exceptions

# The predicted class of an image that is similar to no row of a gallery.
UNKNOWN = "unknown"
# Of one image: names of outputs to numbers, strings or nested lists of them.
Row = dict[str, object]
# Of each signature its name, the types of its inputs, the names of its outputs.
Tensors = Iterable[tuple[str, Mapping[str, str], Iterable[str]]]


class Refused(exceptions.InvalidValue):
    """The model refuses the input; the message is its reason."""


@dataclasses.dataclass(frozen=True)
class Signature:
    """A signature that takes the bytes of image files, or texts.

    Attributes:
      name: such as serving_default.
      input: name of its one input, [N] string.
      outputs: names of its outputs.
    """

    name: str
    input: str
    outputs: tuple[str, ...]


class Model:
    """An exported model that answers requests."""

    def signatures(self) -> dict[str, Signature]:
        """The signatures that take image files or texts, by their names.

        Raises:
          RuntimeError: the server is not there, or does not serve the model.
        """
        return {
            name: Signature(name, *inputs, tuple(outputs))
            for name, inputs, outputs in self._tensors()
            if [*inputs.values()] == ["string"]
        }

    def predict(
        self, signature: Signature, contents: Sequence[bytes]
    ) -> list[Row]:
        """The outputs of each of the files.

        Raises:
          Refused: the model refuses some of the files.
          RuntimeError: the server is not there, or answers with another error.
        """
        raise NotImplementedError

    def _tensors(self) -> Tensors:
        raise NotImplementedError


def rows(outputs: Mapping[str, list]) -> list[Row]:
    """Outputs of a batch as one mapping per image; bytes become strings."""
    columns = (_decode(values) for values in outputs.values())
    image_rows = [
        dict(zip(outputs, row, strict=True))
        for row in zip(*columns, strict=True)
    ]
    return mark_unknown(image_rows)


def mark_unknown(rows: list[Row]) -> list[Row]:
    """The rows, where what a gallery does not know is `UNKNOWN`."""
    for row in rows:
        if "predicted_class" in row and row.get("is_known") is False:
            row["predicted_class"] = UNKNOWN
    return rows


def _decode(value: object) -> object:
    if isinstance(value, list):
        return [_decode(item) for item in value]
    return value.decode("utf-8", "replace") if type(value) is bytes else value
