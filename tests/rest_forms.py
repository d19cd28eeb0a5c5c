"""JSON of the predict API of TF Serving, as a server reads and writes it.

Reference: https://www.tensorflow.org/tfx/serving/api_rest and, in the
repository tensorflow/serving, util/json_tensor.cc.
"""

from __future__ import annotations

import base64

import numpy as np
import tensorflow as tf


def inputs_of(request, signature):
    """Arrays by the names of inputs, of the row format.

    Raises:
      AttributeError, KeyError, TypeError, ValueError: it is of another.
    """
    instances = request["instances"]
    if not isinstance(instances, list) or not instances:
        raise ValueError("No values in 'instances' array")
    names = set(signature.inputs)
    named = [isinstance(i, dict) and set(i) != {"b64"} for i in instances]
    if not any(named):  # plain values, of the only input
        (only,) = names
        instances = [{only: value} for value in instances]
    elif not all(set(item) == names for item in instances):
        raise ValueError(f"keys must be equal to: {sorted(names)}")
    return {
        name: _tensor([item[name] for item in instances], info)
        for name, info in signature.inputs.items()
    }


def answer_of(outputs):
    """The body of an answer."""
    outputs = {name: _plain(name, value) for name, value in outputs.items()}
    if len(outputs) == 1:
        return {"predictions": next(iter(outputs.values()))}
    rows = zip(*outputs.values(), strict=True)
    return {
        "predictions": [dict(zip(outputs, row, strict=True)) for row in rows]
    }


def _tensor(value, info):
    """A value of JSON as an array of the type of an input."""
    dtype = tf.as_dtype(info.dtype)
    if dtype == tf.string:
        return np.array(_bytes(value), object)
    return np.array(value, dtype.as_numpy_dtype)


def _bytes(value):
    """Strings of JSON, or {"b64": ...}, as bytes."""
    if isinstance(value, list):
        return [_bytes(item) for item in value]
    if isinstance(value, dict):
        return base64.b64decode(value["b64"], validate=True)
    return value.encode()


def _plain(name, array):
    """An array of outputs as it stands in JSON."""
    array = np.asarray(array)
    if array.dtype == np.float32:  # the shortest text of each
        texts = [float(str(value)) for value in array.ravel()]
        return np.array(texts).reshape(array.shape).tolist()
    if array.dtype != object:
        return array.tolist()
    is_text = not name.endswith("_bytes")
    return np.vectorize(
        lambda b: b.decode()
        if is_text
        else {"b64": base64.b64encode(b).decode()},
        otypes=[object],
    )(array).tolist()
