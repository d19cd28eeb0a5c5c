"""Settings of a training: optimizer, devices, checkpoints, data service."""

from __future__ import annotations

import dataclasses
from itertools import pairwise

from supcon_tf import defaults, exceptions
from supcon_tf.settings import Settings, setting, to_text

WITH_TPU = {"strategy": ("tpu",)}
_LOCAL_HOSTS = ("localhost", "127.0.0.1", "[::1]")
_DISPATCHER_ROLES = {"role": ("all", "dispatcher")}
_WORKER_ROLES = {"role": ("all", "worker")}
_GRPC = (
    "be a grpc:// address, got {}",
    lambda address: address.startswith("grpc://"),
)


@dataclasses.dataclass(frozen=True)
class OptimizerSettings(Settings):
    """The optimizer of a stage, and its learning rate step by step."""

    # The default of --optimizer_epsilon for rmsprop, that of the paper's code.
    RMSPROP_EPSILON = 1e-3

    epochs: int = setting(100, at_least=0, grows=True, common=True)
    """Passes over the training images; 0 keeps the initial weights. A run that
    is resumed may get more: its schedule then ends there."""
    optimizer: str = setting(
        "sgd",
        choices=("lars", "sgd", "rmsprop", "adam", "adamw", "lamb"),
        common=True,
    )
    """lars (the paper's for large batches), sgd (with --momentum), rmsprop,
    adam, adamw (decoupled weight decay) or lamb."""
    learning_rate: float | None = setting(
        None, above=0, adaptive=True, common=True
    )
    """Peak learning rate for a batch of 256 images, see
    --learning_rate_scaling. Default: sgd 1, of supcon, simclr, bcl and paco 0.5
    over what multiplies the loss (5 at a temperature of 0.1); lars 8; rmsprop
    that of sgd with an epsilon of 1, else 0.01; adam, adamw and lamb 0.001."""
    learning_rate_scaling: str = setting(
        "linear", choices=("linear", "sqrt", "none")
    )
    """How the learning rate follows the batch: times batch / 256 (linear),
    times its square root (sqrt), or not at all (none)."""
    warmup_epochs: float | None = setting(
        None, at_least=0, adaptive=True, common=True
    )
    """Epochs over which the learning rate rises linearly from 0; default: 10,
    at most a tenth of --epochs."""
    schedule: str = setting(
        "cosine",
        choices=("cosine", "linear", "exponential", "step", "constant"),
    )
    """Learning rate after the warm-up: cosine or linear to 0, exponential
    (--decay_rate every --decay_epochs, counted from the end of the warm-up),
    step (--decay_rate at each of --decay_boundaries) or constant."""
    decay_rate: float = setting(
        0.1, above=0, at_most=1, used_by={"schedule": ("exponential", "step")}
    )
    """Factor of the exponential and the step schedule."""
    decay_epochs: float = setting(
        2.4, above=0, used_by={"schedule": ("exponential",)}
    )
    """Epochs between two decays of the exponential schedule."""
    decay_boundaries: tuple[float, ...] = setting(
        (30.0, 60.0, 80.0),
        must=(
            "be positive and rising, got {}",
            lambda epochs: all(
                earlier < later for earlier, later in pairwise((0, *epochs))
            ),
        ),
        used_by={"schedule": ("step",)},
    )
    """Epochs, counted from the start of the run, at which the step schedule
    decays; within --epochs, and not in the warm-up."""
    momentum: float = setting(
        0.9,
        at_least=0,
        at_most=0.9999,
        used_by={"optimizer": ("lars", "sgd", "rmsprop")},
    )
    """Momentum of lars, sgd and rmsprop."""
    nesterov: bool = setting(False, used_by={"optimizer": ("sgd",)})
    """Nesterov momentum, of sgd."""
    optimizer_epsilon: float | None = setting(
        None,
        above=0,
        used_by={"optimizer": ("rmsprop", "adam", "adamw", "lamb")},
    )
    """Added to the denominator of rmsprop, adam, adamw and lamb; default: for
    rmsprop as in the paper's code, 1 in stage 1 and 1e-3 in stage 2, 1e-7 for
    adam and adamw, 1e-6 for lamb."""
    clip_norm: float | None = setting(None, above=0)
    """Largest norm of the gradient of all weights: a longer one is scaled."""
    weight_decay: float | None = setting(None, at_least=0, adaptive=True)
    """L2 coefficient, added to the gradient of kernels (not of batch norm and
    biases); adamw and lamb decouple it from the gradient. Default: 1e-4, times
    the temperature where that multiplies the loss."""

    def _check(self) -> None:
        if not self.epochs:  # none, or as many as the data say
            return
        self._check_pair("warmup_epochs", "be at most", "epochs")
        if self.schedule != "step":
            return
        warmup = self.warmup_epochs
        if warmup is None:
            warmup = self.default_warmup_epochs
        boundaries = self.decay_boundaries  # rising
        exceptions.require(
            boundaries
            and warmup <= boundaries[0]
            and boundaries[-1] < self.epochs,
            "--decay_boundaries must be from --warmup_epochs up to --epochs, "
            f"{warmup:g} to {self.epochs}, with --schedule=step",
            to_text(boundaries),
        )

    @property
    def loss_multiple(self) -> float | None:
        """The factor of a contrastive loss; None for other losses."""
        return None

    @property
    def default_learning_rate(self) -> float:
        """The learning rate of a run that gives none.

        Those of sgd for supcon, of lars and of rmsprop with a small epsilon are
        the best that were measured (docs/reproduction/); the others are
        customary. With an epsilon of 1, far above the squares of a gradient,
        rmsprop steps as sgd does.
        """
        multiple = self.loss_multiple
        sgd_rate = 0.5 / multiple if multiple else 1.0
        return {
            "sgd": sgd_rate,
            "lars": 8.0,
            "rmsprop": sgd_rate if self.epsilon == 1.0 else 0.01,
        }.get(self.optimizer, 0.001)

    @property
    def epsilon(self) -> float | None:
        """The epsilon of the optimizer's denominator; None without one."""
        if self.optimizer_epsilon is not None:
            return self.optimizer_epsilon
        return {
            "rmsprop": self.RMSPROP_EPSILON,
            "adam": 1e-7,
            "adamw": 1e-7,
            "lamb": 1e-6,
        }.get(self.optimizer)

    @property
    def default_weight_decay(self) -> float:
        """The decay of a run that gives none.

        A decay that is added to the gradient is multiplied as the loss is, so
        that it is as strong beside any multiple.
        """
        decoupled = self.optimizer in ("adamw", "lamb")
        return 1e-4 * (1.0 if decoupled else self.loss_multiple or 1.0)

    @property
    def default_warmup_epochs(self) -> float:
        """The warm-up, in epochs, of a run that gives none."""
        return min(10.0, self.epochs / 10)


