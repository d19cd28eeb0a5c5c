"""docs/questions answers each question once, on a screen, and says by what."""

import pathlib
import re

import pytest

from supcon_tf import losses
from supcon_tf.keras_2 import PACKAGE
from tests import forks

FOLDER = pathlib.Path(__file__).parent.parent / "docs" / "questions"
PAGES = {
    name: (FOLDER / f"{name}.md").read_text()
    for name in ("loss", "training", "data", "evaluation")
}
ANSWERS = {
    heading: answer
    for page in PAGES.values()
    for heading, answer in re.findall(
        r"^## (.*)\n((?:(?!## ).*\n)*)", page, re.MULTILINE
    )
}
GUIDES = {
    path.stem: path.read_text()
    for path in (
        FOLDER.parent / "concepts.md",
        FOLDER.parent / "guides" / "labels.md",
        FOLDER.parent / "guides" / "losses.md",
    )
}
WITH_PYTHON = {
    name: page for name, page in (PAGES | GUIDES).items() if "```python" in page
}


def test_there_are_31_questions():
    assert len(ANSWERS) == 31
    assert sum(page.count("\n## ") for page in PAGES.values()) == 31


@pytest.mark.parametrize("question", ANSWERS)
def test_an_answer_is_short_and_proved(question):
    answer = ANSWERS[question]
    links = re.findall(r"\]\(\.\./[a-z/_]+\.md", answer)
    assert links and answer.count("```") >= 2
    prose = re.sub(r"\]\([^)]*\)", "", answer).replace("|", " ")
    assert re.search(r"\d", prose)
    assert len(prose.split()) <= 180


@pytest.mark.slow(but=["concepts", "loss"])
@pytest.mark.parametrize("name", WITH_PYTHON)
def test_the_python_of_a_page_runs(name, tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", WITH_PYTHON[name], re.DOTALL)
    process = forks.run("\n".join(blocks), cwd=tmp_path)
    assert process.returncode == 0, process.stderr[-2000:]


# What wants Keras 3 is marked as py.
OF_KERAS_3 = re.findall(r"```py\n(.*?)```", PAGES["training"], re.DOTALL)


def test_the_python_of_keras_3_stands_apart():
    (block,) = OF_KERAS_3
    assert block.startswith("import keras\nfrom supcon_tf import data, keras_3")
    for page in PAGES.values():
        others = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
        assert not any("keras_3" in code for code in others)


@pytest.mark.skipif(PACKAGE == "keras", reason="Keras 2 alone is installed")
def test_the_python_of_keras_3_runs(tmp_path):
    process = forks.run("\n".join(OF_KERAS_3), cwd=tmp_path)
    assert process.returncode == 0, process.stderr[-2000:]
    assert (tmp_path / "mine.keras").is_file()


def test_the_table_of_chance_levels():
    table = ANSWERS["My loss does not move"]
    batches, plain, printed = (
        re.findall(r"[\d.]+", re.search(rf"^\| {name} \|.*", table, re.M)[0])
        for name in ("`--batch_size`", "logarithm", "printed[^|]*")
    )
    for batch, level, printed_level in zip(
        batches, plain, printed[1:], strict=True
    ):
        contrasts = 2 * int(batch) - 1
        assert level == f"{losses.chance_loss(contrasts, 1.0):.4f}"
        assert printed_level == f"{losses.chance_loss(contrasts, 0.1):.4f}"
