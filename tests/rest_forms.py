"""JSON of the predict API of TF Serving, as a server reads and writes it.

Reference: https://www.tensorflow.org/tfx/serving/api_rest and, in the
repository tensorflow/serving, util/json_tensor.cc.
"""

from __future__ import annotations

import base64

import numpy as np
import tensorflow as tf


def inputs_of(request, signature):
    """Arrays by the names of inputs, of either format.

    Raises:
      AttributeError, KeyError, TypeError, ValueError: it is of no format.
    """
    forms = {"instances", "inputs"} & set(request)
    if len(forms) != 1:
        raise ValueError("expecting one of 'inputs' or 'instances' keys")
    read = _read_rows if "instances" in forms else _read_columns
    return {
        name: _tensor(value, signature.inputs[name])
        for name, value in read(request[forms.pop()], signature).items()
    }


def answer_to(request, outputs):
    """The body of an answer, in the format of the request."""
    outputs = {name: _plain(name, value) for name, value in outputs.items()}
    only = next(iter(outputs.values())) if len(outputs) == 1 else None
    if "inputs" in request:
        return {"outputs": outputs if only is None else only}
    if only is not None:
        return {"predictions": only}
    rows = zip(*outputs.values(), strict=True)
    return {
        "predictions": [dict(zip(outputs, row, strict=True)) for row in rows]
    }


def _read_rows(instances, signature):
    """Inputs of the row format, by name."""
    if not isinstance(instances, list) or not instances:
        raise ValueError("No values in 'instances' array")
    named = [isinstance(i, dict) and set(i) != {"b64"} for i in instances]
    if not any(named):
        return {next(iter(signature.inputs)): instances}
    names = set(signature.inputs)
    if not all(named) or any(set(item) != names for item in instances):
        raise ValueError(f"keys must be equal to: {sorted(names)}")
    return {name: [item[name] for item in instances] for name in names}


def _read_columns(inputs, signature):
    """Inputs of the column format, by name."""
    if isinstance(inputs, dict) and set(inputs) != {"b64"}:
        return {name: inputs[name] for name in signature.inputs}
    return {next(iter(signature.inputs)): inputs}


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
    if name.endswith("_bytes"):
        to_json = np.vectorize(
            lambda b: {"b64": base64.b64encode(b).decode()}, otypes=[object]
        )
    else:
        to_json = np.vectorize(lambda b: b.decode(), otypes=[object])
    return to_json(array).tolist()
