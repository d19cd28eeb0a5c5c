from __future__ import annotations

import subprocess
import sys

import pytest

from supcon_tf import scores


def test_paths_are_different_and_words_are_there():
    paths = [score.path for score in scores.SCORES]
    assert len(set(paths)) == len(paths)
    for score in scores.SCORES:
        assert scores.find(score.path) is score
        assert score.label and score.title
        assert score.better in ("higher", "lower", None)
        assert score.unit in ("share", "percent", "number")


def test_labels_and_titles_tell_scores_apart():
    for names in (
        [score.label for score in scores.SCORES],
        [score.title for score in scores.SCORES],
    ):
        assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("path", "label", "better"),
    [
        ("linear.top_1", "linear top-1", "higher"),
        ("pretrained.ece", "stage 1 ECE", "lower"),
        ("retrieval.recall_at.7", "recall@7", "higher"),
        # Alone they say nothing: equal representations are best aligned.
        ("representations.alignment", "alignment", None),
        ("representations.uniformity", "uniformity", None),
        # Not in the table: as others of the same last key.
        ("knn.nll", "k-NN NLL", "lower"),
        (
            "corruptions.linear.by_severity.3.top_1",
            "corruptions linear by severity 3 top-1",
            "higher",
        ),
        ("test_images", "test images", None),
    ],
)
def test_any_path_is_found(path, label, better):
    score = scores.find(path)
    assert (score.path, score.label, score.better) == (path, label, better)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("a.b", 1.5),
        ("a.none", None),
        ("a.null", None),
        ("a.b.c", None),
        ("a", None),
    ],
)
def test_a_value_is_a_number_or_none(path, expected):
    assert scores.value_at({"a": {"b": 1.5, "null": None}}, path) == expected


def test_tensorflow_is_not_imported():
    code = (
        "import sys, supcon_tf.scores; assert 'tensorflow' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
