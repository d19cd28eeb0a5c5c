"""BERT in NumPy and float64: the oracle of `TextEncoder`."""

import numpy as np
from scipy import special


def _norm(x, weights, name, epsilon):
    x = x - x.mean(axis=-1, keepdims=True)
    x /= np.sqrt((x**2).mean(axis=-1, keepdims=True) + epsilon)
    return x * weights[f"{name}/gamma"] + weights[f"{name}/beta"]


def _dense(x, weights, name):
    return x @ weights[f"{name}/kernel"] + weights[f"{name}/bias"]


def _softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def _attention(x, weights, name, heads):
    """Self-attention of one sentence [length, dim]."""
    q, k, v = (
        _dense(x, weights, f"{name}/self/{part}").reshape(len(x), heads, -1)
        for part in ("query", "key", "value")
    )
    scores = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(q.shape[-1])
    mixed = np.einsum("hij,jhd->ihd", _softmax(scores), v)
    return _dense(mixed.reshape(len(x), -1), weights, f"{name}/output/dense")


def states(weights, ids, sentences, *, layers, heads, epsilon):
    """The last states [length, dim] of one sentence without padding.

    `weights` are named as in transformers, from "embeddings" or "encoder" on.
    """
    weights = {
        name: value.astype(np.float64) for name, value in weights.items()
    }
    x = weights["embeddings/word_embeddings/weight"][ids]
    x = x + weights["embeddings/token_type_embeddings/embeddings"][sentences]
    x += weights["embeddings/position_embeddings/embeddings"][: len(ids)]
    x = _norm(x, weights, "embeddings/LayerNorm", epsilon)
    for index in range(layers):
        name = f"encoder/layer_._{index}"
        x = x + _attention(x, weights, f"{name}/attention", heads)
        x = _norm(x, weights, f"{name}/attention/output/LayerNorm", epsilon)
        inner = _dense(x, weights, f"{name}/intermediate/dense")
        inner *= (1 + special.erf(inner / np.sqrt(2))) / 2  # exact GELU
        x = x + _dense(inner, weights, f"{name}/output/dense")
        x = _norm(x, weights, f"{name}/output/LayerNorm", epsilon)
    return x
