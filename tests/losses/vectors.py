"""Every loss with labels for it; unit vectors, gradients, and two replicas."""

import inspect
import itertools

import numpy as np
import tensorflow as tf

from supcon_tf import losses, models

FORMULATIONS = ("out", "in")
DENOMINATORS = ("all", "one_positive", "only_negatives")
# A class on both replicas, one on either side of their border, one sample.
LABELS = np.array([0, 0, 0, 1, 1, 0, 2])
# Equal, contained, shared and disjoint sets of labels; no label.
SETS = np.array(
    [[1, 1, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 0, 1], [0] * 4, [0] * 4]
)
_TILED = {"implementation": "tiled"}
# A class of losses, and options by which it takes another branch.
LOSSES = {
    "streamed": (losses.SupConLoss, {}),
    "dense": (
        losses.SupConLoss,
        {
            "implementation": "dense",
            "positives_cap": 3,
            "denominator": "one_positive",
        },
    ),
    "windows": (losses.SupConLoss, _TILED | {"formulation": "in"}),
    "capped windows": (
        losses.SupConLoss,
        _TILED | {"positives_cap": 2, "denominator": "one_positive"},
    ),
    "negatives": (losses.SupConLoss, _TILED | {"denominator": DENOMINATORS[2]}),
    "dense jaccard": (
        losses.SupConLoss,
        {"implementation": "dense", "positives": "jaccard"},
    ),
    "jaccard": (losses.SupConLoss, {"positives": "jaccard"}),
    "any": (losses.SupConLoss, {"positives": "any", "formulation": "in"}),
    "all": (losses.SupConLoss, {"positives": "all"}),
    "hierarchy": (
        losses.HierarchicalSupConLoss,
        {"ancestors": [[0, 0], [0, 1], [1, 2], [1, 3]]},
    ),
    "simclr": (losses.SimCLRLoss, {}),
    "npairs": (losses.NPairsLoss, {}),
    "triplet": (losses.TripletLoss, {}),
    "hard triplet": (losses.TripletLoss, {"mining": "hard"}),
    "rank": (losses.RankNContrastLoss, {"temperature": 0.7}),
    "balanced": (losses.BalancedSupConLoss, {}),
    "paco": (losses.PaCoLoss, {"class_shares": [0.6, 0.2, 0.15, 0.05]}),
    "cross-entropy": (losses.CrossEntropyLoss, {"label_smoothing": 0.1}),
    "margin": (losses.MaxMarginLoss, {}),
    "binary": (losses.BinaryCrossEntropyLoss, {}),
}
OF_CLASSIFIERS = ("cross-entropy", "margin", "binary")
CONTRASTIVE = [name for name in LOSSES if name not in OF_CLASSIFIERS]


def make_loss(name, **options):
    """The loss of a name, per sample."""
    loss_class, branch_options = LOSSES[name]
    if "centres" in inspect.signature(loss_class).parameters:
        options["centres"] = make_centres()
    return loss_class(**{"reduction": "none", **branch_options, **options})


def make_centres():
    """Four centres of any length, for projections of dim 4."""
    layer = models.ClassCentres(4, 4)
    layer.build(None)
    layer.centres.assign(3 * unit([4, 4], seed=7))
    return layer


def labels_for(name, labels=LABELS):
    """Classes in the form that the loss of a name takes: as sets, or plain."""
    is_of_sets = name == "binary" or "positives" in LOSSES[name][1]
    return np.eye(4)[labels] if is_of_sets else np.array(labels)


def combinations(**values):
    """Options of every combination of these values."""
    for combination in itertools.product(*values.values()):
        yield dict(zip(values, combination, strict=True))


def unit(shape, seed=0, dtype=np.float64):
    z = np.random.default_rng(seed).normal(size=shape)
    return (z / np.linalg.norm(z, axis=-1, keepdims=True)).astype(dtype)


def value_and_gradient(function, z, weights=1.0):
    """Losses `function(z)`, and the gradient of their weighted sum."""
    z = tf.convert_to_tensor(z)
    with tf.GradientTape() as tape:
        tape.watch(z)
        loss = function(z)
        total = tf.reduce_sum(tf.cast(weights, loss.dtype) * loss)
    return loss, tape.gradient(total, z)


def supcon_value_and_gradient(z, labels, **options):
    return value_and_gradient(
        lambda z: losses.supcon_loss(z, labels, **options), z
    )


def assert_close(tensors, expected, rtol=2e-5, atol=2e-6):
    for tensor, expected_tensor in zip(tensors, expected, strict=True):
        np.testing.assert_allclose(tensor, expected_tensor, rtol, atol)


def on_two_replicas(strategy, step, parts, *arrays):
    """The results of a step, replica after replica.

    `parts` are the rows of `arrays` that each replica gets.
    """

    def distributed(array):
        return strategy.experimental_distribute_values_from_function(
            lambda c: tf.constant(array[parts[c.replica_id_in_sync_group]])
        )

    # One function for all shapes, as with a partial last batch in fit.
    run = tf.function(
        lambda *inputs: strategy.run(step, inputs), reduce_retracing=True
    )
    results = run(*map(distributed, arrays))
    return [
        np.concatenate(strategy.experimental_local_results(result))
        for result in results
    ]
