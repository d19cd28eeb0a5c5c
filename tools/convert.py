"""Converts a run for phones and other runtimes: TFLite, ONNX.

  python tools/convert.py --run_dir=runs/digits

Writes converted/ into the run directory, and prints how every file does on the
test images beside the model that it was made from.
"""

from __future__ import annotations

import checkout  # noqa: F401

from supcon_tf import command_line, config


def main(chosen: config.ConvertSettings) -> None:
    """Converts; TensorFlow is imported once the settings are right."""
    from supcon_tf import conversion

    print(conversion.conversion_table(conversion.convert(chosen)))


if __name__ == "__main__":
    command_line.run(main, config.ConvertSettings)
