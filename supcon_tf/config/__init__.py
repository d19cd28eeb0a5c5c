"""Settings: one frozen dataclass per tool.

Every default and help text is written here, once; the flags of tools/ and the
checks follow from it (settings.py). TensorFlow is not imported.
"""

from supcon_tf.config.benchmarks import (
    LOSS_IMPLEMENTATIONS,
    BenchLossSettings,
)
from supcon_tf.config.pretraining import PretrainSettings
from supcon_tf.config.stages import (
    DemoSettings,
    EvaluateSettings,
    ExportSettings,
    LinearSettings,
)

__all__ = [
    "LOSS_IMPLEMENTATIONS",
    "BenchLossSettings",
    "DemoSettings",
    "EvaluateSettings",
    "ExportSettings",
    "LinearSettings",
    "PretrainSettings",
]
