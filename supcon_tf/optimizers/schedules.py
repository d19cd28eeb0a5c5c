"""Learning rates: scaling with the batch, warm-up and decay."""

from __future__ import annotations

import inspect
import math
import numbers
from collections.abc import Sequence

import tensorflow as tf

from supcon_tf import exceptions
from supcon_tf.keras_2 import keras

LearningRate = float | keras.optimizers.schedules.LearningRateSchedule


def scaled_learning_rate(
    base: float, batch_size: int, scaling: str = "linear"
) -> float:
    """Peak learning rate of a global batch, from that of 256 images.

    `scaling` is "linear", "sqrt" or "none".

    Example:
      >>> from supcon_tf import training
      >>> training.scaled_learning_rate(0.5, 1024, "linear")
      2.0
      >>> training.scaled_learning_rate(0.5, 1024, "sqrt")
      1.0
    """
    ratio = batch_size / 256
    factors = {"linear": ratio, "sqrt": math.sqrt(ratio), "none": 1.0}
    exceptions.require_one_of(factors, "scaling", scaling)
    return base * factors[scaling]


def _require_steps(**values: int) -> None:
    """Raises ValueError unless arguments, by their names, are integers."""
    for name, value in values.items():
        exceptions.require(
            isinstance(value, numbers.Integral),
            f"`{name}` must be an integer, such as round(0.1 * total_steps)",
            repr(value),
        )


