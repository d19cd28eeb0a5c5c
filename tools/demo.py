"""The whole method on real images in minutes: `make demo`.

  python tools/demo.py

Pretrains on scikit-learn's digits, trains the linear classifier, evaluates
and exports, and does the same with an encoder of random weights, so that the
gain is visible. It ends with report.html, the two side by side.
"""

from __future__ import annotations

import pathlib

import checkout  # noqa: F401

from supcon_tf import command_line, config
from supcon_tf.settings import from_flagfile

_FLAGS = pathlib.Path(__file__).parent.parent / "flags"


def main(settings: config.DemoSettings) -> None:
    """Runs all stages; TensorFlow is imported once the settings are right."""
    supcon = _run(f"{settings.run_dir}/supcon", settings.epochs)
    untrained = _run(f"{settings.run_dir}/untrained", 0)

    from supcon_tf import evaluation, reports, serving

    exported = serving.export(
        config.ExportSettings(f"{settings.run_dir}/supcon")
    )
    report = reports.write_report(
        [f"{settings.run_dir}/untrained", f"{settings.run_dir}/supcon"],
        f"{settings.run_dir}/report.html",
        ["random weights", "SupCon"],
    )
    print("\n360 held-out digits, encoder with random weights, and with SupCon")
    print(evaluation.results_table({"untrained": untrained, "SupCon": supcon}))
    print(f"\nrun directories  {settings.run_dir}/supcon, .../untrained")
    print(f"evaluation       {settings.run_dir}/supcon/evaluation.json")
    print(f"learning curves  tensorboard --logdir {settings.run_dir}")
    print(f"SavedModel       {exported}")
    print(f"report           {report}: open it in a browser")


def _run(run_dir: str, epochs: int) -> dict[str, object]:
    """Both stages and the evaluation of one run."""
    extra = (f"--run_dir={run_dir}", "--overwrite")
    pretraining = from_flagfile(
        config.PretrainSettings,
        _FLAGS / "supcon_digits_resnet18.flags",
        *extra,
        f"--epochs={epochs}",
    )
    linear = from_flagfile(
        config.LinearSettings, _FLAGS / "linear_digits.flags", *extra
    )
    from supcon_tf import evaluation, training

    print(f"\n=== {run_dir}: {epochs} epochs of pretraining", flush=True)
    training.pretrain(pretraining)
    training.train_linear(linear)
    return evaluation.evaluate(
        config.EvaluateSettings(run_dir, knn_neighbors=20)
    )


if __name__ == "__main__":
    command_line.run(main, config.DemoSettings)
