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
from supcon_tf.losses.options import Options

_PAIRS_AT_ONCE = 2**22  # 16 MiB of logits


def supcon_loss(
    projections: tf.Tensor,
    labels: tf.Tensor | None = None,
    *,
    positive_mask: tf.Tensor | None = None,
    contrast_projections: tf.Tensor | None = None,
    contrast_labels: tf.Tensor | None = None,
    contrast_mask: tf.Tensor | None = None,
    **options: object,
) -> tf.Tensor:
    """Supervised contrastive loss per sample, by all pairs, Eq. 2 and 3.

      out: L_i = -1/|P(i)| sum_{p in P(i)} log( exp(z_i.z_p / tau) / D_ip )
      in:  L_i = -log( 1/|P(i)| sum_{p in P(i)} exp(z_i.z_p / tau) / D_ip )

    A(i) is every row but i, P(i) the rows of A(i) with the label of i, N(i)
    the others. An anchor without positives has loss 0, as has one without
    negatives under `only_negatives`, where the logarithm does not exist.
    Nothing is normalised.

      projections: [batch, views, dim] or [batch, dim] (one view), any float.
      labels: [batch] or [batch, 1] integers of any size or sign, or one-hot
        [batch, classes]. None: a class per sample, SimCLR's loss (Eq. 1). With
        `positives`, [batch, classes] 0 or 1, several per sample, or none, or
        soft ones of at least 0.
      positive_mask: [batch, batch + contrasts] non-negative weights in place
        of labels: row i weighs the positives of sample i, 0 marks negatives;
        the diagonal weighs its own other views.
      contrast_projections: [contrasts, views', dim] or [contrasts, dim], rows
        that are contrasts but no anchors: a queue, or other replicas' views.
      contrast_labels: like `labels`, for `contrast_projections`.
      contrast_mask: [queued] bool, for the last `queued` contrasts, which are
        a queue's: False takes one out of A(i). A cap keeps them last.
      options: those of `SupConLoss` that are fields of `losses.Options`:
        temperature, formulation, denominator, ...

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
    return _compute(
        projections,
        labels,
        positive_mask,
        Options(**options),
        contrast_projections,
        contrast_labels,
        contrast_mask,
        is_dense=True,
    )


def tiled_supcon_loss(
    projections: tf.Tensor,
    labels: tf.Tensor | None = None,
    *,
    positive_mask: tf.Tensor | None = None,
    tile_rows: int | None = None,
    unit_length: bool = False,
    cross_replica: bool = False,
    **options: object,
) -> tf.Tensor:
    """`supcon_loss`, the same value and gradient, without any [A, M] matrix.

      projections: [batch, views, dim] or [batch, dim], any float; of this
        replica. Computed in float32, not normalised.
      labels, positive_mask, options: as in `supcon_loss`; the mask is [batch,
        batch], on one replica.
      tile_rows: rows of a tile, in a loop; None chooses.
      unit_length: a promise that all projections have length 1.
      cross_replica: contrast with the views of all replicas.

    Example:
      >>> import numpy as np
      >>> from supcon_tf import losses
      >>> same = np.ones([512, 2, 1], np.float32)  # 1,024 rows
      >>> loss = losses.tiled_supcon_loss(same, np.arange(512) // 2)
      >>> round(float(loss[0]), 3), round(losses.chance_loss(1023, 0.1), 3)
      (0.693, 0.693)

    Returns [batch] float32, nats (times tau where scaled), the mean over views.
    Raises ValueError for a shape, dtype or option that is none of these.
    """
    exceptions.require(
        tile_rows is None or tile_rows >= 1,
        "`tile_rows` must be at least 1",
        tile_rows,
    )
    exceptions.require(
        positive_mask is None or not cross_replica,
        "`positive_mask` must be of one replica",
        "cross_replica",
    )
    return _compute(
        projections,
        labels,
        positive_mask,
        Options(**options),
        tile_rows=tile_rows,
        unit_length=unit_length,
        cross_replica=cross_replica,
    )


@inputs.nan_if_broken
def _compute(
    projections: tf.Tensor,
    labels: tf.Tensor | None,
    positive_mask: tf.Tensor | None,
    options: Options,
    contrasts: tf.Tensor | None = None,
    contrast_labels: tf.Tensor | None = None,
    contrast_mask: tf.Tensor | None = None,
    **computation: object,
) -> tf.Tensor:
    """Checks the arguments of `supcon_loss`, and returns the loss [B]."""
    z = inputs.to_batch(projections)  # [B, V, D]
    views = inputs.to_contrasts(contrasts, z)  # [C, V', D]
    if contrast_mask is not None:
        contrast_mask = inputs.to_queue_mask(contrast_mask, views)
    exceptions.require(
        contrast_labels is None or labels is not None,
        "`contrast_labels` must come with `labels`",
        "them alone",
    )
    exceptions.require(
        (contrast_labels is None) == (contrasts is None or labels is None),
        "`contrast_labels` must be given with `contrast_projections` and "
        "`labels`",
        "one of them alone",
    )
    rules_of_labels = options.positives or options.unsupervised_classes
    exceptions.require(
        labels is not None or not rules_of_labels,
        "`labels` must be given with `positives` or `unsupervised_classes`",
        f"{rules_of_labels} without them",
    )
    canonical, mask = [], None
    if positive_mask is not None:
        exceptions.require(
            labels is None,
            "`positive_mask` must not be combined with labels",
            "both",
        )
        positive_mask = tf.cast(positive_mask, tf.float32)
        rule = "`positive_mask` must be at least 0, and 0 for negatives"
        is_valid = positive_mask >= 0  # not of a NaN
        positive_mask = inputs.checked(positive_mask, is_valid, rule)
        mask = positive_weights.PositiveMask(positive_mask)
        samples = None
        if None not in (z.shape[0], views.shape[0]):
            samples = z.shape[0] + views.shape[0]
        shape = [z.shape[0], samples]
        inputs.check_shape("positive_mask", mask.mask, shape)
    elif labels is None:
        # Each sample is its own class; the extra contrasts are all negatives.
        canonical = [inputs.sample_ids(z)]
        contrast_labels = -1 - tf.range(tf.shape(views, tf.int64)[0])
    else:
        canonical = [positive_weights.sample_labels(z, labels, options)]
    extras = None
    if contrasts is not None:
        if labels is not None:
            contrast_labels = positive_weights.sample_labels(
                views, contrast_labels, options, "contrast_labels"
            )
        extras = pairs.ExtraContrasts(views, contrast_labels, contrast_mask)
    (losses,) = tiled.losses_by_labels(
        z, canonical, options, mask=mask, extras=extras, **computation
    )
    return losses


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
        paper's), over N(i) and p ("one_positive", also named "sincere", after
        Feeney and Hughes 2023, https://arxiv.org/abs/2309.14277), or over N(i).
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
        pairs at once; or "auto", which is tiled but for small matrices.
      queue: a `ProjectionQueue`, filled by whoever trains, after each loss
        (`MomentumSupConModel` does). A cap keeps its positives last.
        `from_config` makes an empty one; sharing it is left to the caller.
      positives: None, or what samples of several labels are positives by: "any"
        shared label, "all" of them, or as much as they share ("jaccard"); of
        soft labels, of MixUp or of a teacher, "soft", the product of two rows,
        or "cosine" (see `positive_weights`).
      margin: epsilon, taken from z_i.z_p / tau in the denominator
        "one_positive": a positive is to be nearer than every negative by that
        much (Barbano et al. 2023, https://arxiv.org/abs/2211.05568, whose L_in
        with a margin has one denominator; here it is of each positive).
      hardness: alpha; alpha z_i.z_n, as a constant, is added to the logits of
        the negatives, so that near ones weigh more (Lan et al. 2025,
        https://arxiv.org/abs/2503.04812, Eq. 5, with 9).
      spread: a, in 0 ... 1: the share of log sum_{p in P(i)} exp(s_ip) - s_iv,
        with v the own other views, which keeps the samples of a class apart
        (Chen et al. 2022, https://arxiv.org/abs/2204.07596, L_spread).
      unsupervised_classes: classes whose samples have their own other views as
        only positives, as the larger one of two unequal classes (Mildenberger
        et al. 2025, https://arxiv.org/abs/2503.17024).
      reduction: of Keras, as is `name`.

    Example:
      >>> import numpy as np
      >>> import supcon_tf
      >>> projections = np.eye(4, 16)[[0, 0, 1, 1]].reshape(2, 2, 16)
      >>> loss = supcon_tf.SupConLoss(temperature=0.1)
      >>> float(loss([3, 7], projections)) < 1e-4  # views alike, images not
      True

    Raises:
      ValueError: an option does not exist.
    """

    _PART = "queue"

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
    margin: float = 0.0
    hardness: float = 0.0
    spread: float = 0.0
    unsupervised_classes: tuple[int, ...] = ()
    reduction: str = keras.losses.Reduction.AUTO
    name: str = "supcon_loss"

    def __post_init__(self) -> None:
        super().__post_init__()
        inputs.require_integers(unsupervised_classes=self.unsupervised_classes)
        self.unsupervised_classes = tuple(self.unsupervised_classes)
        self.options  # noqa: B018 - which it checks
        exceptions.require(
            self.positives is None or self.queue is None,
            "`positives` must be None with a `queue`, which keeps one label "
            "per row",
            self.positives,
        )
        exceptions.require_one_of(
            ("auto", "dense", "tiled"), "implementation", self.implementation
        )

    @property
    def options(self) -> Options:
        """The options of the formula.

        Raises:
          ValueError: an option does not exist.
        """
        names = [field.name for field in dataclasses.fields(Options)]
        return Options(**{name: getattr(self, name) for name in names})

    @inputs.nan_if_broken
    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        (losses,) = self._losses_by_labels(
            [tf.convert_to_tensor(y_true)], y_pred
        )
        return losses

    def _losses_by_labels(
        self, labels: Sequence[tf.Tensor], y_pred: tf.Tensor
    ) -> list[tf.Tensor]:
        """Returns the loss [batch] by each of several labels of the samples."""
        z = self._normalized(inputs.to_batch(y_pred))
        extras = None
        if self.queue is not None:
            queued_z, ids, is_filled = self.queue.rows()
            queued_z = self._normalized(queued_z)[:, tf.newaxis]  # [Q, 1, D]
            ids = positive_weights.sample_labels(
                queued_z, ids, self.options, "contrast_labels"
            )
            extras = pairs.ExtraContrasts(queued_z, ids, is_filled)
        return tiled.losses_by_labels(
            z,
            [
                positive_weights.sample_labels(z, y, self.options)
                for y in labels
            ],
            self.options,
            unit_length=self.normalize,
            cross_replica=self.cross_replica,
            extras=extras,
            is_dense=self._is_dense(z),
        )

    def _is_dense(self, z: tf.Tensor) -> bool:
        """Whether all pairs are few enough, on one replica."""
        if self.implementation != "auto":
            return self.implementation == "dense"
        if self.cross_replica and distribute.replicas_in_sync() > 1:
            return False
        is_plain = self.options.is_plain and self.queue is None
        if is_plain or z.shape[0] is None:
            return False
        rows = z.shape[0] * z.shape[1]
        num_queued = 0 if self.queue is None else self.queue.size
        return rows * (rows + num_queued) <= _PAIRS_AT_ONCE

    def _normalized(self, z: tf.Tensor) -> tf.Tensor:
        """Returns unit vectors along the last axis, if `normalize` is set."""
        return inputs.normalized(z) if self.normalize else z


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
