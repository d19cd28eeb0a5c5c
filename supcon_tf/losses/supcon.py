"""The supervised contrastive loss, Eq. 2 and 3 of Khosla et al. 2020."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import tensorflow as tf

from supcon_tf import defaults, distribute, exceptions
from supcon_tf.keras_2 import keras
from supcon_tf.losses import inputs, pairs, positive_weights, tiled
from supcon_tf.losses import queue as queues

# Floor of the squared norm: the gradient of x / |x| at 0 is then at most 1e4,
# which float16 still holds.
_NORM_EPSILON = 1e-8
_PAIRS_AT_ONCE = 2**22  # 16 MiB of logits


def supcon_loss(
    projections: tf.Tensor,
    labels: tf.Tensor | None = None,
    *,
    temperature: float = defaults.TEMPERATURE,
    formulation: str = "out",
    denominator: str = "all",
    anchor_views: str = "all",
    positives: str | None = None,
    positives_cap: int | None = None,
    positive_mask: tf.Tensor | None = None,
    scale_by_temperature: bool = True,
    contrast_projections: tf.Tensor | None = None,
    contrast_labels: tf.Tensor | None = None,
    contrast_mask: tf.Tensor | None = None,
) -> tf.Tensor:
    """Supervised contrastive loss per sample, by all pairs, Eq. 2 and 3.

      out: L_i = -1/|P(i)| sum_{p in P(i)} log( exp(z_i.z_p / tau) / D_ip )
      in:  L_i = -log( 1/|P(i)| sum_{p in P(i)} exp(z_i.z_p / tau) / D_ip )

    A(i) is every row but i, P(i) the rows of A(i) with the label of i, N(i)
    the others. An anchor without positives has loss 0, as has one without
    negatives under `only_negatives`, where the logarithm does not exist.
    Nothing is normalised; options without a line here are `SupConLoss`'s.

      projections: [batch, views, dim] or [batch, dim] (one view), any float.
      labels: [batch] or [batch, 1] integers of any size or sign, or one-hot
        [batch, classes]. None: a class per sample, SimCLR's loss (Eq. 1). With
        `positives`, [batch, classes] 0 or 1, several per sample, or none.
      positive_mask: [batch, batch + contrasts] non-negative weights in place
        of labels: row i weighs the positives of sample i, 0 marks negatives;
        the diagonal weighs its own other views.
      contrast_projections: [contrasts, views', dim] or [contrasts, dim], rows
        that are contrasts but no anchors: a queue, or other replicas' views.
      contrast_labels: like `labels`, for `contrast_projections`.
      contrast_mask: [queued] bool, for the last `queued` contrasts, which are
        a queue's: False takes one out of A(i). A cap keeps them last.

    Example:
      >>> import numpy as np
      >>> import supcon_tf
      >>> same = np.ones([4, 2, 1], np.float32)  # tells nothing: log 7
      >>> supcon_tf.supcon_loss(same, [0, 0, 1, 1], temperature=1.0).shape
      TensorShape([4])

    Returns [batch] float32, nats (times tau where scaled), the mean over views.
    Raises ValueError for a shape, dtype or option that is none of these.

    Reference: https://arxiv.org/abs/2004.11362, Sec. 3.2.2.
    """
    inputs.check_options(temperature, formulation, denominator, anchor_views)
    z = inputs.as_views(projections, "projections")  # [B, V, D]
    further = inputs.as_contrasts(contrast_projections, z)  # [C, V', D]
    weights = positive_weights.dense(
        z, further, labels, contrast_labels, positive_mask, positives
    )
    anchors = z if anchor_views == "all" else z[:, :1]
    sets = pairs.sets_of(
        anchors, z, further, weights, contrast_mask, positives_cap
    )
    rows, *contrasts = (  # [A, D], and the rows of [M, D]
        tf.reshape(t, [-1, z.shape[2]]) for t in (anchors, z, further)
    )
    logits = tf.matmul(rows, tf.concat(contrasts, axis=0), transpose_b=True)
    losses = pairs.anchor_losses(
        logits / temperature, *sets, formulation, denominator
    )
    if scale_by_temperature:
        losses *= temperature
    return tf.reduce_mean(tf.reshape(losses, [-1, anchors.shape[1]]), axis=1)


@keras.utils.register_keras_serializable(package="supcon_tf")
@dataclasses.dataclass(eq=False)
class SupConLoss(inputs.Loss):
    """Supervised contrastive loss for `compile` and `fit`.

    `y_true` are labels as in `supcon_loss`, `y_pred` projections [batch,
    views, dim] of this replica. Under a distribution strategy each anchor is
    contrasted with the views of all replicas, and gradients flow to all of
    them, so that value and gradient are those of one device with the global
    batch. The loss is one value per sample; reduction is left to Keras.

    With a queue, A(i) has its filled rows too, as constants.

    Args:
      temperature: tau, positive, no unit; the paper uses 0.1.
      formulation: "out" is Eq. 2, "in" is Eq. 3; L_in <= L_out.
      denominator: D_ip sums exp(z_i.z_a / tau) over a in A(i) ("all", the
        paper's), over N(i) and p ("one_positive"), or over N(i).
      anchor_views: "all", or "first": only view 0 of each sample is an anchor.
      positives_cap: largest |P(i)|, at least views - 1: the own other views
        and the next positives in cyclic batch order; the rest leave the
        denominator too (Suppl. Sec. 7).
      scale_by_temperature: multiply by tau, as the paper's training does. The
        PyTorch reference multiplies by tau / 0.07 instead, 14.29 times more.
      normalize: L2-normalise the projections along their last axis, in
        float32; without effect on unit vectors.
      cross_replica: contrast with the views of all replicas; False contrasts
        within each replica, which is a different loss.
      implementation: "tiled", in memory linear in the batch; "dense", by all
        pairs at once; or "auto", which is tiled but for small matrices. Tiled
        has no cap with any or jaccard, where auto is dense.
      queue: a `ProjectionQueue`, filled by whoever trains, after each loss
        (`MomentumSupConModel` does). A cap keeps its positives last.
        `from_config` makes an empty one; sharing it is left to the caller.
      positives: None, or what samples of several labels are positives by: "any"
        shared label, "all" of them, or as much as they share ("jaccard", see
        `positive_weights`).
      reduction: of Keras, as is `name`.

    Example:
      >>> import numpy as np
      >>> import supcon_tf
      >>> projections = np.eye(4, 16)[[0, 0, 1, 1]].reshape(2, 2, 16)
      >>> loss = supcon_tf.SupConLoss(temperature=0.1)
      >>> float(loss([3, 7], projections)) < 1e-4  # views alike, images not
      True

    Raises:
      ValueError: an option does not exist, or "tiled" has none such.
    """

    temperature: float = defaults.TEMPERATURE
    formulation: str = "out"
    denominator: str = "all"
    anchor_views: str = "all"
    positives_cap: int | None = None
    scale_by_temperature: bool = True
    normalize: bool = True
    cross_replica: bool = True
    implementation: str = "auto"
    queue: queues.ProjectionQueue | None = None
    positives: str | None = None
    reduction: str = keras.losses.Reduction.AUTO
    name: str = "supcon_loss"

    def __post_init__(self) -> None:
        super().__post_init__()
        inputs.check_options(
            self.temperature,
            self.formulation,
            self.denominator,
            self.anchor_views,
        )
        if self.positives is not None:
            known = positive_weights.KINDS
            exceptions.require_one_of(known, "positives", self.positives)
        exceptions.require(
            self.positives is None or self.queue is None,
            "`positives` must be None with a `queue`, which keeps one label "
            "per row",
            self.positives,
        )
        known = "auto", "dense", "tiled"
        exceptions.require_one_of(known, "implementation", self.implementation)
        has_tiles = (
            self.positives in (None, "all") or self.positives_cap is None
        )
        exceptions.require(
            has_tiles or self.implementation != "tiled",
            "`implementation` must not be tiled with a `positives_cap` and "
            f"positives={self.positives!r}",
            "tiled",
        )
        self._is_dense = self.implementation == "dense" or not has_tiles
        # The loss that is faster in tiles at any size.
        self._is_plain = (
            self.denominator == "all"
            and self.positives_cap is None
            and self.queue is None
        )

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        return self._by_each([tf.convert_to_tensor(y_true)], y_pred)[0]

    def _by_each(
        self, labels: Sequence[tf.Tensor], y_pred: tf.Tensor
    ) -> list[tf.Tensor]:
        """The loss [batch] by each of several labels of the same samples."""
        z = self._normalized(inputs.as_views(y_pred, "projections"))
        options = {
            "temperature": self.temperature,
            "formulation": self.formulation,
            "denominator": self.denominator,
            "anchor_views": self.anchor_views,
            "positives": self.positives,
            "positives_cap": self.positives_cap,
            "scale_by_temperature": self.scale_by_temperature,
        }
        queue = None
        if self.queue is not None:
            queued, *of_queue = self.queue.rows()
            queue = self._normalized(queued), *of_queue
        if self._is_dense or self._is_small(z):
            return [self._by_pairs(own, z, queue, options) for own in labels]
        losses = tiled.tiled_losses(
            z,
            [positive_weights.canonical(x, self.positives) for x in labels],
            **options,
            queue=queue,
            tile_rows=None,
            unit_length=self.normalize,
            cross_replica=self.cross_replica,
        )
        return tf.unstack(losses, axis=1)

    def _by_pairs(
        self,
        labels: tf.Tensor,
        z: tf.Tensor,
        queue: tuple[tf.Tensor, ...] | None,
        options: dict[str, object],
    ) -> tf.Tensor:
        """By all pairs at once, [batch], of projections that are normalised."""
        own = tf.shape(z)[0]
        all_z, all_labels = inputs.gather(self.cross_replica, z, labels)
        others, labels_of_others, filled = all_z[own:], all_labels[own:], None
        if queue is not None:  # behind the views of other replicas
            queued, queued_labels, filled = queue
            rows = tf.reshape(others, [-1, z.shape[2]])
            ids = tf.repeat(inputs.class_ids(labels_of_others), z.shape[1])
            others = tf.concat([rows, queued], axis=0)
            labels_of_others = tf.concat([ids, queued_labels], axis=0)
        return supcon_loss(
            z,
            labels,
            **options,
            contrast_projections=others,
            contrast_labels=labels_of_others,
            contrast_mask=filled,
        )

    def _is_small(self, z: tf.Tensor) -> bool:
        """Whether auto takes all pairs at once, on one replica."""
        alone = not self.cross_replica or distribute.replicas_in_sync() == 1
        known = z.shape[0] is not None
        is_auto = self.implementation == "auto" and not self._is_plain
        if not (is_auto and alone and known):
            return False
        rows = z.shape[0] * z.shape[1]
        queued = 0 if self.queue is None else self.queue.size
        return rows * (rows + queued) <= _PAIRS_AT_ONCE

    def _normalized(self, z: tf.Tensor) -> tf.Tensor:
        """Unit vectors along the last axis, if this loss makes them."""
        if not self.normalize:
            return z
        return tf.math.l2_normalize(z, axis=-1, epsilon=_NORM_EPSILON)

    def get_config(self) -> dict[str, object]:
        config = super().get_config()
        if self.queue is not None:
            queue = keras.saving.serialize_keras_object(self.queue)
            config["queue"] = queue
        return config

    @classmethod
    def from_config(cls, config: dict[str, object]) -> SupConLoss:
        """Rebuilds the loss from its config, with an empty queue."""
        if config.get("queue") is not None:
            queue = keras.saving.deserialize_keras_object(config["queue"])
            config = config | {"queue": queue}
        return cls(**config)


def chance_loss(
    contrasts: int, temperature: float, scale_by_temperature: bool = True
) -> float:
    """Loss of equal, or uninformative, projections: log|A(i)|, Sec. 3.2.

    A loss that stays at this value is collapsed or untrained. It holds for
    `denominator="all"`, both formulations, any labels. `contrasts` is |A(i)|,
    global batch times views, less one.

    Example:
      >>> from supcon_tf import losses
      >>> round(losses.chance_loss(2 * 256 - 1, temperature=0.1), 4)
      0.6236
    """
    scale = temperature if scale_by_temperature else 1.0
    return scale * math.log(contrasts)
