import io
import struct
import zlib

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from supcon_tf.data import png

SIGNATURE = b"\x89PNG\r\n\x1a\n"
PIXELS = np.random.default_rng(0).integers(0, 256, [5, 7, 3], np.uint8)


@tf.function(input_signature=[tf.TensorSpec([], tf.string)])
def decoded(contents):
    return png.decode(contents, 2**26)


def chunk(kind, data):
    checksum = struct.pack(">I", zlib.crc32(kind + data))
    return struct.pack(">I", len(data)) + kind + data + checksum


def header(height, width, bits=8, colors=2, interlace=0):
    """Colours: 0 gray, 2 RGB, 3 palette."""
    return chunk(
        b"IHDR",
        struct.pack(">IIBBBBB", width, height, bits, colors, 0, 0, interlace),
    )


def file(*chunks, rows=PIXELS):
    data = b"".join(b"\0" + row.tobytes() for row in rows)
    pixels = chunk(b"IDAT", zlib.compress(data))
    return SIGNATURE + b"".join(chunks) + pixels + chunk(b"IEND", b"")


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
@pytest.mark.parametrize("colors", [0, 3])
def test_depths_are_what_pil_reads(bits, colors):
    """Gray and palettes, some of whose colours are transparent."""
    rows = PIXELS[:, : (7 * bits + 7) // 8, 0] % 16  # 16 colours at most.
    palette = chunk(b"PLTE", bytes(range(48)) if colors else b"")
    transparent = chunk(b"tRNS", b"\0\0")
    chunks = [palette, transparent] if colors else [transparent]
    if colors and bits < 4:
        chunks[0] = chunk(b"PLTE", bytes(range(3 * 2**bits)))
    contents = file(header(5, 7, bits, colors), *chunks, rows=rows)
    image = Image.open(io.BytesIO(contents))
    image.info.pop("transparency")
    np.testing.assert_array_equal(decoded(contents), image.convert("RGB"))


def test_interlaced_rows():
    """A single pixel in each of the first passes: one row of one pixel."""
    one = PIXELS[:1, :1]
    contents = file(header(1, 1, interlace=1), rows=one)
    np.testing.assert_array_equal(decoded(contents), one)


def test_an_animation_shows_its_own_image():
    image, other = Image.fromarray(PIXELS), Image.fromarray(PIXELS[::-1])
    buffer = io.BytesIO()
    image.save(buffer, "PNG", save_all=True, append_images=[other])
    assert b"acTL" in buffer.getvalue()
    np.testing.assert_array_equal(decoded(buffer.getvalue()), PIXELS)


def test_size_is_read_from_the_header():
    for sides in ((20000, 20001), (0, 7), (2**31, 1), (2**32 - 1, 2**32 - 1)):
        with pytest.raises(
            tf.errors.InvalidArgumentError,
            match="PNG image must have 1 to 67108864 pixels, got ",
        ):
            decoded(file(header(*sides)))


def test_the_header_comes_first():
    for chunks in ([], [chunk(b"gAMA", b"\0\0\0\1"), header(5, 7)]):
        with pytest.raises(
            tf.errors.InvalidArgumentError,
            match="PNG file must begin with its header, got another chunk",
        ):
            decoded(file(*chunks))


def test_compressed_texts_are_bounded():
    """Each is 8 MB that libpng unpacks: 20 ms for 8 KB of the file."""
    bomb = chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(10**5)))
    text = chunk(b"iTXt", b"a\0\0\0\0\0b")
    plain = chunk(b"tEXt", b"a\0TXT ITXt zTxt zTXT")
    few = [header(5, 7), *[bomb] * 32, *[text] * 32, *[plain] * 99]
    np.testing.assert_array_equal(decoded(file(*few)), PIXELS)
    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        decoded(file(*few, text))
    message = raised.value.message
    assert "must have at most 64 compressed texts, got 65" in message
