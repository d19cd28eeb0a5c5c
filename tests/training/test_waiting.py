"""The wait for data, in real fits, by a clock that the tests set."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import config, training
from supcon_tf.training import callbacks, waiting


class Clock(tf.keras.callbacks.Callback):
    """Time that passes only where something is said to take some.

    As a callback it notes which steps have begun, so that it is known what
    comes first of a step and of a batch that is made beside it.
    """

    def __init__(self):
        super().__init__()
        self.now = 1000.0
        self._begun = 0.0
        self._changed = threading.Condition()

    def perf_counter(self):
        return self.now

    def on_train_batch_begin(self, batch, logs=None):
        self.set_begun(self._begun + 1)

    def on_train_end(self, logs=None):
        self.set_begun(np.inf)  # what is made ahead need not wait

    def set_begun(self, steps):
        with self._changed:
            self._begun = steps
            self._changed.notify_all()

    def takes(self, value, seconds, in_its_step=False):
        """The value, later; the index of a batch, when its step has begun."""

        def later(x):
            with self._changed:
                if in_its_step:
                    self._changed.wait_for(lambda: self._begun > x, 600)
                self.now += seconds
            return x

        taken = tf.numpy_function(later, [value], value.dtype)
        return tf.ensure_shape(taken, value.shape)


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(waiting, "time", made)
    return made


def batches(clock=None, seconds=0.0):
    """Endless batches, with a pipeline's options.

    Each comes so many seconds after its step has begun, or before that.
    """
    options = tf.data.Options()
    options.deterministic = True
    options.experimental_distribute.auto_shard_policy = (
        tf.data.experimental.AutoShardPolicy.DATA
    )

    def batch(index):
        if seconds:
            index = clock.takes(index, seconds, in_its_step=True)
        x = tf.fill([4, 3], tf.cast(index, tf.float32))
        return x, tf.range(4)

    return tf.data.Dataset.counter().map(batch).with_options(options)


class Slow(tf.keras.Model):
    """A linear model whose steps, or whose tracing, take this long."""

    def __init__(self, clock, seconds=0.0, tracing=0.0):
        super().__init__()
        self.linear = tf.keras.layers.Dense(1)
        self.clock = clock
        self.seconds = seconds
        self.tracing = tracing

    def call(self, x):
        self.clock.now += self.tracing
        if self.seconds:
            x = self.clock.takes(x, self.seconds)
        return self.linear(tf.stop_gradient(x))


def fit(data, model, steps=10, epochs=2, strategy=None, wait=None, more=()):
    """Fits, with a warning after 20 steps; returns the last epoch's figure."""
    wait = wait or waiting.DataWait()
    with (strategy or tf.distribute.get_strategy()).scope():
        model.compile(training.SGD(1e-9), "mse")
    model.clock.set_begun(0)
    history = model.fit(
        wait.attach(data),
        epochs=epochs,
        steps_per_epoch=steps,
        verbose=0,
        callbacks=[
            callbacks.StopOnNonFiniteLoss(),
            wait,
            callbacks.InputBoundWarning(after_steps=20),
            model.clock,  # behind what notes when a step began
            *more,
        ],
    )
    assert len(history.history["data_wait"]) == epochs
    return history.history["data_wait"][-1]


def one_device():
    """The strategy of a run; it prefetches to the device."""
    return tf.distribute.OneDeviceStrategy("/cpu:0")


@pytest.mark.parametrize("strategy", [None, one_device])
def test_slow_data_is_seen_and_said_once(strategy, clock, capsys):
    strategy = strategy and strategy()
    data = batches(clock, 0.03)
    assert fit(data, Slow(clock, 0.01), 10, 3, strategy) == pytest.approx(0.75)
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("input-bound  75 % of the time")


def test_a_slow_step_is_no_wait(clock, capsys):
    for strategy in (None, one_device()):
        data = batches().prefetch(2)
        assert fit(data, Slow(clock, 0.02), strategy=strategy) == 0
    assert capsys.readouterr().out == ""


def test_data_that_comes_during_the_step_before_is_no_wait(clock):
    """Each batch takes 40 ms, of which a step of 30 ms covers three quarters.

    The pipeline itself is never idle: what asks it waits all the time.
    """
    data = batches(clock, 0.01).prefetch(2)
    waited = fit(data, Slow(clock, 0.03), strategy=one_device())
    assert waited == pytest.approx(0.25)


def test_replicas_share_a_clock(mirrored_strategy, clock):
    """Several replicas of a global batch are one step."""
    for data, model_seconds, expected in (
        (batches(clock, 0.02), 0.0, 1.0),
        (batches().prefetch(2), 0.01, 0.0),
    ):
        with mirrored_strategy.scope():
            model = Slow(clock, model_seconds)
        waited = fit(data, model, strategy=mirrored_strategy)
        assert waited == pytest.approx(expected)


def test_tracing_is_no_wait(clock):
    """Without a strategy's thread the first batch is asked for after it."""
    assert fit(batches(), Slow(clock, tracing=0.3), 5, epochs=1) == 0


def test_slots_are_used_again_and_a_second_fit_starts_anew(monkeypatch, clock):
    monkeypatch.setattr(waiting, "_SLOTS", 16)
    wait = waiting.DataWait()
    model = Slow(clock, 0.01)
    for _ in range(2):  # 20 steps: of other slots the second time
        waited = fit(batches(clock, 0.01), model, wait=wait)
        assert waited == pytest.approx(0.5)


def test_every_step_has_the_figure_so_far(clock):
    seen = []

    class Reader(tf.keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            seen.append(logs["data_wait"])

        def on_epoch_end(self, epoch, logs=None):
            seen.append(logs["data_wait"])

    data = batches(clock, 0.03)
    last = fit(data, Slow(clock, 0.01), 5, more=[Reader()])
    assert len(seen) == 12 and seen[-1] == last
    # The first step of all is not counted, but its time is.
    first = [0.75 * step / (step + 1) for step in range(5)]
    assert seen[:6] == pytest.approx([*first, first[-1]])
    assert seen[6:] == pytest.approx([0.75] * 6)


def test_a_step_may_take_several_batches(clock):
    """The last of three arrives after 0.9 s of the step's 2 s."""
    wait = waiting.DataWait()
    wait.attach(batches(), batches_per_step=3)
    wait.on_train_begin()
    wait.on_epoch_begin(0)
    for step in range(100):  # slots are used again
        wait.on_train_batch_begin(step)
        for batch in range(3):
            slot = (3 * step + batch) % waiting._SLOTS
            wait._arrivals[slot] = clock.now + 0.3 * (batch + 1)
        clock.now += 2.0
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
    chosen = config.LinearSettings(
        str(finished_run.path), name="waiting", epochs=1, batch_size=16
    )
    stage = training.train_linear(chosen)
    for line in finished_run.metrics() + stage.metrics():
        assert 0 <= line["data_wait"] <= 1
    in_memory = finished_run.stage("linear").metrics()
    assert "data_wait" not in in_memory[0]
