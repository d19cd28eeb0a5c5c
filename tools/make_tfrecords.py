"""Writes images of any data set as TFRecord files, for faster reading."""

from checkout import commands

if __name__ == "__main__":
    commands.run("make_tfrecords")
