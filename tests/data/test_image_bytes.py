"""JPEG and PNG files put together by hand; files that ask for much."""

import io
import itertools
import pathlib
import re
import struct
import zlib

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from supcon_tf.data import image_bytes, images

JPEG_PIXELS = np.random.default_rng(0).integers(0, 256, [25, 37, 3], np.uint8)
PNG_PIXELS = np.random.default_rng(0).integers(0, 256, [5, 7, 3], np.uint8)
SIGNATURE = b"\x89PNG\r\n\x1a\n"


@tf.function(input_signature=[tf.TensorSpec([], tf.string)])
def decoded(contents):
    return images.decode_image(contents, max_pixels=2**22)


def refused(contents):
    """The message of the refusal."""
    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        decoded(contents)
    return raised.value.message


@pytest.mark.parametrize("window", [1, 2, 3, 5, 99])
def test_patterns_are_counted_across_windows(window, monkeypatch):
    monkeypatch.setattr(image_bytes, "_WINDOW", window)
    for contents in (b"", b"x", b"axb", b"axxbcaxbc", b"xaxb0aaxbbaxbcaxb"):
        count = image_bytes._count_matches(
            tf.constant(contents),
            ord("x"),
            [-1, 1, 2],
            lambda a, b, _: (a == ord("a")) & (b == ord("b")),
        )
        assert count == len(re.findall(rb"axb(?=.)", contents))


def test_a_check_runs_before_the_guarded_operation():
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


def jpeg(**options):
    buffer = io.BytesIO()
    Image.fromarray(JPEG_PIXELS).save(buffer, "JPEG", **options)
    return buffer.getvalue()


def with_scans(count):
    """A progressive file whose last scan comes again and again."""
    contents = jpeg(progressive=True)
    begin = contents.rindex(b"\xff\xda")
    missing = count - contents.count(b"\xff\xda")
    return contents[:-2] + contents[begin:-2] * missing + b"\xff\xd9"


def with_sides(height, width):
    """A JPEG file whose header says so."""
    contents = jpeg()
    begin = contents.index(b"\xff\xc0") + 5
    sides = struct.pack(">HH", height, width)
    return contents[:begin] + sides + contents[begin + 4 :]


def test_the_number_of_scans_is_bounded():
    assert decoded(with_scans(100)).shape == JPEG_PIXELS.shape
    message = refused(with_scans(2000))
    assert "JPEG file must have at most 100 scans, got 2000" in message


def test_other_bytes_are_not_taken_for_scans():
    """Videos behind images have such pairs by the dozen."""
    pairs = b"\xff\xda\0\x08\2" + b"\xff\xda\x01\x08\1" + b"\xff\xda\0\x07\1"
    expected = tf.io.decode_image(jpeg())
    np.testing.assert_array_equal(decoded(jpeg() + pairs * 200), expected)


def chunk(kind, data):
    checksum = struct.pack(">I", zlib.crc32(kind + data))
    return struct.pack(">I", len(data)) + kind + data + checksum


def header(height, width, bits=8, colors=2, interlace=0):
    """Colours: 0 gray, 2 RGB, 3 palette."""
    return chunk(
        b"IHDR",
        struct.pack(">IIBBBBB", width, height, bits, colors, 0, 0, interlace),
    )


