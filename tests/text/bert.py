"""BERT in NumPy and float64: the oracle of `TextEncoder`."""

import numpy as np
from scipy import special


def _norm(states, weights, name, epsilon):
    states = states - states.mean(axis=-1, keepdims=True)
    states /= np.sqrt((states**2).mean(axis=-1, keepdims=True) + epsilon)
    return states * weights[f"{name}/gamma"] + weights[f"{name}/beta"]


def _dense(states, weights, name):
    return states @ weights[f"{name}/kernel"] + weights[f"{name}/bias"]


def _softmax(scores):
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def _attention(states, weights, name, heads):
    """Self-attention of one sentence [length, dim]."""
    queries, keys, values = (
        _dense(states, weights, f"{name}/self/{part}").reshape(
            len(states), heads, -1
        )
        for part in ("query", "key", "value")
    )
    scores = np.einsum("ihd,jhd->hij", queries, keys) / np.sqrt(
        queries.shape[-1]
    )
    mixed = np.einsum("hij,jhd->ihd", _softmax(scores), values)
    return _dense(
        mixed.reshape(len(states), -1), weights, f"{name}/output/dense"
    )


def states(weights, ids, sentences, *, layers, heads, epsilon):
    """The last states [length, dim] of one sentence without padding.

    `weights` are named as in transformers, from "embeddings" or "encoder" on.
    """
    weights = {
        name: value.astype(np.float64) for name, value in weights.items()
    }
    hidden = weights["embeddings/word_embeddings/weight"][ids]
    hidden = (
        hidden
        + weights["embeddings/token_type_embeddings/embeddings"][sentences]
    )
    hidden += weights["embeddings/position_embeddings/embeddings"][: len(ids)]
    hidden = _norm(hidden, weights, "embeddings/LayerNorm", epsilon)
    for index in range(layers):
        name = f"encoder/layer_._{index}"
        hidden = hidden + _attention(
            hidden, weights, f"{name}/attention", heads
        )
        hidden = _norm(
            hidden, weights, f"{name}/attention/output/LayerNorm", epsilon
        )
        inner = _dense(hidden, weights, f"{name}/intermediate/dense")
        inner *= (1 + special.erf(inner / np.sqrt(2))) / 2  # exact GELU
        hidden = hidden + _dense(inner, weights, f"{name}/output/dense")
        hidden = _norm(hidden, weights, f"{name}/output/LayerNorm", epsilon)
    return hidden
