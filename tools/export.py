"""Exports a run as a SavedModel for TF Serving.

  python tools/export.py --run_dir=runs/digits

Writes export/<version>/ into the run directory.
"""

from __future__ import annotations

import checkout  # noqa: F401

from supcon_tf import command_line, config


def main(chosen: config.ExportSettings) -> None:
    """Exports; TensorFlow is imported once the settings are right."""
    from supcon_tf import serving

    serving.export(chosen)


if __name__ == "__main__":
    command_line.run(main, config.ExportSettings)
