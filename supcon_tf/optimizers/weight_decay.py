"""Keras' optimizers with weight decay on kernels alone."""

from __future__ import annotations

import tensorflow as tf

from supcon_tf.keras_2 import keras
from supcon_tf.optimizers.schedules import LearningRate
from supcon_tf.optimizers.shares import KernelDecay, is_kernel


class _L2(KernelDecay):
    """Mixin: adds l2 * w to the gradients of kernels."""

    def __init__(self, *args: object, l2: float = 0.0, **kwargs: object):
        super().__init__(*args, **kwargs)
        self.l2 = l2

    def update_step(self, gradient: tf.Tensor, variable: tf.Variable) -> None:
        if self.l2 and is_kernel(variable):
            gradient += self.l2 * variable
        super().update_step(gradient, variable)

    def get_config(self) -> dict[str, object]:
        return {**super().get_config(), "l2": self.l2}


@keras.utils.register_keras_serializable(package="supcon_tf")
class SGD(_L2, keras.optimizers.SGD):
    """SGD with momentum and L2 weight decay on kernels.

      g = gradient + l2 * w     (kernels only: tensors of rank 2 and more)
      v = momentum * v - learning_rate * g
      w = w + v

    The decay goes through the momentum, as in the paper's code and unlike
    Keras' own `weight_decay`. Batch norm and biases are exempt by their rank,
    from either decay.

    Args:
      learning_rate: positive float or schedule.
      momentum: in [0, 1).
      nesterov: Nesterov momentum.
      **kwargs: `l2`, the coefficient of the decay, and those of Keras' SGD.

    Example:
      >>> import tensorflow as tf
      >>> from supcon_tf import training
      >>> kernel, bias = tf.Variable([[1.0]]), tf.Variable([1.0])
      >>> sgd = training.SGD(0.5, l2=0.5)
      >>> sgd.minimize(lambda: 0 * (kernel + bias), [kernel, bias])
      >>> kernel.numpy().tolist(), bias.numpy().tolist()  # one decays
      ([[0.75]], [1.0])
    """

    def __init__(
        self,
        learning_rate: LearningRate = 0.01,
        momentum: float = 0.9,
        nesterov: bool = False,
        **kwargs: object,
    ):
        super().__init__(learning_rate, momentum, nesterov, **kwargs)


@keras.utils.register_keras_serializable(package="supcon_tf")
class RMSProp(_L2, keras.optimizers.RMSprop):
    """RMSProp with momentum and L2 weight decay on kernels.

      g = gradient + l2 * w     (kernels only: tensors of rank 2 and more)
      s = rho * s + (1 - rho) * g^2
      v = momentum * v + learning_rate * g / sqrt(s + epsilon)
      w = w - v

    The defaults are those of the paper's linear stage. Its TensorFlow 1
    optimizer has epsilon inside the root too, and differs in one thing: it
    starts s at 1 where Keras has 0, which makes its first 1 / (1 - rho) or so
    steps shorter.

    Args:
      learning_rate: positive float or schedule.
      rho: decay of the mean of squares, in [0, 1).
      momentum: in [0, 1).
      epsilon: added to the mean of squares.
      name: Keras' name of the optimizer.
      **kwargs: `l2`, the coefficient of the decay, and those of Keras' RMSprop.

    Example:
      >>> import tensorflow as tf
      >>> from supcon_tf import training
      >>> weights = tf.Variable([0.0, 0.0])
      >>> rmsprop = training.RMSProp(0.125, rho=0.75)
      >>> rmsprop.minimize(lambda: weights * [-3.0, 30.0], [weights])
      >>> weights.numpy().round(2).tolist()  # 0.125 / sqrt(1 - rho)
      [0.25, -0.25]
    """

    def __init__(
        self,
        learning_rate: LearningRate = 0.001,
        rho: float = 0.9,
        momentum: float = 0.9,
        epsilon: float = 1e-3,
        name: str = "RMSProp",
        **kwargs: object,
    ):
        super().__init__(
            learning_rate, rho, momentum, epsilon, name=name, **kwargs
        )


@keras.utils.register_keras_serializable(package="supcon_tf")
class Adam(_L2, keras.optimizers.Adam):
    """Adam with L2 weight decay on kernels.

      g = gradient + l2 * w     (kernels only: tensors of rank 2 and more)
      m = beta_1 * m + (1 - beta_1) * g
      s = beta_2 * s + (1 - beta_2) * g^2
      w = w - learning_rate * sqrt(1 - beta_2^t) / (1 - beta_1^t)
              * m / (sqrt(s) + epsilon)          in step t = 1, 2, ...

    The arguments are those of Keras' Adam and `l2`, the coefficient of the
    decay.

    Example:
      >>> import tensorflow as tf
      >>> from supcon_tf import training
      >>> weights = tf.Variable([0.0, 0.0])
      >>> adam = training.Adam(0.25)
      >>> adam.minimize(lambda: weights * [-3.0, 30.0], [weights])
      >>> weights.numpy().round(3).tolist()  # a first step is 0.25 long
      [0.25, -0.25]
    """


@keras.utils.register_keras_serializable(package="supcon_tf")
class AdamW(KernelDecay, keras.optimizers.AdamW):
    """AdamW: decoupled weight decay, on kernels alone.

      w = w - learning_rate * weight_decay * w   (kernels only)
      w = w - Adam's step of the plain gradient

    The arguments are those of Keras' AdamW; batch norm and biases are exempt
    by their rank, on top of what `exclude_from_weight_decay` names.

    Example:
      >>> import tensorflow as tf
      >>> from supcon_tf import training
      >>> kernel, bias = tf.Variable([[1.0]]), tf.Variable([1.0])
      >>> adamw = training.AdamW(0.5, weight_decay=0.5)
      >>> adamw.minimize(lambda: 0 * (kernel + bias), [kernel, bias])
      >>> kernel.numpy().tolist(), bias.numpy().tolist()  # one decays
      ([[0.75]], [1.0])
    """