@keras.utils.register_keras_serializable(package="supcon_tf")
class Warmup(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up to the peak, which then stays; the base of the others.

      t <  w: peak * (t + 1) / w
      t >= w: peak

    w is `warmup_steps`. The official code starts at exactly 0 and so wastes its
    first step.

    Example:
      >>> from supcon_tf import training
      >>> rate = training.Warmup(2.0, warmup_steps=4)
      >>> [round(float(rate(step)), 3) for step in (0, 1, 3, 4, 99)]
      [0.5, 1.0, 2.0, 2.0, 2.0]

    Raises:
      ValueError: `warmup_steps` is negative, or no integer.
    """

    def __init__(self, peak: float, warmup_steps: int = 0):
        super().__init__()
        _require_steps(warmup_steps=warmup_steps)
        exceptions.require(
            warmup_steps >= 0, "`warmup_steps` must be at least 0", warmup_steps
        )
        self.peak = peak
        self.warmup_steps = warmup_steps

    def __call__(self, step: tf.Tensor) -> tf.Tensor:
        """Learning rate, float32, of a step counted from 0."""
        step = tf.cast(step, tf.int32)
        share = tf.cast(step + 1, tf.float32) / max(self.warmup_steps, 1)
        share = tf.where(step < self.warmup_steps, share, self._decay(step))
        return self.peak * share

    def _decay(self, step: tf.Tensor) -> tf.Tensor:
        """Share of the peak, float32, at an int32 step after the warm-up."""
        return tf.ones([])

    def get_config(self) -> dict[str, object]:
        names = inspect.signature(type(self)).parameters
        return {name: getattr(self, name) for name in names}


@keras.utils.register_keras_serializable(package="supcon_tf")
class WarmupLinear(Warmup):
    """Linear warm-up to the peak, then a straight line down to 0.

      t <  w: peak * (t + 1) / w
      t >= w: peak * (T - t) / (T - w)

    w is `warmup_steps`, T `total_steps` of the whole run; 0 from there on.

    Example:
      >>> from supcon_tf import training
      >>> rate = training.WarmupLinear(2.0, total_steps=12, warmup_steps=4)
      >>> [round(float(rate(step)), 3) for step in (0, 3, 4, 8, 12)]
      [0.5, 2.0, 2.0, 1.0, 0.0]

    Raises:
      ValueError: `warmup_steps` is not within 0 and `total_steps`.
    """

    def __init__(self, peak: float, total_steps: int, warmup_steps: int = 0):
        _require_steps(warmup_steps=warmup_steps)
        exceptions.require(
            0 <= warmup_steps <= total_steps,
            f"`warmup_steps` must be between 0 and {total_steps} "
            "(`total_steps`)",
            warmup_steps,
        )
        super().__init__(peak, warmup_steps)
        self.total_steps = total_steps

    def _decay(self, step: tf.Tensor) -> tf.Tensor:
        return 1.0 - self._progress(step)

    def _progress(self, step: tf.Tensor) -> tf.Tensor:
        """Share of the steps after the warm-up, 0 to 1."""
        steps = max(self.total_steps - self.warmup_steps, 1)
        progress = tf.cast(step - self.warmup_steps, tf.float32) / steps
        return tf.clip_by_value(progress, 0.0, 1.0)


@keras.utils.register_keras_serializable(package="supcon_tf")
class WarmupCosine(WarmupLinear):
    """Linear warm-up to the peak, then half a cosine down to 0.

      t <  w: peak * (t + 1) / w
      t >= w: peak * (1 + cos(pi * (t - w) / (T - w))) / 2

    The arguments are those of `WarmupLinear`.

    Example:
      >>> from supcon_tf import training
      >>> rate = training.WarmupCosine(2.0, total_steps=10, warmup_steps=4)
      >>> [round(float(rate(step)), 3) for step in (0, 4, 6, 7, 8)]
      [0.5, 2.0, 1.5, 1.0, 0.5]
    """

    def _decay(self, step: tf.Tensor) -> tf.Tensor:
        return 0.5 * (1.0 + tf.cos(math.pi * self._progress(step)))


@keras.utils.register_keras_serializable(package="supcon_tf")
class WarmupExponential(Warmup):
    """Linear warm-up to the peak, then a staircase of equal steps and ratios.

      t <  w: peak * (t + 1) / w
      t >= w: peak * decay_rate^floor((t - w) / decay_steps)

    w is `warmup_steps`; `decay_rate` is in (0, 1].

    Example:
      >>> from supcon_tf import training
      >>> rate = training.WarmupExponential(2.0, decay_steps=3, decay_rate=0.5)
      >>> [round(float(rate(step)), 3) for step in range(7)]
      [2.0, 2.0, 2.0, 1.0, 1.0, 1.0, 0.5]

    Raises:
      ValueError: `decay_steps` is not positive, or `warmup_steps` is negative.
    """

    def __init__(
        self,
        peak: float,
        decay_steps: int,
        decay_rate: float,
        warmup_steps: int = 0,
    ):
        _require_steps(decay_steps=decay_steps)
        exceptions.require(
            decay_steps >= 1, "`decay_steps` must be at least 1", decay_steps
        )
        super().__init__(peak, warmup_steps)
        self.decay_steps = decay_steps
        self.decay_rate = decay_rate

    def _decay(self, step: tf.Tensor) -> tf.Tensor:
        # In integers: XLA divides floats by multiplying with a reciprocal,
        # and then 49 / 49 can be below 1.
        decays = (step - self.warmup_steps) // self.decay_steps
        return tf.pow(self.decay_rate, tf.cast(decays, tf.float32))


@keras.utils.register_keras_serializable(package="supcon_tf")
class WarmupStep(Warmup):
    """Linear warm-up to the peak, then a decay at each of a list of steps.

      t <  w: peak * (t + 1) / w
      t >= w: peak * decay_rate^(boundaries that are <= t)

    Boundaries count from the start of the run, so that they stay where they
    are when the warm-up changes; the official code counts them from its end.
    w is `warmup_steps`; `decay_rate` is in (0, 1].

    Example:
      >>> from supcon_tf import training
      >>> rate = training.WarmupStep(2.0, boundaries=[2, 4], decay_rate=0.5)
      >>> [round(float(rate(step)), 3) for step in range(5)]
      [2.0, 2.0, 1.0, 1.0, 0.5]

    Raises:
      ValueError: `warmup_steps` is negative.
    """

    def __init__(
        self,
        peak: float,
        boundaries: Sequence[int],
        decay_rate: float,
        warmup_steps: int = 0,
    ):
        super().__init__(peak, warmup_steps)
        self.boundaries = list(boundaries)
        for boundary in self.boundaries:
            _require_steps(boundaries=boundary)
        self.decay_rate = decay_rate

    def _decay(self, step: tf.Tensor) -> tf.Tensor:
        boundaries = tf.constant(self.boundaries, tf.int32)
        passed = tf.cast(step[..., tf.newaxis] >= boundaries, tf.float32)
        decays = tf.reduce_sum(passed, axis=-1)
        return tf.pow(self.decay_rate, decays)
