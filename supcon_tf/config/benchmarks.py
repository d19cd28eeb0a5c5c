"""Settings of the benchmarks."""

from __future__ import annotations

import dataclasses

from supcon_tf import exceptions, settings

LOSS_IMPLEMENTATIONS = (
    "tiled",
    "looped",
    "dense",
    "floor",
    "official",
    "supcontrast",
    "pml",
)
INPUT_IMPLEMENTATIONS = ("ours", "tfm", "pil")
INPUT_POLICIES = (
    "identity",
    "autoaugment",
    "randaugment",
    "simaugment",
    "simclr",
    "stacked_randaugment",
)
INPUTS = ("memory", "jpeg")
STEP_IMPLEMENTATIONS = (
    "ours",
    "ours_bfloat16",
    "torch_nchw",
    "torch_channels_last",
    "torch_channels_last_bf16",
)
KNN_IMPLEMENTATIONS = ("ours", "sklearn_euclidean", "sklearn_cosine")
SERVING_IMPLEMENTATIONS = ("ours_bytes", "ours_images", "keras_resnet50")
LEARNING_IMPLEMENTATIONS = ("ours", "supcontrast", "supcontrast_published")
STEP_ARCHITECTURES = ("resnet18", "resnet34", "resnet50")


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
                raise exceptions.InvalidValue(
                    "--rows must be multiples of --views, at least 2, got "
                    f"{settings.to_text(self.rows)}"
                )
        _check_names("implementations", self.implementations, _LOSS_CHOICES)
        for name in self.implementations.split(","):
            if name in ("official", "supcontrast"):
                if getattr(self, f"{name}_path") is None:
                    raise exceptions.InvalidValue(
                        f"--{name}_path must be given for {name}"
                    )


@dataclasses.dataclass(frozen=True)
class BenchInputSettings(settings.Settings):
    """Settings of tools/bench_input.py."""

    run_dir: str = settings.with_default(
        settings.Settings, "run_dir", "runs/bench_input"
    )
    sizes: tuple[int, ...] = settings.setting(
        (32, 224), "Sides of the views in pixels."
    )
    policies: str = settings.setting(
        "autoaugment,randaugment",
        f"Which of {','.join(INPUT_POLICIES)}; simclr is simaugment without "
        "the warp.",
    )
    inputs: str = settings.setting(
        "memory,jpeg",
        "Which of memory: the policy alone on images in memory; jpeg: reading "
        "and decoding files, random crop, flip, policy.",
    )
    views: bool = settings.setting(
        False,
        "Also measure two views from one decode beside two pipelines of one "
        "view, ours alone.",
    )
    implementations: str = settings.setting(
        "all",
        f"Which of {','.join(INPUT_IMPLEMENTATIONS)}; all: those that are "
        "installed. tfm is tf-models-official; pil is torchvision on Pillow "
        "images in a DataLoader of PyTorch.",
    )
    data_dir: str | None = settings.setting(
        None,
        "Folder with JPEG files, at any depth; 512 spread over all of them "
        "are used. None: variants of scikit-learn's two photographs.",
    )
    batch_size: int = settings.setting(
        64, "Images per batch; of pairs, with --views.", at_least=1
    )
    rounds: int = settings.setting(
        3, "Processes per point, all implementations in turn.", at_least=1
    )
    seconds: float = settings.setting(
        5.0,
        "Seconds of timed batches per process; eight batches at least.",
        at_least=0,
    )
    threads: int = settings.setting(
        0,
        "Cores that every process may use, with as many threads; 0 for all.",
        at_least=0,
    )
    workers: int = settings.setting(
        0, "Processes of the DataLoader; 0 for one per core.", at_least=0
    )
    seed: int = settings.setting(0, "Seed of our augmentation.", at_least=0)

    def _check(self) -> None:
        """Checks rules between fields; raises ValueError."""
        if not self.sizes or min(self.sizes) < 1:
            raise exceptions.InvalidValue(
                "--sizes must be positive numbers of pixels, got "
                f"{settings.to_text(self.sizes)}"
            )
        _check_names("policies", self.policies, INPUT_POLICIES)
        _check_names("inputs", self.inputs, INPUTS)
        _check_names("implementations", self.implementations, _INPUT_CHOICES)


