"""The model of stage 1: views to projections.

Letters in the shapes: B batch, V views.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Mapping, Sequence

import tensorflow as tf

from supcon_tf import exceptions, keras_2
from supcon_tf.keras_2 import keras
from supcon_tf.models import backbone, base, gradient_cache, layers


@keras.utils.register_keras_serializable(package="supcon_tf")
class SupConModel(base.Model):
    """z = Proj(Enc(view)) for every view of a multiviewed batch, Sec. 3.1.

    The views are folded into the batch, so that all views of all samples share
    one BN pass, and unfolded after the head. Training is `compile` with a loss
    on the projections, then `fit`.

    A classifier on the representation learns beside the projections, from the
    cross-entropy of every view with integer labels, or with soft labels, floats
    [batch, classes] whose rows sum to 1. It learns behind a stopped gradient,
    which leaves the encoder as it would be without a classifier, or jointly:

      (1 - classifier_weight) * loss + classifier_weight * cross-entropy

    `fit` and `evaluate` then report `classifier_loss` and
    `classifier_accuracy`, to which a soft label adds its share of the predicted
    class; `loss` remains the loss of the projections.

    With gradient caching the batch passes the encoder in chunks, in the memory
    of one chunk: see `gradient_cache`. The loss is that of the whole batch, BN
    statistics are those of a chunk.

    Args:
      encoder: images to representations; see `Encoder`. Any other Keras model
        becomes a `BackboneEncoder`.
      projection_head: representations to projections; see `ProjectionHead`.
      classifier: layer from representations to float32 logits, or None.
      classifier_weight: lambda of joint training, between 0 and 1; None for a
        classifier that does not train the encoder.
      gradient_cache_chunks: number of chunks of a training batch, which divides
        the batch of a replica; 1 for no gradient caching.
      multi_label: labels are [batch, classes] 0 or 1, where a sample may have
        several, and the classifier decides on each class by itself.
      centres: a `ClassCentres` that the loss shares; None without centres.
      logit_offsets: [classes] numbers that the cross-entropy adds to the
        logits, except with `multi_label`: t log pi for class shares pi, for
        long tails (logit adjustment); empty for no offsets.
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
      InvalidArgumentError: a row of soft labels does not sum to 1, or has a
        share below 0.

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
        self.logit_offsets = tuple(float(offset) for offset in logit_offsets)
        # In a namespace: Keras counts the variables of metrics that are
        # attributes among the weights of the model.
        self._classifier_metrics = types.SimpleNamespace()
        if classifier is not None:
            self._classifier_metrics.loss = keras.metrics.Mean(
                "classifier_loss"
            )
            self._classifier_metrics.accuracy = keras.metrics.Mean(
                "classifier_accuracy"
            )

    def compile(
        self,
        optimizer: str | keras.optimizers.Optimizer = "rmsprop",
        loss: keras.losses.Loss | None = None,
        metrics: object = None,
        **kwargs: object,
    ) -> None:
        """Keras' compile; metrics are of projections, which have no classes.

        Raises:
          ValueError: a metric is a name, such as "accuracy"; the loss has
            centres that are not of this model, or an empty queue that this
            model does not fill.
        """
        names = [
            metric
            for metric in tf.nest.flatten(metrics)
            if isinstance(metric, str)
        ]
        exceptions.require(
            not names,
            "`metrics` must be of projections, as losses.ContrastiveAccuracy() "
            "and others of losses.diagnostics()",
            ", ".join(names),
        )
        super().compile(optimizer, loss, metrics, **kwargs)

    def _check_loss(self, loss: object) -> None:
        """Raises ValueError for a part of the loss that would never learn."""
        centres = getattr(loss, "centres", None)
        exceptions.require(
            centres is None or centres is self.centres,
            "`loss` must have the centres of the model, which trains them: "
            "SupConModel(..., centres=centres) with PaCoLoss(centres)",
            f"{type(loss).__name__} with others",
        )
        queue = getattr(loss, "queue", None)
        # A queue that is filled already may be a fixed set of contrasts.
        exceptions.require(
            queue is None
            or queue is getattr(self, "queue", None)
            or int(queue.filled) > 0,
            "`loss` must have no empty queue, as only MomentumSupConModel("
            "encoder, projection_head, queue) fills one",
            f"{type(loss).__name__} with an empty queue",
        )

    @property
    def shared_centres(self) -> keras.layers.Layer | None:
        """`centres`, under the name by which Keras' files hold them.

        Keras writes a layer once, at the last name in the alphabet. That must
        not be a name within `loss`, which no model has before `compile`.
        """
        return self.centres

    def load_own_variables(self, store: Mapping[str, object]) -> None:
        """Keras' step; files of earlier versions name the centres otherwise."""
        super().load_own_variables(store)
        groups = getattr(store, "parent", {})
        for name in ("loss/centres/vars", "centres/vars"):
            if self.centres is not None and name in groups:
                self.centres.load_own_variables(groups[name])

    def compile_from_config(self, config: dict[str, object]) -> None:
        """Keras' step of load_model; the loss has this model's centres."""
        config = keras_2.deserialized(config)
        if getattr(config.get("loss"), "centres", None) is not None:
            config["loss"].centres = self.centres or config["loss"].centres
        self._compile_loaded(config)

    def _build_parts(self, input_shape: tf.TensorShape) -> None:
        self.encoder.build(layers.folded_shape(input_shape, self.encoder))
        representation_shape = (None, self.encoder.representation_dim)
        self.projection_head.build(representation_shape)
        if self.classifier is not None and not self.classifier.built:
            self._build_part(self.classifier, representation_shape)
        if self.centres is not None and not self.centres.built:
            self._build_part(self.centres, representation_shape)
        self._check_sizes(representation_shape)
        if self.gradient_cache_chunks > 1:
            gradient_cache.check_cacheable(self)
        in_loop = self.gradient_cache_chunks > 1 and layers.spans_replicas(self)
        has_synchronized_bn = any(
            getattr(layer, "synchronized", False)
            for layer in layers.parts(self)
        )
        exceptions.require(
            not (in_loop and has_synchronized_bn),
            "`synchronized_bn` must be False with `gradient_cache_chunks` on "
            "several replicas: MirroredStrategy cannot synchronize in a loop",
            True,
        )

    def _check_sizes(
        self, representation_shape: tuple[int | None, int]
    ) -> None:
        """Raises ValueError where parts of the model do not fit together."""
        dim = getattr(self.projection_head, "output_dim", None)
        centres_dim = getattr(self.centres, "dim", dim)
        exceptions.require(
            dim in (None, centres_dim),
            f"`dim` of the centres must be that of the projections, {dim}",
            centres_dim,
        )
        if self.classifier is None or not self.logit_offsets:
            return
        shape = self.classifier.compute_output_shape(representation_shape)
        exceptions.require(
            len(self.logit_offsets) == shape[-1],
            f"`logit_offsets` must have the {shape[-1]} classes of the "
            "classifier",
            len(self.logit_offsets),
        )

    def _check_shape(self, shape: tf.TensorShape) -> None:
        layers.folded_shape(shape, self.encoder)

    def call(self, views: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        """Projects views [B, V, H, W, 3], uint8 or float, to [B, V, dim].

        Floats are in 0..255; the projections are float32.
        """
        return self._outputs(views, training)[0]

    def _outputs(
        self, views: tf.Tensor, training: bool | None
    ) -> list[tf.Tensor]:
        """Projections and, with a classifier, logits, [B, V, ...] each."""
        forward = functools.partial(self._forward_images, training=training)
        if self.gradient_cache_chunks == 1 or not training:
            return layers.each_view(forward, views, self.encoder)
        dims = [self.projection_head.output_dim]
        if self.classifier is not None:
            shape = (None, self.encoder.representation_dim)
            dims.append(self.classifier.compute_output_shape(shape)[-1])
        return self._forward_in_chunks(forward, views, dims)

    def _forward_in_chunks(
        self,
        forward_images: gradient_cache.Forward,
        views: tf.Tensor,
        dims: list[int],
    ) -> list[tf.Tensor]:
        """Calls `layers.each_view` chunk by chunk; returns [B, V, dim] each."""
        forward_views = functools.partial(
            layers.each_view, forward_images, encoder=self.encoder
        )
        if self.gradient_cache_chunks == 1:
            return forward_views(views)
        # Without seeds, the second pass would draw other dropout.
        draw_seeds = getattr(self.encoder, "draw_seeds", tf.identity)
        views = draw_seeds(views)
        row_shapes = [(views.shape[1], dim) for dim in dims]
        return gradient_cache.forward_in_chunks(
            forward_views, views, self.gradient_cache_chunks, row_shapes, self
        )

    def _forward_images(
        self, images: tf.Tensor, training: bool | None
    ) -> list[tf.Tensor]:
        """Projections and, with a classifier, logits, [B*V, ...] each."""
        representations = self.encoder(images, training=training)
        outputs = [self.projection_head(representations, training=training)]
        if self.classifier is not None:
            if self.classifier_weight is None:
                representations = tf.stop_gradient(representations)
            outputs.append(self.classifier(representations))
        return outputs

    @property
    def metrics(self) -> list[keras.metrics.Metric]:
        """Keras' metrics and the classifier's, which are reset every epoch."""
        return [*super().metrics, *vars(self._classifier_metrics).values()]

    def train_step(self, data: tuple) -> dict[str, tf.Tensor]:
        if self.classifier is None:
            return super().train_step(data)
        with tf.GradientTape() as tape:
            loss, arguments = self._joint_loss(data, training=True)
        self.optimizer.minimize(loss, self.trainable_variables, tape=tape)
        return self.compute_metrics(*arguments)

    def test_step(self, data: tuple) -> dict[str, tf.Tensor]:
        if self.classifier is None:
            return super().test_step(data)
        _, arguments = self._joint_loss(data, training=False)
        return self.compute_metrics(*arguments)

    def _joint_loss(
        self, data: tuple, training: bool
    ) -> tuple[tf.Tensor, tuple[tf.Tensor | None, ...]]:
        """Returns the objective, and the arguments of `compute_metrics`.

        The objective is scaled for replicas as Keras does. The arguments are
        views, labels, projections and weights.
        """
        views, labels, weights = keras.utils.unpack_x_y_sample_weight(data)
        if not self.built:  # no `call` builds it; outside of the graph
            with tf.init_scope():
                self.build(views.shape)
        projections, logits = self._outputs(views, training)  # [B, V, ...]
        arguments = views, labels, projections, weights
        loss = self.compute_loss(*arguments)
        losses, accuracies = self._classifier_losses(labels, logits)
        batch = tf.shape(logits)[0]
        if weights is not None:
            weights = tf.reshape(weights, [batch, 1])  # [B, 1]
            losses *= tf.cast(weights, losses.dtype)
        # Not of reduce_mean, which is NaN on a replica without samples.
        cross_entropy = tf.math.divide_no_nan(
            tf.reduce_sum(losses), tf.cast(tf.size(losses), losses.dtype)
        )
        metrics = self._classifier_metrics
        metrics.loss.update_state(cross_entropy, sample_weight=batch)
        metrics.accuracy.update_state(tf.cast(accuracies, tf.float32))
        # Gradients are summed over replicas, so each contributes its share.
        cross_entropy /= tf.distribute.get_strategy().num_replicas_in_sync
        if self.classifier_weight is None:
            return loss + cross_entropy, arguments
        share = self.classifier_weight
        return (1 - share) * loss + share * cross_entropy, arguments

    def _classifier_losses(
        self, labels: tf.Tensor | None, logits: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Cross-entropies [B, V], and accuracies of the decisions.

        Accuracies are bool, or shares of a soft label, of shape [B, V], or
        [B, V, classes] with `multi_label`.
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
            labels = tf.cast(labels[:, tf.newaxis], logits.dtype)  # [B, 1, .]
            labels = tf.broadcast_to(labels, [batch, num_views, classes])
            losses = tf.nn.sigmoid_cross_entropy_with_logits(labels, logits)
            return tf.reduce_sum(losses, axis=2), (logits >= 0) == (labels > 0)
        predicted = tf.argmax(logits, axis=2, output_type=tf.int64)  # [B, V]
        logits += tf.constant(self.logit_offsets or 0.0, logits.dtype)
        is_matrix = shape.rank == 2 and shape[1] == logits.shape[2]
        if is_matrix and labels.dtype.is_floating:
            shares = _repeat_soft_labels(labels, num_views)
            losses = tf.nn.softmax_cross_entropy_with_logits(shares, logits)
            # [B, V] each: a soft label adds the share of the predicted class.
            return losses, tf.gather(shares, predicted, batch_dims=2)
        exceptions.require(
            shape.rank == 1 or (shape.rank == 2 and shape[1] == 1),
            "`labels` must be [batch] integers for a classifier, or soft "
            "[batch, classes] floats",
            f"shape {None if labels is None else shape}",
        )
        labels = tf.reshape(labels, [-1, 1])
        labels = tf.broadcast_to(labels, [batch, num_views])  # [B, V]
        losses = keras.losses.sparse_categorical_crossentropy(
            labels, logits, from_logits=True
        )
        return losses, predicted == tf.cast(labels, tf.int64)


def _repeat_soft_labels(
    labels: tf.Tensor, num_views: int | tf.Tensor
) -> tf.Tensor:
    """Checks soft labels [B, classes] and repeats them to [B, V, classes]."""
    labels = tf.cast(labels, tf.float32)
    tf.debugging.assert_less(
        tf.abs(tf.reduce_sum(labels, axis=1) - 1.0),
        1e-3,
        "rows of soft `labels` must sum to 1",
    )
    tf.debugging.assert_non_negative(
        labels, "shares of soft `labels` must be at least 0"
    )
    return tf.repeat(labels[:, tf.newaxis], num_views, axis=1)
