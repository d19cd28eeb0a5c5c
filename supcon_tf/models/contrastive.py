"""The model of stage 1: views to projections."""

from __future__ import annotations

import functools
import types
from collections.abc import Sequence

import tensorflow as tf

from supcon_tf import exceptions
from supcon_tf.keras_2 import keras
from supcon_tf.models import backbone, base, gradient_cache, layers


@keras.utils.register_keras_serializable(package="supcon_tf")
class SupConModel(base.Model):
    """z = Proj(Enc(view)) for every view of a multiviewed batch, Sec. 3.1.

    The views are folded into the batch, so that all views of all samples share
    one BN pass, and unfolded after the head. Training is `compile` with a loss
    on the projections, then `fit`.

    A classifier on the representation learns beside the projections from the
    cross-entropy of every view, of integer labels, or of soft ones, floats
    [batch, classes] whose rows sum to 1: behind a stopped gradient, which
    leaves the encoder as it would be without, or jointly, minimising
    (1 - classifier_weight) * loss + classifier_weight * cross-entropy. `fit`
    and `evaluate` then report `classifier_loss` and `classifier_accuracy`, to
    which a soft label adds its share of the predicted class; `loss` remains
    that of the projections.

    With gradient caching the batch passes the encoder in chunks, in the memory
    of one chunk: see `gradient_cache`. The loss is that of the whole batch;
    BN takes its statistics from a chunk.

    Args:
      encoder: images to representations; see `Encoder`. Any other Keras model
        becomes a `BackboneEncoder`.
      projection_head: representations to projections; see `ProjectionHead`.
      classifier: layer from representations to float32 logits, or None.
      classifier_weight: lambda of joint training, between 0 and 1; None for a
        classifier that does not train the encoder.
      gradient_cache_chunks: chunks of a training batch, which divide the batch
        of a replica; 1 for none.
      multi_label: labels are [batch, classes] 0 or 1, several of a sample, and
        the classifier takes each for itself.
      centres: a `ClassCentres` that the loss shares; None for none.
      logit_offsets: [classes] numbers that the cross-entropy alone adds to the
        logits, but for `multi_label`: t log pi of class shares pi, for long
        tails (logit adjustment); empty for none.
      name: of the model; `**kwargs` are Keras' too.

    Example:
      >>> import numpy as np
      >>> import supcon_tf
      >>> encoder = supcon_tf.Encoder("vgg8", width=0.25)
      >>> model = supcon_tf.SupConModel(encoder, supcon_tf.ProjectionHead())
      >>> model(np.zeros([4, 2, 32, 32, 3], np.uint8)).shape
      TensorShape([4, 2, 128])

    Raises:
      ValueError: a bad argument; the views are not rank 5; the labels of a
        classifier are neither integers per sample nor soft; the chunks do not
        divide the batch, or BN should span the replicas, which a loop cannot.
      InvalidArgumentError: a row of soft labels does not sum to 1.

    Reference: https://arxiv.org/abs/2004.11362, Sec. 3.1.
    """

    def __init__(
        self,
        encoder: keras.Model,
        projection_head: keras.Model,
        classifier: keras.layers.Layer | None = None,
        classifier_weight: float | None = None,
        gradient_cache_chunks: int = 1,
        multi_label: bool = False,
        centres: keras.layers.Layer | None = None,
        logit_offsets: Sequence[float] = (),
        *,
        name: str = "supcon_model",
        **kwargs: object,
    ) -> None:
        super().__init__(name=name, autocast=False, **kwargs)
        exceptions.require(
            classifier_weight is None or classifier is not None,
            "`classifier_weight` must be None without a `classifier`",
            classifier_weight,
        )
        exceptions.require(
            classifier_weight is None or 0 < classifier_weight < 1,
            "`classifier_weight` must be between 0 and 1",
            classifier_weight,
        )
        exceptions.require(
            gradient_cache_chunks >= 1,
            "`gradient_cache_chunks` must be at least 1",
            gradient_cache_chunks,
        )
        self.encoder = backbone.as_encoder(encoder)
        self.projection_head = projection_head
        self.classifier = classifier
        self.classifier_weight = classifier_weight
        self.gradient_cache_chunks = gradient_cache_chunks
        self.multi_label = multi_label
        self.centres = centres
        self.logit_offsets = logit_offsets
        # In a namespace, for Keras would count attributes as weights.
        self._figures = types.SimpleNamespace()
        if classifier is not None:
            self._figures.loss = keras.metrics.Mean("classifier_loss")
            accuracy = keras.metrics.Mean("classifier_accuracy")
            self._figures.accuracy = accuracy

    def compile(
        self,
        optimizer: str | keras.optimizers.Optimizer = "rmsprop",
        loss: keras.losses.Loss | None = None,
        metrics: object = None,
        **kwargs: object,
    ) -> None:
        """Keras' compile; metrics are of projections, which have no classes.

        Raises:
          ValueError: a metric is a name, such as "accuracy".
        """
        names = [x for x in tf.nest.flatten(metrics) if isinstance(x, str)]
        exceptions.require(
            not names,
            "`metrics` must be of projections, as losses.ContrastiveAccuracy() "
            "and others of losses.diagnostics()",
            ", ".join(names),
        )
        super().compile(optimizer, loss, metrics, **kwargs)

    def _build_parts(self, input_shape: tf.TensorShape) -> None:
        self.encoder.build(layers.folded_shape(input_shape, self.encoder))
        representation_shape = (None, self.encoder.representation_dim)
        self.projection_head.build(representation_shape)
        if self.classifier is not None and not self.classifier.built:
            self._build_part(self.classifier, representation_shape)
        if self.centres is not None and not self.centres.built:
            self._build_part(self.centres, representation_shape)
        if self.gradient_cache_chunks > 1:
            gradient_cache.check_cacheable(self)
        in_loop = self.gradient_cache_chunks > 1 and layers.spans_replicas(self)
        synced = [getattr(x, "synchronized", False) for x in layers.parts(self)]
        exceptions.require(
            not (in_loop and any(synced)),
            "`synchronized_bn` must be False with `gradient_cache_chunks` on "
            "several replicas: MirroredStrategy cannot synchronize in a loop",
            True,
        )

    def _check_shape(self, shape: tf.TensorShape) -> None:
        layers.folded_shape(shape, self.encoder)

    def call(self, views: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        """[B, V, H, W, 3] uint8, or float in 0..255, to [B, V, dim] float32."""
        return self._outputs(views, training)[0]

    def _outputs(
        self, views: tf.Tensor, training: bool | None
    ) -> list[tf.Tensor]:
        """Projections and, with a classifier, logits, [B, V, ...] each."""
        rows_of = functools.partial(self._rows, training=training)
        if self.gradient_cache_chunks == 1 or not training:
            return layers.each_view(rows_of, views, self.encoder)
        dims = [self.projection_head.output_dim]
        if self.classifier is not None:
            shape = (None, self.encoder.representation_dim)
            dims.append(self.classifier.compute_output_shape(shape)[-1])
        return self._in_chunks(rows_of, views, dims)

    def _in_chunks(
        self, rows_of: gradient_cache.Forward, views: tf.Tensor, dims: list[int]
    ) -> list[tf.Tensor]:
        """`layers.each_view`, tensors [B, V, dim] of these dims."""
        forward = functools.partial(
            layers.each_view, rows_of, encoder=self.encoder
        )
        if self.gradient_cache_chunks == 1:
            return forward(views)
        rows = [(views.shape[1], dim) for dim in dims]
        return gradient_cache.forward_in_chunks(
            forward, views, self.gradient_cache_chunks, rows, self
        )

    def _rows(
        self, images: tf.Tensor, training: bool | None
    ) -> list[tf.Tensor]:
        """Projections and, with a classifier, logits, [B*V, ...] each."""
        representations = self.encoder(images, training=training)
        rows = [self.projection_head(representations, training=training)]
        if self.classifier is not None:
            if self.classifier_weight is None:
                representations = tf.stop_gradient(representations)
            rows.append(self.classifier(representations))
        return rows

    @property
    def metrics(self) -> list[keras.metrics.Metric]:
        """Keras' metrics, and those of the classifier; reset every epoch."""
        return [*super().metrics, *vars(self._figures).values()]

    def train_step(self, data: tuple) -> dict[str, tf.Tensor]:
        if self.classifier is None:
            return super().train_step(data)
        with tf.GradientTape() as tape:
            loss, measured = self._both_losses(data, training=True)
        self.optimizer.minimize(loss, self.trainable_variables, tape=tape)
        return self.compute_metrics(*measured)

    def test_step(self, data: tuple) -> dict[str, tf.Tensor]:
        if self.classifier is None:
            return super().test_step(data)
        _, measured = self._both_losses(data, training=False)
        return self.compute_metrics(*measured)

    def _both_losses(
        self, data: tuple, training: bool
    ) -> tuple[tf.Tensor, tuple[tf.Tensor | None, ...]]:
        """What is minimised, as Keras scales it for replicas.

        And what Keras' metrics take: views, labels, projections, weights.
        """
        views, labels, weights = keras.utils.unpack_x_y_sample_weight(data)
        if not self.built:  # as no `call` does it, outside of the graph
            with tf.init_scope():
                self.build(views.shape)
        projections, logits = self._outputs(views, training)
        measured = views, labels, projections, weights
        loss = self.compute_loss(*measured)
        losses, accuracies = self._classifier_losses(labels, logits)
        batch = tf.shape(logits)[0]
        if weights is not None:
            weights = tf.reshape(weights, [batch, 1])
            losses *= tf.cast(weights, losses.dtype)
        cross_entropy = tf.reduce_mean(losses)
        self._figures.loss.update_state(cross_entropy, sample_weight=batch)
        self._figures.accuracy.update_state(tf.cast(accuracies, tf.float32))
        cross_entropy /= tf.distribute.get_strategy().num_replicas_in_sync
        if self.classifier_weight is None:
            return loss + cross_entropy, measured
        share = self.classifier_weight
        return (1 - share) * loss + share * cross_entropy, measured

    def _classifier_losses(
        self, labels: tf.Tensor | None, logits: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Cross-entropies [B, V], and whether, or how far, decisions are right.

        The latter is [B, V], or [B, V, classes] of several labels.
        """
        shape = tf.TensorShape(None) if labels is None else labels.shape
        batch, num_views, classes = tf.unstack(tf.shape(logits))
        if self.multi_label:
            exceptions.require(
                shape.rank == 2 and shape[1] == logits.shape[2],
                f"`labels` must be [batch, {logits.shape[2]}], 0 or 1, with "
                "`multi_label`",
                f"shape {shape}",
            )
            labels = tf.cast(labels[:, tf.newaxis], logits.dtype)
            labels = tf.broadcast_to(labels, [batch, num_views, classes])
            losses = tf.nn.sigmoid_cross_entropy_with_logits(labels, logits)
            return tf.reduce_sum(losses, axis=2), (logits >= 0) == (labels > 0)
        predicted = tf.argmax(logits, axis=2, output_type=tf.int64)
        logits += tf.constant(self.logit_offsets or 0.0, logits.dtype)
        is_matrix = shape.rank == 2 and shape[1] == logits.shape[2]
        if is_matrix and labels.dtype.is_floating:
            shares = _per_view(labels, num_views)
            losses = tf.nn.softmax_cross_entropy_with_logits(shares, logits)
            return losses, tf.gather(shares, predicted, batch_dims=2)
        exceptions.require(
            shape.rank == 1 or (shape.rank == 2 and shape[1] == 1),
            "`labels` must be [batch] integers for a classifier, or soft "
            "[batch, classes] floats",
            f"shape {None if labels is None else shape}",
        )
        labels = tf.reshape(labels, [-1, 1])
        labels = tf.broadcast_to(labels, [batch, num_views])
        losses = keras.losses.sparse_categorical_crossentropy(
            labels, logits, from_logits=True
        )
        return losses, predicted == tf.cast(labels, tf.int64)


def _per_view(labels: tf.Tensor, num_views: int | tf.Tensor) -> tf.Tensor:
    """Soft labels [B, classes], which are checked, as [B, V, classes]."""
    labels = tf.cast(labels, tf.float32)
    tf.debugging.assert_less(
        tf.abs(tf.reduce_sum(labels, axis=1) - 1.0),
        1e-3,
        "rows of soft `labels` must sum to 1",
    )
    return tf.repeat(labels[:, tf.newaxis], num_views, axis=1)
