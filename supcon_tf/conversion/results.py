"""The numbers of conversion.json as a table."""

from __future__ import annotations

_COLUMNS = {  # of a model in conversion.json: title, format
    "bytes": ("MB", lambda value: f"{value / 1e6:.2f}"),
    "top_1": ("top-1", "{:.4f}".format),
    "top_5": ("top-5", "{:.4f}".format),
    "ece": ("ECE", "{:.4f}".format),
    "nll": ("NLL", "{:.4f}".format),
    "max_difference": ("max diff", "{:.1e}".format),
    "mean_difference": ("mean diff", "{:.1e}".format),
    "agreement": ("agreement", "{:.4f}".format),
    "least_cosine": ("least cosine", "{:.4f}".format),
    "milliseconds": ("ms/image", "{:.2f}".format),
}


def conversion_table(found: dict[str, object]) -> str:
    """A row per model, the one that the others were made from first.

    Args:
      found: what `convert` returns.
    """
    rows = {"float model": found["float_model"], **found["models"]}
    used = {
        name: column
        for name, column in _COLUMNS.items()
        if any(name in row for row in rows.values())
    }
    cells = [["", *(title for title, _ in used.values())]]
    for model, row in rows.items():
        shown = [
            form(row[name]) if name in row else "-"
            for name, (_, form) in used.items()
        ]
        cells.append([model, *shown])
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        f"{row[0]:<{widths[0]}}"
        + "".join(
            f"  {cell:>{width}}"
            for cell, width in zip(row[1:], widths[1:], strict=True)
        )
        for row in cells
    )
