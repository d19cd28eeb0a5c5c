"""Answers of a gallery: the most similar rows, the class, or "unknown"."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import tensorflow as tf
from etils import epath

from supcon_tf import config, exceptions, measures
from supcon_tf.clients import model, output, paths, requests
from supcon_tf.data import inspection, partition, tokens
from supcon_tf.disk import files, image_names
from supcon_tf.display import text_table
from supcon_tf.gallery import page, store
from supcon_tf.gallery.answers import Answer, Match, Refusal

ANSWERS = "mean", "votes"
_LISTED_CLASSES = 5
_BATCH = 64  # files or texts of a request


class Searcher:
    """A gallery together with the encoder that it was made by.

    `supcon_tf.load("RUN").gallery("NAME")` is one.

    Example:
      >>> import supcon_tf
      >>> from supcon_tf import config, gallery
      >>> settings = config.IndexSettings(
      ...     "runs/mine", data_dir="photos/train", overwrite=True
      ... )
      >>> _ = gallery.index(settings)
      >>> products = supcon_tf.load("runs/mine").gallery("gallery")
      >>> answer = products.search("photos/train/dark/00.png", k=3)
      >>> answer.matches[0].class_name, round(answer.matches[0].similarity, 3)
      ('dark', 1.0)

    Attributes:
      gallery: its rows at present.

    Args:
      gallery: the rows.
      encode: from examples to representations [n, dim].
      path: where `save` writes the gallery.
      takes_texts: whether examples are texts, and no images.
      content: from an example to the bytes of its file or its text.
      request: from the contents of files or texts to rows that have their
        `representation`; raises `clients.model.Refused`.
    """

    def __init__(
        self,
        gallery: store.Gallery,
        encode: Callable[[Sequence[object]], np.ndarray],
        path: str | os.PathLike[str],
        takes_texts: bool = False,
        *,
        content: Callable[[object], bytes],
        request: requests.Request,
    ):
        self.gallery = gallery
        self.takes_texts = takes_texts
        self._encode = encode
        self._path = path
        self._content = content
        self._request = request

    def search(
        self, examples: object, k: int = 5, answer_by: str = "mean"
    ) -> Answer | list[Answer]:
        """The k most similar rows, and the class, of one example or several.

        Args:
          examples: an image or a text, or several, as of `Predictor.predict`.
          k: rows of an answer.
          answer_by: "mean", the class whose mean is most similar, or "votes" of
            the k rows, which a class of few rows loses.

        Raises:
          ValueError: an example is no image, the gallery is empty, or
            `answer_by` is none of these.
        """
        exceptions.require_one_of(ANSWERS, "answer_by", answer_by)
        representations = self._encode(examples)
        if not len(representations):
            return []
        queries = np.atleast_2d(representations)  # [Q, dim]
        answers = _answers(self.gallery, queries, k, answer_by)
        return answers[0] if representations.ndim == 1 else answers

    def answer_each(
        self,
        queries: Sequence[pathlib.Path | paths.Text],
        k: int = 5,
        answer_by: str = "mean",
    ) -> list[Answer | Refusal]:
        """As `search`, where a file that cannot be read has the reason.

        Args:
          queries: image files, or texts.
          k: rows of an answer.
          answer_by: as of `search`.
        """
        rows = [*requests.answers(self._request, queries, batch_size=_BATCH)]
        representations = [
            row["representation"] for row in rows if "error" not in row
        ]
        answers = iter(())
        if representations:
            encoded = np.array(representations, np.float32)  # [Q, dim]
            answers = iter(_answers(self.gallery, encoded, k, answer_by))
        return [
            Refusal(row["error"]) if "error" in row else next(answers)
            for row in rows
        ]

    def predict(
        self, examples: object, k: int = 5, answer_by: str = "mean"
    ) -> str | list[str]:
        """The class of one example, or of each of several; or "unknown".

        Raises as `search`.
        """
        answers = self.search(examples, k, answer_by)
        if isinstance(answers, Answer):
            return answers.name
        return [answer.name for answer in answers]

    def add(
        self,
        examples: Iterable[object],
        class_names: Sequence[str | None],
        ids: Sequence[str] | None = None,
    ) -> None:
        """Adds examples; `save` writes them to the disk.

        Args:
          examples: images or texts, as of `Predictor.predict`.
          class_names: of each example; None for none.
          ids: a text per example, all different, whose rows replace rows of
            equal ids; None for the paths of images, or hashes of what the
            examples hold, which are then all different.

        Raises:
          ValueError: the numbers of examples, classes and ids differ, a name
            is no line of text, two examples are the same, or an example is no
            image.
        """
        exceptions.require(
            not isinstance(examples, str | os.PathLike),
            "`examples` must be several, such as a list of one",
            repr(examples),
        )
        examples = list(examples)
        class_names = _texts("class_names", class_names, or_none=True)
        exceptions.require(
            len(class_names) == len(examples),
            f"`class_names` must be of the {len(examples)} examples",
            len(class_names),
        )
        names = sorted({name for name in class_names if name is not None})
        partition.check_class_names(names, "`class_names`")
        if ids is not None:
            ids = _texts("ids", ids)
        if not examples:
            return
        representations = np.asarray(self._encode(examples), np.float32)
        paths_or_hashes, digests = zip(
            *map(self._identify, examples), strict=True
        )
        if ids is None:
            _check_different(paths_or_hashes)
        labels = store.labels_by_name(names) | {None: store.NO_LABEL}
        self.gallery = self.gallery.add(
            store.Gallery(
                representations,
                np.array([labels[name] for name in class_names], np.int32),
                tuple(names),
                paths_or_hashes if ids is None else tuple(ids),
                np.array(digests, np.int64),
                self.gallery.made_of,
            )
        )

    def remove(
        self, ids: Sequence[str] = (), class_names: Sequence[str] = ()
    ) -> None:
        """Removes rows by their ids, or by classes; ValueError for others."""
        ids = _texts("ids", ids)
        class_names = _texts("class_names", class_names)
        self.gallery = self.gallery.remove(ids, class_names)

    def _identify(self, example: object) -> tuple[str, int]:
        """The default id of an example, and its hash, as of tools/index.py.

        An image without a path is known by its bytes or pixels: the last bits
        of a representation depend on the images beside it.
        """
        content = self._content(example)
        if self.takes_texts:
            digest = tokens.digest(content)
        else:
            digest = int(inspection.digest(tf.constant(content)))
            if isinstance(example, str | os.PathLike):
                path = files.whole(files.expanded(example, "examples"))
                return image_names.readable(path), digest
        return f"{digest % 2**64:016x}", digest

    def save(self) -> None:
        """Writes the gallery, which replaces the gallery on the disk.

        The threshold stays as it was. `supcon index --known_data=DIR` measures
        it anew, and `--known_rate=0.95` one that comes from the rows.

        Raises:
          ValueError: another process has changed the gallery on the disk since.
        """
        self.gallery = self.gallery.save(self._path)


def search(settings: config.SearchSettings, searcher: Searcher) -> int:
    """Searches a gallery for images or texts: tools/search.py.

    Args:
      settings: of the tool.
      searcher: of the gallery.

    Example:
      >>> import supcon_tf
      >>> from supcon_tf import config, gallery
      >>> indexing = config.IndexSettings(
      ...     "runs/mine", data_dir="photos/train", overwrite=True
      ... )
      >>> _ = gallery.index(indexing)
      >>> settings = config.SearchSettings(
      ...     "runs/mine", images=("photos/test/dark",), output="a.jsonl",
      ...     overwrite=True,
      ... )
      >>> searcher = supcon_tf.load("runs/mine").gallery("gallery")
      >>> gallery.search(settings, searcher)
      0

    Returns:
      The number of images that have an error instead of an answer, as they
      cannot be read.

    Raises:
      ValueError: the gallery is empty, or of texts and not of images, or the
        reverse, or the output file exists.
      FileNotFoundError: an image does not exist.
    """
    exceptions.require(
        bool(settings.text) == searcher.takes_texts,
        f"--text must be given for texts, and images for images: "
        f"{settings.run_dir} is a run on "
        f"{'texts' if searcher.takes_texts else 'images'}",
        "--text" if settings.text else "images",
    )
    if settings.output:
        output.check(settings.output, settings.overwrite)
    inputs = [*map(paths.Text, settings.text)]
    if settings.images:
        inputs = paths.find_images(settings.images)
    answers = searcher.answer_each(
        inputs, settings.neighbors, settings.answer_by
    )
    _write(settings.output, [*map(str, inputs)], answers, searcher.takes_texts)
    return sum(isinstance(answer, Refusal) for answer in answers)


def _write(
    path: str | None,
    queries: Sequence[str],
    answers: Sequence[Answer | Refusal],
    are_texts: bool,
) -> None:
    """Writes answers as JSON lines or a page; a table to stdout for None."""
    if path is None:
        print(text_table.text_table(_table(queries, answers)))
        return
    epath.Path(path).parent.mkdir(parents=True, exist_ok=True)
    if path.lower().endswith(".html"):
        page.write(path, queries, answers, are_texts)
    else:
        lines = (
            json.dumps({"query": query, **dataclasses.asdict(answer)})
            for query, answer in zip(queries, answers, strict=True)
        )
        content = "".join(f"{line}\n" for line in lines)
        files.write_atomically(path, content)


def _table(
    queries: Sequence[str], answers: Sequence[Answer | Refusal]
) -> list[tuple[str, ...]]:
    """The rows of a table: a line for each query and each of its matches."""
    rows = [("query", "answer", "similarity", "class", "match")]
    for query, answer in zip(queries, answers, strict=True):
        if isinstance(answer, Refusal):
            rows.append((query, "error", "-", "-", answer.error))
            continue
        for match in answer.matches:
            name = match.class_name or "-"
            cosine = f"{match.similarity:.4f}"
            rows.append((query, answer.name, cosine, name, match.id))
            query = ""
    return rows


def _texts(
    argument: str, texts: Iterable[object], or_none: bool = False
) -> list[str | None]:
    """Checks an argument of several texts.

    A lone text would be taken for its letters.
    """
    exceptions.require(
        not isinstance(texts, str),
        f"`{argument}` must be several texts, such as a list of one",
        repr(texts),
    )
    texts = list(texts)
    for text in texts:
        exceptions.require(
            isinstance(text, str) or (or_none and text is None),
            f"`{argument}` must be texts" + " or None" * or_none,
            repr(text),
        )
    return texts


def _check_different(ids: Sequence[str]) -> None:
    """Raises ValueError for examples that have the same default id."""
    name = store.first_duplicate(ids)
    if name is not None:
        copies = [
            str(index) for index, other in enumerate(ids) if other == name
        ]
        raise exceptions.InvalidValue(
            "`examples` must be different where `ids` is None, got examples "
            f"{' and '.join(copies[:2])}, which are the same: leave one out, "
            "or give them `ids`"
        )


def _answers(
    gallery: store.Gallery, queries: np.ndarray, k: int, answer_by: str
) -> list[Answer]:
    """The answers to representations [Q, dim]."""
    similarities, rows = gallery.search(queries, k)  # [Q, k] each
    has_rows = np.array([*gallery.class_counts().values()], bool)  # [classes]
    by_mean = answer_by == "mean" and has_rows.any()
    cosines_to_means = np.zeros([len(queries), 0])  # [Q, classes]
    if by_mean:
        cosines_to_means = measures.prototype_similarities(
            queries, gallery.class_means, has_rows
        )
    is_known = gallery.is_known(queries, similarities)  # [Q], or None
    answers = []
    for index, (cosines, query_rows, class_scores) in enumerate(
        zip(similarities, rows, cosines_to_means, strict=True)
    ):
        if not by_mean:
            class_scores = _votes(gallery, cosines, query_rows)
        matches = tuple(
            Match(
                gallery.ids[row],
                gallery.class_name(gallery.labels[row]),
                float(cosine),
            )
            for cosine, row in zip(cosines, query_rows, strict=True)
        )
        order = np.argsort(-class_scores, kind="stable")[:_LISTED_CLASSES]
        classes = {
            gallery.class_names[label]: float(class_scores[label])
            for label in order
            if (has_rows[label] if by_mean else class_scores[label] > 0)
        }
        belongs = None if is_known is None else bool(is_known[index])
        name = model.UNKNOWN
        if belongs is not False:
            name = next(iter(classes), model.UNKNOWN)
        answers.append(Answer(name, belongs, classes, matches))
    return answers


def _votes(
    gallery: store.Gallery, cosines: np.ndarray, rows: np.ndarray
) -> np.ndarray:
    """The share of each class in the votes of the rows, [classes]."""
    labels = gallery.labels[rows]
    is_labelled = labels != store.NO_LABEL
    if not is_labelled.any():
        return np.zeros(len(gallery.class_names), np.float32)
    labels = labels[is_labelled]  # not those of all rows, for each query
    (shares,) = measures.vote(
        cosines[None, is_labelled],
        np.arange(len(labels))[None],
        labels,
        num_classes=len(gallery.class_names),
    )
    return shares
