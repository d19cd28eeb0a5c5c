"""The commands of a checkout, whether the package is installed or not."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))

from supcon_tf.cli import commands  # noqa: E402, F401
