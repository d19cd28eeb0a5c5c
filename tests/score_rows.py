"""Whether every score of evaluation.json has its row in `scores.SCORES`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from supcon_tf import scores

# Parts without scores, and numbers that are no scores.
_PARTS = ("settings", "versions", "made_of")
_COUNTS = ("k", "temperature", "image_size", "images", "seed", "left_out")


def check(results: Mapping[str, object]) -> None:
    """Asserts a row for each score, or for its measure of a classifier."""
    rows = {score.short for score in (*scores.SCORES, scores.recall_at(1))}
    for path in _paths(results):
        score = scores.find(path)
        assert score.short in rows or "recall_at" in path, path


def _paths(results: Mapping[str, object], start: str = "") -> Iterator[str]:
    for key, value in results.items():
        path = f"{start}{key}"
        if isinstance(value, Mapping) and path not in _PARTS:
            yield from _paths(value, f"{path}.")
        elif isinstance(value, int | float) and not (
            key in _COUNTS or key.startswith("test_") or "examples" in key
        ):
            yield path
