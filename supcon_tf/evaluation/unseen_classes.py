"""Test images of classes that training never saw: birds, products, faces.

No classifier knows these classes. The measures say whether images of a class
are alike: retrieval, and k-NN among the test images themselves.
"""

from __future__ import annotations

from supcon_tf import config, measures
from supcon_tf.evaluation import classifying, clean, splits
from supcon_tf.training import runs

# The k of recall@k in the literature: 1 to 8 of CUB-200 and Cars-196, powers of
# ten of Stanford Online Products, 10 to 30 of In-Shop.
_DEPTHS = 1, 2, 4, 8, 10, 20, 30, 100, 1000
MEASURED = "retrieval and k-NN among the test images, no classifier"


def check(settings: config.EvaluateSettings, run: runs.Run) -> None:
    """Raises ValueError for settings that need images of the run's classes.

    The error also comes where the training images have other classes: then the
    data are not those of the run.
    """
    run.source("train")
    run.check_one_label("test classes that training never saw")
    if settings.corruptions != "none":
        run.check_seen_classes("--corruptions")
    if settings.hierarchy:
        run.check_seen_classes("--hierarchy")


def measure(
    settings: config.EvaluateSettings,
    test: splits.EncodedSplit,
    bank: splits.EncodedSplit | None,
) -> dict[str, object]:
    """All numbers of the test images, and the names of their classes.

    Returns:
      `test_classes`, the names; `knn_among_test`, k-NN of each by the others,
      with `k`, `temperature`, `top_1`, `top_5`, `majority_top_1`,
      `per_class_recall` and what `measures.confusions` returns; what
      `clean.measure_space` returns, and, if asked for, `clean.leave_one_out` of
      the training images.
    """
    names = test.source.class_names
    predictions = classifying.by_neighbors(
        settings, test, test, leave_one_out=True
    )
    predicted = predictions["knn"].predicted
    k = min(classifying.neighbors(settings, test), len(test.labels) - 1)
    return {
        "test_classes": list(names),
        "knn_among_test": {
            "k": k,
            "temperature": settings.knn_temperature,
            **classifying.accuracies(predictions),
            "per_class_recall": measures.per_class_recall(
                predicted, test.labels, len(names)
            ),
            **measures.confusions(predicted, test.labels, len(names)),
        },
        **clean.measure_space(
            test, [k for k in _DEPTHS if k < len(test.labels) - 1] or [1]
        ),
        **(
            clean.leave_one_out(settings, bank)
            if settings.knn_leave_one_out
            else {}
        ),
    }
