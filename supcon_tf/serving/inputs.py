"""The content of requests to an export: images, or texts."""

from __future__ import annotations

import base64
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from supcon_tf import data, exceptions, pixels, text
from supcon_tf.augment import geometry
from supcon_tf.data import image_bytes
from supcon_tf.text import tokenizer

# A kind of signatures: the end of the name, the input, the function to views.
Kind = tuple[str, tf.TensorSpec, Callable[[tf.Tensor], tf.Tensor]]

# Files of one request that are decoded at once, which bounds the memory that
# the largest accepted files take.
_PARALLEL_FILES = 8
_FILES = tf.TensorSpec([None], tf.string, "image_bytes")
_IMAGES = tf.TensorSpec([None, None, None, 3], tf.uint8, "images")
_FLOAT_IMAGES = tf.TensorSpec([None, None, None, 3], tf.float32, "images")
_TEXTS = tf.TensorSpec([None], tf.string, "text")

# Spaces of `str.strip` at the ends of a text, of which RE2's \\s has six.
_SPACE = r"[\t-\r\x1c-\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}"
_SPACE += r"\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}]"
_ENDS = rf"\A{_SPACE}+|{_SPACE}+\z"

_PHOTOGRAPH = (375, 500)  # height, width: the usual one of ImageNet
_REFERENCE_SIZE = 224  # the views of such photographs, pixels


