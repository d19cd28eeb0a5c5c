"""Fine-tuning of a language model on labelled sentences."""

from __future__ import annotations

import functools
import json
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
    measures,
    run_files,
    text,
)
from supcon_tf.data import subsets
from supcon_tf.training import (
    builders,
    checkpoints,
    console,
    devices,
    input_pipeline,
    loop,
    representations,
    runs,
)

_BATCH = 64  # of what is only read


def finetune_text(
    settings: config.FinetuneTextSettings,
) -> dict[str, object]:
    """Trains a language model by cross-entropy, SupCon or both.

    After every epoch the classifier is measured on the validation sentences;
    the weights of the best epoch stay, and are measured on the test sentences.

    Returns:
      What evaluation.json holds, if there is a test file; else {}.

    Raises:
      ImportError: the extra `text` is not installed.
      ValueError: run_dir is taken or holds another run; a file cannot be read
        as labelled sentences; the model cannot be had.

    Reference: https://arxiv.org/abs/2011.01403.
    """
    run = run_files.RunDirectory(settings.run_dir)
    settings = loop.check_run(run, settings)
    strategy = devices.set_up(settings)
    resumes = settings.resume and run.language_model.exists()
    source = run.language_model if resumes else settings.model
    tokenizer = text.load_tokenizer(source)
    train, validation = _splits(settings, tokenizer)
    test = None
    if settings.test_file:  # a bad line is found now, not after the training
        test = _source(
            settings, tokenizer, settings.test_file, "test", train.class_names
        )
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

    best = BestEpoch(run, validation, tokenizer, settings.checkpoint_every)
    loop.fit(settings, run, train, model, batches, measures=[best])
    console.print_line("best", run.best_checkpoint())
    if test is None:
        return {}
    return _test(run, model, test)


def _source(
    settings: config.FinetuneTextSettings,
    tokenizer: object,
    path: str,
    split: str,
    class_names: tuple[str, ...] | None = None,
) -> data.Source:
    texts = text.read_texts(path, settings.text_columns, settings.label_column)
    return text.to_source(
        texts, tokenizer, settings.max_length, class_names, split
    )


def _splits(
    settings: config.FinetuneTextSettings, tokenizer: object
) -> tuple[data.Source, data.Source]:
    """The training sentences that are drawn, and those of validation."""
    make = functools.partial(_source, settings, tokenizer)
    train = make(settings.train_file, "train")
    exceptions.require(
        len(train.class_names) >= 2,
        "--train_file must have two labels or more",
        ", ".join(train.class_names),
    )
    if settings.validation_file:
        validation = make(
            settings.validation_file, "validation", train.class_names
        )
    else:
        kept, held = subsets.hold_out(
            train.labels, settings.validation_fraction, seed=0
        )
        validation = subsets.subset(train, held)
        train = subsets.subset(train, kept)
    if settings.train_examples is not None:
        exceptions.require(
            settings.train_examples <= train.num_examples,
            f"--train_examples must be at most {train.num_examples}, those of "
            f"{train.name} that are not held out",
            settings.train_examples,
        )
        drawn = subsets.draw_alike(
            train.labels, settings.train_examples, settings.draw
        )
        train = subsets.subset(train, drawn)
    return train, validation


def _compiled_model(
    settings: config.FinetuneTextSettings,
    train: data.Source,
    source: object,
    resumes: bool,
) -> tf.keras.Model:
    """The model as it starts; prints what is known of it."""
    options = {
        "pooling": settings.pooling,
        "normalize": False,
        "dropout": settings.dropout,
    }
    if resumes:
        known = json.loads((epath.Path(source) / "config.json").read_text())
        encoder = text.TextEncoder(known, **options)
        encoder.build((None, None, 2))
    else:
        encoder = text.TextEncoder.from_pretrained(source, **options)
    model = builders.on_encoder(
        settings, encoder, len(train.class_names), (None, 2)
    )
    steps = data.steps_per_epoch(train, settings.batch_size)
    builders.compile_model(settings, model, steps)
    console.print_finetuning(settings, model, train)
    return model


class BestEpoch(tf.keras.callbacks.Callback):
    """Measures every epoch on sentences apart, and keeps the best weights.

    Adds `validation_accuracy` and `validation_loss` to the figures. The best
    epoch has the highest accuracy, of equal ones the lowest loss. The files of
    the model, but for its weights, are written when training begins.

    Args:
      run: whose files these are.
      validation: the sentences.
      tokenizer: of the model.
      checkpoint_every: epochs that a run which goes on may have to go back: so
        many of the epochs that were the best before stay too.
    """

    def __init__(
        self,
        run: run_files.RunDirectory,
        validation: data.Source,
        tokenizer: object,
        checkpoint_every: int,
    ):
        super().__init__()
        self.run = run
        self.validation = validation
        self.tokenizer = tokenizer
        self.checkpoint_every = checkpoint_every

    def on_train_begin(self, logs: dict | None = None) -> None:
        self.predict = predictor(self.model)
        if self._is_chief():
            _write_model_files(
                self.run.language_model, self.tokenizer, self.model.encoder
            )

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        """Forgets epochs beyond the checkpoint that the run goes on from."""
        if self._is_chief():
            for done in run_files.steps_in(self.run.best):
                if done > epoch:
                    run_files.path_of(self.run.best, done).rmtree()

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        probabilities, labels = self.predict(self.validation)
        figures = measures.classification_summary(probabilities, labels)
        logs["validation_accuracy"] = figures["top_1"]
        logs["validation_loss"] = figures["nll"]
        before = [x for x in self.run.metrics() if x["epoch"] <= epoch]
        if all(_rank(x) < _rank(logs) for x in before):
            checkpoints.save(
                self.run.best,
                builders.checkpointed(self.model),
                checkpoints.Progress(epoch + 1, 1),
                is_chief=self._is_chief(),
            )
            if self._is_chief():
                checkpoints.prune(self.run.best, 1 + self.checkpoint_every)

    def _is_chief(self) -> bool:
        return distribute.is_chief(self.model.distribute_strategy)


def _rank(figures: dict[str, float]) -> tuple[float, float]:
    return figures["validation_accuracy"], -figures["validation_loss"]


def predictor(
    model: tf.keras.Model,
) -> Callable[[data.Source], tuple[np.ndarray, np.ndarray]]:
    """A function from a split to probabilities [N, classes] and labels [N]."""

    @tf.function(reduce_retracing=True)
    def step(tokens: tf.Tensor) -> tf.Tensor:
        encoded = model.encoder(tokens, training=False)
        return tf.nn.softmax(model.classifier(encoded))

    def predict(split: data.Source) -> tuple[np.ndarray, np.ndarray]:
        examples = data.make_token_examples(split, _BATCH)
        return representations.collect(step, examples)

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


def _test(
    run: run_files.RunDirectory, model: tf.keras.Model, test: data.Source
) -> dict[str, object]:
    """Measures the best epoch, and writes what it says."""
    best = run.best_checkpoint()
    parts = builders.checkpointed(model)
    checkpoints.restore(best, **parts)
    probabilities, labels = predictor(model)(test)
    measured = {
        "dataset": test.name,
        "test_examples": test.num_examples,
        "encoder": best,
        "versions": console.versions(),
        runs.STAGE_1: measures.classification_summary(probabilities, labels),
    }
    if distribute.is_chief(model.distribute_strategy):
        files.write_json(run.evaluation_file, measured)
        run.write_predictions(probabilities, labels, test.ids, test.class_names)
    return measured
