"""The training step on texts beside the fit of transformers, on the CPU.

  python benchmarks/text.py

A BERT of MiniLM-L6's size with random weights, all sentences of full length,
in memory. `ours` is cross-entropy of tools/finetune_text.py, `ours_supcon` adds
SupCon; `transformers` is the same network and loss in its own Keras `fit`. The
extra `text` must be installed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import checkout  # noqa: F401
import numpy as np

from benchmarks import harness, measuring, results
from supcon_tf import settings

_RATE = 2e-5
_CLASSES = 2
_CONFIG = {
    "model_type": "bert",
    "vocab_size": 30_522,
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
}


@dataclasses.dataclass(frozen=True)
class TextBench(harness.Bench):
    """Settings of benchmarks/text.py."""

    NEEDS = dict.fromkeys(
        ("ours", "ours_supcon", "transformers"), ("transformers",)
    )
    AXES = {"batch_size": "batch_sizes", "length": "lengths"}
    COLUMNS = (
        results.Column(
            "tokens/s",
            lambda p: p["tokens"] / p["seconds"],
            ".1f",
            plotted=True,
        ),
        results.Column("ms", lambda p: 1e3 * p["seconds"], ".1f"),
        results.SPREAD,
        results.MEMORY,
    )
    PEERS = ("transformers",)

    run_dir: str = "runs/bench_text"
    batch_sizes: tuple[int, ...] = (16,)
    """Sentences a step."""
    lengths: tuple[int, ...] = (64,)
    """Tokens of each."""
    steps: int = settings.setting(10, at_least=1)
    """Timed steps per process."""
    seed: int = settings.setting(0, at_least=0)
    """Seed of data and weights."""


def measure(job: measuring.Job) -> dict[str, float]:
    """Time of a step, memory since before the network was made."""
    generator = np.random.default_rng(job.seed)
    shape = job.batch_size, job.length
    ids = generator.integers(1000, 30_000, shape, np.int32)
    labels = generator.integers(0, _CLASSES, job.batch_size, np.int32)
    measuring.import_tensorflow(job.threads)
    from supcon_tf import text
    from supcon_tf.keras_2 import keras

    text.import_transformers()
    keras.utils.set_random_seed(job.seed)
    memory = measuring.reset_peak_mb()
    is_ours = job.implementation.startswith("ours")
    make = our_step if is_ours else their_step
    step = make(job, ids, labels)
    measured = measuring.measure_training(step, job.steps, memory)
    return measured | {"tokens": ids.size}


def our_step(
    job: measuring.Job, ids: np.ndarray, labels: np.ndarray
) -> Callable[[], float]:
    """What `fit` calls, compiled as by tools/finetune_text.py."""
    from supcon_tf import losses, models, text, training

    tokens = np.stack([ids, np.zeros_like(ids)], axis=-1)
    seeds = np.random.default_rng(1).integers(0, 2**31, (len(ids), 1, 2))
    tokens = np.concatenate([seeds.astype(np.int32), tokens], axis=1)
    encoder = text.TextEncoder(_CONFIG, normalize=False)
    if job.implementation == "ours":
        model = models.ClassifierModel(encoder, _CLASSES)
        loss = losses.CrossEntropyLoss()
    else:
        model = models.SupConModel(
            encoder,
            models.NoProjectionHead(),
            models.layers.classifier(_CLASSES),
            classifier_weight=0.1,
        )
        loss = losses.SupConLoss(0.3)
    model.build((None, 1, None, 2))
    model.compile(training.AdamW(_RATE), loss)
    return measuring.keras_step(model, (tokens[:, np.newaxis], labels))


def their_step(
    job: measuring.Job, ids: np.ndarray, labels: np.ndarray
) -> Callable[[], float]:
    """What the `fit` of a model of transformers calls."""
    from supcon_tf import text
    from supcon_tf.keras_2 import keras

    library = text.import_transformers()
    config = library.AutoConfig.for_model(**_CONFIG, num_labels=_CLASSES)
    model = library.TFBertForSequenceClassification(config)
    inputs = {
        "input_ids": ids,
        "attention_mask": np.ones_like(ids),
        "token_type_ids": np.zeros_like(ids),
    }
    model.compile(
        keras.optimizers.AdamW(_RATE),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    return measuring.keras_step(model, (inputs, labels))


if __name__ == "__main__":
    harness.main(TextBench)
