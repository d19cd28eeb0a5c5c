"""Converts a run for phones and other runtimes: TFLite, ONNX."""

from checkout import commands

if __name__ == "__main__":
    commands.run("convert")
