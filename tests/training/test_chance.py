"""The chance level of a run is its loss of equal projections."""

import dataclasses
import functools
import types

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import config, data, losses
from supcon_tf.data import sampling
from supcon_tf.keras_2 import keras
from supcon_tf.losses.options import Options
from supcon_tf.training import builders, chance

BATCH, SIZES = 16, (80, 40, 20, 10, 10)
TREE = "a/x a/y b/x b/y b/z"


def source(sizes=SIZES, names=None):
    labels = np.repeat(np.arange(len(sizes)), sizes)
    images = np.zeros([len(labels), 8, 8, 3], np.uint8)
    return data.from_arrays(images, labels, names)


def multilabel_source():
    """Some have none; of several, jaccard weighs."""
    rng = np.random.default_rng(0)
    labels = rng.random([160, 4]) < [0.4, 0.2, 0.1, 0.05]
    images = np.zeros([160, 8, 8, 3], np.uint8)
    fields = data.sources.by_index(images, labels.astype(np.uint8))
    return data.Source("x", "train", tuple("abcd"), image_size=8, **fields)


@functools.cache
def shuffled(count, epoch):
    """The order of so many images in an epoch, which no label changes."""
    return order(source((count,)), epoch)


def order(images, epoch):
    records = images.records(tf.constant([epoch, 1], tf.int32))
    return np.array([*records.as_numpy_iterator()])


def batches(images, settings, epochs=25):
    """Labels [batch, ...] in the order of training."""
    find = functools.partial(shuffled, images.num_examples)
    kind = "images" if "images_per_class" in vars(settings) else "examples"
    if per_class := getattr(settings, f"{kind}_per_class"):
        images = sampling.class_balanced(images, settings.batch_size, per_class)
        epochs = 3  # which are all the same
        find = functools.partial(order, images)
    size = settings.batch_size
    for epoch in range(epochs):
        indices = find(epoch)
        steps = len(indices) // size
        yield from np.split(images.labels[indices[: steps * size]], steps)


def measured(settings, images, parts=1):
    """The mean of the loss itself, where all projections are equal."""
    model = None
    if settings.queue_size:
        queue = losses.ProjectionQueue(settings.queue_size, 2)
        model = types.SimpleNamespace(queue=queue)
    loss = builders.loss(settings, model, images)
    loss.reduction = keras.losses.Reduction.NONE
    mean = tf.function(lambda labels, z: tf.reduce_mean(loss(labels, z)))
    means = []
    for labels in batches(images, settings):
        for part in np.split(labels, parts):
            z = tf.ones([len(part), settings.num_views, 2])
            if model is None or int(queue.filled) == queue.size:
                means.append(float(mean(part, z)))
        if model is not None:
            rows = np.repeat(labels, settings.num_views, axis=0)
            queue.enqueue(np.full([len(rows), 2], 0.5**0.5), rows)
    return np.mean(means)


CASES = {
    "simclr": {"objective": "simclr", "num_views": 3},
    "joint": {"objective": "supcon+ce", "denominator": "one_positive"},
    "only_negatives": {"denominator": "only_negatives"},
    "margin": {"denominator": "sincere", "margin": 2.0},
    "spread": {"denominator": "sincere", "spread": 0.4},
    "spread_cap": {"positives_cap": 3, "spread": 0.4, "hardness": 1.0},
    "unsupervised_queue": {
        "denominator": "only_negatives",
        "unsupervised_classes": ("1",),
        "queue_size": 48,
    },
    "cap": {"positives_cap": 4, "formulation": "in"},
    "one_view": {"num_views": 1},
    "one_view_negatives": {"num_views": 1, "denominator": "only_negatives"},
    "queue": {"queue_size": 48},
    "queue_cap": {"queue_size": 48, "positives_cap": 5, "num_views": 1},
    "queue_long": {"queue_size": 300, "denominator": "only_negatives"},
    "balanced": {"images_per_class": 4, "denominator": "one_positive"},
    "unscaled": {
        "temperature": 0.5,
        "scale_by_temperature": False,
        "denominator": "one_positive",
    },
}


def settings_of(**options):
    return config.PretrainSettings("x", batch_size=BATCH, **options)


def assert_level(settings, images, replicas=1, parts=1):
    level = chance.level(settings, replicas, images)
    # Draws of few samples are now without positives and now not.
    error = 0.02 if settings.num_views == 1 else 0.004
    assert level == pytest.approx(measured(settings, images, parts), rel=error)
    return level


