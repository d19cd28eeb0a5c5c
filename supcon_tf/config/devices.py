"""Where a run computes: devices, precision, input workers."""

from __future__ import annotations

import dataclasses

from supcon_tf import exceptions, settings


@dataclasses.dataclass(frozen=True)
class DeviceSettings(settings.Settings):
    """Strategy, precision and what feeds them."""

    strategy: str = settings.setting(
        "auto",
        "Distribution: one device, all devices of this machine (mirrored), "
        "the machines of TF_CONFIG (multi_worker), a TPU (tpu), or by what is "
        "there (auto): TF_CONFIG, then several GPUs, else one device.",
        choices=("auto", "one_device", "mirrored", "multi_worker", "tpu"),
        resumable=True,
        common=True,
    )
    tpu: str | None = settings.setting(
        None,
        "Name or grpc:// address of the TPU of --strategy=tpu, or local on a "
        "TPU machine; default: that of the environment.",
        resumable=True,
    )
    precision: str = settings.setting(
        "float32",
        "Keras' precision policy; norms and loss are float32 in each, and "
        "mixed_float16 scales the loss.",
        choices=("float32", "mixed_bfloat16", "mixed_float16"),
        common=True,
    )
    jit_compile: bool = settings.setting(
        False, "Compile the training step with XLA; not with several GPUs."
    )
    deterministic: bool = settings.setting(
        False,
        "Bit-identical runs for the same seed on the same device, somewhat "
        "slower.",
    )
    data_service: str | None = settings.setting(
        None,
        "grpc:// address of the dispatcher of tools/data_service.py, whose "
        "workers then read and augment the images.",
        resumable=True,
    )
    auto_shard: str = settings.setting(
        "element",
        "How the workers of a run share the images: each reads its own part "
        "of every batch (element), as one device would have it, or its own "
        "files of a TFDS set (file).",
        choices=("element", "file"),
    )

    def _check(self) -> None:
        """Checks rules between fields; raises ValueError."""
        super()._check()
        if self.tpu is not None and self.strategy != "tpu":
            raise exceptions.InvalidValue(
                f"--tpu must come with --strategy=tpu, got {self.strategy}"
            )
        if self.strategy == "tpu" and self.precision == "mixed_float16":
            raise exceptions.InvalidValue(
                "--precision must be float32 or mixed_bfloat16 with "
                "--strategy=tpu, which has no float16, got mixed_float16"
            )
        if self.jit_compile and self.deterministic:
            raise exceptions.InvalidValue(
                "--jit_compile must be left out with --deterministic: XLA has "
                "no deterministic gradient of max pooling"
            )
        if self.data_service is None:
            return
        if not self.data_service.startswith("grpc://"):
            raise exceptions.InvalidValue(
                "--data_service must be a grpc:// address, got "
                f"{self.data_service}"
            )
        if self.deterministic:
            raise exceptions.InvalidValue(
                "--data_service must be left out with --deterministic: its "
                "workers race"
            )
        if self.auto_shard != "element":
            raise exceptions.InvalidValue(
                "--auto_shard must be element with --data_service, which "
                "gives every worker whatever batch comes next, got "
                f"{self.auto_shard}"
            )

    def check_remote_paths(self, paths: dict[str, str | None]) -> None:
        """Raises ValueError for a path that the machine of a TPU cannot see.

        Args:
          paths: flag name to its value.
        """
        if self.strategy != "tpu" or self.tpu == "local":
            return
        for name, path in paths.items():
            if path is not None and not path.startswith("gs://"):
                raise exceptions.InvalidValue(
                    f"--{name} must be a gs:// path with --strategy=tpu, "
                    "whose machine reads and writes it (or --tpu=local on "
                    f"that machine), got {path}"
                )
