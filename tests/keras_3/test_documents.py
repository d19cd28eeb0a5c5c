"""What documents say of Keras 3 runs."""

import pathlib
import re

import pytest

from supcon_tf.keras_2 import PACKAGE
from tests import forks

PAGE = pathlib.Path("docs/questions/training.md").read_text()
BLOCKS = re.findall(r"```py\n(.*?)```", PAGE, re.DOTALL)


def test_one_block_is_of_keras_3_alone():
    (block,) = BLOCKS
    assert "import keras\nfrom supcon_tf import data, keras_3\n" in block
    others = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert others and not any("keras_3" in x for x in others)


@pytest.mark.skipif(PACKAGE == "keras", reason="Keras 2 alone is installed")
def test_the_python_of_the_question_runs(tmp_path):
    done = forks.run("\n".join(BLOCKS), cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert (tmp_path / "mine.keras").is_file()
