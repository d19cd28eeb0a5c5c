"""Figures of steps and epochs, by a set clock, and the progress bar."""

import re
import threading

import numpy as np
import pytest
import tensorflow as tf
import tqdm

from supcon_tf import training
from supcon_tf.keras_2 import keras
from supcon_tf.training import callbacks, progress


class Clock(keras.callbacks.Callback):
    """Time that passes only where a test says so.

    As a callback, the clock notes the steps that have begun: a test decides
    which comes first, a step or its batch.
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
        """The value, after some seconds, or after the begin of its step."""

        def delayed_value(array):
            with self._changed:
                if in_its_step:
                    self._changed.wait_for(lambda: self._begun > array, 600)
                self.now += seconds
            return array

        taken = tf.numpy_function(delayed_value, [value], value.dtype)
        return tf.ensure_shape(taken, value.shape)


@pytest.fixture
def clock(monkeypatch):
    fake_clock = Clock()
    monkeypatch.setattr(progress, "time", fake_clock)
    return fake_clock


def steps(callback, batches, clock, seconds, **logs):
    """Takes steps of so many seconds; returns their logs."""
    seen = []
    for batch in batches:
        clock.now += seconds
        seen.append(dict(logs))
        callback.on_train_batch_end(batch, seen[-1])
    return seen


def figures_of(learning_rate, **arguments):
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile(training.SGD(learning_rate))
    figures = progress.Figures(**arguments)
    figures.set_model(model)
    figures.on_train_begin()
    return figures


def test_figures_of_steps_and_epochs(clock):
    """The first step of a run takes 30 s to trace and is not counted."""
    figures = figures_of(0.25, images_per_step=10, chance=0.5)
    figures.on_epoch_begin(0)
    (traced,) = steps(figures, [0], clock, 30.0, loss=0.4)
    assert traced["examples/s"] == pytest.approx(10 / 30)
    for logs in steps(figures, range(1, 4), clock, 2.0, loss=0.4):
        assert logs["examples/s"] == pytest.approx(5.0)
        assert logs["loss/chance"] == pytest.approx(0.8)
        assert logs["learning_rate"] == 0.25
    epoch = {"loss": 0.3}
    clock.now += 2.0  # of a slow callback
    figures.on_epoch_end(0, epoch)
    assert epoch.pop("examples/s") == pytest.approx(30 / 8)
    assert epoch == {
        "loss": 0.3,
        "loss/chance": pytest.approx(0.6),
        "learning_rate": 0.25,
    }
    figures.on_epoch_begin(1)  # which does not trace
    logs = steps(figures, range(4), clock, 4.0, loss=0.4)
    assert [entry["examples/s"] for entry in logs] == [pytest.approx(2.5)] * 4


def test_the_learning_rate_is_read_rarely(clock):
    figures = figures_of(0.1, images_per_step=1)
    figures.on_epoch_begin(0)
    steps(figures, [0], clock, 1.0, loss=1.0)
    figures.model.optimizer.learning_rate.assign(0.2)
    logs = steps(figures, range(1, 4), clock, 0.2, loss=1.0)
    seen = [entry["learning_rate"] for entry in logs]
    assert seen == pytest.approx([0.1, 0.1, 0.2])
    figures.model.optimizer.learning_rate.assign(0.3)
    figures.on_epoch_end(0, epoch := {"loss": 1.0})
    assert epoch["learning_rate"] == pytest.approx(0.3)


LOGS = {
    "mean_cosine": 0.5,
    "loss": 2.5,
    "learning_rate": 0.00025,
    "data_wait": 0.125,
    "contrastive_accuracy": 0.75,
    "loss/chance": 0.8,
    "examples/s": 12345.6,
}


@pytest.fixture
def bar(clock, monkeypatch):
    """Of the second of three epochs, on a terminal of 200 columns."""
    monkeypatch.setattr(tqdm.std, "time", clock.perf_counter)
    monkeypatch.setattr(
        tqdm.std, "_screen_shape_wrapper", lambda: lambda file: (200, 40)
    )
    progress_bar = progress.ProgressBar()
    progress_bar.set_params({"verbose": 1, "epochs": 3, "steps": 1251})
    progress_bar.on_epoch_begin(1)
    return progress_bar


def test_the_bar_of_a_step(bar, clock, capsys):
    """Of a resumed run at step 1,000, with steps of 2 s."""
    steps(bar, [1000], clock, 90.0, **LOGS)
    first = capsys.readouterr().out
    assert "? left" in first and "1001/1251" in first
    steps(bar, [1001, 1002], clock, 2.0, **LOGS)
    line = capsys.readouterr().out.split("\r")[-1]
    assert re.fullmatch(
        r"epoch 2/3  1003/1251 \[.{10}\] 08:16 left, loss 2\.500  "
        r"loss/chance 0\.8000  contrastive_accuracy 0\.7500  "
        r"examples/s 12,346  data_wait 0\.1250  learning_rate 0\.0002500",
        line,
    )


def test_the_bar_has_the_figures_of_its_step(bar, clock, capsys):
    for loss in (9.0, 5.0, 1.0):
        steps(bar, [1], clock, 2.0, loss=loss)
        assert f"loss {loss}" in capsys.readouterr().out
    bar.on_epoch_end(1, LOGS | {"knn_accuracy": float("nan")})
    *_, cleared, epoch = capsys.readouterr().out.split("\r")
    assert cleared.isspace() and epoch == (
        "epoch        2/3  0:00:06  loss 2.500  loss/chance 0.8000  "
        "contrastive_accuracy 0.7500  examples/s 12,346  data_wait 0.1250  "
        "learning_rate 0.0002500  mean_cosine 0.5000  knn_accuracy nan\n"
    )
    bar.on_epoch_begin(2)
    steps(bar, [0], clock, 2.0, loss=1.0)
    assert capsys.readouterr().out.startswith("\repoch 3/3  1/1251")


def test_fast_steps_are_drawn_rarely_and_silent_steps_never(bar, clock, capsys):
    for verbose, minimum, maximum in ((0, 0, 0), (1, 9, 13)):
        bar.verbose = verbose
        steps(bar, range(1000), clock, 0.001, loss=1.0)
        bar.on_epoch_end(1, LOGS)
        printed = capsys.readouterr().out
        assert minimum <= printed.count("\r") <= maximum
        assert bool(printed) == bool(verbose)


@pytest.mark.parametrize("verbose", [1, 2])
def test_short_epochs_have_a_line_per_second(verbose, clock, capsys):
    """The first, the last, and all epochs of a second or more."""

    def lines(seconds, stops_after=None):
        progress_bar = progress.ProgressBar()
        progress_bar.set_params({"verbose": verbose, "epochs": 100, "steps": 1})
        progress_bar.on_train_begin()
        for epoch in range(stops_after or 100):
            progress_bar.on_epoch_begin(epoch)
            steps(progress_bar, [0], clock, seconds, **LOGS)
            progress_bar.on_epoch_end(epoch, LOGS)
        progress_bar.on_train_end()
        printed = re.split("[\r\n]", capsys.readouterr().out)
        return [
            int(re.match(r"epoch\s+(\d+)/100  0:", line)[1])
            for line in printed
            if line.startswith("epoch     ")
        ]

    assert lines(0.3) == [1, *range(5, 100, 4), 100]
    assert lines(1.0) == [*range(1, 101)]
    # Stopped, it says where.
    assert lines(0.01, stops_after=30) == [1, 30]


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
        inputs = tf.fill([4, 3], tf.cast(index, tf.float32))
        return inputs, tf.range(4)

    return tf.data.Dataset.counter().map(batch).with_options(options)


class Slow(keras.Model):
    """A linear model whose steps, or whose tracing, take some seconds."""

    def __init__(self, clock, seconds=0.0, tracing=0.0):
        super().__init__()
        self.linear = keras.layers.Dense(1)
        self.clock = clock
        self.seconds = seconds
        self.tracing = tracing

    def call(self, inputs):
        self.clock.now += self.tracing
        if self.seconds:
            inputs = self.clock.takes(inputs, self.seconds)
        return self.linear(tf.stop_gradient(inputs))


def fit(data, model, steps=10, epochs=2, strategy=None, wait=None, more=()):
    """Fits, with a warning after 20 steps; returns the last epoch's figure."""
    wait = wait or progress.DataWait()
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
    """The strategy of a run, which prefetches to the device."""
    return tf.distribute.OneDeviceStrategy("/cpu:0")


