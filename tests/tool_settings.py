"""Every tool and benchmark, and its settings."""

from benchmarks import input as benchmarks_input
from benchmarks import knn, learning, loss, serving, step
from supcon_tf import config

TOOLS = {
    "pretrain": config.PretrainSettings,
    "train_linear": config.LinearSettings,
    "evaluate": config.EvaluateSettings,
    "export": config.ExportSettings,
    "convert": config.ConvertSettings,
    "demo": config.DemoSettings,
    "data_service": config.DataServiceSettings,
    "predict": config.PredictSettings,
    "report": config.ReportSettings,
    "show_augment": config.ShowAugmentSettings,
    "sweep": config.SweepSettings,
    "transfer": config.TransferSettings,
}
BENCHMARKS = {
    "input": benchmarks_input.InputBench,
    "knn": knn.KnnBench,
    "learning": learning.LearningBench,
    "loss": loss.LossBench,
    "serving": serving.ServingBench,
    "step": step.StepBench,
}
# By the path of the program.
PROGRAMS = {f"tools/{name}.py": of for name, of in TOOLS.items()} | {
    f"benchmarks/{name}.py": of for name, of in BENCHMARKS.items()
}
