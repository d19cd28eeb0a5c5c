import itertools
import pathlib
import re
import struct

import pytest
import tensorflow as tf

from supcon_tf.data import image_bytes, images
from tests.data import test_gif, test_jpeg, test_png


@pytest.mark.parametrize("contents", [b"", b"abc", b"abcdef"])
def test_head_is_filled_with_zeros(contents):
    head = image_bytes.head(tf.constant(contents), 4)
    assert head.numpy() == (contents + bytes(4))[:4]


@pytest.mark.parametrize("window", [1, 2, 3, 5, 99])
def test_places_are_counted_across_windows(window, monkeypatch):
    monkeypatch.setattr(image_bytes, "_WINDOW", window)
    for contents in (b"", b"x", b"axb", b"axxbcaxbc", b"xaxb0aaxbbaxbcaxb"):
        found = image_bytes.count_places(
            tf.constant(contents),
            ord("x"),
            [-1, 1, 2],
            lambda a, b, _: (a == ord("a")) & (b == ord("b")),
        )
        assert found == len(re.findall(rb"axb(?=.)", contents))


def test_few_is_up_to_the_bound():
    contents = tf.constant(b"abc")
    assert image_bytes.require_few(contents, 3, 3, "X", "y") == contents
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match="X file must have at most 2 y, got 3",
    ):
        image_bytes.require_few(contents, 3, 2, "X", "y")


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


def lookalikes():
    """Files of 5 MB, full of what the decoders look for, or begin it."""
    yield test_jpeg.encoded() + b"\xda" * 5_000_000
    yield test_jpeg.encoded() + b"\xff\xda\0\x04" * 1_250_000 + b"\xff"
    yield test_png.file(test_png.header(5, 7)) + b"X" * 5_000_000
    yield test_png.file(test_png.header(5, 7)) + b"zTXt" * 1_250_000


def memory(name):
    """A line of /proc/self/status, MB."""
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith(name))
    return int(line.split()[1]) / 1024


def test_no_file_takes_much_memory():
    """Decoded or searched, each could take hundreds of megabytes."""
    decoded(test_jpeg.encoded())
    files = itertools.chain(bombs(), lookalikes())
    for contents in map(tf.constant, files):
        pathlib.Path("/proc/self/clear_refs").write_text("5")  # The peak.
        before = memory("VmRSS")
        try:
            assert tf.size(decoded(contents)) <= 3 * 1000 * 1000
        except tf.errors.InvalidArgumentError as error:
            assert "at most" in error.message or "pixels" in error.message
        assert memory("VmHWM") - before < 60
