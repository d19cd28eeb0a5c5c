"""Converts a run for phones and other runtimes: TFLite, ONNX."""

import checkout  # noqa: F401

from supcon_tf import commands

if __name__ == "__main__":
    commands.run("convert")
