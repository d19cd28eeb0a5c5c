"""Keras' optimizers with weight decay on kernels alone, and LARS."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Sequence

import tensorflow as tf

from supcon_tf.keras_2 import keras

LearningRate = float | keras.optimizers.schedules.LearningRateSchedule


def is_kernel(variable: tf.Variable) -> bool:
    """Whether weight decay and layer-wise adaptation apply to a variable.

    Batch norm's gamma and beta and the biases are exempt by their rank, 1,
    whatever their names.
    """
    return variable.shape.rank > 1


class Shares:
    """Mixin: a variable may have a share of the learning rate.

    A step is linear in the learning rate, so the step is shortened instead.
    """

    # In a namespace: Keras would save a dictionary with the optimizer.
    _shares = types.SimpleNamespace(by_key={})

    def set_learning_rate_shares(
        self, shares: Iterable[tuple[tf.Variable, float]]
    ) -> None:
        """Sets shares, of `models.learning_rate_shares`; others are 1.

        Call it before the first step, and again for a new optimizer.
        """
        by_key = {_key(variable): share for variable, share in shares}
        self._shares = types.SimpleNamespace(by_key=by_key)

    def _clip_gradients(self, grads: Sequence[object]) -> Sequence[object]:
        """Clips by the norm of the gradients that are applied.

        Keras would count the repeated rows of an embedding one by one, so that
        the norm would depend on the number of replicas.
        """
        return super()._clip_gradients(self._deduplicate_sparse_grad(grads))

    def _take_share(
        self, variable: tf.Variable, step: Callable[[], object]
    ) -> object:
        """Takes a step: w + share * (w_after - w) of a variable w."""
        share = self._shares.by_key.get(_key(variable), 1.0)
        if share == 1.0:
            return step()
        before = tf.identity(variable)
        step()
        return variable.assign(before + share * (variable - before))


def _key(variable: tf.Variable) -> str:
    """The key of a variable, equal for its copies on all replicas."""
    container = getattr(variable, "_distributed_container", lambda: None)()
    return (variable if container is None else container)._unique_id


class _Stepwise(Shares):
    """`Shares` for Keras' optimizers, which have `update_step`."""

    def update_step(self, gradient: tf.Tensor, variable: tf.Variable) -> None:
        step = super().update_step
        self._take_share(variable, lambda: step(gradient, variable))


class _L2(_Stepwise):
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
    Keras' own `weight_decay`. Batch norm and biases are exempt by their rank.

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
class AdamW(Shares, keras.optimizers.AdamW):
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

    def update_step(self, gradient: tf.Tensor, variable: tf.Variable) -> None:
        adam = super().update_step

        def step() -> None:
            if is_kernel(variable) and self._use_weight_decay(variable):
                rate = tf.cast(self.learning_rate, variable.dtype)
                decay = tf.cast(self.weight_decay, variable.dtype)
                variable.assign_sub(variable * decay * rate)
            adam(gradient, variable)

        self._take_share(variable, step)

    def _apply_weight_decay(self, variables: Sequence[tf.Variable]) -> None:
        """Does nothing: `update_step` decays its variable."""


@keras.utils.register_keras_serializable(package="supcon_tf")
class LARS(Shares, keras.optimizers.Optimizer):
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
        rate = tf.cast(self.learning_rate, variable.dtype)
        if is_kernel(variable):
            gradient += self.l2 * variable
            rate = rate * self._trust(variable, gradient)
        velocity = self._velocities[self._index_dict[self._var_key(variable)]]
        velocity.assign(self.momentum * velocity + rate * gradient)
        self._take_share(variable, lambda: variable.assign_sub(velocity))

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
