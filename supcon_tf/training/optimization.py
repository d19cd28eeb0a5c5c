"""From settings to optimizer and schedule."""

from __future__ import annotations

import tensorflow as tf

from supcon_tf.training import devices, lars, optimizers, schedules

_EPSILONS = {
    "rmsprop": 1e-3,  # the paper's linear stage
    "adam": 1e-7,
    "adamw": 1e-7,
    "lamb": 1e-6,
}


def optimizer(
    chosen: devices.StageSettings, epoch_steps: int
) -> tf.keras.optimizers.Optimizer | tf.keras.optimizers.legacy.Optimizer:
    """The optimizer of a stage with its schedule.

    Args:
      chosen: the settings of the stage.
      epoch_steps: optimizer steps of an epoch.
    """
    rate, decay = schedule(chosen, epoch_steps), chosen.weight_decay
    momentum, small = chosen.momentum, epsilon(chosen)
    if chosen.optimizer == "lamb":  # brings TensorFlow Addons
        from supcon_tf.training import lamb

        return lamb.LAMB(rate, epsilon=small, weight_decay=decay)
    return {
        "lars": lambda: lars.LARS(
            rate, momentum, chosen.trust_coefficient, l2=decay
        ),
        "sgd": lambda: optimizers.SGD(
            rate, momentum, chosen.nesterov, l2=decay
        ),
        "rmsprop": lambda: optimizers.RMSProp(
            rate, chosen.rmsprop_decay, momentum, small, l2=decay
        ),
        "adam": lambda: optimizers.Adam(rate, epsilon=small, l2=decay),
        "adamw": lambda: optimizers.AdamW(
            rate, weight_decay=decay, epsilon=small
        ),
    }[chosen.optimizer]()


def schedule(
    chosen: devices.StageSettings, epoch_steps: int
) -> schedules.Warmup:
    """The learning rate of a stage, its epochs counted in optimizer steps."""

    def steps(epochs: float) -> int:
        return round(epochs * epoch_steps)

    peak, rate = peak_learning_rate(chosen), chosen.decay_rate
    warmup = steps(chosen.warmup_epochs) if chosen.epochs else 0
    return {
        "cosine": lambda: schedules.WarmupCosine(
            peak, steps(max(chosen.epochs, 1)), warmup
        ),
        "exponential": lambda: schedules.WarmupExponential(
            peak, max(steps(chosen.decay_epochs), 1), rate, warmup
        ),
        "step": lambda: schedules.WarmupStep(
            peak, map(steps, chosen.decay_boundaries), rate, warmup
        ),
        "constant": lambda: schedules.Warmup(peak, warmup),
    }[chosen.schedule]()


def peak_learning_rate(chosen: devices.StageSettings) -> float:
    """The highest learning rate of a stage, resolved for its batch."""
    return schedules.scaled_learning_rate(
        chosen.learning_rate, chosen.batch_size, chosen.learning_rate_scaling
    )


def epsilon(chosen: devices.StageSettings) -> float | None:
    """The denominator's epsilon, resolved; None where there is none."""
    if chosen.optimizer_epsilon is not None:
        return chosen.optimizer_epsilon
    return _EPSILONS.get(chosen.optimizer)
