"""Wrong labels that were put there, and what is written of them."""

import csv
import dataclasses

import numpy as np
import pytest
from sklearn import metrics

from supcon_tf import data, evaluation, measures, run_files
from supcon_tf.data import subsets
from supcon_tf.evaluation import label_issues, splits
from supcon_tf.reports import contents, page
from supcon_tf.training import runs
from tests import runs as shared_runs


def test_rank_by_hand():
    votes = np.array([[0.6, 0.4], [0.1, 0.9], [0.5, 0.5], [0.4, 0.6]])
    order, suggested, margins = label_issues.rank(votes, np.array([0, 0, 1, 0]))
    assert order.tolist() == [1, 3] and suggested.tolist() == [1, 1]
    np.testing.assert_allclose(margins, [-0.8, -0.2])


def test_flipped_labels_of_clusters_come_first(finished_run):
    rng = np.random.default_rng(0)
    labels = np.arange(300) % 3
    centres = np.eye(3)[labels] + rng.normal(0, 0.2, [300, 3])
    flipped = subsets.flip_labels(labels, 3, 0.1, seed=0)
    images = np.broadcast_to(
        np.arange(300, dtype=np.uint8)[:, None, None, None], [300, 8, 8, 3]
    )
    source = data.from_arrays(images, flipped, ["a", "b", "c"])
    bank = splits.EncodedSplit(source, centres.astype(np.float32), flipped, 8)
    issues = label_issues.find_issues(bank, 20, 0.07)
    order, suggested, margins = issues
    votes = measures.knn_predict(
        bank.representations, bank.representations, flipped,
        num_classes=3, k=20, leave_one_out=True,
    )  # fmt: skip
    expected = label_issues.rank(votes, flipped)
    assert sorted(order) == sorted(expected[0])
    np.testing.assert_array_equal(margins, expected[2])
    scores = np.zeros(300)
    scores[order] = -margins
    is_wrong = flipped != labels
    assert metrics.average_precision_score(is_wrong, scores) > 0.95
    right = is_wrong[order]
    assert (suggested[right] == labels[order][right]).mean() > 0.9

    run = runs.open_run(finished_run.path)
    label_issues.write_label_issues(run.evaluation_owner, bank, issues, 35)
    owner = run.evaluation_owner
    rows = [*csv.DictReader(owner.issues_list.read_text().splitlines())]
    assert len(rows) <= 35
    assert [int(row["example"]) for row in rows] == order[:35].tolist()
    assert rows[0]["label"] == "abc"[flipped[order[0]]]
    assert rows[0]["suggested"] == "abc"[suggested[0]]
    arrays = run_files.read_arrays(owner.issues_file)
    issue_images = arrays["issue_images"]
    assert issue_images.shape == (min(30, len(order)), 8, 8, 3)
    np.testing.assert_array_equal(issue_images[:, 0, 0, 0], order[:30] % 256)


def cone(counts, spread=0.01, shared=0.9):
    """A split of tight classes in a narrow cone, as of few epochs."""
    rng, dim = np.random.default_rng(0), 32
    labels = np.repeat(np.arange(len(counts)), counts)
    rows = np.eye(dim)[1 + labels] * (1 - shared) ** 0.5
    rows[:, 0] = shared**0.5
    rows = rows + rng.normal(0, spread, rows.shape)
    images = np.zeros([len(labels), 8, 8, 3], np.uint8)
    source = data.from_arrays(
        images, labels, [f"c{index}" for index in range(9)]
    )
    return splits.EncodedSplit(source, rows.astype(np.float32), labels, 8)


@pytest.mark.parametrize("k", [1, 5, 15, 200])
def test_a_rare_class_is_not_wrong_for_being_rare(k):
    """300 to 2 examples, apart; the only one of a class is not judged."""
    bank = cone([300, 60, 15, 5, 2, 1])
    order, *_ = label_issues.find_issues(bank, k, 0.07)
    assert not len(order)
    if k == 1:  # whose nearest is wrong is listed too
        return
    # But an example among those of another class is listed, of a rare one too.
    labels = bank.labels.copy()
    labels[[3, 301]] = 2
    wrong = dataclasses.replace(bank, labels=labels)
    order, suggested, _ = label_issues.find_issues(wrong, k, 0.07)
    assert order.tolist() == [3, 301] and suggested.tolist() == [0, 1]


def test_an_evaluation_writes_and_a_report_shows_wrong_labels(finished_run):
    """A report that has none says how to have them."""
    run = runs.open_run(finished_run.path)
    owner, source = run.evaluation_owner, run.source("train")
    settings = shared_runs.evaluation_settings(
        finished_run.path, label_issues=7, knn_neighbors=5
    )
    evaluation.evaluate(settings)
    assert owner.issues_list.read_text().startswith("example,label,suggested")
    owner.issues_file.unlink(missing_ok=True)
    html = page.render([contents.read_run(finished_run.path, "mine")])
    assert "--label_issues=1000" in html and 'id="issues"' not in html
    votes = np.eye(3)[source.labels]
    votes[:3] = np.eye(3)[(source.labels[:3] + 1) % 3]
    bank = splits.EncodedSplit(source, votes, source.labels, 16)
    issues = label_issues.rank(votes, source.labels)
    label_issues.write_label_issues(owner, bank, issues, 10)
    html = page.render([contents.read_run(finished_run.path, "mine")])
    assert "Labels that neighbours contradict" in html
    for name in source.ids[:3]:
        assert f"{name}: bright, neighbours say dark" in html
