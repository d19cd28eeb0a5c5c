"""LAMB, from TensorFlow Addons (TFA) where that can be imported, or its equal.

All that the package takes from TFA is here. TFA 0.23 is the last one: it runs
on Python up to 3.11, beside TensorFlow 2.15.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence

import tensorflow as tf

from supcon_tf.keras_2 import keras
from supcon_tf.optimizers.shares import Shares, is_kernel

_Adam = keras.optimizers.legacy.Adam


class PlainLAMB(_Adam):
    """`tfa.optimizers.LAMB` without TFA; its checkpoints open in either."""

    def __init__(
        self,
        learning_rate: object = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-6,
        weight_decay: float = 0.0,
        exclude_from_weight_decay: Sequence[str] | None = None,
        exclude_from_layer_adaptation: Sequence[str] | None = None,
        name: str = "LAMB",
        **kwargs: object,
    ):
        super().__init__(
            learning_rate, beta_1, beta_2, epsilon, name=name, **kwargs
        )
        self._set_hyper("weight_decay", weight_decay)
        self.exclude_from_weight_decay = exclude_from_weight_decay
        self.exclude_from_layer_adaptation = (
            exclude_from_layer_adaptation or exclude_from_weight_decay
        )

    def _resource_apply_dense(
        self, grad: tf.Tensor, var: tf.Variable, apply_state: dict | None = None
    ) -> tf.Operation:
        key = var.device, var.dtype.base_dtype
        now = (apply_state or {}).get(key) or self._fallback_apply_state(*key)
        m, v = self.get_slot(var, "m"), self.get_slot(var, "v")
        m = m.assign(m * now["beta_1_t"] + grad * now["one_minus_beta_1_t"])
        square = grad * grad
        v = v.assign(v * now["beta_2_t"] + square * now["one_minus_beta_2_t"])
        mean = m / (1.0 - now["beta_1_power"])
        deviation = tf.sqrt(v / (1.0 - now["beta_2_power"]))
        update = mean / (deviation + now["epsilon"])
        if self._do_use_weight_decay(var):
            update += self._get_hyper("weight_decay", var.dtype) * var
        ratio = 1.0
        if self._do_layer_adaptation(var):
            norms = tf.norm(var), tf.norm(update)
            some = tf.reduce_all(tf.stack(norms) > 0.0)
            ratio = tf.where(some, norms[0] / norms[1], 1.0)
        return var.assign_sub(ratio * now["lr_t"] * update)

    def _resource_apply_sparse(
        self,
        grad: tf.Tensor,
        var: tf.Variable,
        indices: tf.Tensor,
        apply_state: dict | None = None,
    ) -> tf.Operation:
        grad = tf.IndexedSlices(grad, indices, tf.shape(var))
        dense = tf.convert_to_tensor(grad)
        return self._resource_apply_dense(dense, var, apply_state)

    def _do_use_weight_decay(self, variable: tf.Variable) -> bool:
        return not _matches(variable, self.exclude_from_weight_decay)

    def _do_layer_adaptation(self, variable: tf.Variable) -> bool:
        return not _matches(variable, self.exclude_from_layer_adaptation)

    def get_config(self) -> dict[str, object]:
        config = super().get_config()
        del config["amsgrad"]
        return {
            **config,
            "weight_decay": self._serialize_hyperparameter("weight_decay"),
            "exclude_from_weight_decay": self.exclude_from_weight_decay,
            "exclude_from_layer_adaptation": self.exclude_from_layer_adaptation,
        }


def _matches(variable: tf.Variable, patterns: Sequence[str] | None) -> bool:
    return any(re.search(pattern, variable.name) for pattern in patterns or ())


def _base() -> type[_Adam]:
    with warnings.catch_warnings():
        # TFA's notice on its end of life.
        warnings.simplefilter("ignore", UserWarning)
        try:
            from tensorflow_addons import optimizers
        except ImportError:  # not installed, or made for another TensorFlow
            return PlainLAMB
    return optimizers.LAMB


@keras.utils.register_keras_serializable(package="supcon_tf")
class LAMB(Shares, _base()):
    """LAMB, adapting and decaying kernels alone.

      m = beta_1 * m + (1 - beta_1) * gradient
      s = beta_2 * s + (1 - beta_2) * gradient^2
      u = m / (1 - beta_1^t) / (sqrt(s / (1 - beta_2^t)) + epsilon)
          + weight_decay * w
      w = w - learning_rate * |w| / |u| * u      in step t = 1, 2, ...

    The ratio is 1 where a norm is 0. Batch norm and biases, exempt by their
    rank, have weight_decay = 0 and ratio 1: Adam's step. The arguments are
    those of `tfa.optimizers.LAMB`, a Keras optimizer of the older kind, which
    here gets the newer ones' `build` and `learning_rate`. Keras leaves its
    steps and moments out of .keras files; a tf.train.Checkpoint has them.

    Reference: https://arxiv.org/abs/1904.00962, Algorithm 2.
    """

    def build(self, var_list: Sequence[tf.Variable]) -> None:
        """Makes the moments of variables, zero."""
        self._create_all_weights(var_list)

    @property
    def learning_rate(self) -> tf.Tensor | tf.Variable:
        """Learning rate of the last step, a number also of a schedule."""
        rate = self._get_hyper("learning_rate")
        if isinstance(rate, keras.optimizers.schedules.LearningRateSchedule):
            return rate(tf.maximum(self.iterations - 1, 0))
        return rate

    def _transform_gradients(
        self, grads_and_vars: Sequence[tuple[object, tf.Variable]]
    ) -> Sequence[tuple[object, tf.Variable]]:
        """Clips by the norm of the gradients that are applied, as `Shares`."""
        return super()._transform_gradients(
            [(_sum_repeated_rows(grad), var) for grad, var in grads_and_vars]
        )

    def _resource_apply_dense(
        self, grad: tf.Tensor, var: tf.Variable, apply_state: dict | None = None
    ) -> tf.Operation:
        step = super()._resource_apply_dense
        return self._take_share(var, lambda: step(grad, var, apply_state))

    def _do_use_weight_decay(self, variable: tf.Variable) -> bool:
        # And by the lists of names, here as below.
        return is_kernel(variable) and super()._do_use_weight_decay(variable)

    def _do_layer_adaptation(self, variable: tf.Variable) -> bool:
        return is_kernel(variable) and super()._do_layer_adaptation(variable)


def _sum_repeated_rows(gradient: object) -> object:
    """Returns a gradient whose rows, of an embedding, are all different."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    rows, positions = tf.unique(gradient.indices)
    values = tf.math.unsorted_segment_sum(
        gradient.values, positions, tf.size(rows)
    )
    return tf.IndexedSlices(values, rows, gradient.dense_shape)
