"""The comparison of all losses on one protocol: the sweep objectives."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence

from supcon_tf import config, run_files, transfer
from supcon_tf.sweeps import table

# The columns, by the path of a metric of a cell or a key of `_measured`.
_COLUMNS = {
    "method.top_1": "top-1",
    "linear.top_1": "linear",
    "knn.top_1": "k-NN",
    "method.ece": "ECE",
    "retrieval.map_at_r": "mAP@R",
    "digits": "digits",
    "corruptions.method": "corrupted",
    "unknown.mahalanobis.fpr95": "FPR95",
    "minutes": "minutes",
}
_CORRUPTIONS = "corruptions.{}.mean_corruption_error_unnormalized"
_HIDDEN_FLAGS = ("learning_rate",)  # told in the page, not in a row's name


def list_results(
    cells: Iterable[Mapping[str, object]],
) -> list[dict[str, object]]:
    """Returns the numbers of finished cells, after a transfer to the digits.

    The transfer is a logistic regression on the frozen encoder; a finished one
    is not repeated.

    Args:
      cells: of `grid.describe`.

    Returns:
      For each cell "flags", the flags that tell its loss from the default;
      "seed"; and a number for each column, in [0, 1] but for "minutes", those
      of pretraining; None for a number that is not finite, or not measured.
    """
    return [
        {
            "flags": _flags(cell),
            "seed": cell["settings"]["pretrain"]["seed"],
            **_measured(cell),
        }
        for cell in cells
    ]


def _flags(cell: Mapping[str, object]) -> str:
    """Returns the flags of an axis that are not defaults, for a command."""
    settings = cell["settings"]["pretrain"]
    defaults = vars(config.PretrainSettings(cell["run_dir"]))
    names = ":".join(cell["values"]).split(":")
    flags = [
        f"--{name}={config.axis_text(settings[name]).removesuffix('.0')}"
        for name in names
        if name not in ("seed", *_HIDDEN_FLAGS)
        and (name == "objective" or settings[name] != defaults[name])
    ]
    return " ".join(flags)


def _measured(cell: Mapping[str, object]) -> dict[str, float | None]:
    """Returns the number of each column."""
    settings = config.TransferSettings(
        cell["run_dir"],
        name="digits",
        dataset="digits",
        l2_values=12,
        resume=True,
    )
    results = transfer.transfer_encoder(settings)
    metrics = dict(cell["metrics"])
    metrics["digits"] = results["test"]["top_1"]
    metrics["minutes"] = _minutes(cell)
    # The classifier that the method ends with, as in "method.top_1".
    objective = cell["settings"]["pretrain"]["objective"]
    training = config.PretrainSettings(cell["run_dir"], objective=objective)
    stage = "linear" if training.has_projections else "pretrained"
    metrics["corruptions.method"] = metrics.get(_CORRUPTIONS.format(stage))
    return {column: metrics.get(column) for column in _COLUMNS}


def _minutes(cell: Mapping[str, object]) -> float:
    """Returns the time of pretraining at the median speed of its epochs.

    An interruption, or a pause, changes the speed of an epoch alone.
    """
    directory = run_files.RunDirectory(cell["run_dir"])
    speed = statistics.median(
        epoch["examples/s"] for epoch in directory.metrics()
    )
    steps = max(run_files.steps_in(directory.checkpoints))
    batch_size = directory.recorded(config.PretrainSettings).batch_size
    return steps * batch_size / speed / 60


def comparison_table(results: Sequence[Mapping[str, object]]) -> str:
    """Returns Markdown: a row per loss, the means of its seeds.

    The accuracy has the standard deviation over seeds too.

    Example:
      >>> from supcon_tf.sweeps import comparison
      >>> numbers = dict.fromkeys(comparison._COLUMNS, 0.5)
      >>> row = {"flags": "--objective=supcon", "seed": 0, **numbers}
      >>> print(comparison.comparison_table([row]).splitlines()[-1][:32])
      | `--objective=supcon` |     1 |
    """
    rows = [["loss", "seeds", *_COLUMNS.values()]]
    for flags in dict.fromkeys(result["flags"] for result in results):
        runs = [result for result in results if result["flags"] == flags]
        numbers = [_number(column, runs) for column in _COLUMNS]
        rows.append([f"`{flags}`", f"{len(runs)}", *numbers])
    return "\n".join(table.markdown(rows, left=1))


def _number(column: str, runs: Sequence[Mapping[str, object]]) -> str:
    """Returns the mean of a column over the seeds of a loss that have it."""
    numbers = [run[column] for run in runs if run[column] is not None]
    if not numbers:
        return "-"
    if column == "minutes":
        return f"{statistics.fmean(numbers):.0f}"
    text = f"{statistics.fmean(numbers):.3f}"
    if column == "method.top_1" and len(numbers) > 1:
        text += f" ± {statistics.stdev(numbers):.3f}"
    return text
