"""k-NN accuracy during `fit`, beside the accuracy by public functions."""

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import data, losses, measures, models, training
from supcon_tf.keras_2 import keras
from supcon_tf.training import representations


def noisy(count, seed, split):
    """Four classes of noise, each with another bright colour."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % 4
    pixels = rng.normal(100, 60, [count, 16, 16, 3])
    for label in range(1, 4):
        pixels[labels == label, :, :, label - 1] += 8
    images = np.clip(pixels, 0, 255).astype(np.uint8)
    return data.from_arrays(images, labels, split=split)


@pytest.fixture(scope="module")
def splits():
    return noisy(97, 0, "train"), noisy(41, 1, "test")


class Offline(keras.callbacks.Callback):
    """Computes the accuracy by public functions; finds no side effects."""

    def __init__(self, splits, every, k):
        super().__init__()
        self.splits, self.every, self.k = splits, every, k
        self.expected, self.figures = [], []

    def on_epoch_begin(self, epoch, logs=None):
        self.before = None

    def on_train_batch_end(self, batch, logs=None):
        self.before = self.model.encoder.get_weights()

    def on_epoch_end(self, epoch, logs=None):
        for was, now in zip(
            self.before, self.model.encoder.get_weights(), strict=True
        ):
            np.testing.assert_array_equal(was, now)
        self.figures.append(logs.get("knn_accuracy"))
        if (epoch + 1) % self.every:
            self.expected.append(None)
            return
        encoder = self.model.encoder
        bank, bank_labels = training.represent(encoder, self.splits[0])
        queries, labels = training.represent(encoder, self.splits[1])
        votes = measures.knn_predict(
            queries, bank, bank_labels, num_classes=4, k=self.k
        )
        accuracy = measures.top_k_accuracy(votes, labels, 1)
        # One of the 41 may be tipped by kernels that round otherwise.
        self.expected.append(pytest.approx(accuracy, abs=1.5 / 41))


def tiny_encoder():
    """An encoder with batch norm that is quick to trace."""
    layers = keras.layers
    encoder = keras.Sequential(
        [
            keras.Input([16, 16, 3]),
            layers.Rescaling(1 / 255),
            layers.Conv2D(16, 3, activation="relu"),
            layers.BatchNormalization(momentum=0.5, synchronized=True),
            layers.GlobalAveragePooling2D(),
            layers.UnitNormalization(),
        ]
    )
    encoder.representation_dim = 16
    return encoder


def fit(splits, knn, every, epochs, k, strategy=None):
    """Trains a small encoder; returns actual and expected figures."""
    keras.utils.set_random_seed(0)
    with (strategy or tf.distribute.get_strategy()).scope():
        model = models.SupConModel(
            tiny_encoder(), models.ProjectionHead(8, hidden_dims=(16,))
        )
        model.compile(training.SGD(2.0), losses.SupConLoss())
    offline = Offline(splits, every, k)
    history = model.fit(
        data.make_views(splits[0], 32, 2, crop_area=(0.7, 1.0)),
        epochs=epochs,
        steps_per_epoch=3,
        verbose=0,
        callbacks=[knn, offline],
    )
    due = [figure for figure in offline.expected if figure is not None]
    assert history.history.get("knn_accuracy", []) == due
    return offline


def test_figures_are_those_of_the_due_epochs(splits):
    knn = representations.KnnAccuracy(*splits, every=2, k=7, batch_size=19)
    seen = fit(splits, knn, every=2, epochs=5, k=7)
    assert seen.figures == seen.expected
    assert [f is None for f in seen.figures] == [True, False, True, False, True]
    assert seen.figures[3] > 0.5  # chance is 0.25
    assert knn._step.experimental_get_tracing_count() == 1


@pytest.mark.slow
def test_replicas_have_one_figure(splits, mirrored_strategy):
    knn = representations.KnnAccuracy(*splits)
    # k is that of the data, classes of 24 and 25 examples.
    seen = fit(splits, knn, 1, 2, k=24, strategy=mirrored_strategy)
    assert seen.figures == seen.expected
    assert knn._step.experimental_get_tracing_count() == 1


def test_a_part_of_the_bank_is_fixed(splits):
    train = splits[0]
    part = representations._first_examples(train, 40)
    assert representations._first_examples(train, 97) is train
    batches = [
        list(data.make_examples(part, 16).as_numpy_iterator()) for _ in "ab"
    ]
    (images, labels), (again, _) = (
        map(np.concatenate, zip(*taken, strict=True)) for taken in batches
    )
    np.testing.assert_array_equal(images, again)
    assert len(images) == part.num_examples == 40
    everything, all_labels = next(iter(data.make_examples(train, 97)))
    index = {image.tobytes(): i for i, image in enumerate(everything.numpy())}
    chosen = [index[image.tobytes()] for image in images]
    assert len(set(chosen)) == 40 and max(chosen) > 80  # no prefix
    np.testing.assert_array_equal(labels, all_labels.numpy()[chosen])


def test_a_part_of_the_bank_is_searched(splits):
    """A bank of one image gives all queries its label.

    Weights that are not finite have no figure.
    """
    part = representations._first_examples(splits[0], 1)
    ((_, label),) = data.make_examples(part, 1).as_numpy_iterator()
    knn = representations.KnnAccuracy(*splits, max_bank=1)
    for value, expected in (
        (1.0, np.mean(np.arange(41) % 4 == label)),
        (np.nan, np.nan),
    ):
        knn._step = lambda images, constant=value: tf.fill(
            [len(images), 2], constant
        )
        knn.on_epoch_end(0, logs := {})
        np.testing.assert_equal(logs, {"knn_accuracy": expected})


def test_wrong_arguments_are_named(splits):
    for name in ("every", "max_bank"):
        with pytest.raises(ValueError, match=f"`{name}` must be at least 1"):
            representations.KnnAccuracy(*splits, **{name: 0})
