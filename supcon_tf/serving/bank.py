"""A gallery inside a SavedModel: its rows, ids and classes."""

from __future__ import annotations

import pathlib

import tensorflow as tf

from supcon_tf import exceptions
from supcon_tf.gallery import store
from supcon_tf.measures import neighbors

# A SavedModel is read by protocol buffers, whose limit is 2 GiB.
_LARGEST = 2_000_000_000  # bytes


class Bank(tf.Module):
    """The rows of a gallery, for exact search in a graph.

    Args:
      gallery: the rows.
      k: rows of an answer, at most all.

    Raises:
      ValueError: the gallery is empty or too large.
    """

    def __init__(self, gallery: store.Gallery, k: int):
        super().__init__()
        exceptions.require(
            len(gallery) > 0, "`gallery` must have rows to be exported", 0
        )
        num_bytes = 4 * len(gallery) * gallery.dim
        exceptions.require(
            num_bytes <= _LARGEST,
            f"`gallery` must have rows of at most {_LARGEST:,} bytes in "
            "float32 to be inside of an export: a larger one is searched by "
            "supcon_tf.load(RUN).gallery(NAME) beside an export without it",
            f"{num_bytes:,}",
        )
        rows = neighbors.unit_rows("gallery", gallery.representations)
        self.rows = tf.Variable(rows, trainable=False)
        self._k = min(k, len(gallery))
        self._threshold = gallery.threshold
        if self._by_distance:
            score = gallery.mahalanobis
            # In float32, the sum of squares of a close class would cancel.
            self._whitening = tf.Variable(
                score.whitening, trainable=False, dtype=tf.float64
            )
            self._centers = tf.Variable(
                score.centers, trainable=False, dtype=tf.float64
            )
        self._labels = tf.Variable(
            gallery.labels, trainable=False, dtype=tf.int64
        )
        # A table must have a line; without classes no graph reads the table.
        names = gallery.class_names or ("none",)
        self._texts = {"ids": gallery.ids, "classes": names}

    def make_tables(self, folder: str) -> None:
        """Makes tables of ids by row, and of classes by label, from files.

        Spaces replace line breaks in a text, and a space an empty text, which
        a table refuses.
        """
        self._tables = {
            name: line_table(
                f"{folder}/gallery_{name}.txt",
                "".join(f"{_line(text)}\n" for text in texts),
            )
            for name, texts in self._texts.items()
        }

    def search(self, representations: tf.Tensor) -> dict[str, tf.Tensor]:
        """The answer of the signature `search` to representations [N, dim]."""
        cosines = self._cosines(representations)  # [N, rows]
        similarities, rows = tf.math.top_k(cosines, self._k)  # [N, k] each
        labels = tf.gather(self._labels, rows)  # [N, k]; -1 is in no table
        return {
            "ids": self._tables["ids"].lookup(tf.cast(rows, tf.int64)),
            "similarities": similarities,
            "classes": self._tables["classes"].lookup(labels),
            **self.belonging(representations, cosines),
        }

    def belonging(
        self, representations: tf.Tensor, cosines: tf.Tensor | None = None
    ) -> dict[str, tf.Tensor]:
        """`is_known` of representations [N, dim]; {} without a threshold.

        A caller that has the cosines [N, rows] saves their second product.
        """
        if self._threshold is None:
            return {}
        if self._by_distance:
            scores = -self._distances(representations)
        else:
            if cosines is None:
                cosines = self._cosines(representations)
            scores = tf.reduce_max(cosines, axis=1)
        return {"is_known": scores >= self._threshold.minimum}

    @property
    def _by_distance(self) -> bool:
        return (
            self._threshold is not None
            and self._threshold.score == "mahalanobis"
        )

    def _cosines(self, representations: tf.Tensor) -> tf.Tensor:
        """Cosines [N, rows]."""
        unit = tf.math.l2_normalize(representations, axis=1)
        return tf.matmul(unit, self.rows, transpose_b=True)

    def _distances(self, representations: tf.Tensor) -> tf.Tensor:
        """Mahalanobis distances [N] float32 to the nearest class mean."""
        unit = tf.math.l2_normalize(representations, axis=1)
        unit = tf.cast(unit, tf.float64)
        rows = tf.matmul(unit, self._whitening, transpose_b=True)  # [N, dim]
        squares = (  # [N, classes]
            tf.reduce_sum(rows**2, axis=1, keepdims=True)
            - 2 * tf.matmul(rows, self._centers, transpose_b=True)
            + tf.reduce_sum(self._centers**2, axis=1)
        )
        nearest = tf.reduce_min(squares, axis=1)
        return tf.cast(tf.sqrt(tf.maximum(nearest, 0)), tf.float32)


def _line(text: str) -> str:
    return " ".join(text.splitlines()) or " "


def line_table(file: str, lines: str) -> tf.lookup.StaticHashTable:
    """A table from numbers of lines to lines; the file becomes an asset."""
    # An id may be a file name that is no UTF-8.
    pathlib.Path(file).write_text(lines, "utf-8", "backslashreplace")
    part = tf.lookup.TextFileIndex
    table = tf.lookup.TextFileInitializer(
        file, tf.int64, part.LINE_NUMBER, tf.string, part.WHOLE_LINE
    )
    return tf.lookup.StaticHashTable(table, "")
