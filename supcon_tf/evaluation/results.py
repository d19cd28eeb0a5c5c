"""The numbers of evaluation.json: as its text, and as a table.

Shares are in [0, 1]. A part that was not measured has no key.
"""

from __future__ import annotations

import json

_ROWS = {
    "linear top-1": ("linear", "top_1"),
    "linear top-5": ("linear", "top_5"),
    "linear ECE": ("linear", "ece"),
    "linear NLL": ("linear", "nll"),
    "stage 1 top-1": ("pretrained", "top_1"),
    "stage 1 ECE": ("pretrained", "ece"),
    "k-NN top-1": ("knn", "top_1"),
    "prototype top-1": ("prototype", "top_1"),
    "recall@1": ("retrieval", "recall_at", "1"),
    "mAP@R": ("retrieval", "map_at_r"),
    "mean corruption error (plain)": (
        "corruptions",
        "linear",
        "mean_corruption_error_unnormalized",
    ),
    "mCE (%)": ("corruptions", "linear", "mce"),
    "relative mCE (%)": ("corruptions", "linear", "relative_mce"),
}
# Rows that stand there in any case, so that what was not run is seen.
_ALWAYS = ("linear", "knn", "prototype")


def to_json(found: dict[str, object]) -> str:
    """The text of evaluation.json, a line per key of the top level.

    Args:
      found: what `evaluate` returns.
    """
    lines = [f" {json.dumps(k)}: {json.dumps(v)}" for k, v in found.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def results_table(columns: dict[str, dict[str, object]]) -> str:
    """Results of one or several runs side by side, as text.

    Args:
      columns: what `evaluate` returned, by the name of the run.
    """
    width = max(12, *(len(name) for name in columns)) + 2
    cells = {
        title: [_value(found, path) for found in columns.values()]
        for title, path in _ROWS.items()
    }
    shown = {
        title: values
        for title, values in cells.items()
        if _ROWS[title][0] in _ALWAYS or any(v is not None for v in values)
    }
    first = max(map(len, shown)) + 2
    lines = [" " * first + "".join(f"{name:>{width}}" for name in columns)]
    for title, values in shown.items():
        texts = ["not run" if v is None else f"{v:.4f}" for v in values]
        lines.append(
            f"{title:<{first}}" + "".join(f"{t:>{width}}" for t in texts)
        )
    return "\n".join(lines)


def _value(found: dict[str, object], path: tuple[str, ...]) -> float | None:
    """What stands at a path of keys; None where there is nothing."""
    value = found
    for key in path:
        value = value.get(key)
        if value is None:
            return None
    return value
