"""Variables that take a share of the learning rate, and those that decay."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Sequence

import tensorflow as tf


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


class KernelDecay(Shares):
    """Mixin: Keras' `weight_decay` decays kernels alone, by their share.

    Keras would decay all variables at the whole rate, before their steps.
    """

    def update_step(self, gradient: tf.Tensor, variable: tf.Variable) -> None:
        step = super().update_step

        def decay_and_step() -> None:
            self._decay(variable)
            step(gradient, variable)

        self._take_share(variable, decay_and_step)

    def _decay(self, variable: tf.Variable) -> None:
        is_decayed = self.weight_decay and is_kernel(variable)
        if is_decayed and self._use_weight_decay(variable):
            rate = tf.cast(self.learning_rate, variable.dtype)
            decay = tf.cast(self.weight_decay, variable.dtype)
            variable.assign_sub(variable * decay * rate)

    def _apply_weight_decay(self, variables: Sequence[tf.Variable]) -> None:
        """Does nothing: `update_step` decays its variable."""


def _key(variable: tf.Variable) -> str:
    """The key of a variable, equal for its copies on all replicas."""
    container = getattr(variable, "_distributed_container", lambda: None)()
    return (variable if container is None else container)._unique_id
