"""Logistic regression beside a minimiser of its formula."""

import dataclasses
import types

import numpy as np
import pytest
import tensorflow as tf
from scipy import optimize, special

from supcon_tf import config, data
from supcon_tf.data import sources
from supcon_tf.keras_2 import keras
from supcon_tf.transfer import linear_probe

ALL = np.arange(60)


class Pixels(keras.Model):
    """Four of the 8 x 8 pixels as representation, of unit length."""

    def call(self, images, training=None):
        pixels = tf.cast(images[:, ::4, ::4], tf.float32)
        rows = tf.reshape(pixels, [-1, 12])
        return tf.math.l2_normalize(rows - 127.5, axis=1)


def make(num_classes, positions=ALL, **overrides):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, [80, 8, 8, 3]).astype(np.uint8)
    labels = np.arange(80) % num_classes
    images[..., 0] = images[..., 0] // 2 + 40 * labels[:, None, None]
    names = [str(label) for label in range(num_classes)]
    train = data.from_arrays(images[:60], labels[:60], names)
    test = data.from_arrays(images[60:], labels[60:], names, split="test")
    settings = config.TransferSettings(
        "x", dataset="digits", image_size=8, **overrides
    )
    run = types.SimpleNamespace(encoder=Pixels())
    method = linear_probe.LinearTransfer(settings, run, train, test, positions)
    return method, images, labels


def test_a_diverged_encoder_is_named(monkeypatch):
    def call(self, images, training=None):
        return tf.fill([tf.shape(images)[0], 12], float("nan"))

    monkeypatch.setattr(Pixels, "call", call)
    with pytest.raises(ValueError, match="`representations` must be finite"):
        make(3)


def minimised(rows, labels, num_classes, l2):
    """Weights and biases of the class docstring's formula."""

    def loss(flat):
        weights = flat.reshape(num_classes, -1)
        logits = rows @ weights[:, 1:].T + weights[:, 0]
        label_logits = logits[np.arange(len(rows)), labels]
        total = np.sum(special.logsumexp(logits, axis=1) - label_logits)
        errors = special.softmax(logits, axis=1)
        errors[np.arange(len(rows)), labels] -= 1
        gradient = np.c_[
            errors.sum(0), errors.T @ rows + 2 * l2 * weights[:, 1:]
        ]
        return total + l2 * np.sum(weights[:, 1:] ** 2), gradient.ravel()

    start = np.zeros(num_classes * (rows.shape[1] + 1))
    best = optimize.minimize(
        loss, start, jac=True, method="BFGS", options={"gtol": 1e-6}
    )
    return best.x.reshape(num_classes, -1)


@pytest.mark.parametrize("num_classes", [2, 4])
def test_every_strength_minimises_the_formula(num_classes):
    method, images, labels = make(num_classes, l2_values=12)
    strengths = [cell["l2"] for cell in method.cells]
    np.testing.assert_allclose(strengths, 10.0 ** np.arange(5, -7, -1))
    rows = Pixels()(images).numpy().astype(np.float64)
    for cell in method.cells[2:9:2]:  # 1,000 to 0.001, each from the one before
        fitted = method.fit(ALL, cell, seed=0)
        assert fitted["converged"]
        weights = minimised(rows[:60], labels[:60], num_classes, cell["l2"])
        logits = rows @ weights[:, 1:].T + weights[:, 0]
        expected = special.softmax(logits, axis=1)
        np.testing.assert_allclose(
            method.predict(ALL), expected[:60], atol=2e-4
        )
        np.testing.assert_allclose(method.predict(), expected[60:], atol=2e-4)


def test_the_optimum_does_not_depend_on_earlier_strengths():
    path, *_ = make(4)
    for cell in path.cells[8:33:4]:
        path.fit(ALL, cell, seed=0)
    alone, *_ = make(4, l2=path.cells[32]["l2"])
    alone.fit(ALL, alone.cells[0], seed=0)
    np.testing.assert_allclose(path.predict(), alone.predict(), atol=1e-3)


def test_other_images_start_anew_and_are_the_right_ones():
    positions = np.array([1, 4, 7, 10, 13, 18, 22, 31, 40, 47])
    some, images, labels = make(4, positions, l2=0.01)
    some.fit(positions[2:], some.cells[0], seed=0)
    before = some.predict(positions[:2])
    whole, *_ = make(4, l2=0.01)
    whole.fit(positions[2:], whole.cells[0], seed=0)
    np.testing.assert_allclose(before, whole.predict(positions[:2]), atol=1e-6)
    some.fit(positions, some.cells[0], seed=0)
    assert np.abs(some.predict(positions[:2]) - before).max() > 1e-3


