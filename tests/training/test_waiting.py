"""The wait for data, in real fits on pipelines and models that sleep."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import config, training
from supcon_tf.training import callbacks, waiting


def sleeping(value, seconds):
    """The value, later; slept in Python, where load on a CPU adds little."""

    def sleep(x):
        time.sleep(seconds)
        return x

    slept = tf.numpy_function(sleep, [value], value.dtype)
    return tf.ensure_shape(slept, value.shape)


def batches(seconds=0.0):
    """Endless batches that each take this long, with a pipeline's options."""
    options = tf.data.Options()
    options.deterministic = True
    options.experimental_distribute.auto_shard_policy = (
        tf.data.experimental.AutoShardPolicy.DATA
    )

    def batch(index):
        index = sleeping(index, seconds) if seconds else index
        x = tf.fill([4, 3], tf.cast(index, tf.float32))
        return x, tf.range(4)

    return tf.data.Dataset.counter().map(batch).with_options(options)


class Sleeper(tf.keras.Model):
    """A linear model whose steps, or whose tracing, take this long."""

    def __init__(self, seconds=0.0, tracing=0.0):
        super().__init__()
        self.linear = tf.keras.layers.Dense(1)
        self.seconds = seconds
        self.tracing = tracing

    def call(self, x):
        time.sleep(self.tracing)
        slept = sleeping(x, self.seconds) if self.seconds else x
        return self.linear(tf.stop_gradient(slept))


def fit(data, model, steps=10, epochs=2, strategy=None, wait=None, more=()):
    """Fits, with a warning after 20 steps; returns the last epoch's figure."""
    wait = wait or waiting.DataWait()
    with (strategy or tf.distribute.get_strategy()).scope():
        model.compile(training.SGD(1e-9), "mse")
    history = model.fit(
        wait.attach(data),
        epochs=epochs,
        steps_per_epoch=steps,
        verbose=0,
        callbacks=[
            callbacks.StopOnNonFiniteLoss(),
            wait,
            callbacks.InputBoundWarning(after_steps=20),
            *more,
        ],
    )
    assert len(history.history["data_wait"]) == epochs
    return history.history["data_wait"][-1]


def one_device():
    """The strategy of a run; it prefetches to the device."""
    return tf.distribute.OneDeviceStrategy("/cpu:0")


@pytest.mark.parametrize("strategy", [None, one_device])
def test_slow_data_is_seen_and_said_once(strategy, capsys):
    strategy = strategy and strategy()
    assert 0.5 < fit(batches(0.02), Sleeper(), 10, 3, strategy) <= 1
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("input-bound  ") and " % of the time" in line


def test_a_slow_step_is_no_wait(capsys):
    for strategy in (None, one_device()):
        data = batches().prefetch(2)
        assert 0 <= fit(data, Sleeper(0.02), strategy=strategy) < 0.2
    assert capsys.readouterr().out == ""


def test_data_that_comes_during_the_step_before_is_no_wait():
    """Each batch takes 40 ms, of which a step of 30 ms covers three quarters.

    The pipeline itself is never idle: what asks it waits all the time.
    """
    data = batches(0.04).prefetch(2)
    assert 0.05 < fit(data, Sleeper(0.03), strategy=one_device()) < 0.6


def test_replicas_share_a_clock(mirrored_strategy):
    """Several replicas of a global batch are one step."""
    for data, model_seconds, low, high in (
        (batches(0.02), 0.0, 0.5, 1.0),
        (batches().prefetch(2), 0.01, 0.0, 0.2),
    ):
        with mirrored_strategy.scope():
            model = Sleeper(model_seconds)
        assert low <= fit(data, model, strategy=mirrored_strategy) <= high


def test_tracing_is_no_wait():
    """Without a strategy's thread the first batch is asked for after it."""
    assert fit(batches(), Sleeper(tracing=0.3), 5, epochs=1) < 0.2


def test_slots_are_used_again_and_a_second_fit_starts_anew(monkeypatch):
    monkeypatch.setattr(waiting, "_SLOTS", 16)
    wait = waiting.DataWait()
    model = Sleeper()
    for _ in range(2):  # 20 steps: of other slots the second time
        assert 0.5 < fit(batches(0.02), model, wait=wait) <= 1


def test_every_step_has_the_figure_so_far():
    seen = []

    class Reader(tf.keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            seen.append(logs["data_wait"])

        def on_epoch_end(self, epoch, logs=None):
            seen.append(logs["data_wait"])

    last = fit(batches(0.02), Sleeper(), 5, more=[Reader()])
    assert len(seen) == 12 and seen[-1] == last
    assert all(0.5 < share <= 1 for share in seen[7:])
    assert seen[10] == pytest.approx(seen[11], rel=0.2)


def test_a_step_may_take_several_batches(monkeypatch):
    """The last of three arrives after 0.9 s of the step's 2 s."""
    clock = [1000.0]
    monkeypatch.setattr(waiting.time, "perf_counter", lambda: clock[0])
    wait = waiting.DataWait()
    wait.attach(batches(), batches_per_step=3)
    wait.on_train_begin()
    wait.on_epoch_begin(0)
    for step in range(100):  # slots are used again
        wait.on_train_batch_begin(step)
        for batch in range(3):
            slot = (3 * step + batch) % waiting._SLOTS
            wait._arrivals[slot] = clock[0] + 0.3 * (batch + 1)
        clock[0] += 2.0
        wait.on_train_batch_end(step, logs := {})
    assert logs["data_wait"] == pytest.approx(99 * 0.9 / 200)


def test_the_clock_changes_no_batch():
    data = batches()
    timed = waiting.DataWait().attach(data)
    assert timed.element_spec == data.element_spec
    assert timed.cardinality() == tf.data.INFINITE_CARDINALITY
    options = timed.options()
    assert options.deterministic
    assert (
        options.experimental_distribute.auto_shard_policy
        == tf.data.experimental.AutoShardPolicy.DATA
    )
    assert options.experimental_optimization.inject_prefetch is False
    for index, (x, y) in enumerate(timed.take(300)):  # more than the slots
        np.testing.assert_array_equal(x, np.full([4, 3], index))
        np.testing.assert_array_equal(y, range(4))


def test_both_stages_record_it(finished_run):
    stage = training.train_linear(
        config.LinearSettings(
            str(finished_run.path), name="waiting", epochs=1, batch_size=16
        )
    )
    for run in (finished_run, stage):
        for line in run.metrics_file.read_text().splitlines():
            assert 0 <= json.loads(line)["data_wait"] <= 1
    in_memory = finished_run.stage("linear").metrics_file.read_text()
    assert "data_wait" not in in_memory
