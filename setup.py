"""Builds wheels in a temporary directory; all else is in pyproject.toml.

setuptools would leave build/ in the checkout, and put a module that it has from
an earlier build into the next wheel, though the package has it no more.
"""

import tempfile

import setuptools

with tempfile.TemporaryDirectory() as folder:
    setuptools.setup(options={"build": {"build_base": folder}})