class Images:
    """Image files and arrays of pixels.

    Attributes:
      views: shape and dtype of the encoder's input.
      can_batch: whether views of several requests have one shape.

    Args:
      image_size: side of the encoder's images in pixels.
      max_pixels: a file of more, by its header, is refused before it is
        decoded.

    Raises:
      ValueError: `image_size` is no positive integer, or `max_pixels` refuses
        ordinary photographs: the requests of the warm-up are such, and would
        keep TF Serving from loading the model.
    """

    can_batch = True

    def __init__(self, image_size: int | None, max_pixels: int = 2**26):
        exceptions.require(
            type(image_size) is int and image_size > 0,
            "`image_size` must be a positive integer, the side of the "
            "encoder's images in pixels",
            image_size,
        )
        min_pixels = photograph(image_size)[..., 0].size
        exceptions.require(
            max_pixels >= min_pixels,
            f"`max_pixels` must be at least {min_pixels}, an ordinary "
            f"photograph for images of {image_size} px",
            max_pixels,
        )
        self.image_size, self.max_pixels = image_size, max_pixels
        shape = [None, image_size, image_size, 3]
        self.views = tf.TensorSpec(shape, tf.uint8)

    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of signatures, by their inputs."""
        return (
            ("", _FILES, self._crop_files),
            ("_images", _IMAGES, self._crop_images),
            ("_images_float", _FLOAT_IMAGES, self._crop_float_images),
        )

    def example(self, dtype: tf.DType, size: int) -> tf.TensorProto:
        """A request of `size` images.

        Of files a photograph in JPEG and a small PNG, so that both decoders
        run; of arrays gray images, a few bytes on disk.
        """
        image = photograph(self.image_size)
        if dtype != tf.string:
            return tf.make_tensor_proto(128, dtype, [size, *image.shape])
        jpeg = tf.io.encode_jpeg(image).numpy()
        png = tf.io.encode_png(image[::8, ::8]).numpy()
        # The reader of a batch repeats its last value.
        values = [png, jpeg] if size > 1 else [jpeg]
        return tf.make_tensor_proto(values, dtype, [size])

    def instance(self) -> dict[str, object]:
        """A row of a REST request: one small JPEG file."""
        image = photograph(self.image_size)
        contents = tf.io.encode_jpeg(image, quality=75).numpy()
        encoded = base64.b64encode(contents).decode()
        return {_FILES.name: {"b64": encoded}}

    def _crop_files(self, image_bytes: tf.Tensor) -> tf.Tensor:
        """Decodes and crops as evaluation does: [N, size, size, 3] uint8."""
        size = self.image_size
        with tf.device("CPU:0"):  # A GPU has no decoders.
            return tf.map_fn(
                lambda f: data.decode_central_view(f, size, self.max_pixels),
                image_bytes,
                parallel_iterations=_PARALLEL_FILES,
                fn_output_signature=tf.TensorSpec([size, size, 3], tf.uint8),
            )

    def _crop_images(self, images: tf.Tensor) -> tf.Tensor:
        """Crops as evaluation does."""
        size = self.image_size
        sides = tf.shape(images)[1:3]
        images = image_bytes.require(
            tf.reduce_all(sides > 0),
            images,
            "images must have pixels, got ",
            sides[0],
            " x ",
            sides[1],
        )
        return tf.cond(
            tf.reduce_all(sides == size),
            # Not ensure_shape; see geometry.central_view.
            lambda: tf.reshape(images, [-1, size, size, 3]),
            lambda: tf.map_fn(
                lambda image: geometry.central_view(image, size),
                images,
                fn_output_signature=tf.TensorSpec([size, size, 3], tf.uint8),
            ),
        )

    def _crop_float_images(self, images: tf.Tensor) -> tf.Tensor:
        """Rounds to the uint8 of a file, and crops."""
        low, high = tf.reduce_min(images), tf.reduce_max(images)
        images = image_bytes.require(
            (low >= 0) & (high <= 255),  # false for NaN
            images,
            "images must be in 0..255, got ",
            low,
            " to ",
            high,
        )
        has_fractions = tf.reduce_any(images != tf.round(images))
        images = image_bytes.require(
            ~pixels.are_scaled(low, high, has_fractions),
            images,
            "images must be in 0..255, not in 0..1, got at most ",
            high,
        )
        return self._crop_images(tf.cast(tf.round(images), tf.uint8))


class Texts:
    """Texts, whose tokens are made in the graph; see `Images`.

    Their sentences have no spaces at their ends, as `read_texts` reads them:
    to a tokenizer that merges bytes, such a space is a token.
    """

    can_batch = False
    views = tf.TensorSpec([None, None, 2], tf.int32)

    def __init__(self, tokens: text.GraphTokenizer):
        self._tokens = tokens
        self.variables = tokens.variables

    def kinds(self) -> tuple[Kind, ...]:
        """The kind of the only signatures."""
        return (("", _TEXTS, self._strip),)

    def example(self, dtype: tf.DType, size: int) -> tf.TensorProto:
        """A request of `size` texts."""
        return tf.make_tensor_proto([_EXAMPLE], dtype, [size])

    def instance(self) -> dict[str, object]:
        """A row of a REST request."""
        return {_TEXTS.name: _EXAMPLE}

    def _strip(self, texts: tf.Tensor) -> tf.Tensor:
        """Tokens of texts, without spaces at the ends of their sentences."""
        with tf.device("CPU:0"):  # a GPU has no strings
            sentences = tf.expand_dims(texts, axis=1)
            if self._tokens.pairs:
                sentences = tf.strings.split(texts, tokenizer.PAIR, maxsplit=1)
                # Ragged rows would be joined without empty sentences.
                sentences = sentences.to_tensor("", shape=[None, 2])
            stripped = tf.strings.regex_replace(sentences, _ENDS, "")
            texts = tf.strings.reduce_join(
                stripped, 1, separator=tokenizer.PAIR
            )
        return self._tokens(texts)


_EXAMPLE = "A sentence of ordinary length, as people write them."


def photograph(image_size: int) -> npt.NDArray[np.uint8]:
    """An image to send: colours that run into each other, always the same.

    [height, width, 3] uint8, as large beside the encoder's images as
    photographs are: 375 x 500 pixels for an `image_size` of 224.
    """
    height, width = (
        -(-side * image_size // _REFERENCE_SIZE) for side in _PHOTOGRAPH
    )
    y, x = np.mgrid[0 : 1 : height * 1j, 0 : 1 : width * 1j]
    waves = (np.sin(9 * x + 4 * y), np.sin(5 * y - 7 * x), np.cos(8 * x * y))
    return np.rint(127.5 + 127.5 * np.stack(waves, axis=-1)).astype(np.uint8)
