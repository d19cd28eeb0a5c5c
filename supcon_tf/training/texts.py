"""Fine-tuning of a language model on labelled sentences."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable

import numpy as np
import tensorflow as tf
from etils import epath

from supcon_tf import (
    config,
    data,
    distribute,
    exceptions,
    files,
    run_files,
    text,
)
from supcon_tf.keras_2 import keras
from supcon_tf.training import (
    best_epoch,
    builders,
    console,
    devices,
    input_pipeline,
    loop,
    representations,
    sentences,
)

_BATCH = 64  # of what is only read


def finetune_text(settings: config.FinetuneTextSettings) -> None:
    """Trains a language model by cross-entropy, SupCon or both.

    After every epoch the classifier is measured on the validation sentences;
    the weights of the best epoch stay.

    Example:
      >>> from supcon_tf import config, training
      >>> own = config.FinetuneTextSettings(
      ...     "runs/texts", model="texts", train_file="texts/train.tsv",
      ...     objective="ce", max_length=8, batch_size=8, epochs=1,
      ...     overwrite=True,
      ... )
      >>> training.finetune_text(own)
      >>> training.RunDirectory("runs/texts").class_names()
      ('0', '1')

    Raises:
      ImportError: the extra `text` is not installed.
      ValueError: run_dir is taken or holds another run; a file cannot be read
        as labelled sentences; the model cannot be had.

    Reference: https://arxiv.org/abs/2011.01403.
    """
    run = run_files.RunDirectory(settings.run_dir)
    settings = sentences.resolved(loop.check_run(run, settings))
    strategy = devices.set_up(settings)
    # Killed before its first checkpoint, a run begins anew from the model.
    resumes = settings.resume and bool(run_files.steps_in(run.checkpoints))
    source = run.language_model if resumes else settings.model
    tokenizer = text.load_tokenizer(source)
    train, validation = sentences.splits(settings, tokenizer)
    if settings.test_file:  # a bad line is found now, not after the training
        sentences.test(settings, tokenizer, train.class_names)
    settings = input_pipeline.resolved_batch(
        settings, train, strategy.num_replicas_in_sync
    )
    with strategy.scope():
        model = _compiled_model(settings, train, source, resumes)

    @functools.cache
    def batches(start_step: int, shard: tuple[int, int]) -> tf.data.Dataset:
        return data.make_token_views(
            train,
            settings.batch_size,
            settings.num_views,
            settings.seed,
            start_step=start_step,
            images_per_class=settings.examples_per_class,
            shard=shard,
        )

    best = best_epoch.BestEpoch(
        run, validation, predictor(model), settings.checkpoint_every
    )
    measures = [ModelFiles(run, tokenizer), best]
    loop.fit(settings, run, train, model, batches, measures=measures)
    console.print_line("best", run.best_checkpoint())


def _compiled_model(
    settings: config.FinetuneTextSettings,
    train: data.Source,
    source: object,
    resumes: bool,
) -> keras.Model:
    """The model as it starts; prints what is known of it."""
    encoder = builders.text_encoder(settings, source, pretrained=not resumes)
    exceptions.require(
        settings.max_length <= encoder.max_length,
        f"--max_length must be at most {encoder.max_length}, as the model "
        "takes it",
        settings.max_length,
    )
    model = builders.on_encoder(
        settings, encoder, len(train.class_names), (None, 2)
    )
    steps = data.steps_per_epoch(train, settings.batch_size)
    builders.compile_model(settings, model, steps, train)
    console.print_finetuning(settings, model, train)
    return model


class ModelFiles(keras.callbacks.Callback):
    """Writes the files of the model, but for its weights, at the beginning."""

    def __init__(self, run: run_files.RunDirectory, tokenizer: object):
        super().__init__()
        self.run = run
        self.tokenizer = tokenizer

    def on_train_begin(self, logs: dict | None = None) -> None:
        if distribute.is_chief(self.model.distribute_strategy):
            _write_model_files(
                self.run.language_model, self.tokenizer, self.model.encoder
            )


def predictor(
    model: keras.Model,
) -> Callable[[data.Source], tuple[np.ndarray, np.ndarray]]:
    """A function from a split to probabilities [N, classes] and labels [N]."""

    @tf.function(reduce_retracing=True)
    def step(tokens: tf.Tensor) -> tf.Tensor:
        encoded = model.encoder(tokens, training=False)
        return tf.nn.softmax(model.classifier(encoded))

    def predict(split: data.Source) -> tuple[np.ndarray, np.ndarray]:
        return representations.collect(step, data.make_examples(split, _BATCH))

    return predict


def _write_model_files(
    folder: epath.Path, tokenizer: object, encoder: text.TextEncoder
) -> None:
    """What makes the network and its tokens, without weights."""
    if folder.exists():
        return
    described = encoder.network.config.to_json_string(use_diff=False)
    with (
        tempfile.TemporaryDirectory() as local,
        files.make_atomically(folder) as partial,
    ):
        tokenizer.save_pretrained(local)
        for file in epath.Path(local).iterdir():
            file.copy(partial / file.name)
        (partial / "config.json").write_text(described)
