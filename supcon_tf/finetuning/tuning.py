"""LP-FT: a network trains from a linear classifier on its frozen weights."""

from __future__ import annotations

import time

import numpy as np
import tensorflow as tf
from etils import epath

from supcon_tf import config, data, distribute, models, run_files
from supcon_tf.finetuning import candidates
from supcon_tf.settings import shared_fields
from supcon_tf.training import (
    best_epoch,
    builders,
    callbacks,
    checkpoints,
    console,
    devices,
    initial,
    input_pipeline,
    jobs,
    loop,
    materials,
    representations,
)

# Shares of the tuned network in its mean with the frozen one.
_SHARES = (0.5, 0.75)


class Tuning:
    """A network, and the trainings that start from it.

    Make it under the scope of a strategy, whose replicas share each batch.

    A linear classifier on the frozen network comes first: the first gradients
    of random weights would distort the network (Kumar et al. 2022). Then both
    train. Means of tuned and frozen weights are candidates too (Wortsman et al.
    2022). All batch norm trains, and its statistics follow.

    Every training is a run directory of stage 1, in `trainings` of the run: it
    resumes, and runs on several workers, as any other does.

    Args:
      job: of the fine-tuning.

    Attributes:
      job: may get other epochs and learning rates before `train`.
      judge: of the network.
      seconds: time of one image's representation, after `frozen`.

    Reference: https://arxiv.org/abs/2202.10054, Sec. 4.
    """

    def __init__(self, job: jobs.Job[config.FinetuneSettings]):
        self.job = job
        settings, train_part = job.settings, job.train_part
        self._steps = data.steps_per_epoch(train_part, settings.batch_size)
        self.model = builders.model(
            self._stage_1_settings(0), len(train_part.class_names)
        )
        initial.load(settings, self.model)
        encoder = self.model.encoder
        self._initial_weights = self.model.get_weights()
        self._random_states = [
            (state, state.numpy())
            for state in models.layers.random_states(self.model)
        ]
        models.follow_statistics(encoder, self._steps)
        represent = representations.representer(
            encoder, settings.batch_size, settings.image_size
        )
        self.judge = candidates.Judge(
            encoder, represent, train_part, job.validation
        )

    def frozen(self) -> candidates.Candidate:
        """The frozen network; sets `seconds`."""
        # The first batch traces the encoder, and is not timed.
        train_part, validation = self.job.train_part, self.job.validation
        is_whole = validation.num_examples >= self.job.settings.batch_size
        self.judge.represent(validation if is_whole else train_part)
        start = time.monotonic()
        self.judge.represent(train_part)
        seconds = (time.monotonic() - start) / train_part.num_examples
        self.seconds = float(*distribute.chief_values(seconds))
        return self.judge.candidate("frozen")

    @callbacks.trying_rates()
    def train(
        self, number: int, frozen: candidates.Candidate
    ) -> list[candidates.Candidate]:
        """Trains at the learning rate of this number.

        Returns:
          The network after the last epoch; its means with the frozen network;
          the network after the best epoch, if the last is not the best.

        Raises:
          FloatingPointError: the training diverged.
        """
        train_part = self.job.train_part
        settings = self._stage_1_settings(number)
        self._restart(frozen)
        run = run_files.RunDirectory(settings.run_dir)
        builders.compile_model(settings, self.model, self._steps, train_part)
        count = len(self.job.settings.learning_rates)
        console.print_line(
            "tuning",
            f"{number + 1} of {count}: learning rate "
            f"{settings.learning_rate:g}, {settings.epochs} epochs of "
            f"{train_part.num_examples:,} images",
        )

        best = best_epoch.BestEpoch(
            run, self.job.validation, self._predict, settings.checkpoint_every
        )
        training = jobs.Job(settings, run, self.job.strategy, train_part)
        batches = input_pipeline.cached_views(settings, train_part)
        made_of = materials.validation(self.job.validation)
        loop.fit(
            training, self.model, batches, measures=[best], made_of=made_of
        )
        name = f"tuned at {settings.learning_rate:g}"
        last = self.judge.candidate(name, number)
        networks = [last, *self._means(frozen, last)]
        # The chief has written the checkpoint of the last epoch.
        devices.wait_for_all(self.job.strategy)
        epoch = run_files.steps_in(run.best)[-1]
        if epoch < settings.epochs:
            checkpoints.restore(
                run.best_checkpoint(), **builders.checkpointed(self.model)
            )
            networks.append(
                self.judge.candidate(f"{name}, epoch {epoch}", number)
            )
        return networks

    def path(self, number: int) -> epath.Path:
        """The run directory of a training."""
        return self.job.run.trainings / f"{number:04d}"

    def _means(
        self, frozen: candidates.Candidate, tuned: candidates.Candidate
    ) -> list[candidates.Candidate]:
        means = []
        for share in _SHARES:
            weights = candidates.mean_weights(frozen, tuned, share)
            self.judge.encoder.set_weights(weights)
            name = f"{tuned.name}, {share:g} of it in a mean with frozen"
            means.append(self.judge.candidate(name, tuned.number, is_mean=True))
        return means

    def _restart(self, frozen: candidates.Candidate) -> None:
        """Restores the initial model, with the frozen network's classifier."""
        self.model.set_weights(self._initial_weights)
        for state, value in self._random_states:
            state.assign(value)
        classifier_weights = self.judge.fit(frozen.l2, self.job.train_part)
        self.model.classifier.set_weights(
            distribute.chief_values(*classifier_weights)
        )

    def _predict(self, images: data.Source) -> tuple[np.ndarray, np.ndarray]:
        """Probabilities [images, classes] of the online classifier, labels."""
        rows, labels = self.judge.represent(images)
        return tf.nn.softmax(self.model.classifier(rows)).numpy(), labels

    def _stage_1_settings(self, number: int) -> config.PretrainSettings:
        """The settings of a training."""
        settings = self.job.settings
        rates = settings.learning_rates or settings.DEFAULT_RATES
        views = 1 if settings.objective == "ce" else 2
        return config.PretrainSettings(
            **shared_fields(settings, config.PretrainSettings)
            | {
                "run_dir": str(self.path(number)),
                "learning_rate": rates[number],
                "epochs": settings.epochs or 1,
                "num_views": views,
                "overwrite": not settings.resume,
                "keep_checkpoints": 1,
            }
        )
