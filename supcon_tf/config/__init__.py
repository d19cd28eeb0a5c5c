"""Settings: one frozen dataclass per tool.

Every default and help text is written here, once; the flags of tools/ and the
checks follow from it (`settings`). TensorFlow is not imported.
"""

from supcon_tf.config.evaluation import (
    CORRUPTIONS,
    EvaluateSettings,
    MakeTfrecordsSettings,
    ReportSettings,
    ShowAugmentSettings,
    TransferSettings,
)
from supcon_tf.config.export import (
    CONVERSION_FORMATS,
    ClassifierSettings,
    ConvertSettings,
    ExportSettings,
    ImportSettings,
    PredictSettings,
)
from supcon_tf.config.finetune import FinetuneSettings
from supcon_tf.config.gallery import IndexSettings, SearchSettings
from supcon_tf.config.images import (
    AugmentationSettings,
    DataSettings,
    PartSettings,
)
from supcon_tf.config.objectives import OBJECTIVES, ObjectiveSettings
from supcon_tf.config.running import (
    CheckpointSettings,
    DataServiceSettings,
    DeviceSettings,
    OptimizerSettings,
)
from supcon_tf.config.stages import (
    DemoSettings,
    EncoderSettings,
    FreezingSettings,
    LinearSettings,
    PretrainSettings,
)
from supcon_tf.config.sweep import (
    LINEAR,
    GridSettings,
    ReproduceSettings,
    SweepAxis,
    SweepSettings,
    SweepTextSettings,
    axis_text,
)
from supcon_tf.config.texts import FinetuneTextSettings
