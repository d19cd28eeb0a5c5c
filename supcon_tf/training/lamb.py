"""LAMB of TensorFlow Addons (TFA), which importing this module imports."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from supcon_tf import addons
from supcon_tf.training.optimizers import is_kernel


@tf.keras.utils.register_keras_serializable(package="supcon_tf")
class LAMB(addons.load("optimizers").LAMB):
    """TFA's LAMB, adapting and decaying kernels alone.

      m = beta_1 * m + (1 - beta_1) * gradient
      s = beta_2 * s + (1 - beta_2) * gradient^2
      u = m / (1 - beta_1^t) / (sqrt(s / (1 - beta_2^t)) + epsilon)
          + weight_decay * w
      w = w - learning_rate * |w| / |u| * u      in step t = 1, 2, ...

    The ratio is 1 where a norm is 0. Batch norm and biases, exempt by their
    rank, have weight_decay = 0 and ratio 1: Adam's step. The arguments are
    those of `tfa.optimizers.LAMB`, a Keras optimizer of the older kind, which
    here gets the newer ones' `build` and `learning_rate`.

    Reference: https://arxiv.org/abs/1904.00962, Algorithm 2.
    """

    def build(self, var_list: Sequence[tf.Variable]) -> None:
        """Makes the moments of variables, zero."""
        self._create_all_weights(var_list)

    @property
    def learning_rate(self) -> tf.Tensor | tf.Variable:
        """Learning rate of the last step, a number also of a schedule."""
        rate = self._get_hyper("learning_rate")
        if isinstance(rate, tf.keras.optimizers.schedules.LearningRateSchedule):
            return rate(tf.maximum(self.iterations - 1, 0))
        return rate

    def _do_use_weight_decay(self, variable: tf.Variable) -> bool:
        # And by TFA's own lists, here as below.
        return is_kernel(variable) and super()._do_use_weight_decay(variable)

    def _do_layer_adaptation(self, variable: tf.Variable) -> bool:
        return is_kernel(variable) and super()._do_layer_adaptation(variable)
