"""Names, meanings and directions of scores."""

import pytest

from supcon_tf import scores
from tests import score_rows


def test_every_score_has_a_measure():
    """Without a row of _MEASURES a score has no unit and no direction."""
    assert all(scores._measure(score.path) for score in scores.SCORES)


def test_paths_are_different_and_words_are_there():
    for name in ("path", "label", "title"):
        texts = {getattr(score, name) for score in scores.SCORES}
        assert len(texts) == len(scores.SCORES), name
    for score in scores.SCORES:
        assert scores.find(score.path) is score
        assert score.label and score.title
        assert score.better in ("higher", "lower", None)
        assert score.unit in ("share", "percent", "number")
        assert {*score.tables} <= TABLES


TABLES = {
    *("text", "linear", "pretrained"),
    *("one", "several", "unseen", "space", "corruptions"),
}


def test_a_table_goes_by_classifier_and_measure():
    paths = " ".join(
        score.path for score in scores.table("one", recalls=(1, 5))
    )
    assert paths.startswith("linear.top_1 linear.top_5 linear.ece pretrained")
    assert (
        "knn.top_1 prototype.top_1 retrieval.recall_at.1 retrieval.recall_at.5 "
        "retrieval.map_at_r corruptions.linear.mean_corruption_error_unnormaliz"
    ) in paths


def test_a_score_without_a_row_is_noticed():
    results = {"test_examples": 9, "linear": {"top_1": 0.5, "kappa": 0.5}}
    with pytest.raises(AssertionError, match="linear.kappa"):
        score_rows.check(results)


@pytest.mark.parametrize(
    ("path", "label", "better"),
    [
        ("linear.top_1", "linear top-1", "higher"),
        ("pretrained.ece", "stage 1 ECE", "lower"),
        ("retrieval.recall_at.7", "recall@7", "higher"),
        ("retrieval.recall_at.k", "retrieval recall at recall@k", "higher"),
        # Alone they say nothing: equal representations are best aligned.
        ("representations.alignment", "alignment", None),
        ("representations.uniformity", "uniformity", None),
        # Not in the table: as others of the same last key.
        ("knn.nll", "k-NN NLL", "lower"),
        ("corruptions.linear.3.top_1", "corruptions linear 3 top-1", "higher"),
        ("test_examples", "test examples", None),
    ],
)
def test_any_path_is_found(path, label, better):
    score = scores.find(path)
    assert (score.path, score.label, score.better) == (path, label, better)


def test_a_value_is_a_number_or_none():
    results = {"a": {"b": 1.5, "null": None}}
    assert scores.value_at(results, "a.b") == 1.5
    for path in ("a.none", "a.null", "a.b.c", "a"):
        assert scores.value_at(results, path) is None


@pytest.mark.parametrize(
    ("share", "count", "low", "high"),
    # As published in textbooks: 8 of 10, and 0 of 20.
    [(0.8, 10, 0.4902, 0.9433), (0.0, 20, 0.0, 0.1611), (1.0, 20, 0.8389, 1)],
)
def test_intervals_are_wilsons(share, count, low, high):
    expected = pytest.approx((low, high), abs=1e-4)
    assert scores.interval(share, count) == expected


def test_the_classifier_of_a_fine_tuning_is_a_linear_one():
    results = {"pretrained": {"top_1": 0.5}, "corruptions": {"pretrained": {}}}
    expected = {"linear": {"top_1": 0.5}, "corruptions": {"linear": {}}}
    assert scores.linear_results(results) == expected
    # Beside a linear stage it has a name of its own.
    union = results | {"linear": {"top_1": 0.6}}
    assert scores.linear_results(union) == union
