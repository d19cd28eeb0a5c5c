"""How weights are updated: optimizer, learning rate, schedule."""

from __future__ import annotations

import dataclasses

from supcon_tf import exceptions, settings

# Settings that some optimizers or schedules alone use.
_USED_BY = {
    "momentum": ("optimizer", ("lars", "sgd", "rmsprop")),
    "nesterov": ("optimizer", ("sgd",)),
    "trust_coefficient": ("optimizer", ("lars",)),
    "rmsprop_decay": ("optimizer", ("rmsprop",)),
    "optimizer_epsilon": ("optimizer", ("rmsprop", "adam", "adamw", "lamb")),
    "decay_rate": ("schedule", ("exponential", "step")),
    "decay_epochs": ("schedule", ("exponential",)),
    "decay_boundaries": ("schedule", ("step",)),
}


@dataclasses.dataclass(frozen=True)
class OptimizerSettings(settings.Settings):
    """The optimizer of a stage, and its learning rate step by step."""

    epochs: int = settings.setting(
        100,
        "Passes over the training images; 0 keeps the initial weights. A run "
        "that is resumed may get more: its schedule then ends there.",
        at_least=0,
        grows=True,
        common=True,
    )
    optimizer: str = settings.setting(
        "sgd",
        "lars (the paper's for large batches), sgd (with --momentum), "
        "rmsprop, adam, adamw (decoupled weight decay) or lamb.",
        choices=("lars", "sgd", "rmsprop", "adam", "adamw", "lamb"),
        common=True,
    )
    learning_rate: float | None = settings.setting(
        None,
        "Peak learning rate for a batch of 256 images, see "
        "--learning_rate_scaling. Default: sgd 1, of supcon and simclr 3 over "
        "what multiplies the loss (30 at a temperature of 0.1); lars 8, "
        "rmsprop 0.01, adam, adamw and lamb 0.001.",
        above=0,
        adaptive=True,
        common=True,
    )
    learning_rate_scaling: str = settings.setting(
        "linear",
        "How the learning rate follows the batch: times batch / 256 (linear), "
        "times its square root (sqrt), or not at all (none).",
        choices=("linear", "sqrt", "none"),
    )
    warmup_epochs: float | None = settings.setting(
        None,
        "Epochs over which the learning rate rises linearly from 0; default: "
        "10, at most a tenth of --epochs.",
        at_least=0,
        adaptive=True,
        common=True,
    )
    schedule: str = settings.setting(
        "cosine",
        "Learning rate after the warm-up: cosine to 0, exponential "
        "(--decay_rate every --decay_epochs, counted from the end of the "
        "warm-up), step (--decay_rate at each of --decay_boundaries) or "
        "constant.",
        choices=("cosine", "exponential", "step", "constant"),
    )
    decay_rate: float = settings.setting(
        0.1,
        "Factor of the exponential and the step schedule.",
        above=0,
        at_most=1,
    )
    decay_epochs: float = settings.setting(
        2.4, "Epochs between two decays of the exponential schedule.", above=0
    )
    decay_boundaries: tuple[float, ...] = settings.setting(
        (30.0, 60.0, 80.0),
        "Epochs, counted from the start of the run, at which the step "
        "schedule decays; within --epochs, and not in the warm-up.",
    )
    momentum: float = settings.setting(
        0.9,
        "Momentum of lars, sgd and rmsprop.",
        at_least=0,
        at_most=0.9999,
    )
    nesterov: bool = settings.setting(False, "Nesterov momentum, of sgd.")
    trust_coefficient: float = settings.setting(
        0.001,
        "eta of lars: step length in units of a tensor's norm.",
        above=0,
    )
    rmsprop_decay: float = settings.setting(
        0.9, "Decay of rmsprop's mean of squares.", at_least=0, at_most=0.9999
    )
    optimizer_epsilon: float | None = settings.setting(
        None,
        "Added to the denominator of rmsprop, adam, adamw and lamb; default: "
        "1e-3 for rmsprop, as in the paper's code, 1e-7 for adam and adamw, "
        "1e-6 for lamb.",
        above=0,
    )
    weight_decay: float | None = settings.setting(
        None,
        "L2 coefficient, added to the gradient of kernels (not of batch norm "
        "and biases); adamw and lamb decouple it from the gradient. Default: "
        "1e-4, times the temperature where that multiplies the loss.",
        at_least=0,
        adaptive=True,
    )

    def _check(self) -> None:
        """Checks rules between fields; raises ValueError."""
        warmup = self.default_warmup_epochs
        if self.warmup_epochs is not None:
            warmup = self.warmup_epochs
        if self.epochs and warmup > self.epochs:
            raise exceptions.InvalidValue(
                "--warmup_epochs must be at most --epochs, got "
                f"{warmup} and {self.epochs}"
            )
        boundaries = self.decay_boundaries
        if (
            list(boundaries) != sorted(set(boundaries))
            or min(boundaries, default=1) <= 0
        ):
            raise exceptions.InvalidValue(
                "--decay_boundaries must be positive and rising, got "
                f"{settings.to_text(boundaries)}"
            )
        in_time = [warmup <= epoch < self.epochs for epoch in boundaries]
        decays = bool(in_time) and all(in_time)
        if self.schedule == "step" and self.epochs and not decays:
            raise exceptions.InvalidValue(
                "--decay_boundaries must be from --warmup_epochs up to "
                f"--epochs, {warmup:g} to {self.epochs}, with "
                f"--schedule=step, got {settings.to_text(boundaries)}"
            )
        settings.check_used(self, _USED_BY)
        super()._check()

    @property
    def loss_multiple(self) -> float | None:
        """What a contrastive loss comes multiplied by; None for others."""
        return None

    @property
    def default_learning_rate(self) -> float:
        """The learning rate where none is given.

        Those of sgd for supcon, of lars and of rmsprop are the best that were
        measured (docs/RESULTS.md); the others are customary.
        """
        multiple = self.loss_multiple
        return {
            "sgd": 3.0 / multiple if multiple else 1.0,
            "lars": 8.0,
            "rmsprop": 0.01,
            "adam": 0.001,
            "adamw": 0.001,
            "lamb": 0.001,
        }[self.optimizer]

    @property
    def default_weight_decay(self) -> float:
        """The decay where none is given: as strong beside any multiple."""
        decoupled = self.optimizer in ("adamw", "lamb")
        return 1e-4 * (1.0 if decoupled else self.loss_multiple or 1.0)

    @property
    def default_warmup_epochs(self) -> float:
        """The warm-up, in epochs, where none is given."""
        return min(10.0, self.epochs / 10)