@dataclasses.dataclass(frozen=True)
class DeviceSettings(Settings):
    """Strategy, precision and what feeds them."""

    strategy: str = setting(
        "auto", choices=defaults.STRATEGIES, resumable=True, common=True
    )
    """Distribution: one device, all devices of this machine (mirrored), the
    machines of TF_CONFIG (multi_worker), a TPU (tpu), or by what is there
    (auto): TF_CONFIG, then several GPUs, else one device."""
    tpu: str | None = setting(None, resumable=True, used_by=WITH_TPU)
    """Name or grpc:// address of the TPU of --strategy=tpu, or local on a TPU
    machine; default: that of the environment."""
    precision: str = setting(
        "float32",
        choices=("float32", "mixed_bfloat16", "mixed_float16"),
        common=True,
    )
    """Keras' precision policy; norms and loss are float32 in each, and
    mixed_float16 scales the loss."""
    jit_compile: bool = False
    """Compile the training step with XLA; not with several GPUs."""
    deterministic: bool = False
    """Bit-identical runs for the same seed on the same device, somewhat
    slower."""
    data_service: str | None = setting(None, must=_GRPC, resumable=True)
    """grpc:// address of the dispatcher of tools/data_service.py, whose workers
    then read and augment the images."""
    auto_shard: str = setting("element", choices=("element", "file"))
    """How the workers of a run share the images: each reads its own part of
    every batch (element), as one device would have it, or its own files of a
    TFDS or TFRecord set (file)."""

    def _check(self) -> None:
        if self.strategy == "tpu" and self.precision == "mixed_float16":
            raise exceptions.InvalidValue(
                "--precision must be float32 or mixed_bfloat16 with "
                "--strategy=tpu, which has no float16, got mixed_float16"
            )
        if self.deterministic:
            self._check_left_out(
                "with --deterministic, for which XLA has no gradient of max "
                "pooling",
                "jit_compile",
            )
            self._check_left_out(
                "with --deterministic: the workers race", "data_service"
            )
        if self.data_service and self.auto_shard != "element":
            raise exceptions.InvalidValue(
                "--auto_shard must be element with --data_service, which "
                "gives every worker whatever batch comes next, got "
                f"{self.auto_shard}"
            )
        if self.strategy != "tpu" or self.tpu == "local":
            return
        for name in ("run_dir", "data_dir"):
            path = getattr(self, name, None)
            if path is not None and not path.startswith("gs://"):
                raise exceptions.InvalidValue(
                    f"--{name} must be a gs:// path with --strategy=tpu, "
                    "whose machine reads and writes it (or --tpu=local on "
                    f"that machine), got {path}"
                )


