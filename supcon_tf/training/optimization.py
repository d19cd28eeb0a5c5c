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
    settings: devices.StageSettings, epoch_steps: int
) -> tf.keras.optimizers.Optimizer | tf.keras.optimizers.legacy.Optimizer:
    """The optimizer of a stage with its schedule.

    Args:
      settings: the settings of the stage.
      epoch_steps: optimizer steps of an epoch.
    """
    rate, decay = schedule(settings, epoch_steps), settings.weight_decay
    momentum, small = settings.momentum, epsilon(settings)
    if settings.optimizer == "lamb":  # brings TensorFlow Addons
        from supcon_tf.training import lamb

        return lamb.LAMB(rate, epsilon=small, weight_decay=decay)
    return {
        "lars": lambda: lars.LARS(
            rate, momentum, settings.trust_coefficient, l2=decay
        ),
        "sgd": lambda: optimizers.SGD(
            rate, momentum, settings.nesterov, l2=decay
        ),
        "rmsprop": lambda: optimizers.RMSProp(
            rate, settings.rmsprop_decay, momentum, small, l2=decay
        ),
        "adam": lambda: optimizers.Adam(rate, epsilon=small, l2=decay),
        "adamw": lambda: optimizers.AdamW(
            rate, weight_decay=decay, epsilon=small
        ),
    }[settings.optimizer]()


def schedule(
    settings: devices.StageSettings, epoch_steps: int
) -> schedules.Warmup:
    """The learning rate of a stage, its epochs counted in optimizer steps."""

    def steps(epochs: float) -> int:
        return round(epochs * epoch_steps)

    peak, rate = peak_learning_rate(settings), settings.decay_rate
    warmup = steps(settings.warmup_epochs) if settings.epochs else 0
    return {
        "cosine": lambda: schedules.WarmupCosine(
            peak, steps(max(settings.epochs, 1)), warmup
        ),
        "exponential": lambda: schedules.WarmupExponential(
            peak, max(steps(settings.decay_epochs), 1), rate, warmup
        ),
        "step": lambda: schedules.WarmupStep(
            peak, map(steps, settings.decay_boundaries), rate, warmup
        ),
        "constant": lambda: schedules.Warmup(peak, warmup),
    }[settings.schedule]()


def peak_learning_rate(settings: devices.StageSettings) -> float:
    """The highest learning rate of a stage, resolved for its batch."""
    return schedules.scaled_learning_rate(
        settings.learning_rate,
        settings.batch_size,
        settings.learning_rate_scaling,
    )


def epsilon(settings: devices.StageSettings) -> float | None:
    """The denominator's epsilon, resolved; None where there is none."""
    if settings.optimizer_epsilon is not None:
        return settings.optimizer_epsilon
    return _EPSILONS.get(settings.optimizer)
