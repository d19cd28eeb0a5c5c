"""A momentum encoder that fills a queue of projections, Sec. 4.1.

Letters in the shapes: B batch, V views.
"""

from __future__ import annotations

import tensorflow as tf

from supcon_tf import exceptions
from supcon_tf.keras_2 import keras
from supcon_tf.models import contrastive, layers


@keras.utils.register_keras_serializable(package="supcon_tf")
class MomentumSupConModel(contrastive.SupConModel):
    """`SupConModel` with a momentum encoder and a queue, Sec. 4.1.

    A queue gives a small batch many contrasts: the loss contrasts the views of
    the batch with each other and with the rows of the queue. A step is

      1. the step of `SupConModel`: loss, gradient, update of the weights;
      2. w_m = m * w_m + (1 - m) * w for every trainable weight w of encoder
         and head, and the weight w_m of their momentum copies;
      3. the momentum copies project all views of the batch, and projections
         and labels overwrite the oldest rows of the queue, in the order sample
         by sample, view by view, replica by replica.

    So a view is never contrasted with its own copy. The queue starts empty (the
    first loss is that without a queue) and is full after size / (B * V) steps.
    The momentum copies start from the weights at `build`. They run in training
    mode, with moving averages of BN of their own; what is frozen before
    `compile`, is frozen in the copies too. Evaluation, stage 2 and export use
    encoder and head themselves.

    Checkpoints hold the momentum copies and the queue; `.keras` files and the
    configuration do not hold the rows of the queue.

    Args:
      encoder: images to representations; see `Encoder`.
      projection_head: representations to projections; see `ProjectionHead`.
      queue: has `enqueue(projections, labels)`, see `losses.ProjectionQueue`.
        The loss given to `compile` must have the same queue.
      encoder_momentum: m, from 0 to 1.
      name: name of the model.
      **kwargs: of `SupConModel`.

    Attributes:
      momentum_encoder: copy of `encoder`, which the optimizer leaves alone.
      momentum_head: copy of `projection_head`, likewise.

    Example:
      >>> import numpy as np
      >>> import supcon_tf
      >>> from supcon_tf import losses, models
      >>> encoder, head = supcon_tf.Encoder("vgg8"), supcon_tf.ProjectionHead()
      >>> queue = losses.ProjectionQueue(size=64, dim=128)
      >>> model = models.MomentumSupConModel(encoder, head, queue)
      >>> loss = losses.SupConLoss(queue=queue)
      >>> model.compile("sgd", loss, run_eagerly=True)
      >>> views = np.zeros([4, 2, 8, 8, 3], np.uint8)
      >>> _ = model.fit(views, np.arange(4), verbose=0)
      >>> int(queue.filled)  # 4 samples * 2 views
      8

    Raises:
      ValueError: as `SupConModel`; `encoder_momentum` is out of range; the
        loss has another queue, or none.

    Reference: https://arxiv.org/abs/2004.11362, Sec. 4.1, and
    https://arxiv.org/abs/1911.05722.
    """

    def __init__(
        self,
        encoder: keras.Model,
        projection_head: keras.Model,
        queue: tf.Module,
        encoder_momentum: float = 0.999,
        *,
        name: str = "momentum_supcon_model",
        **kwargs: object,
    ) -> None:
        super().__init__(encoder, projection_head, name=name, **kwargs)
        exceptions.require(
            0 <= encoder_momentum <= 1,
            "`encoder_momentum` must be from 0 to 1",
            encoder_momentum,
        )
        self.queue = queue
        self.encoder_momentum = encoder_momentum
        self.momentum_encoder = _copy(self.encoder)
        self.momentum_head = _copy(projection_head)

    def _build_parts(self, input_shape: tf.TensorShape) -> None:
        super()._build_parts(input_shape)
        shape = layers.folded_shape(input_shape, self.encoder)
        self.momentum_encoder.build(shape)
        self.momentum_head.build((None, self.encoder.representation_dim))
        self.start_copies()

    def start_copies(self) -> None:
        """Gives the momentum copies the weights of encoder and head."""
        self._freeze_copies()  # Keras orders weights by what is frozen
        self.momentum_encoder.set_weights(self.encoder.get_weights())
        self.momentum_head.set_weights(self.projection_head.get_weights())

    def _freeze_copies(self) -> None:
        """Freezes the layers of the copies that are frozen in the networks."""
        for copy, network in (
            (self.momentum_encoder, self.encoder),
            (self.momentum_head, self.projection_head),
        ):
            pairs = zip(layers.parts(copy), layers.parts(network), strict=True)
            for copied, layer in pairs:
                trainable = getattr(layer, "trainable", None)
                # Setting it would set it in all layers inside, too.
                if getattr(copied, "trainable", None) != trainable:
                    copied.trainable = trainable

    def _check_loss(self, loss: object) -> None:
        exceptions.require(
            getattr(loss, "queue", None) is self.queue,
            "`loss` must have the queue of the model, as SupConLoss(queue="
            "model.queue) has",
            loss,
        )
        super()._check_loss(loss)

    def compile_from_config(self, config: dict[str, object]) -> None:
        """Does nothing: the loss of a file lacks the queue of this model."""

    def train_step(self, data: tuple) -> dict[str, tf.Tensor]:
        # Here Keras has set all layers as they were at `compile`.
        self._freeze_copies()
        logs = super().train_step(data)
        views, labels, _ = keras.utils.unpack_x_y_sample_weight(data)
        # Each replica moves its own variables, by the same numbers.
        parts = self.encoder, self.projection_head
        weights = [
            weight for part in parts for weight in part.trainable_weights
        ]
        for copy, weight in zip(self._copied_weights(), weights, strict=True):
            copy.assign_sub((1 - self.encoder_momentum) * (copy - weight))

        def project(images: tf.Tensor) -> list[tf.Tensor]:
            """Projects images [B * V, H, W, C] by the momentum copies."""
            representations = self.momentum_encoder(images, training=True)
            return [self.momentum_head(representations, training=True)]

        (z,) = self._forward_in_chunks(  # [B, V, dim]
            project, views, [self.momentum_head.output_dim]
        )
        labels = tf.repeat(labels, tf.shape(z)[1], axis=0)  # [B*V]
        self.queue.enqueue(layers.fold(z), labels)
        return logs

    def _copied_weights(self) -> list[tf.Variable]:
        """Returns the trainable weights of the momentum copies.

        Keras' `trainable` does not freeze the copies: their BN would then run
        in inference mode.
        """
        copies = self.momentum_encoder, self.momentum_head
        return [weight for part in copies for weight in part.trainable_weights]

    @property
    def trainable_weights(self) -> list[tf.Variable]:
        """The weights that the optimizer updates: none of the copies."""
        copied_ids = {id(weight) for weight in self._copied_weights()}
        return [
            weight
            for weight in super().trainable_weights
            if id(weight) not in copied_ids
        ]

    @property
    def non_trainable_weights(self) -> list[tf.Variable]:
        """All other weights, of momentum copies and queue too."""
        return super().non_trainable_weights + self._copied_weights()


def _copy(part: keras.Model) -> keras.Model:
    """Returns a new encoder or head of the same configuration, not built."""
    config = part.get_config()
    return type(part).from_config(
        config | {"name": f"momentum_{config['name']}"}
    )
