"""From settings to optimizer and schedule."""

from __future__ import annotations

import tensorflow as tf

from supcon_tf import config
from supcon_tf.training import lars, optimizers, schedules

StageSettings = config.PretrainSettings | config.LinearSettings

_EPSILONS = {
    "rmsprop": 1e-3,  # the paper's linear stage
    "adam": 1e-7,
    "adamw": 1e-7,
    "lamb": 1e-6,
}


def optimizer(
    chosen: StageSettings, epoch_steps: int
) -> tf.keras.optimizers.Optimizer | tf.keras.optimizers.legacy.Optimizer:
    """The optimizer of a stage with its schedule.

    Args:
      chosen: the settings of the stage.
      epoch_steps: optimizer steps of an epoch.
    """
    rate = schedule(chosen, epoch_steps)
    decay = chosen.weight_decay
    momentum = chosen.momentum
    denominator = epsilon(chosen)
    return {
        "lars": lambda: lars.LARS(
            rate, momentum, chosen.trust_coefficient, l2=decay
        ),
        "sgd": lambda: optimizers.SGD(
            rate, momentum, chosen.nesterov, l2=decay
        ),
        "rmsprop": lambda: optimizers.RMSProp(
            rate, chosen.rmsprop_decay, momentum, denominator, l2=decay
        ),
        "adam": lambda: optimizers.Adam(rate, epsilon=denominator, l2=decay),
        "adamw": lambda: optimizers.AdamW(
            rate, weight_decay=decay, epsilon=denominator
        ),
        "lamb": lambda: _lamb(rate, epsilon=denominator, weight_decay=decay),
    }[chosen.optimizer]()


def schedule(chosen: StageSettings, epoch_steps: int) -> schedules.Warmup:
    """The learning rate of a stage, its epochs counted in optimizer steps."""
    peak = peak_learning_rate(chosen)
    steps = max(chosen.epochs, 1) * epoch_steps
    warmup = round(chosen.warmup_epochs * epoch_steps) if chosen.epochs else 0
    rate = chosen.decay_rate
    return {
        "cosine": lambda: schedules.WarmupCosine(peak, steps, warmup),
        "exponential": lambda: schedules.WarmupExponential(
            peak,
            max(round(chosen.decay_epochs * epoch_steps), 1),
            rate,
            warmup,
        ),
        "step": lambda: schedules.WarmupStep(
            peak,
            [round(epoch * epoch_steps) for epoch in chosen.decay_boundaries],
            rate,
            warmup,
        ),
        "constant": lambda: schedules.Warmup(peak, warmup),
    }[chosen.schedule]()


def peak_learning_rate(chosen: StageSettings) -> float:
    """The highest learning rate of a stage, resolved for its batch."""
    return schedules.scaled_learning_rate(
        chosen.learning_rate, chosen.batch_size, chosen.learning_rate_scaling
    )


def epsilon(chosen: StageSettings) -> float | None:
    """The denominator's epsilon, resolved; None where there is none."""
    if chosen.optimizer_epsilon is not None:
        return chosen.optimizer_epsilon
    return _EPSILONS.get(chosen.optimizer)


def _lamb(
    learning_rate: schedules.Warmup, **options: float
) -> tf.keras.optimizers.legacy.Optimizer:
    """LAMB, imported on first use as it brings TensorFlow Addons."""
    from supcon_tf.training import lamb

    return lamb.LAMB(learning_rate, **options)
