"""Fine-tuning of a language model on labelled sentences."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable

import numpy as np
import tensorflow as tf
from etils import epath

from supcon_tf import config, data, distribute, exceptions, run_files, text
from supcon_tf.disk import files
from supcon_tf.keras_2 import keras
from supcon_tf.training import (
    best_epoch,
    builders,
    console,
    devices,
    jobs,
    loop,
    materials,
    representations,
    sentences,
)

_INFERENCE_BATCH = 64  # texts


@devices.restored_policy()
def finetune_text(settings: config.FinetuneTextSettings) -> None:
    """Trains a language model by cross-entropy, SupCon or both.

    After every epoch the classifier is measured on the validation sentences,
    and the weights of the best epoch are kept.

    Example:
      >>> from supcon_tf import config, training
      >>> settings = config.FinetuneTextSettings(
      ...     "runs/texts", model="texts", train_file="texts/train.tsv",
      ...     objective="ce", max_length=8, batch_size=8, epochs=1,
      ...     overwrite=True,
      ... )
      >>> training.finetune_text(settings)
      >>> training.RunDirectory("runs/texts").class_names()
      ('0', '1')

    Raises:
      ImportError: the extra `text` is not installed.
      ValueError: run_dir is taken or holds another run; a file cannot be read
        as labelled sentences; the model cannot be loaded.

    Reference: https://arxiv.org/abs/2011.01403.
    """
    job = jobs.prepare(settings, _sentences, decide=sentences.whole_paths)
    with job.strategy.scope():
        model = _compiled_model(job)

    @functools.cache
    def batches(start_step: int, shard: tuple[int, int]) -> tf.data.Dataset:
        return data.make_token_views(
            job.train,
            job.settings.batch_size,
            job.settings.num_views,
            job.settings.seed,
            start_step=start_step,
            images_per_class=job.settings.examples_per_class,
            shard=shard,
        )

    best = best_epoch.BestEpoch(
        job.run,
        job.validation,
        predictor(model),
        job.settings.checkpoint_every,
    )
    measures = [ModelFiles(job.run, job.tokenizer), best]
    made_of = materials.validation(job.validation)
    loop.fit(job, model, batches, measures=measures, made_of=made_of)
    console.print_line("best", job.run.best_checkpoint())


def _sentences(
    settings: config.FinetuneTextSettings, strategy: tf.distribute.Strategy
) -> dict[str, object]:
    """The sentences of all files, with the tokenizer of the model.

    The test file is read too, so that a bad line is an error before training.
    """
    tokenizer = text.load_tokenizer(_language_model(settings))
    train, validation = sentences.splits(settings, tokenizer)
    splits = {"train": train, "validation": validation}
    if settings.test_file:
        classes = train.class_names
        splits["test"] = sentences.test(settings, tokenizer, classes)
    return {**splits, "tokenizer": tokenizer}


def _language_model(
    settings: config.FinetuneTextSettings,
) -> str | epath.Path:
    """The --model of a new run, the run's own model of a resumed run."""
    run = run_files.RunDirectory(settings.run_dir)
    resumes = jobs.resumes(settings, run)
    return run.language_model if resumes else settings.model


def _compiled_model(
    job: jobs.Job[config.FinetuneTextSettings],
) -> keras.Model:
    """The compiled model; prints the run, the model and the loss."""
    settings, train = job.settings, job.train
    encoder = builders.text_encoder(
        settings, _language_model(settings), pretrained=not job.resumes
    )
    exceptions.require(
        settings.max_length <= encoder.max_length,
        f"--max_length must be at most {encoder.max_length}, as the model "
        "takes it",
        settings.max_length,
    )
    model = builders.text_model(settings, encoder, len(train.class_names))
    builders.compile_model(settings, model, job.epoch_steps, train)
    console.print_finetuning(settings, model, train)
    console.print_validation_copies(job.validation, train)
    if job.test:
        console.print_duplicates(job.test, train)
        console.print_choosing_copies(job.test, job.validation)
    return model


class ModelFiles(keras.callbacks.Callback):
    """Writes config and tokenizer of the model when training begins.

    The checkpoints have the weights.
    """

    def __init__(self, run: run_files.RunDirectory, tokenizer: object):
        super().__init__()
        self.folder = run.language_model
        self.tokenizer = tokenizer

    def on_train_begin(self, logs: dict | None = None) -> None:
        strategy = self.model.distribute_strategy
        if self.folder.exists() or not distribute.is_chief(strategy):
            return
        network_config = self.model.encoder.network.config
        with (
            tempfile.TemporaryDirectory() as local,
            files.make_atomically(self.folder) as partial,
        ):
            self.tokenizer.save_pretrained(local)
            for file in epath.Path(local).iterdir():
                file.copy(partial / file.name)
            json_text = network_config.to_json_string(use_diff=False)
            (partial / "config.json").write_text(json_text)


def predictor(
    model: keras.Model,
) -> Callable[[data.Source], tuple[np.ndarray, np.ndarray]]:
    """A function from a split to probabilities [N, classes] and labels [N]."""

    @tf.function(reduce_retracing=True)
    def step(tokens: tf.Tensor) -> tf.Tensor:
        encoded = model.encoder(tokens, training=False)
        return tf.nn.softmax(model.classifier(encoded))

    def predict(split: data.Source) -> tuple[np.ndarray, np.ndarray]:
        return representations.collect(
            step, data.make_examples(split, _INFERENCE_BATCH)
        )

    return predict