@pytest.mark.parametrize("make", [tf.distribute.get_strategy, one_device])
def test_slow_data_are_a_wait_and_slow_steps_are_none(make, clock, capsys):
    slow = Slow(clock, 0.01)
    waited = fit(batches(clock, 0.03), slow, 10, 3, make())
    assert waited == pytest.approx(0.75)
    (line,) = capsys.readouterr().out.splitlines()  # said once
    assert line.startswith("input-bound  75 % of the time")
    data = batches().prefetch(2)
    assert fit(data, Slow(clock, 0.02), strategy=make()) == 0
    assert capsys.readouterr().out == ""


def test_data_that_arrive_during_the_former_step_are_no_wait(clock):
    """Each batch takes 40 ms, of which a step of 30 ms covers three quarters.

    The pipeline itself is never idle: what asks it waits all the time.
    """
    data = batches(clock, 0.01).prefetch(2)
    waited = fit(data, Slow(clock, 0.03), strategy=one_device())
    assert waited == pytest.approx(0.25)


def test_replicas_of_a_global_batch_take_a_single_step(
    mirrored_strategy, clock
):
    with mirrored_strategy.scope():
        model = Slow(clock)
    waited = fit(batches(clock, 0.02), model, strategy=mirrored_strategy)
    assert waited == pytest.approx(1.0)


def test_tracing_is_no_wait(clock):
    """Without a strategy's thread, tracing precedes the first batch."""
    assert fit(batches(), Slow(clock, tracing=0.3), 5, epochs=1) == 0


def test_every_step_has_the_figure_so_far(clock):
    seen = []

    class Reader(keras.callbacks.Callback):
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
    wait = progress.DataWait()
    wait.attach(batches(), batches_per_step=3)
    wait.on_train_begin()
    wait.on_epoch_begin(0)
    for step in range(100):  # slots are used again
        wait.on_train_batch_begin(step)
        for batch in range(3):
            slot = (3 * step + batch) % progress._SLOTS
            wait._arrivals[slot] = clock.now + 0.3 * (batch + 1)
        clock.now += 2.0
        wait.on_train_batch_end(step, logs := {})
    assert logs["data_wait"] == pytest.approx(99 * 0.9 / 200)


def test_the_clock_changes_no_batch():
    data = batches()
    timed = progress.DataWait().attach(data)
    assert timed.element_spec == data.element_spec
    assert timed.cardinality() == tf.data.INFINITE_CARDINALITY
    options = timed.options()
    assert options.deterministic
    assert (
        options.experimental_distribute.auto_shard_policy
        == tf.data.experimental.AutoShardPolicy.DATA
    )
    assert options.experimental_optimization.inject_prefetch is False
    # More than the slots.
    for index, (inputs, labels) in enumerate(timed.take(300)):
        np.testing.assert_array_equal(inputs, np.full([4, 3], index))
        np.testing.assert_array_equal(labels, range(4))
