"""LARS, whose steps have a length that suits each tensor."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from supcon_tf.keras_2 import keras
from supcon_tf.optimizers.schedules import LearningRate
from supcon_tf.optimizers.shares import KernelDecay, is_kernel


@keras.utils.register_keras_serializable(package="supcon_tf")
class LARS(KernelDecay, keras.optimizers.Optimizer):
    """Layer-wise adaptive rate scaling: SGD whose steps suit each tensor.

      g = gradient + l2 * w
      trust = trust_coefficient * |w| / |g|, or 1 where a norm is 0
      v = momentum * v + learning_rate * trust * g
      w = w - v

    Batch norm and biases, exempt by their rank, have l2 = 0 and trust = 1:
    SGD with momentum. The paper's code exempts batch norm by name and adapts
    biases too. Norms are float32 whatever the variable's type.

    Args:
      learning_rate: positive float or schedule.
      momentum: in [0, 1).
      trust_coefficient: eta, a step's length in units of the tensor's norm
        where the learning rate is 1.
      l2: coefficient of the weight decay.
      name: Keras' name of the optimizer.
      **kwargs: further arguments of Keras' Optimizer.

    Example:
      >>> import tensorflow as tf
      >>> from supcon_tf import training
      >>> kernel = tf.Variable([[3.0, 4.0]])  # of length 5, so a step of 0.5
      >>> lars = training.LARS(1.0, trust_coefficient=0.1)
      >>> lars.minimize(lambda: 70 * kernel[0, 0], [kernel])
      >>> kernel.numpy().round(3).tolist()
      [[2.5, 4.0]]

    Reference: https://arxiv.org/abs/1708.03888, Algorithm 1.
    """

    def __init__(
        self,
        learning_rate: LearningRate = 0.1,
        momentum: float = 0.9,
        trust_coefficient: float = 0.001,
        l2: float = 0.0,
        name: str = "LARS",
        **kwargs: object,
    ):
        super().__init__(name=name, **kwargs)
        self._learning_rate = self._build_learning_rate(learning_rate)
        self.momentum = momentum
        self.trust_coefficient = trust_coefficient
        self.l2 = l2
        self._velocities: list[tf.Variable] = []

    def build(self, var_list: Sequence[tf.Variable]) -> None:
        super().build(var_list)
        if not self._velocities:
            self._velocities = [
                self.add_variable_from_reference(variable, "velocity")
                for variable in var_list
            ]
        self._built = True

    def update_step(self, gradient: tf.Tensor, variable: tf.Variable) -> None:
        self._take_share(variable, lambda: self._step(gradient, variable))

    def _step(self, gradient: tf.Tensor, variable: tf.Variable) -> None:
        self._decay(variable)
        rate = tf.cast(self.learning_rate, variable.dtype)
        if is_kernel(variable):
            gradient += self.l2 * variable
            rate = rate * self._trust(variable, gradient)
        velocity = self._velocities[self._index_dict[self._var_key(variable)]]
        velocity.assign(self.momentum * velocity + rate * gradient)
        variable.assign_sub(velocity)

    def _trust(self, variable: tf.Variable, gradient: tf.Tensor) -> tf.Tensor:
        w = tf.norm(tf.cast(variable, tf.float32))
        g = tf.norm(tf.cast(gradient, tf.float32))
        ratio = self.trust_coefficient * tf.math.divide_no_nan(w, g)
        trust = tf.where((w > 0) & (g > 0), ratio, 1.0)
        return tf.cast(trust, variable.dtype)

    def get_config(self) -> dict[str, object]:
        rate = self._serialize_hyperparameter(self._learning_rate)
        return {
            **super().get_config(),
            "learning_rate": rate,
            "momentum": self.momentum,
            "trust_coefficient": self.trust_coefficient,
            "l2": self.l2,
        }
