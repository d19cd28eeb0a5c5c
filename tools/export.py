"""Exports a run as a SavedModel for TF Serving.

  python tools/export.py --run_dir=runs/digits

Writes export/<version>/ into the run directory.
"""

from __future__ import annotations

from supcon_tf import config, settings


def main(chosen: config.ExportSettings) -> None:
    """Exports; TensorFlow is imported once the settings are right."""
    from supcon_tf import serving

    serving.export(chosen)


if __name__ == "__main__":
    settings.run(main, config.ExportSettings)
