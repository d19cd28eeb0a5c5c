import pathlib
import struct

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf.data import image_bytes, images
from tests.data import test_gif, test_jpeg, test_png


@pytest.mark.parametrize("contents", [b"", b"abc", b"abcdef"])
def test_head_is_filled_with_zeros(contents):
    head = image_bytes.head(tf.constant(contents), 4)
    assert head.numpy() == (contents + bytes(4))[:4]


@pytest.mark.parametrize("contents", [b"", b"x", b"axb", b"xaxxbxcx", b"ab"])
def test_around_is_a_loop_over_the_places(contents):
    found = image_bytes.around(tf.constant(contents), ord("x"), [-1, 1, 2])
    expected = [
        [contents[i - 1], contents[i + 1], contents[i + 2]]
        for i in range(1, len(contents) - 2)
        if contents[i] == ord("x")
    ]
    np.testing.assert_array_equal(found, np.reshape(expected, [-1, 3]))


def test_a_refusal_comes_before_what_it_guards():
    @tf.function
    def guarded(size):
        contents = image_bytes.require(
            size < 3, tf.constant(b"abc"), "size must be below 3, got ", size
        )
        return tf.strings.substr(contents, size, 1)

    assert guarded(tf.constant(2)).numpy() == b"c"
    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        guarded(tf.constant(9))  # Not "pos 9 out of range for string".
    message = raised.value.message
    assert "assertion failed: [size must be below 3, got 9]" in message


@tf.function(input_signature=[tf.TensorSpec([], tf.string)])
def decoded(contents):
    return images.decode_image(contents, max_pixels=2**22)


def bombs():
    """Small files that ask for much."""
    later = test_gif.header(9, 14) + test_gif.FRAME
    yield later + test_gif.sizes(test_gif.FRAME, 65535, 65535) + b";"
    many = test_gif.picture(1000, 1000).point(lambda _: 1)
    frame = test_gif.block(test_gif.encoded(many))
    yield test_gif.header(1000, 1000) + frame * 5000 + b";"
    yield test_jpeg.with_scans(2000)
    yield test_png.file(test_png.header(30000, 30000))
    yield b"BM" + struct.pack(
        "<iiiiiihhi", 0, 0, 54, 40, 30000, 30000, 1, 24, 0
    )
    yield test_gif.header(30000, 30000) + test_gif.FRAME
    contents = test_jpeg.encoded()
    begin = contents.index(b"\xff\xc0") + 5
    yield contents[:begin] + b"\x70\0\x70\0" + contents[begin + 4 :]


def memory(name):
    """A line of /proc/self/status, MB."""
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith(name))
    return int(line.split()[1]) / 1024


def test_no_file_takes_much_memory():
    """Decoded, each would be hundreds of megabytes."""
    decoded(test_jpeg.encoded())
    for contents in map(tf.constant, bombs()):
        pathlib.Path("/proc/self/clear_refs").write_text("5")  # The peak.
        before = memory("VmRSS")
        try:
            assert tf.size(decoded(contents)) <= 3 * 1000 * 1000
        except tf.errors.InvalidArgumentError as error:
            assert "at most" in error.message or "pixels" in error.message
        assert memory("VmHWM") - before < 60
