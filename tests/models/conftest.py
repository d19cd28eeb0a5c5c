"""Fixtures of the tests of encoders and heads."""

import pytest

from supcon_tf.keras_2 import keras


@pytest.fixture(params=["float32", "mixed_bfloat16", "mixed_float16"])
def policy(request, float32_policy):
    keras.mixed_precision.set_global_policy(request.param)
    return request.param
