"""Which score of belonging a gallery takes, and its threshold."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import exceptions, gallery, measures
from supcon_tf.gallery import belonging
from supcon_tf.serving import bank
from tests.gallery import galleries

CLASSES = tuple("abcdef")


def stretched(count, rng):
    """Classes that differ in eight directions, and noise in eight others."""
    labels = np.arange(count) % len(CLASSES)
    centers = rng.normal(size=[len(CLASSES), 8])
    rows = np.zeros([count, 16])
    rows[:, :8] = centers[labels] + rng.normal(scale=0.05, size=[count, 8])
    rows[:, 8:] = rng.normal(scale=3, size=[count, 8])
    return rows, labels


def divided(count, rng):
    """Classes of two groups each, on opposite sides."""
    labels = np.arange(count) % len(CLASSES)
    centers = rng.normal(size=[len(CLASSES), 16])
    sides = np.where(np.arange(count) // len(CLASSES) % 4 < 2, 1, -1)
    rows = centers[labels] * sides[:, None]
    return rows + rng.normal(scale=0.05, size=rows.shape), labels


@pytest.mark.parametrize(
    "draw, score", [(stretched, "mahalanobis"), (divided, "neighbors")]
)
def test_the_better_score_is_taken(draw, score, tmp_path):
    rows, labels = draw(480, np.random.default_rng(0))
    shelf = galleries.from_rows(rows, labels, CLASSES)
    chosen, aurocs = belonging.choose_score(shelf)
    assert chosen == score == max(aurocs, key=aurocs.get)
    assert all(0 < auroc <= 1 for auroc in aurocs.values())
    threshold = belonging.fit(shelf, 0.9)
    assert threshold.score == score and threshold.aurocs == aurocs
    new_rows, _ = draw(240, np.random.default_rng(0))  # of the same classes
    similarities, _ = shelf.search(new_rows, k=1)
    by_hand = {
        "neighbors": similarities[:, 0],
        "mahalanobis": measures.mahalanobis_scores(new_rows, rows, labels),
    }[score]
    shelf = dataclasses.replace(shelf, threshold=threshold)
    np.testing.assert_array_equal(
        shelf.is_known(new_rows, similarities), by_hand >= threshold.minimum
    )
    shelf.save(tmp_path / "a")
    assert gallery.open_gallery(tmp_path / "a").threshold == threshold


def test_the_threshold_lets_the_share_of_held_out_rows_pass():
    rows, labels = stretched(480, np.random.default_rng(0))
    shelf = galleries.from_rows(rows[:300], labels[:300], CLASSES)
    threshold = belonging.fit(shelf, 0.9, rows[300:], "held out")
    scores = measures.mahalanobis_scores(rows[300:], rows[:300], labels[:300])
    assert (scores >= threshold.minimum).mean() == pytest.approx(0.9, abs=0.01)
    assert threshold.known_data == "held out"
    # Without them the rows ask each other: nearly the same threshold.
    beside_others = belonging.fit(shelf, 0.9)
    assert beside_others.minimum == pytest.approx(threshold.minimum, rel=0.2)


@pytest.mark.parametrize("score", gallery.store.SCORES)
def test_the_last_known_example_stays_known_in_an_export(score, monkeypatch):
    """The graph rounds a score in another way."""
    monkeypatch.setattr(belonging, "choose_score", lambda _: (score, {}))
    rows, labels = divided(80, np.random.default_rng(0))
    shelf = galleries.from_rows(rows[:60], labels[:60], CLASSES)
    held_out = rows[60:].astype(np.float32)
    for count in range(1, 21):
        threshold = belonging.fit(shelf, count / 20, held_out, "held out")
        limited = dataclasses.replace(shelf, threshold=threshold)
        answers = bank.Bank(limited, k=1).belonging(tf.constant(held_out))
        assert answers["is_known"].numpy().sum() >= count


@pytest.mark.parametrize(
    "change",
    [
        lambda rows, labels: (rows, np.where(labels == 0, -1, labels)),
        lambda rows, labels: (rows, labels % 2),  # two classes
        lambda rows, labels: (rows[labels], labels),  # equal in each class
        lambda rows, labels: (rows[:6], labels[:6]),  # a row of each
    ],
)
def test_without_a_choice_the_score_is_the_cosine(change):
    rows, labels = change(*stretched(60, np.random.default_rng(0)))
    shelf = galleries.from_rows(rows, labels, CLASSES[: labels.max() + 1])
    assert belonging.choose_score(shelf) == ("neighbors", {})


@pytest.mark.parametrize("count", [18, 120])  # of 16 dimensions
def test_a_threshold_of_few_rows_lets_few_others_pass(count):
    """Each row asks all others: a fit to half of them knows few directions."""
    rng = np.random.default_rng(9)
    rows, labels = stretched(count + 600, rng)
    shelf = galleries.from_rows(rows[:count], labels[:count], CLASSES)
    threshold = belonging.fit(shelf, 0.9)
    assert threshold.score == "mahalanobis"
    known = shelf.mahalanobis.scores(rows[count:]) >= threshold.minimum
    assert known.mean() == pytest.approx(0.9, abs=0.1)
    others, _ = stretched(600, rng)
    unknown = shelf.mahalanobis.scores(others) >= threshold.minimum
    assert unknown.mean() < 0.5


def test_rows_that_hardly_differ_leave_the_cosine(monkeypatch):
    rows, labels = stretched(60, np.random.default_rng(0))
    shelf = galleries.from_rows(rows, labels, CLASSES)
    assert belonging.fit(shelf, 1.0).score == "mahalanobis"

    def refuse(*_, **__):
        raise exceptions.InvalidValue("`bank` must have different rows")

    monkeypatch.setattr(measures, "mahalanobis_scores", refuse)
    threshold = belonging.fit(shelf, 1.0)
    assert (threshold.score, threshold.aurocs) == ("neighbors", {})
    similarities, _ = shelf.search(rows, k=2)
    assert threshold.minimum == pytest.approx(
        similarities[:, 1].min(), abs=2e-5
    )


def test_copies_of_an_example_count_as_one_row():
    """A copy has a cosine of 1, which no other example reaches."""
    for draw in (stretched, divided):
        rows, labels = draw(120, np.random.default_rng(0))
        shelf = galleries.from_rows(rows, labels, CLASSES)
        copies = dataclasses.replace(
            shelf, ids=tuple(f"copy of {name}" for name in shelf.ids)
        )
        threshold = belonging.fit(shelf, 0.9)
        assert belonging.fit(shelf.add(copies), 0.9) == threshold


def test_the_threshold_by_some_rows_of_a_large_gallery(monkeypatch):
    rows, labels = divided(48, np.random.default_rng(0))
    cosines = measures.neighbor_scores(rows, rows, leave_one_out=True)
    shelf = galleries.from_rows(rows, np.zeros(48), CLASSES[:1])
    assert belonging.fit(shelf, 1.0).minimum == pytest.approx(
        cosines.min(), abs=2e-5
    )
    monkeypatch.setattr(belonging, "_MOST_THRESHOLD_ROWS", 3)
    minimum = belonging.fit(shelf, 1.0).minimum
    assert minimum == pytest.approx(cosines[[0, 16, 32]].min(), abs=2e-5)
    # Equal rows are each other's nearest.
    equal_rows = galleries.from_rows(np.ones([9, 4]), labels[:9], CLASSES)
    assert belonging.fit(equal_rows, 1.0).minimum == pytest.approx(1, abs=2e-5)


def test_a_distance_without_rows_is_a_single_line():
    rows, labels = stretched(60, np.random.default_rng(0))
    threshold = gallery.Threshold(-9.0, 0.95, "held out", "mahalanobis")
    shelf = dataclasses.replace(
        galleries.from_rows(rows, labels, CLASSES), threshold=threshold
    )
    assert shelf.can_be_scored
    for count in (6, 0):
        part = shelf.part(np.arange(60) < count)
        assert not part.can_be_scored
        with pytest.raises(
            ValueError, match="different rows for its threshold"
        ):
            part.is_known(rows[:1], np.ones([1, 1]))


def test_an_export_has_the_same_distance():
    rows, labels = stretched(240, np.random.default_rng(0))
    shelf = galleries.from_rows(rows, labels, CLASSES)
    queries = np.random.default_rng(1).normal(size=[50, 16]).astype(np.float32)
    queries = np.concatenate([queries, shelf.representations[:50]])
    scores = np.sort(shelf.mahalanobis.scores(queries))
    minimum = float(scores[20] + scores[21]) / 2  # between two of them
    threshold = gallery.Threshold(minimum, 0.95, score="mahalanobis")
    shelf = dataclasses.replace(shelf, threshold=threshold)
    known = bank.Bank(shelf, k=3).belonging(tf.constant(queries))["is_known"]
    similarities, _ = shelf.search(queries, k=1)
    expected = shelf.is_known(queries, similarities)
    assert expected.sum() == 79
    np.testing.assert_array_equal(known, expected)


def test_an_export_has_the_distance_to_classes_that_lie_close_together():
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(3, dtype=np.int32), 20)
    noise = rng.normal(size=[60, 64]) * 1e-4
    rows = (np.eye(64)[labels] + noise).astype(np.float32)
    shelf = galleries.from_rows(rows, labels, CLASSES[:3])
    threshold = gallery.Threshold(-9.0, 0.95, score="mahalanobis")
    shelf = dataclasses.replace(shelf, threshold=threshold)
    queries = shelf.representations
    distances = bank.Bank(shelf, k=3)._distances(tf.constant(queries))
    expected = -shelf.mahalanobis.scores(queries)
    np.testing.assert_allclose(distances, expected, rtol=1e-5)
