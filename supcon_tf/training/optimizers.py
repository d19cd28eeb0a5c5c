"""Optimizers of the paper's recipes."""

from __future__ import annotations

import tensorflow as tf


@tf.keras.utils.register_keras_serializable(package="supcon_tf")
class SGD(tf.keras.optimizers.SGD):
    """SGD with momentum and L2 weight decay on kernels.

      g = gradient + l2 * w     (kernels only: tensors of rank 2 and more)
      v = momentum * v - learning_rate * g
      w = w + v

    The decay goes through the momentum, as in the paper's code and unlike
    Keras' own `weight_decay`. Batch norm and biases are exempt by their rank.

    Args:
      learning_rate: positive float or schedule.
      momentum: in [0, 1).
      nesterov: Nesterov momentum.
      l2: coefficient of the decay.
      name: Keras' name of the optimizer.
      **kwargs: further arguments of Keras' SGD.
    """

    def __init__(
        self,
        learning_rate: (
            float | tf.keras.optimizers.schedules.LearningRateSchedule
        ) = 0.01,
        momentum: float = 0.9,
        nesterov: bool = False,
        l2: float = 0.0,
        name: str = "SGD",
        **kwargs: object,
    ):
        super().__init__(learning_rate, momentum, nesterov, name=name, **kwargs)
        self.l2 = l2

    def update_step(self, gradient: tf.Tensor, variable: tf.Variable) -> None:
        """Updates one variable."""
        if self.l2 and variable.shape.rank > 1:
            gradient += self.l2 * variable
        super().update_step(gradient, variable)

    def get_config(self) -> dict[str, object]:
        """Returns every constructor argument."""
        return {**super().get_config(), "l2": self.l2}
