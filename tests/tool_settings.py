"""Every tool and benchmark, and its settings."""

import pathlib
import sys

# As of a program there: its `import checkout`.
sys.path.append(str(pathlib.Path(__file__).parent.parent / "benchmarks"))

from benchmarks import (  # noqa: E402
    finetuning,
    gallery,
    knn,
    learning,
    loss,
    serving,
    step,
    text,
)
from benchmarks import input as benchmarks_input  # noqa: E402
from supcon_tf import config  # noqa: E402

TOOLS = {
    "pretrain": config.PretrainSettings,
    "train_linear": config.LinearSettings,
    "finetune": config.FinetuneSettings,
    "finetune_text": config.FinetuneTextSettings,
    "evaluate": config.EvaluateSettings,
    "export": config.ExportSettings,
    "convert": config.ConvertSettings,
    "demo": config.DemoSettings,
    "import_weights": config.ImportSettings,
    "data_service": config.DataServiceSettings,
    "make_tfrecords": config.MakeTfrecordsSettings,
    "index": config.IndexSettings,
    "predict": config.PredictSettings,
    "search": config.SearchSettings,
    "report": config.ReportSettings,
    "reproduce": config.ReproduceSettings,
    "show_augment": config.ShowAugmentSettings,
    "sweep": config.SweepSettings,
    "sweep_text": config.SweepTextSettings,
    "transfer": config.TransferSettings,
}
BENCHMARKS = {
    "finetuning": finetuning.FinetuningBench,
    "gallery": gallery.GalleryBench,
    "input": benchmarks_input.InputBench,
    "knn": knn.KnnBench,
    "learning": learning.LearningBench,
    "loss": loss.LossBench,
    "serving": serving.ServingBench,
    "step": step.StepBench,
    "text": text.TextBench,
}
# By the path of the program.
PROGRAMS = {
    f"tools/{name}.py": settings_class for name, settings_class in TOOLS.items()
} | {
    f"benchmarks/{name}.py": settings_class
    for name, settings_class in BENCHMARKS.items()
}
