"""The numbers of evaluation.json as a table.

Shares are in [0, 1]. A part that was not measured has no key.
"""

from __future__ import annotations

from supcon_tf import scores
from supcon_tf.display import text_table

# Rows that stand there in any case, so that what was not run is seen.
_ALWAYS = ("linear.top", "linear.ece", "linear.nll", "knn.top", "prototype.")
_ALWAYS_OF_TEXTS = ("knn.top", "prototype.")


def results_table(columns: dict[str, dict[str, object]]) -> str:
    """Results side by side: a row per score, a column per run.

    Args:
      columns: what `evaluate` returned, by the name of the run.

    Example:
      >>> from supcon_tf import evaluation
      >>> measured = {"knn": {"top_1": 0.5}, "prototype": {"top_1": 0.25}}
      >>> print(evaluation.results_table({"mine": measured}))
                                 mine
      linear top-1            not run
      linear top-5            not run
      linear ECE              not run
      linear NLL              not run
      k-NN top-1               0.5000
      prototype top-1          0.2500
    """
    width = max(12, *map(len, columns))
    rows = [["", *(name.rjust(width) for name in columns)]]
    are_texts = all("validation" in run for run in columns.values())
    always = _ALWAYS_OF_TEXTS if are_texts else _ALWAYS
    if any(
        scores.value_at(run, "knn.map") is not None for run in columns.values()
    ):
        always = ("knn.map", "linear.map")
    if all("test_classes" in run for run in columns.values()):
        always = ()  # no classifier knows the classes
    user_scores = scores.user_scores(columns.values())
    for score in (*scores.table("text"), *user_scores):
        values = [scores.value_at(run, score.path) for run in columns.values()]
        if score.path.startswith(always) or values.count(None) < len(values):
            texts = [
                "not run" if value is None else f"{value:.4f}"
                for value in values
            ]
            rows.append([f"{score.label}  ", *texts])
    return text_table.text_table(rows)
