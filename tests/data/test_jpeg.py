import io
import struct

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from supcon_tf.data import jpeg

PIXELS = np.random.default_rng(0).integers(0, 256, [25, 37, 3], np.uint8)


@tf.function(input_signature=[tf.TensorSpec([], tf.string)])
def decoded(contents):
    return jpeg.decode(contents, 2**26)


def encoded(**options):
    buffer = io.BytesIO()
    Image.fromarray(PIXELS).save(buffer, "JPEG", **options)
    return buffer.getvalue()


def with_scans(count):
    """A progressive file whose last scan comes again and again."""
    contents = encoded(progressive=True)
    begin = contents.rindex(b"\xff\xda")
    missing = count - contents.count(b"\xff\xda")
    return contents[:-2] + contents[begin:-2] * missing + b"\xff\xd9"


@pytest.mark.parametrize("progressive", [False, True])
def test_pixels_are_those_of_tensorflow(progressive):
    contents = tf.constant(encoded(progressive=progressive))
    np.testing.assert_array_equal(
        decoded(contents), tf.io.decode_image(contents)
    )


def test_the_number_of_scans_is_bounded():
    assert decoded(with_scans(100)).shape == PIXELS.shape
    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        decoded(with_scans(2000))
    message = raised.value.message
    assert "JPEG file must have at most 100 scans, got 2000" in message


def test_other_bytes_are_not_taken_for_scans():
    """Videos behind images have such pairs by the dozen."""
    rest = b"\xff\xda\0\x08\2" + b"\xff\xda\x01\x08\1" + b"\xff\xda\0\x07\1"
    contents = encoded()
    image = tf.io.decode_image(contents)
    np.testing.assert_array_equal(decoded(contents + rest * 200), image)


def test_size_is_read_from_the_header():
    contents = encoded()
    begin = contents.index(b"\xff\xc0") + 5
    sides = struct.pack(">HH", 65500, 65499)
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match="JPEG image must have 1 to 67108864 pixels, got 65500 x 65499",
    ):
        decoded(contents[:begin] + sides + contents[begin + 4 :])