def test_weights_have_a_mean_of_1_among_the_images_of_a_fit():
    """A strength weighs against the sum of the losses."""
    plain, *_ = make(4, l2=0.1)
    weighted, *_ = make(4, l2=0.1)
    weighted._weights = np.where(ALL < 30, 0.2, 1.8)
    for method in (plain, weighted):
        method.fit(ALL[:30], method.cells[0], seed=0)
    np.testing.assert_allclose(weighted.predict(), plain.predict(), atol=1e-5)
    weighted.fit(ALL, weighted.cells[0], seed=0)
    plain.fit(ALL, plain.cells[0], seed=0)
    assert np.abs(weighted.predict() - plain.predict()).max() > 1e-3


def test_a_class_without_images_has_no_probability():
    positions = ALL[ALL % 4 != 2]
    method, *_ = make(4, positions, l2=0.1)
    method.fit(positions, method.cells[0], seed=0)
    probabilities = method.predict()
    assert probabilities.shape == (20, 4) and not probabilities[:, 2].any()
    np.testing.assert_allclose(probabilities.sum(1), 1, rtol=1e-6)


def test_too_few_iterations_are_counted_and_not_printed(recwarn):
    _, images, labels = make(4)
    probe = linear_probe.LinearProbe(4, max_iterations=3)
    fitted = probe.fit(Pixels()(images).numpy(), labels, l2=1e-6)
    assert fitted == {"iterations": 3, "converged": False}
    assert not recwarn.list


def test_several_labels_are_separate_regressions():
    rng = np.random.default_rng(1)
    rows = rng.normal(size=[50, 5]).astype(np.float32)
    labels = (rows[:, :4] + rng.normal(size=[50, 4]) > 0.5).astype(np.uint8)
    labels[:, 2], labels[:, 3] = 0, 1  # of no image, and of all
    probe = linear_probe.LinearProbe(4, max_iterations=500)
    for l2 in (1.0, 0.03):  # the second from the first
        assert probe.fit(rows, labels, l2)["converged"]
    for label in (0, 1):

        def loss(weights, truth=labels[:, label]):
            logits = rows @ weights[1:] + weights[0]
            total = np.sum(np.logaddexp(0, logits) - truth * logits)
            return total + 0.03 * np.sum(weights[1:] ** 2)

        best = optimize.minimize(loss, np.zeros(6), options={"gtol": 1e-5}).x
        np.testing.assert_allclose(probe.kernel[:, label], best[1:], atol=2e-3)
        np.testing.assert_allclose(probe.bias[label], best[0], atol=2e-3)
    probabilities = probe.predict(rows)
    logits = rows @ probe.kernel[:, :2] + probe.bias[:2]
    np.testing.assert_allclose(
        probabilities[:, :2], special.expit(logits), rtol=1e-6
    )
    assert (probabilities[:, 2] == 0).all() and (probabilities[:, 3] == 1).all()


@pytest.mark.parametrize("several", [False, True])
def test_a_weight_is_so_many_equal_images(several):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=[40, 5]).astype(np.float32)
    labels = rng.integers(0, 2, [40, 3]) if several else np.arange(40) % 3
    weights = rng.integers(0, 4, 40)
    weighted, repeated = (linear_probe.LinearProbe(3, 500) for _ in range(2))
    weighted.fit(rows, labels, 0.1, weights.astype(np.float32))
    repeated.fit(rows.repeat(weights, 0), labels.repeat(weights, 0), 0.1)
    np.testing.assert_allclose(
        weighted.predict(rows), repeated.predict(rows), atol=1e-4
    )


def test_transfer_uses_the_weights_of_images():
    method, *_ = make(4, l2=0.01)
    weights = np.where(np.arange(60) % 4 == 1, 0, 4 / 3).astype(np.float32)
    method.images = dataclasses.replace(
        method.images,
        **sources.by_index(
            np.arange(60),
            method.images.labels,
            lambda i, read=method.images.read: read(i)[0],
            weights,
        ),
    )
    method.__post_init__()
    method.fit(ALL[::2], method.cells[0], seed=0)
    method.fit(ALL, method.cells[0], seed=0)
    assert method.predict()[:, 1].max() < 0.2  # of the class of weight 0
