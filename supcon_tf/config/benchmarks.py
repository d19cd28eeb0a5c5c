"""Settings of the benchmarks."""

from __future__ import annotations

import dataclasses

from supcon_tf import settings

LOSS_IMPLEMENTATIONS = (
    "tiled",
    "looped",
    "dense",
    "floor",
    "official",
    "supcontrast",
    "pml",
)


@dataclasses.dataclass(frozen=True)
class BenchLossSettings(settings.Settings):
    """Settings of tools/bench_loss.py."""

    run_dir: str = settings.with_default(
        settings.Settings, "run_dir", "runs/bench_loss"
    )
    rows: tuple[int, ...] = settings.setting(
        (512, 2048, 4096, 8192, 12288),
        "Sizes: rows of the similarity matrix, batch times views.",
    )
    implementations: str = settings.setting(
        "all",
        f"Which of {','.join(LOSS_IMPLEMENTATIONS)}; all: those that are "
        "installed or given. looped is tiled in its least memory; floor is "
        "the matrix products and exponentials alone; pml is "
        "pytorch-metric-learning.",
    )
    official_path: str | None = settings.setting(
        None,
        "Python file with contrastive_loss(features, one_hot_labels, "
        "temperature=): supcon/losses.py of google-research, in place.",
    )
    supcontrast_path: str | None = settings.setting(
        None,
        "Python file with SupConLoss(temperature, base_temperature): "
        "losses.py of HobbitLong/SupContrast; needs PyTorch.",
    )
    rounds: int = settings.setting(
        3, "Processes per point, all implementations in turn.", at_least=1
    )
    seconds: float = settings.setting(
        2.0,
        "Seconds of timed steps per process; three steps at least.",
        at_least=0,
    )
    threads: int = settings.setting(
        0, "Threads of every process; 0 for all cores.", at_least=0
    )
    max_memory_gb: float = settings.setting(
        8.0, "Skip points that are expected to need more.", above=0
    )
    accuracy: bool = settings.setting(
        False, "Also compare our gradients with a float64 oracle."
    )
    dim: int = settings.setting(128, "Size of a projection.", at_least=1)
    views: int = settings.setting(2, "Views per sample.", at_least=1)
    classes: int = settings.setting(1000, "Number of classes.", at_least=1)
    temperature: float = settings.setting(0.1, "Temperature tau.", above=0)
    seed: int = settings.setting(
        0, "Seed of projections and labels.", at_least=0
    )

    def _check(self) -> None:
        """Checks rules between fields; raises ValueError."""
        for rows in self.rows or (0,):
            if rows < 2 or rows % self.views:
                raise ValueError(
                    "--rows must be multiples of --views, at least 2, got "
                    f"{settings.to_text(self.rows)}"
                )
        known = ("all", *LOSS_IMPLEMENTATIONS)
        names = self.implementations.split(",")
        for name in names:
            if name not in known or ("all" in names and len(names) > 1):
                raise ValueError(
                    f"--implementations must be all, or some of "
                    f"{', '.join(known[1:])}, got {self.implementations}"
                )
            if name in ("official", "supcontrast"):
                if getattr(self, f"{name}_path") is None:
                    raise ValueError(f"--{name}_path must be given for {name}")
