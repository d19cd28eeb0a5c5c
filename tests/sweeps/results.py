"""Invented results of cells, and the content of sweep.json for them."""

from __future__ import annotations

import itertools

from supcon_tf import run_files, settings
from supcon_tf.disk import files


def write_evaluation(cell, **scores):
    """Writes an evaluation.json of a cell, with its settings."""
    run = run_files.RunDirectory(cell.run_dir)
    owner = run.evaluation_owner(cell.linear_stage)
    owner.path.mkdir(parents=True, exist_ok=True)
    texts = settings.to_texts(cell.evaluation)
    files.write_json(owner.evaluation_file, {"settings": texts, **scores})


def make_results(axes, metrics, metric="linear.top_1", statuses=None):
    """Every combination of `axes`, name to values.

    `metrics` goes from the values of a cell to its metrics, `statuses` from
    the number of a cell to its status: finished where none is given.
    """
    cells = []
    for number, combination in enumerate(itertools.product(*axes.values())):
        values = dict(zip(axes, combination, strict=True))
        status = (statuses or {}).get(number, "finished")
        failed = status == "failed"
        cells.append(
            {
                "name": ",".join(
                    f"{name}={value}" for name, value in values.items()
                ),
                "values": values,
                "status": status,
                "seconds": 40.0,
                "part": "pretraining" if failed else None,
                "error": "FloatingPointError: loss | nan" if failed else None,
                "metrics": metrics(values) if status == "finished" else {},
                "log": f"runs/s/cells/{number}/log.txt",
            }
        )
    axis_records = [
        {
            "name": name,
            "values": [*values],
            "is_repetition": name in ("seed", "draw"),
        }
        for name, values in axes.items()
    ]
    return {"metric": metric, "axes": axis_records, "cells": cells}
