"""The rules of --known_data, which defines the threshold of a gallery."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from supcon_tf import exceptions
from supcon_tf.gallery import store
from supcon_tf.training import console, runs


def check(
    examples: store.Gallery, gallery: store.Gallery, run: runs.Run
) -> None:
    """Checks that examples are new ones of the classes of a gallery.

    The threshold would be too low with other classes, and too high with
    examples that the gallery has or that the encoder was trained on.

    Args:
      examples: those of --known_data; representations do not count.
      gallery: of the threshold.
      run: of the encoder. Where its training examples cannot be read, a line
        says that they were not compared.

    Raises:
      ValueError: an example breaks a rule.
    """
    _check_classes(examples, gallery)
    # An image would be as near to itself as can be.
    shared = np.flatnonzero(np.isin(examples.digests, gallery.digests))
    exceptions.require(
        not len(shared),
        "--known_data must have no example of the gallery",
        _counted(examples, shared),
    )
    trained = np.flatnonzero(np.isin(examples.digests, _trained_digests(run)))
    exceptions.require(
        not len(trained),
        "--known_data must have no example that the run was trained on: such "
        "examples are more similar to each other than new ones are; name "
        "others",
        _counted(examples, trained),
    )


def _check_classes(examples: store.Gallery, gallery: store.Gallery) -> None:
    """Raises ValueError for classes that the gallery lacks.

    Examples without a class may be of any, as rows without a class are.
    """
    names = [name for name, rows in gallery.class_counts().items() if rows]
    if not names:
        return
    counts = examples.class_counts()
    foreign = [name for name in counts if counts[name] and name not in names]
    exceptions.require(
        not foreign,
        "--known_data must be of the classes of the gallery, which has "
        f"{exceptions.listed(names)}; leave others out, or --add them first",
        exceptions.listed(foreign),
    )


def _trained_digests(run: runs.Run) -> npt.NDArray[np.int64]:
    """The digests of the training examples; none where they are unknown."""
    none = np.zeros(0, np.int64)
    if run.settings.epochs == 0:  # its weights come from elsewhere
        return none
    try:
        digests = run.source("train").digests
    except exceptions.Error as error:
        console.print_line(
            "note",
            "--known_data is not compared with the training examples, which "
            f"cannot be read: {error}",
        )
        return none
    return none if digests is None else digests


def _counted(examples: store.Gallery, rows: npt.NDArray[np.int64]) -> str:
    """How many of the examples are meant, and their first ids."""
    ids = exceptions.listed([examples.ids[row] for row in rows[:6]])
    return f"{len(rows)} of {len(examples)}: {ids}"