@dataclasses.dataclass(frozen=True)
class BenchStepSettings(settings.Settings):
    """Settings of tools/bench_step.py."""

    run_dir: str = settings.with_default(
        settings.Settings, "run_dir", "runs/bench_step"
    )
    architectures: str = settings.setting(
        "resnet18,resnet50", f"Which of {','.join(STEP_ARCHITECTURES)}."
    )
    batch_sizes: tuple[int, ...] = settings.setting(
        (64,), "Images per step, each in --views views."
    )
    implementations: str = settings.setting(
        "all",
        f"Which of {','.join(STEP_IMPLEMENTATIONS)}; all: those that are "
        "installed. torch is the same network in PyTorch, eager; bfloat16 is "
        "Keras' mixed_bfloat16, bf16 is PyTorch's autocast.",
    )
    supcontrast_path: str | None = settings.setting(
        None,
        "Python file with SupConLoss(temperature, base_temperature), the loss "
        "of torch: losses.py of HobbitLong/SupContrast; default: a plain one.",
    )
    image_size: int = settings.setting(
        32,
        "Side of the views in pixels; the stem is the CIFAR one at every size.",
        at_least=8,
    )
    views: int = settings.setting(2, "Views per image.", at_least=1)
    chunks: tuple[int, ...] = settings.setting(
        (1,), "Values of --gradient_cache_chunks that ours is measured with."
    )
    chunk_size: int = settings.setting(
        0,
        "Also measure ours in chunks of so many images, whatever the batch; "
        "0 for not.",
        at_least=0,
    )
    rounds: int = settings.setting(
        3, "Processes per point, all implementations in turn.", at_least=1
    )
    steps: int = settings.setting(
        5, "Timed steps per process, after two that are not.", at_least=1
    )
    threads: int = settings.setting(
        0, "Threads of every process; 0 for all cores.", at_least=0
    )
    max_memory_gb: float = settings.setting(
        8.0,
        "Skip points that are expected to need more, by what a smaller batch "
        "needed.",
        above=0,
    )
    temperature: float = settings.setting(0.1, "Temperature tau.", above=0)
    classes: int = settings.setting(10, "Number of classes.", at_least=1)
    seed: int = settings.setting(
        0, "Seed of pixels, labels and weights.", at_least=0
    )

    def _check(self) -> None:
        """Checks rules between fields; raises ValueError."""
        _check_names("architectures", self.architectures, STEP_ARCHITECTURES)
        _check_names("implementations", self.implementations, _STEP_CHOICES)
        for name in ("batch_sizes", "chunks"):
            values = getattr(self, name)
            if min(values, default=0) < 1 or list(values) != sorted(values):
                raise exceptions.InvalidValue(
                    f"--{name} must be positive and rising, got "
                    f"{settings.to_text(values)}"
                )
        for name, parts in (
            ("chunks", self.chunks),
            ("chunk_size", (self.chunk_size or 1,)),
        ):
            if any(size % part for size in self.batch_sizes for part in parts):
                raise exceptions.InvalidValue(
                    f"--{name} must divide --batch_sizes, got "
                    f"{settings.to_text(getattr(self, name))} and "
                    f"{settings.to_text(self.batch_sizes)}"
                )


@dataclasses.dataclass(frozen=True)
class BenchKnnSettings(settings.Settings):
    """Settings of tools/bench_knn.py."""

    run_dir: str = settings.with_default(
        settings.Settings, "run_dir", "runs/bench_knn"
    )
    implementations: str = settings.setting(
        "all",
        f"Which of {','.join(KNN_IMPLEMENTATIONS)}; all: each of them. sklearn "
        "is NearestNeighbors(algorithm='brute') with that metric.",
    )
    bank: int = settings.setting(
        50_000, "Representations that are searched.", at_least=1
    )
    queries: int = settings.setting(
        10_000, "Representations whose neighbours are searched.", at_least=1
    )
    dim: int = settings.setting(512, "Size of a representation.", at_least=1)
    k: int = settings.setting(200, "Neighbours of each query.", at_least=1)
    rounds: int = settings.setting(
        3, "Processes per point, all implementations in turn.", at_least=1
    )
    threads: int = settings.setting(
        0, "Threads of every process; 0 for all cores.", at_least=0
    )
    seed: int = settings.setting(0, "Seed of the representations.", at_least=0)

    def _check(self) -> None:
        """Checks rules between fields; raises ValueError."""
        _check_names("implementations", self.implementations, _KNN_CHOICES)
        if self.k > self.bank:
            raise exceptions.InvalidValue(
                f"--k must be at most --bank, {self.bank}, got {self.k}"
            )


