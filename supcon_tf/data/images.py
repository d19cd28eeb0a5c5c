"""Decoding of image files, shared by training, evaluation and serving."""

from __future__ import annotations

import functools

import tensorflow as tf

from supcon_tf import exceptions
from supcon_tf.augment import geometry
from supcon_tf.data import image_bytes

# libjpeg-turbo interpolates chroma at the sides of a window as if they were the
# sides of the image: the last column of photographs is up to 43 levels off. Two
# more columns make it exact. Rows need no margin.
_DECODED_MARGIN = (0, 2, 0)  # rows, columns, channels


def decode_image(
    contents: tf.Tensor, max_pixels: int | None = None
) -> tf.Tensor:
    """Decodes one JPEG or PNG file into an RGB image.

    Every colour type becomes three channels of 8 bits: gray is repeated, a
    palette is looked up, CMYK (JPEG) is converted, 16-bit PNG keeps its high
    byte. Transparency is dropped, not blended: a transparent pixel shows the
    colour stored under it. An EXIF rotation is not applied.

    No file takes more memory than its pixels, up to 12 bytes each, and twice
    the file itself, beside 20 MB for searches and texts: what asks for more,
    or for hours, is refused before it is decoded. JPEG has no checksums: of
    a whole file with wrong bytes, wrong pixels are made.

    Args:
      contents: [] string, the bytes of one file.
      max_pixels: most that height * width may be, for files from anywhere;
        None for what TensorFlow decodes at all, 178,956,970.

    Example:
      >>> import tensorflow as tf
      >>> from supcon_tf import data
      >>> contents = tf.io.read_file("photos/train/dark/00.png")  # gray
      >>> tuple(data.decode_image(contents, max_pixels=10**6).shape)
      (20, 24, 3)

    Returns:
      [height, width, 3] uint8, sides in pixels.

    Raises:
      ValueError: `max_pixels` is not positive.
      tf.errors.InvalidArgumentError: `contents` is not such a file, is
        truncated, or has more pixels than allowed.
    """
    exceptions.require(
        max_pixels is None or max_pixels >= 1,
        "`max_pixels` must be at least 1 or None",
        max_pixels,
    )
    return _decoder(max_pixels)(contents)


@functools.cache
def _decoder(max_pixels: int | None) -> tf.types.experimental.GenericFunction:
    """`decode_image` as a function that is traced once, not per data set."""

    @tf.function(input_signature=[tf.TensorSpec([], tf.string)])
    def decode(contents: tf.Tensor) -> tf.Tensor:
        image = tf.switch_case(
            image_bytes.find_format(contents),
            [
                lambda: image_bytes.decode_jpeg(contents, max_pixels),
                lambda: image_bytes.decode_png(contents, max_pixels),
                lambda: image_bytes.refuse(contents),
            ],
        )
        return tf.ensure_shape(image, [None, None, 3])

    return decode


def decode_trusted(contents: tf.Tensor) -> tf.Tensor:
    """Decodes one JPEG or PNG file that was checked before, without a check.

    The pixels and shapes are those of `decode_image`, whose checks take longer
    than the decoding of a small file, and whose graph takes a tenth of a second
    to start. Files of other formats are decoded if TensorFlow can decode them.

    Raises:
      tf.errors.InvalidArgumentError: `contents` is truncated, or no image.
    """
    image = tf.io.decode_image(contents, channels=3, expand_animations=False)
    # decode_image leaves even the rank unknown.
    return tf.ensure_shape(image, [None, None, 3])


