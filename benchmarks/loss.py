"""Time and peak memory of the loss beside its public peers.

  python benchmarks/loss.py --rows=512,2048,8192

Ours are `tiled`, in the schedule that SupConLoss chooses, `looped`, in that of
least memory, and `dense`, with all matrices in memory; `any`, `all` and
`jaccard` take the same labels as multi-hot ones; `floor` is the products and
exponentials alone; `inf_cl` is Inf-CL's algorithm in TensorFlow. Ours also
measure other losses, such as --denominator=only_negatives. Where they are
installed or their files are given, `pml` (pytorch-metric-learning), `official`,
and `supcontrast`, as it is and by torch.compile, take part:

  python benchmarks/loss.py --supcontrast_path=FILE --official_path=FILE

With --accuracy, `error` is the largest of a gradient, over its largest entry.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import checkout  # noqa: F401
import numpy as np

from benchmarks import harness, loss_peers, measuring, results
from supcon_tf import exceptions, settings

Pass = Callable[[], tuple[object, object]]  # mean loss times tau, gradient

# [M, M] float32 matrices at the peak; those of others were 9 to 11 at M = 8,192
# and 12,288, rounded up to 12. Tiles take memory linear in M.
_MULTI_LABEL = ("any", "all", "jaccard")
_TILED = ("tiled", "looped", *_MULTI_LABEL)
_MATRICES = dict.fromkeys(_TILED, 0.0)
_MATRICES |= {"floor": 0.5, "inf_cl": 0.0}


@dataclasses.dataclass(frozen=True)
class LossBench(harness.Bench):
    """Settings of benchmarks/loss.py."""

    NEEDS = {
        **dict.fromkeys((*_TILED, "dense", "floor", "inf_cl"), ()),
        "official": ("--official_path",),
        "supcontrast": ("--supcontrast_path", "torch"),
        "supcontrast_compiled": ("--supcontrast_path", "torch"),
        "pml": ("pytorch_metric_learning",),
    }
    AXES = {"rows": "rows"}
    COLUMNS = (
        results.Column("ms", lambda p: 1e3 * p["seconds"], plotted=True),
        results.SPREAD,
        results.MEMORY,
        results.Column("error", lambda p: p.get("gradient_error"), ".1e"),
    )
    PEERS = ("tiled",)
    AGREEING = dict.fromkeys(("loss", "tangent_norm", "gradient_norm"), 1e-4)

    run_dir: str = "runs/bench_loss"
    rows: tuple[int, ...] = (512, 2048, 4096, 8192, 12288)
    """Sizes: batch times views."""
    official_path: str | None = settings.setting(None, path=True)
    """supcon/losses.py of google-research, in place."""
    supcontrast_path: str | None = settings.setting(None, path=True)
    """losses.py of HobbitLong/SupContrast; needs PyTorch."""
    seconds: float = settings.setting(2.0, at_least=0)
    """Seconds that are timed."""
    max_memory_gb: float = settings.setting(8.0, above=0)
    """Skip jobs that are expected to need more."""
    accuracy: bool = False
    """Also errors of gradients."""
    dim: int = settings.setting(128, at_least=1)
    """Size of a projection."""
    views: int = settings.setting(2, at_least=1)
    """Views per sample."""
    classes: int = settings.setting(1000, at_least=1)
    """Number of classes."""
    temperature: float = settings.setting(0.1, above=0)
    """Temperature tau."""
    formulation: str = settings.setting("out", choices=("out", "in"))
    """Eq. 2 (out) or 3 (in), of ours."""
    denominator: str = settings.setting(
        "all", choices=("all", "one_positive", "only_negatives")
    )
    """Denominator, of ours."""
    positives_cap: int | None = settings.setting(None, at_least=1)
    """Largest number of positives, of ours."""
    seed: int = settings.setting(0, at_least=0)
    """Seed of the rows."""

    def _check(self) -> None:
        if any(rows < 2 or rows % self.views for rows in self.rows):
            raise exceptions.InvalidValue(
                "--rows must be multiples of --views, at least 2, got "
                f"{settings.to_text(self.rows)}"
            )

    def expected_gb(self, job: dict, points: list) -> float:
        """Memory by the number of matrices."""
        matrices = _MATRICES.get(job["implementation"], 12.0)
        return 4e-9 * matrices * job["rows"] ** 2


def measure(job: measuring.Job) -> dict[str, float]:
    """Time, memory, loss and norms of the gradient; of the floor no loss.

    The tangent norm is without the part along the projections, which a loss
    that normalises inside does not have.
    """
    generator = np.random.default_rng(job.seed)
    shape = (job.rows // job.views, job.views, job.dim)
    z = generator.standard_normal(shape, np.float32)
    z /= np.linalg.norm(z, axis=2, keepdims=True)
    labels = generator.integers(0, job.classes, len(z), np.int32)
    run = make_step(job, z, labels)

    def step() -> tuple[float, object]:
        loss, gradient = run()
        return float(loss), gradient  # Waits for the result.

    memory = measuring.reset_peak_mb()
    seconds, (loss, gradient) = measuring.time_steps(step, 3, job.seconds)
    memory = measuring.peak_mb() - memory
    measured = {"seconds": seconds, "peak_mb": memory}
    if job.implementation == "floor":
        return measured
    if job.implementation in loss_peers.IN_TORCH:
        gradient = gradient.cpu()  # not timed: ours stay on their device
    g = np.asarray(gradient).reshape(z.shape)
    tangent = g - np.sum(g * z, axis=2, keepdims=True) * z
    measured |= {"loss": loss, "tangent_norm": float(np.linalg.norm(tangent))}
    if job.implementation != "pml":
        measured["gradient_norm"] = float(np.linalg.norm(g))
        if job.accuracy and job.rows <= 2048:
            exact = oracle_gradient(z, labels, job.temperature)
            error = np.abs(g - exact).max() / np.abs(exact).max()
            measured["gradient_error"] = float(error)
    return measured


def make_step(job: measuring.Job, z: np.ndarray, labels: np.ndarray) -> Pass:
    """Of unit z [batch, views, dim]; traced where it is TensorFlow's."""
    if job.implementation in loss_peers.IN_TORCH:
        return loss_peers.torch_step(job, z, labels)
    tf = measuring.import_tensorflow(job.threads)
    if job.implementation == "floor":
        return floor_step(z.reshape(-1, job.dim))
    from supcon_tf import losses

    options = {"temperature": job.temperature}
    if job.implementation not in ("official", "inf_cl"):
        names = "formulation", "denominator", "positives_cap"
        options |= {name: getattr(job, name) for name in names}
    if job.implementation == "dense":
        loss = losses.supcon_loss
    elif job.implementation == "inf_cl":
        loss = loss_peers.inf_cl_loss
    elif job.implementation == "official":
        loss = measuring.load_file(job.official_path).contrastive_loss
        labels = tf.one_hot(labels, job.classes)
    else:
        loss = losses.tiled_supcon_loss
        rows = 1024 if job.implementation == "looped" else None
        options |= {"unit_length": True, "tile_rows": rows}
        if job.implementation in _MULTI_LABEL:
            options["positives"] = job.implementation
            labels = np.eye(job.classes, dtype=np.uint8)[labels]

    @tf.function
    def run(z: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(z)
            value = tf.reduce_mean(loss(z, y, **options))
        return value, tape.gradient(value, z)

    z, y = tf.constant(z), tf.constant(labels)
    traced = run.get_concrete_function(z, y)
    return lambda: traced(z, y)


def floor_step(rows: np.ndarray) -> Pass:
    """exp(Z Z^T) Z of rows [M, dim]: what an exact loss cannot do without.

    Z Z^T is symmetric, so each pair of rows takes one product, one exp and the
    two products of the gradient. Its memory is no floor.
    """
    import tensorflow as tf

    # More tiles cost more than they save at these sizes.
    tiles = 2 if len(rows) <= 1024 else 4 if len(rows) <= 2048 else 8
    sizes = [len(part) for part in np.array_split(rows, tiles)]

    @tf.function
    def run(z: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        parts = tf.split(z, sizes)
        terms = [[] for _ in parts]
        for a in range(tiles):
            for b in range(a, tiles):
                e = tf.exp(tf.matmul(parts[a], parts[b], transpose_b=True))
                terms[a].append(tf.matmul(e, parts[b]))
                if a != b:
                    terms[b].append(tf.matmul(e, parts[a], transpose_a=True))
        gradient = tf.concat([*map(tf.add_n, terms)], axis=0)
        return gradient[0, 0], gradient

    z = tf.constant(rows)
    traced = run.get_concrete_function(z)
    return lambda: traced(z)


def oracle_gradient(z: np.ndarray, y: np.ndarray, tau: float) -> np.ndarray:
    """[batch, views, dim] float64 gradient of Eq. 2, scaled by tau, mean."""
    rows = z.reshape(-1, z.shape[2]).astype(np.float64)
    labels = np.repeat(y, z.shape[1])
    contrasts = ~np.eye(len(rows), dtype=bool)  # [M, M]
    softmax = np.exp((rows @ rows.T - 1) / tau) * contrasts
    softmax /= softmax.sum(axis=1, keepdims=True)
    positive = (labels[:, None] == labels) & contrasts
    count = positive.sum(axis=1, keepdims=True)
    # An anchor without positives has loss 0, so gradient 0.
    by_logits = (count > 0) * softmax - positive / np.maximum(count, 1)
    return ((by_logits + by_logits.T) @ rows / len(rows)).reshape(z.shape)


if __name__ == "__main__":
    harness.main(LossBench)
