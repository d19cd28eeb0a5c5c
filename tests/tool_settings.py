"""Every tool and its settings."""

from supcon_tf import config

TOOLS = {
    "pretrain": config.PretrainSettings,
    "train_linear": config.LinearSettings,
    "evaluate": config.EvaluateSettings,
    "export": config.ExportSettings,
    "convert": config.ConvertSettings,
    "demo": config.DemoSettings,
    "bench_input": config.BenchInputSettings,
    "bench_knn": config.BenchKnnSettings,
    "bench_learning": config.BenchLearningSettings,
    "bench_loss": config.BenchLossSettings,
    "bench_serving": config.BenchServingSettings,
    "bench_step": config.BenchStepSettings,
    "data_service": config.DataServiceSettings,
    "predict": config.PredictSettings,
    "report": config.ReportSettings,
    "show_augment": config.ShowAugmentSettings,
    "sweep": config.SweepSettings,
    "transfer": config.TransferSettings,
}