def decode_central_view(
    contents: tf.Tensor, size: int, max_pixels: int | None = None
) -> tf.Tensor:
    """The one view of evaluation and of serving: [size, size, 3] uint8.

    The file is decoded whole: to decode the central square of a JPEG file alone
    saves 2 % at 4:3, for its codes must be read in any case.

    `contents` and `max_pixels` are as in `decode_image`, `size` is in pixels.

    Example:
      >>> import tensorflow as tf
      >>> from supcon_tf import data
      >>> contents = tf.io.read_file("photos/train/dark/01.jpg")
      >>> tuple(data.decode_central_view(contents, size=16).shape)
      (16, 16, 3)

    Raises:
      ValueError: `size` or `max_pixels` is not positive.
      tf.errors.InvalidArgumentError: as `decode_image`.
    """
    return geometry.central_view(decode_image(contents, max_pixels), size)


def decode_and_crop(
    contents: tf.Tensor,
    seed: tf.Tensor,
    size: int,
    area: tuple[float, float] = geometry.CROP_AREA,
    aspect: tuple[float, float] = geometry.CROP_ASPECT,
) -> tf.Tensor:
    """Cuts random resized crops out of an image file.

    The same pixels as `geometry.random_resized_crop` of `decode_trusted`, but
    of a JPEG file only the window that holds all crops is decoded, once.

    Args:
      contents: [] string, the bytes of one file.
      seed: [2] int32 for one view, [views, 2] for several. `views` is static.
      size: side of the result, pixels.
      area: smallest and largest share of the image's area.
      aspect: smallest and largest width / height of the box.

    Example:
      >>> import tensorflow as tf
      >>> from supcon_tf import data
      >>> contents = tf.io.read_file("photos/train/dark/01.jpg")
      >>> views = data.decode_and_crop(contents, [[0, 1], [0, 2]], size=16)
      >>> tuple(views.shape)
      (2, 16, 16, 3)

    Returns:
      [size, size, 3] uint8, or [views, size, size, 3].

    Raises:
      ValueError: as `geometry.random_resized_crop`.
      tf.errors.InvalidArgumentError: `contents` is no image, or truncated where
        a view needs it.
    """
    draw = {"seed": seed, "size": size, "area": area, "aspect": aspect}
    return tf.cond(
        tf.io.is_jpeg(contents),
        lambda: random_resized_crop_jpeg(contents, **draw),
        lambda: geometry.random_resized_crop(decode_trusted(contents), **draw),
    )


def random_resized_crop_jpeg(
    contents: tf.Tensor,
    seed: tf.Tensor,
    size: int,
    area: tuple[float, float] = geometry.CROP_AREA,
    aspect: tuple[float, float] = geometry.CROP_ASPECT,
) -> tf.Tensor:
    """Random resized crops of a JPEG file, of which a window is decoded.

    As `augment.random_resized_crop`, but the boxes are drawn from the size in
    the file's header, and only the smallest window that holds them all is
    decoded, once for all views. The views are bit-identical to those of the
    whole image. InvalidArgumentError if `contents`, [] string, is no JPEG file
    of any colour type, or ends within the window; the rest of the file is not
    read.

    Example:
      >>> import numpy as np
      >>> import tensorflow as tf
      >>> from supcon_tf import augment, data
      >>> contents = tf.io.read_file("photos/train/dark/01.jpg")
      >>> view = data.random_resized_crop_jpeg(contents, [0, 1], size=8)
      >>> image = tf.io.decode_jpeg(contents, channels=3)
      >>> np.array_equal(view, augment.random_resized_crop(image, [0, 1], 8))
      True
    """
    seed = geometry.check_seed(seed)
    geometry.check_size(size)
    shape = tf.io.extract_jpeg_shape(contents)
    begins, extents = geometry.crop_boxes(shape, seed, area, aspect)
    low = tf.reduce_min(begins, axis=0)
    high = tf.reduce_max(begins + extents, axis=0)
    low = tf.maximum(low - _DECODED_MARGIN, 0)
    high = tf.minimum(high + _DECODED_MARGIN, shape)
    window = tf.concat([low[:2], (high - low)[:2]], axis=0)
    image = tf.image.decode_and_crop_jpeg(contents, window, channels=3)
    return geometry.cut_views(image, seed, begins - low, extents, size)
