"""What the tests of encoders and heads share."""

import pytest
import tensorflow as tf


@pytest.fixture(params=["float32", "mixed_bfloat16", "mixed_float16"])
def policy(request, float32_policy):
    tf.keras.mixed_precision.set_global_policy(request.param)
    return request.param