@dataclasses.dataclass(frozen=True)
class BenchServingSettings(settings.Settings):
    """Settings of tools/bench_serving.py."""

    run_dir: str = settings.with_default(
        settings.Settings, "run_dir", "runs/bench_serving"
    )
    implementations: str = settings.setting(
        "all",
        f"Which of {','.join(SERVING_IMPLEMENTATIONS)}; all: each of them. "
        "ours is our export of a ResNet-50 for 1,000 classes, asked with JPEG "
        "files or with views of 224 pixels; keras is a plain SavedModel of "
        "tf.keras.applications.ResNet50, asked with normalised views.",
    )
    images: tuple[int, ...] = settings.setting(
        (1, 8, 32), "Images per request."
    )
    concurrency: tuple[int, ...] = settings.setting(
        (1, 4), "Clients that send requests at the same time."
    )
    data_dir: str | None = settings.setting(
        None,
        "Folder with JPEG files, at any depth; 512 spread over all of them "
        "are used. None: variants of scikit-learn's two photographs.",
    )
    rounds: int = settings.setting(
        3, "Processes per point, all implementations in turn.", at_least=1
    )
    seconds: float = settings.setting(
        5.0,
        "Seconds of timed requests per process; three requests of each client "
        "at least.",
        at_least=0,
    )
    threads: int = settings.setting(
        0,
        "Cores that every process may use, with as many threads; 0 for all.",
        at_least=0,
    )
    seed: int = settings.setting(0, "Seed of the weights.", at_least=0)

    def _check(self) -> None:
        """Checks rules between fields; raises ValueError."""
        _check_names("implementations", self.implementations, _SERVING_CHOICES)
        for name in ("images", "concurrency"):
            values = getattr(self, name)
            if min(values, default=0) < 1:
                raise exceptions.InvalidValue(
                    f"--{name} must be positive, got {settings.to_text(values)}"
                )


@dataclasses.dataclass(frozen=True)
class BenchLearningSettings(settings.Settings):
    """Settings of tools/bench_learning.py."""

    run_dir: str = settings.with_default(
        settings.Settings, "run_dir", "runs/bench_learning"
    )
    implementations: str = settings.setting(
        "all",
        f"Which of {','.join(LEARNING_IMPLEMENTATIONS)}; all: those that are "
        "installed and given. supcontrast is SupContrast's code from our "
        "initial weights on our views; published has its own of both.",
    )
    supcontrast_path: str | None = settings.setting(
        None, "Folder of HobbitLong/SupContrast, unchanged; needs PyTorch."
    )
    data_dir: str | None = settings.setting(
        None,
        "Images in train/<class>/ and test/<class>/, squares of one size. "
        "None: scikit-learn's digits, without supcontrast_published.",
    )
    seeds: int = settings.setting(
        3, "Trainings of each, of seeds 0, 1, ...", at_least=1
    )
    steps: int = settings.setting(2000, "Steps of a training.", at_least=1)
    knn_every: int = settings.setting(
        200, "Steps between two tests by nearest neighbours.", at_least=1
    )
    batch_size: int = settings.setting(
        128, "Images of a step, in two views.", at_least=2
    )
    width: float = settings.setting(
        0.25, "Share of ResNet-18's channels.", above=0
    )
    learning_rate: float = settings.setting(
        0.0625,
        "Peak learning rate of SupContrast, which multiplies the loss by "
        "tau / 0.07; ours is this divided by 0.07.",
        above=0,
    )
    weight_decay: float = settings.setting(
        1e-4, "SupContrast's; ours is this times 0.07.", at_least=0
    )
    temperature: float = settings.setting(0.1, "Temperature tau.", above=0)
    threads: int = settings.setting(
        0, "Threads of every process; 0 for all cores.", at_least=0
    )

    def _check(self) -> None:
        """Checks rules between fields; raises ValueError."""
        _check_names("implementations", self.implementations, _LEARNING_CHOICES)
        for name in self.implementations.split(","):
            if name.startswith("supcontrast") and not self.supcontrast_path:
                raise exceptions.InvalidValue(
                    f"--supcontrast_path must be given for {name}"
                )
            if name == "supcontrast_published" and not self.data_dir:
                raise exceptions.InvalidValue(
                    f"--data_dir must be given for {name}"
                )


_LEARNING_CHOICES = ("all", *LEARNING_IMPLEMENTATIONS)
_KNN_CHOICES = ("all", *KNN_IMPLEMENTATIONS)
_LOSS_CHOICES = ("all", *LOSS_IMPLEMENTATIONS)
_INPUT_CHOICES = ("all", *INPUT_IMPLEMENTATIONS)
_STEP_CHOICES = ("all", *STEP_IMPLEMENTATIONS)
_SERVING_CHOICES = ("all", *SERVING_IMPLEMENTATIONS)


def _check_names(flag: str, text: str, known: tuple[str, ...]) -> None:
    """Raises ValueError unless all names are known, and `all` is alone."""
    names = text.split(",")
    either = "all, or some of " if known[0] == "all" else "some of "
    if not set(names) <= set(known) or ("all" in names and len(names) > 1):
        raise exceptions.InvalidValue(
            f"--{flag} must be {either}"
            f"{', '.join(name for name in known if name != 'all')}, got {text}"
        )
