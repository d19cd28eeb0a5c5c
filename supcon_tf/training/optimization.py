"""From settings to optimizer and schedule."""

from __future__ import annotations

from supcon_tf import config
from supcon_tf.training import optimizers, schedules


def optimizer(
    chosen: config.PretrainSettings | config.LinearSettings, epoch_steps: int
) -> optimizers.SGD:
    """The optimizer of a stage with its schedule, `epoch_steps` an epoch."""
    peak = schedules.scaled_learning_rate(
        chosen.learning_rate, chosen.batch_size, chosen.learning_rate_scaling
    )
    schedule = schedules.WarmupCosine(
        peak,
        total_steps=max(chosen.epochs, 1) * epoch_steps,
        warmup_steps=round(chosen.warmup_epochs * epoch_steps)
        if chosen.epochs
        else 0,
    )
    return optimizers.SGD(
        schedule,
        momentum=chosen.momentum,
        nesterov=chosen.nesterov,
        l2=chosen.weight_decay,
    )
