"""Learning rates: scaling with the batch, warm-up and decay."""

from __future__ import annotations

import math

import tensorflow as tf

_BASE_BATCH = 256  # learning rates are quoted for this batch size


def scaled_learning_rate(base: float, batch_size: int, scaling: str) -> float:
    """Peak learning rate of a batch, from that of a batch of 256.

    Args:
      base: learning rate for 256 images.
      batch_size: global batch size in images.
      scaling: "linear", "sqrt" or "none".
    """
    ratio = batch_size / _BASE_BATCH
    return (
        base * {"linear": ratio, "sqrt": math.sqrt(ratio), "none": 1.0}[scaling]
    )


@tf.keras.utils.register_keras_serializable(package="supcon_tf")
class WarmupCosine(tf.keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up to the peak, then half a cosine down to 0.

      t <  w: peak * (t + 1) / w
      t >= w: peak * (1 + cos(pi * (t - w) / (T - w))) / 2

    The official code starts at exactly 0 and so wastes its first step.

    Args:
      peak: highest learning rate.
      total_steps: T, steps of the whole run; 0 from there on.
      warmup_steps: w, at most T.

    Raises:
      ValueError: `warmup_steps` is not within 0 and `total_steps`.
    """

    def __init__(self, peak: float, total_steps: int, warmup_steps: int = 0):
        super().__init__()
        if not 0 <= warmup_steps <= total_steps:
            raise ValueError(
                f"`warmup_steps` must be between 0 and {total_steps} "
                f"(`total_steps`), got {warmup_steps}"
            )
        self.peak = peak
        self.total_steps = total_steps
        self.warmup_steps = warmup_steps

    def __call__(self, step: tf.Tensor) -> tf.Tensor:
        """Learning rate, float32, of a step counted from 0."""
        step = tf.cast(step, tf.float32)
        warmup = self.peak * (step + 1.0) / max(self.warmup_steps, 1)
        decay_steps = max(self.total_steps - self.warmup_steps, 1)
        progress = (step - self.warmup_steps) / decay_steps
        progress = tf.clip_by_value(progress, 0.0, 1.0)
        cosine = self.peak * 0.5 * (1.0 + tf.cos(math.pi * progress))
        return tf.where(step < self.warmup_steps, warmup, cosine)

    def get_config(self) -> dict[str, float]:
        """Returns every constructor argument."""
        return {
            "peak": self.peak,
            "total_steps": self.total_steps,
            "warmup_steps": self.warmup_steps,
        }
