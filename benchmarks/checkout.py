"""Lets the benchmarks of a checkout run where the package is not installed."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