def test_every_option_of_the_loss_has_a_case():
    names = {field.name for field in dataclasses.fields(Options)}
    # All views have the same loss; kinds of positives have tests of their own.
    names -= {"anchor_views", "positives"}
    assert names <= {name for options in CASES.values() for name in options}


DEFAULT_CASES = (
    *("margin", "spread_cap", "unsupervised_queue", "one_view_negatives"),
    *("queue_long", "balanced", "unscaled"),
)


@pytest.mark.slow(but=DEFAULT_CASES)
@pytest.mark.parametrize("options", CASES.values(), ids=CASES)
def test_equal_projections_have_the_level(options):
    assert_level(settings_of(**options), source())


@pytest.mark.parametrize(
    ("denominator", "per_class"), [("all", 4), ("one_positive", None)]
)
def test_replicas_may_contrast_their_parts_alone(denominator, per_class):
    options = {"denominator": denominator, "images_per_class": per_class}
    alone = settings_of(**options, cross_replica=False)
    level = assert_level(alone, source(), replicas=2, parts=2)
    settings = settings_of(**options)
    assert chance.level(settings, 2, source()) > level + 0.01
    assert chance.level(settings, 2, source()) == chance.level(
        settings, 1, source()
    )


@pytest.mark.slow(
    but=[
        "{'num_views': 1}-any",
        "{'num_views': 1}-all",
        "{'denominator': 'only_negatives', 'positives_cap': 6}-jaccard",
    ]
)
@pytest.mark.parametrize("positives", ["any", "all", "jaccard"])
@pytest.mark.parametrize(
    "options",
    [
        {"denominator": "one_positive"},
        {"denominator": "only_negatives", "positives_cap": 6},
        {"num_views": 1},
    ],
    ids=str,
)
def test_images_of_several_labels_have_a_level(positives, options):
    settings = settings_of(multi_label=True, positives=positives, **options)
    assert_level(settings, multilabel_source())


@pytest.mark.parametrize("kind", ["soft", "cosine"])
def test_mixed_images_have_a_level_where_all_rows_are_contrasts(kind):
    settings = settings_of(mixing="mixup", positives=kind)
    loss = builders.loss(settings)
    soft = np.random.default_rng(0).dirichlet([0.5] * 5, BATCH)
    level = float(loss(soft, tf.ones([BATCH, 2, 2])))
    assert chance.level(settings, 1, source()) == pytest.approx(level, rel=1e-5)
    for partly in (
        {"denominator": "one_positive"},
        {"positives_cap": 3},
        {"hardness": 1.0},
        {"num_views": 1},
    ):
        without = settings_of(mixing="mixup", positives=kind, **partly)
        assert chance.level(without, 1, source()) is None


@pytest.mark.parametrize("denominator", ["all", "one_positive"])
def test_classes_with_parents_have_a_level(denominator):
    settings = settings_of(hierarchy="names", denominator=denominator)
    images = source(names=TREE.split())
    assert_level(settings, images)
    one_view = settings_of(hierarchy="names", num_views=1)
    assert chance.level(one_view, 1, images) is None


@pytest.mark.parametrize("per_class", [None, 4])
def test_texts_of_a_view_have_a_level(per_class):
    settings = config.FinetuneTextSettings(
        "x",
        model="m",
        train_file="t.tsv",
        batch_size=8,
        examples_per_class=per_class,
        learning_rate=1.0,
    )
    assert_level(settings, source((90, 10)))


def test_the_level_of_the_digits():
    labels = np.arange(1280) % 10
    images = data.from_arrays(np.zeros([1280, 8, 8, 3], np.uint8), labels)
    settings = config.PretrainSettings(
        "x", batch_size=128, denominator="one_positive"
    )
    loss = builders.loss(settings)
    equal = np.ones([128, 2, 2], np.float32)
    assert float(loss(labels[:128], equal)) == pytest.approx(0.5444, abs=1e-4)
    level = chance.level(settings, 1, images)
    assert level == pytest.approx(0.5437, abs=5e-5)
    # Where labels are not known, classes are taken to be of one size.
    unread = data.Source(**{**vars(images), "labels": None})
    assert chance.level(settings, 1, unread) == pytest.approx(level, rel=1e-4)
    assert chance.level(settings, 1) is None
    assert chance.level(settings_of(), 1) == pytest.approx(0.1 * np.log(31))
    for name in {*config.OBJECTIVES} - {"supcon", "simclr"}:
        assert chance.level(settings_of(objective=name), 1, images) is None
