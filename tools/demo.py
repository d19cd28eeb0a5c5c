"""The whole method on real images in minutes: `make demo`.

  python tools/demo.py

Pretrains on scikit-learn's digits, trains the linear classifier, evaluates
and exports, and does the same with an encoder of random weights, so that the
gain is visible. It ends with report.html, the two side by side.
"""

from __future__ import annotations

import pathlib

import checkout  # noqa: F401

from supcon_tf import command_line, config, settings

_FLAGS = pathlib.Path(__file__).parent.parent / "flags"


def main(chosen: config.DemoSettings) -> None:
    """Runs all stages; TensorFlow is imported once the settings are right."""
    supcon = _run(f"{chosen.run_dir}/supcon", chosen.epochs)
    untrained = _run(f"{chosen.run_dir}/untrained", 0)

    from supcon_tf import evaluation, reports, serving

    exported = serving.export(config.ExportSettings(f"{chosen.run_dir}/supcon"))
    report = reports.write_report(
        [f"{chosen.run_dir}/untrained", f"{chosen.run_dir}/supcon"],
        f"{chosen.run_dir}/report.html",
        ["random weights", "SupCon"],
    )
    print("\n360 held-out digits, encoder with random weights, and with SupCon")
    print(evaluation.results_table({"untrained": untrained, "SupCon": supcon}))
    print(f"\nrun directories  {chosen.run_dir}/supcon, .../untrained")
    print(f"evaluation       {chosen.run_dir}/supcon/evaluation.json")
    print(f"learning curves  tensorboard --logdir {chosen.run_dir}")
    print(f"SavedModel       {exported}")
    print(f"report           {report}: open it in a browser")


def _run(run_dir: str, epochs: int) -> dict[str, object]:
    """Both stages and the evaluation of one run."""
    extra = (f"--run_dir={run_dir}", "--overwrite")
    pretraining = settings.from_flagfile(
        config.PretrainSettings,
        _FLAGS / "supcon_digits_resnet18.flags",
        *extra,
        f"--epochs={epochs}",
    )
    linear = settings.from_flagfile(
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
