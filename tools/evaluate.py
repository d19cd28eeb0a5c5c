"""Evaluates a run on its test images: linear, k-NN and prototypes.

  python tools/evaluate.py --run_dir=runs/digits

Prints a table; writes evaluation.json and, per image, predictions.npz into
the run directory.
"""

from __future__ import annotations

from supcon_tf import config, settings


def main(chosen: config.EvaluateSettings) -> None:
    """Evaluates; TensorFlow is imported once the settings are right."""
    from supcon_tf import evaluation

    results = evaluation.evaluate(chosen)
    print(evaluation.results_table({chosen.run_dir: results}))


if __name__ == "__main__":
    settings.run(main, config.EvaluateSettings)
