"""Differences from the float model, in numbers that can be seen."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import conversion
from supcon_tf.conversion import comparison

EXPECTED = np.float32([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4]])
OUTPUT = np.float32([[0.6, 0.3, 0.1], [0.1, 0.8, 0.1], [0.4, 0.3, 0.3]])


def test_probabilities_differ_by_so_much():
    results = comparison.differences(OUTPUT, EXPECTED, classifies=True)
    assert results["max_difference"] == pytest.approx(0.1, rel=1e-6)
    assert results["mean_difference"] == pytest.approx(0.4 / 9, rel=1e-6)
    assert results["agreement"] == pytest.approx(2 / 3)


def test_representations_differ_by_so_much():
    unit = np.float32([[1, 0], [0.6, 0.8]])
    results = comparison.differences(unit[::-1], unit, classifies=False)
    assert results["max_difference"] == pytest.approx(0.8)
    assert results["least_cosine"] == pytest.approx(0.6)
    assert "agreement" not in results


def test_accuracy_has_the_numbers_of_evaluation():
    results = comparison.accuracy(OUTPUT, np.int32([0, 1, 2]))
    assert results["top_1"] == pytest.approx(2 / 3) and results["top_5"] == 1
    nll = -np.log([0.6, 0.8, 0.3]).mean()
    assert results["nll"] == pytest.approx(nll, rel=1e-6)
    assert set(results) == {"top_1", "top_5", "ece", "nll"}


def test_every_image_is_seen_once_in_order(monkeypatch):
    monkeypatch.setattr(
        os, "sched_getaffinity", lambda _: {1, 3}, raising=False
    )
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    images = np.arange(10 * 2 * 2 * 3).reshape(10, 2, 2, 3).astype(np.uint8)
    examples = tf.data.Dataset.from_tensor_slices((images, range(10))).batch(4)
    # Passes with two threads or more: it takes the cores that it may use.
    together = threading.Barrier(2, timeout=600)
    shapes, threads = [], set()

    def single(batch):
        together.wait()
        shapes.append(batch.shape)
        threads.add(threading.current_thread())
        return batch[:, 0, 0]

    expected, results, labels = comparison.outputs(
        lambda batch: batch[:, 0, 1], {"alone": single}, examples
    )
    assert len(threads) == 2
    assert not any(thread.is_alive() for thread in threads)
    assert shapes == [(1, 2, 2, 3)] * 10
    np.testing.assert_array_equal(labels, range(10))
    np.testing.assert_array_equal(results["alone"], images[:, 0, 0])
    np.testing.assert_array_equal(expected, images[:, 0, 1])


def test_the_table_has_a_row_per_model_and_what_was_measured():
    accuracy = {"top_1": 0.5, "top_5": 1.0, "ece": 0.01, "nll": 0.7}
    int8 = {
        "bytes": 1_234_567,
        **accuracy,
        "top_1": 0.4875,
        "max_difference": 0.0123,
        "mean_difference": 1e-4,
        "agreement": 0.99,
        "milliseconds": 1.5,
    }
    results = {"float_model": accuracy, "models": {"tflite_int8": int8}}
    titles, first, second = conversion.conversion_table(results).splitlines()
    assert titles.split() == (
        "MB top-1 top-5 ECE NLL max diff mean diff agreement ms/image".split()
    )
    assert first.removeprefix("float model").split() == (
        "- 0.5000 1.0000 0.0100 0.7000 - - - -".split()
    )
    assert second.split() == (
        "tflite_int8 1.23 0.4875 1.0000 0.0100 0.7000 1.2e-02 1.0e-04 0.9900 "
        "1.50".split()
    )
    encoder = {"float_model": {}, "models": {"onnx": {"bytes": 5}}}
    assert "top-1" not in conversion.conversion_table(encoder)