def png(*chunks, rows=PNG_PIXELS):
    data = b"".join(b"\0" + row.tobytes() for row in rows)
    pixels = chunk(b"IDAT", zlib.compress(data))
    return SIGNATURE + b"".join(chunks) + pixels + chunk(b"IEND", b"")


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
@pytest.mark.parametrize("colors", [0, 3])
def test_depths_are_exactly_pil(bits, colors):
    """Gray and palettes, some of whose colours are transparent."""
    rows = PNG_PIXELS[:, : (7 * bits + 7) // 8, 0] % 16  # 16 colours at most.
    chunks = [chunk(b"tRNS", b"\0\0")]
    if colors:
        chunks.insert(0, chunk(b"PLTE", bytes(range(3 * min(2**bits, 16)))))
    contents = png(header(5, 7, bits, colors), *chunks, rows=rows)
    image = Image.open(io.BytesIO(contents))
    image.info.pop("transparency")
    np.testing.assert_array_equal(decoded(contents), image.convert("RGB"))


def test_interlaced_rows():
    """A single pixel in each of the first passes: one row of one pixel."""
    pixel = PNG_PIXELS[:1, :1]
    contents = png(header(1, 1, interlace=1), rows=pixel)
    np.testing.assert_array_equal(decoded(contents), pixel)


def test_an_animation_is_decoded_as_its_static_image():
    image, other = map(Image.fromarray, (PNG_PIXELS, PNG_PIXELS[::-1]))
    buffer = io.BytesIO()
    image.save(buffer, "PNG", save_all=True, append_images=[other])
    assert b"acTL" in buffer.getvalue()
    np.testing.assert_array_equal(decoded(buffer.getvalue()), PNG_PIXELS)


def test_the_header_comes_first():
    for chunks in ([], [chunk(b"gAMA", b"\0\0\0\1"), header(5, 7)]):
        message = refused(png(*chunks))
        assert "PNG file must begin with its header, got another" in message


def test_compressed_texts_are_bounded():
    """Each is 8 MB that libpng unpacks: 20 ms for 8 KB of the file."""
    bomb = chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(10**5)))
    text = chunk(b"iTXt", b"a\0\0\0\0\0b")
    plain = chunk(b"tEXt", b"a\0TXT ITXt zTxt zTXT")
    chunks = [header(5, 7), *[bomb] * 32, *[text] * 32, *[plain] * 99]
    np.testing.assert_array_equal(decoded(png(*chunks)), PNG_PIXELS)
    message = refused(png(*chunks, text))
    assert "must have at most 64 compressed texts, got 65" in message


def test_size_is_read_from_the_header():
    message = refused(with_sides(65500, 65499))
    expected = "JPEG image must have 1 to 4194304 pixels, got 65500 x 65499"
    assert expected in message
    for sides in ((20000, 20001), (0, 7), (2**31, 1), (2**32 - 1, 2**32 - 1)):
        message = refused(png(header(*sides)))
        assert "PNG image must have 1 to 4194304 pixels, got " in message
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match="PNG image must have 1 to .* pixels .*, got 0 x 7",
    ):
        images.decode_image(png(header(0, 7)))
    too_large = "pixels .what has more is too large for TensorFlow., got 30000"
    for file in (png(header(30000, 30000)), with_sides(30000, 30000)):
        with pytest.raises(tf.errors.InvalidArgumentError, match=too_large):
            images.decode_image(file)


def bombs():
    """Small files that ask for much."""
    yield with_scans(2000)
    yield png(header(30000, 30000))
    yield with_sides(0x7000, 0x7000)


def lookalikes():
    """Files of 5 MB, full of what the decoders look for, or begin it."""
    yield jpeg() + b"\xda" * 5_000_000
    yield jpeg() + b"\xff\xda\0\x04" * 1_250_000 + b"\xff"
    yield png(header(5, 7)) + b"X" * 5_000_000
    yield png(header(5, 7)) + b"zTXt" * 1_250_000


def memory(name):
    """A line of /proc/self/status, MB."""
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith(name))
    return int(line.split()[1]) / 1024


def test_no_file_takes_much_memory():
    """Decoded or searched, each could take hundreds of megabytes."""
    decoded(jpeg())
    for contents in map(tf.constant, itertools.chain(bombs(), lookalikes())):
        pathlib.Path("/proc/self/clear_refs").write_text("5")  # The peak.
        before = memory("VmRSS")
        try:
            assert tf.size(decoded(contents)) <= JPEG_PIXELS.size
        except tf.errors.InvalidArgumentError as error:
            assert "at most" in error.message or "pixels" in error.message
        assert memory("VmHWM") - before < 60
