"""The answer of a gallery to a query, or the reason why there is none."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Match:
    """A row of a gallery that is similar to a query.

    Example:
      >>> from supcon_tf import gallery
      >>> gallery.Match("cups/01.jpg", "cup", 0.93).class_name
      'cup'

    Attributes:
      id: of the row, such as the path of an image.
      class_name: None for a row without a class.
      similarity: cosine, in -1..1.
    """

    id: str
    class_name: str | None
    similarity: float


@dataclasses.dataclass(frozen=True)
class Answer:
    """The answer of a gallery to a query.

    Example:
      >>> from supcon_tf import gallery
      >>> match = gallery.Match("cups/01.jpg", "cup", 0.93)
      >>> answer = gallery.Answer("cup", True, {"cup": 0.9}, (match,))
      >>> answer.name, answer.matches[0].id
      ('cup', 'cups/01.jpg')

    Attributes:
      name: the first of `classes`; "unknown" for a query that is not known, and
        where `classes` is empty.
      is_known: whether the query reaches the threshold; None for a gallery
        without a threshold.
      classes: scores by class, the highest first, at most five: the cosine to
        the mean of the class, or its share in the votes of the matches.
      matches: the most similar rows, most similar first.
    """

    name: str
    is_known: bool | None
    classes: dict[str, float]
    matches: tuple[Match, ...]


@dataclasses.dataclass(frozen=True)
class Refusal:
    """Why a query has no answer: `error` says what is wrong with its file."""

    error: str
