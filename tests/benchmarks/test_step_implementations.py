"""Batches and steps; the whole measurement is in tests/tools."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from supcon_tf import config
from supcon_tf.benchmarks import step_implementations

WORK = step_implementations.Work(
    architecture="resnet18",
    batch_size=4,
    views=3,
    chunks=1,
    image_size=8,
    classes=2,
    temperature=0.1,
    path=None,
    seed=1,
    threads=1,
)


def test_all_are_given_the_same_noise():
    views, labels = step_implementations.make_batch(WORK)
    assert views.shape == (4, 3, 8, 8, 3) and views.dtype == np.uint8
    assert labels.shape == (4,) and labels.dtype == np.int32
    assert views.min() < 10 and views.max() > 245 and set(labels) == {0, 1}
    again = step_implementations.make_batch(WORK)
    assert np.array_equal(again[0], views) and np.array_equal(again[1], labels)


def test_every_implementation_has_its_step(monkeypatch):
    """Networks are not made: under which options is what is looked at."""
    precision = tf.keras.mixed_precision
    monkeypatch.setattr(
        step_implementations,
        "_ours",
        lambda work: (work, precision.global_policy().name),
    )
    monkeypatch.setattr(
        step_implementations,
        "_torch",
        lambda work, **options: (work, options),
    )
    try:
        made = {
            name: step_implementations.make_step(name, WORK)
            for name in config.STEP_IMPLEMENTATIONS
        }
    finally:
        precision.set_global_policy("float32")
    assert {work for work, _ in made.values()} == {WORK}
    assert {name: options for name, (_, options) in made.items()} == {
        "ours": "float32",
        "ours_bfloat16": "mixed_bfloat16",
        "torch_nchw": {},
        "torch_channels_last": {"channels_last": True},
        "torch_channels_last_bf16": {"channels_last": True, "bfloat16": True},
    }