@dataclasses.dataclass(frozen=True)
class CheckpointSettings(Settings):
    """Checkpoints of a run and what becomes of an earlier one."""

    overwrite: bool = setting(False, recorded=False, common=True)
    """Replace what an earlier run left in run_dir."""
    resume: bool = setting(False, recorded=False, common=True)
    """Go on with the run in run_dir from its newest checkpoint, or start it
    where there is none: the same command starts and restarts."""
    checkpoint_every: int = setting(10, at_least=1, resumable=True)
    """Epochs between checkpoints; the last one always."""
    checkpoint_steps: int | None = setting(None, at_least=1, resumable=True)
    """Steps between further checkpoints, for long epochs."""
    keep_checkpoints: int = setting(3, at_least=1, resumable=True)
    """How many of the newest checkpoints are kept."""
    keep_every: int | None = setting(None, at_least=1, resumable=True)
    """Epochs between checkpoints that are kept for good."""

    def _check(self) -> None:
        check_start(self)
        self._check_pair("keep_every", "be a multiple of", "checkpoint_every")


def check_start(settings: CheckpointSettings) -> None:
    """Raises ValueError for a run that shall both go on and begin anew."""
    if settings.overwrite and settings.resume:
        raise exceptions.InvalidValue(
            "--resume must be left out with --overwrite: one goes on with the "
            "earlier run, the other deletes it"
        )


@dataclasses.dataclass(frozen=True)
class DataServiceSettings(Settings):
    """Settings of tools/data_service.py."""

    run_dir: str = "runs/data_service"
    role: str = setting("all", choices=("all", "dispatcher", "worker"))
    """What runs here: the one dispatcher, a worker, or a dispatcher and a
    worker (all)."""
    port: int = setting(
        5050, at_least=0, at_most=65535, used_by=_DISPATCHER_ROLES
    )
    """Port of the dispatcher; 0 for a free one."""
    dispatcher: str | None = setting(
        None, must=_GRPC, used_by={"role": ("worker",)}
    )
    """grpc:// address of the dispatcher, for --role=worker."""
    worker_port: int = setting(
        0, at_least=0, at_most=65535, used_by=_WORKER_ROLES
    )
    """Port of the worker; 0 for a free one."""
    host: str = "localhost"
    """Name or address of this machine by which the others reach it. At any but
    localhost it is open to every machine of the network, without a password,
    and reads and writes files for it; a warning says so."""
    journal: bool = setting(False, used_by=_DISPATCHER_ROLES)
    """Keep the dispatcher's journal in run_dir: one that is started again
    there, with the same port, goes on with the runs that it served."""

    def _check(self) -> None:
        if self.role != "worker":
            return
        exceptions.require(
            self.dispatcher,
            "--dispatcher must be the grpc:// address of the dispatcher with "
            "--role=worker",
            self.dispatcher,
        )
        address = self.dispatcher.removeprefix("grpc://")
        dispatcher_host = address.rpartition(":")[0]
        exceptions.require(
            self.host != "localhost" or dispatcher_host in _LOCAL_HOSTS,
            "--host must be the name of this machine with a dispatcher on "
            "another machine",
            f"localhost for {self.dispatcher}",
        )
