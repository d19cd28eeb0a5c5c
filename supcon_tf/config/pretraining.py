"""Settings of stage 1."""

from __future__ import annotations

import dataclasses

from supcon_tf.config import (
    checkpointing,
    devices,
    encoder,
    groups,
    monitoring,
    objective,
    optimization,
)


@dataclasses.dataclass(frozen=True)
class PretrainSettings(
    groups.DataSettings,
    objective.ObjectiveSettings,
    encoder.EncoderSettings,
    optimization.OptimizerSettings,
    devices.DeviceSettings,
    checkpointing.CheckpointSettings,
    monitoring.MonitorSettings,
):
    """Settings of tools/pretrain.py, stage 1."""

    def _check(self) -> None:
        """Checks rules between fields; raises ValueError."""
        super()._check()
        self.check_remote_paths(
            {"run_dir": self.run_dir, "data_dir": self.data_dir}
        )
