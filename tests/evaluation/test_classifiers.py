"""k-NN and prototypes of a run."""

from __future__ import annotations

import numpy as np
import pytest

from supcon_tf import config, data, measures
from supcon_tf.evaluation import classifiers, splits


def split(rng, count):
    labels = np.arange(count) % 3
    return splits.EncodedSplit(
        data.from_arrays(np.zeros([count, 8, 8, 3], np.uint8), labels),
        rng.normal(size=[count, 4]).astype(np.float32),
        labels.astype(np.int32),
        image_size=8,
    )


@pytest.fixture(scope="module")
def pair():
    rng = np.random.default_rng(0)
    return split(rng, 12), split(rng, 30)


def test_both_votes_are_those_of_the_classifier(pair):
    test, bank = pair
    settings = config.EvaluateSettings("run", knn_neighbors=7)
    found = classifiers.without_training(settings, test, bank)
    for name, weighted in (("knn", True), ("knn_majority", False)):
        probabilities = measures.knn_predict(
            test.representations,
            bank.representations,
            bank.labels,
            num_classes=3,
            k=7,
            weighted=weighted,
        )
        expected = measures.classification_summary(probabilities, test.labels)
        assert expected.items() <= found[name].items()
        assert found[name]["k"] == 7
    assert "knn_leave_one_out" not in found


def test_leave_one_out_is_of_the_training_images(pair):
    _, bank = pair
    settings = config.EvaluateSettings(
        "run", knn_neighbors=1, knn_leave_one_out=True
    )
    found = classifiers.without_training(settings, bank, bank)
    # Itself among the neighbours, each image is right.
    assert found["knn"]["top_1"] == 1
    assert found["knn_leave_one_out"]["top_1"] < 1
    cosines = bank.representations / np.linalg.norm(
        bank.representations, axis=1, keepdims=True
    )
    cosines = cosines @ cosines.T
    np.fill_diagonal(cosines, -2)
    nearest = bank.labels[cosines.argmax(axis=1)]
    assert found["knn_leave_one_out"]["majority_top_1"] == pytest.approx(
        np.mean(nearest == bank.labels)
    )
