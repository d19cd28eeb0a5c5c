"""One split of a labelled image set, and the sources held in memory."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from supcon_tf import exceptions
from supcon_tf.data import partition
from supcon_tf.defaults import MOST_CHANNELS

# Bounds on the count of classes without names: per image, and beside it.
_CLASSES_PER_IMAGE, _MAX_UNNAMED = 10, 1000

# Encoded examples; 50,000 of ImageNet are 5.5 GB.
SHUFFLE_BUFFER = 50_000

# An element of `Source.records`: an index, or an encoded example by feature.
Record = tf.Tensor | dict[str, tf.Tensor]
Records = Callable[[tf.Tensor | None], tf.data.Dataset]
Read = Callable[[Record], tuple[tf.Tensor, tf.Tensor]]


@dataclasses.dataclass(frozen=True)
class Source:
    """One split of a labelled image set: its examples and how to read them.

    Reading has two steps, so that the order of an epoch is cheap to make and
    to skip: `records` gives the order, `read` fetches one example and runs in a
    parallel map.

    Attributes:
      name: of the set, such as "digits" or "tfds:cifar10".
      split: "train", "test" or "validation".
      class_names: one per label, in label order.
      num_examples: number of examples, without skipped files.
      image_size: side in pixels if all images are squares of one size, None if
        they are not or the size is unknown.
      records: takes None for the fixed order, or a [2] int32 seed pair that
        alone determines a shuffled one; returns a finite dataset with one
        small record per example.
      read: takes one record; returns (image, label): a [height, width,
        channels] image of `dtype` or the [] string contents of an image file,
        and the [] int32 label in 0..len(class_names)-1; or, where examples
        have several labels, [classes] uint8, 1 for each label.
      channels: of the images, 3 where they are files.
      dtype: of the pixels, uint8 or float32, in 0..255; int32 for tokens.
      skipped: image files, relative to the data folder, that cannot be read
        and were left out.
      ignored: other files in the folders, which are no images by their names.
      turned: images with an EXIF rotation, which is not applied.
      note: a sentence on the data that a training prints; "" for none.
      labels: [num_examples] integers, or [num_examples, classes] uint8, if the
        records are indices 0..num_examples-1 of any example; None where records
        come in file order.
      shard: None if `records` are the whole split; (index, count) if they are
        of one worker's files. `num_examples` is of the whole split.
      ids: names of the examples, in the fixed order, such as file paths
        relative to the data folder: different in all splits of a set, and the
        same whenever it is read. A run records the ids that it is trained on,
        to refuse them as test examples, and its outputs name examples by them.
        None where examples have no names.
      texts: the sentences, one per example in the fixed order; None for images.
      is_multi_label: whether an example may have several labels, or none.
      weights: [num_examples] float32, of the examples in a loss, with a mean
        of 1; None for equal weights.
      read_weight: takes one record; returns its weight, [] float32.
      digests: [num_examples] int64, hashes of the bytes of image files, or of
        texts; None where the files were not read.
      fingerprint: returns a text that changes with size or time of the files;
        labels, ids and texts need not be in it; "" if nothing tells, and then
        an evaluation encodes the images anew.
      faults: checks the files again; returns the first that have changed or
        cannot be read, each with the reason.

    Example:
      >>> import numpy as np
      >>> from supcon_tf import data
      >>> images = np.zeros([3, 32, 32, 3], np.uint8)
      >>> source = data.from_arrays(images, [2, 0, 1])
      >>> [int(source.read(record)[1]) for record in source.records(None)]
      [2, 0, 1]
    """

    name: str
    split: str
    class_names: tuple[str, ...]
    num_examples: int
    image_size: int | None
    records: Records = dataclasses.field(repr=False)
    read: Read = dataclasses.field(repr=False)
    skipped: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    turned: tuple[str, ...] = dataclasses.field(default=(), repr=False)
    note: str = dataclasses.field(default="", repr=False)
    ids: tuple[str, ...] | None = dataclasses.field(default=None, repr=False)
    labels: np.ndarray | None = dataclasses.field(
        default=None, repr=False, compare=False
    )
    shard: tuple[int, int] | None = None
    channels: int = 3
    dtype: tf.DType = tf.uint8
    texts: tuple[str, ...] | None = dataclasses.field(default=None, repr=False)
    is_multi_label: bool = False
    weights: np.ndarray | None = dataclasses.field(
        default=None, repr=False, compare=False
    )
    read_weight: Callable[[Record], tf.Tensor] | None = dataclasses.field(
        default=None, repr=False, compare=False
    )
    digests: np.ndarray | None = dataclasses.field(
        default=None, repr=False, compare=False
    )
    fingerprint: Callable[[], str] = dataclasses.field(
        default=str, repr=False, compare=False
    )
    faults: Callable[[], list[str]] = dataclasses.field(
        default=list, repr=False, compare=False
    )

    def __post_init__(self):
        data_name = f"{self.name} ({self.split})"
        partition.check_class_names(self.class_names, data_name)


def index_records(num_examples: int) -> Records:
    """The `Source.records` of `num_examples` examples: [] int64 indices."""

    def records(seeds: tf.Tensor | None) -> tf.data.Dataset:
        indices = tf.range(num_examples, dtype=tf.int64)
        if seeds is not None:
            indices = tf.random.experimental.stateless_shuffle(indices, seeds)
        return tf.data.Dataset.from_tensor_slices(indices)

    return records


def in_file_order(
    dataset: tf.data.Dataset, num_examples: int, seeds: tf.Tensor | None
) -> tf.data.Dataset:
    """`Source.records` of a dataset, once the first two arguments are bound.

    An example comes up to `SHUFFLE_BUFFER` positions early.
    """
    if seeds is None:
        return dataset

    def order(seed: tf.Tensor) -> tf.data.Dataset:
        # Dataset.shuffle mixes in the seed of tf.random.set_seed. Inside a
        # tf.data function this call sets the seed of the function's graph.
        tf.compat.v1.set_random_seed(1)
        buffer_size = min(num_examples, SHUFFLE_BUFFER)
        return dataset.shuffle(
            buffer_size, seed=seed, reshuffle_each_iteration=False
        )

    seed = tf.bitcast(seeds, tf.int64)  # []
    return tf.data.Dataset.from_tensors(seed).flat_map(order)


def numbered_at(
    dataset: tf.data.Dataset, positions: np.ndarray, count: int
) -> tf.data.Dataset:
    """(position, record) of the records at rising `positions` of `count`."""
    numbered = dataset.enumerate()
    if len(positions) == count:
        return numbered
    is_chosen = np.zeros(count, bool)
    is_chosen[positions] = True
    is_chosen = tf.constant(is_chosen)
    return numbered.filter(
        lambda position, _: tf.gather(is_chosen, position)
    ).take(len(positions))  # the records after the last are not passed


def by_index(
    values: npt.ArrayLike,
    labels: np.ndarray,
    finish: Callable[[tf.Tensor], tf.Tensor] = tf.identity,
    weights: np.ndarray | None = None,
) -> dict[str, object]:
    """The fields of a `Source` whose records are indices.

    Args:
      values: [num_examples, ...], such as images or paths; kept in memory once.
      labels: [num_examples] integers, or [num_examples, classes] 0 or 1.
      finish: from a value to an image, or to the contents of its file.
      weights: [num_examples] float32; they are scaled to a mean of 1, that of
        these examples alone, unless all are 0. None for equal weights.

    Returns:
      `num_examples`, `records`, `read`, `labels`, `is_multi_label`, `weights`
      and `read_weight`.
    """
    # `read` captures eager tensors; constants would hit the 2 GB limit of a
    # graph.
    all_values = tf.convert_to_tensor(values)
    kind = np.int32 if labels.ndim == 1 else np.uint8
    all_labels = tf.convert_to_tensor(labels.astype(kind))
    if weights is not None and weights.any():
        # Else a rare example of a great weight, left out, would leave hardly
        # any loss to the others.
        weights = weights / weights.mean()
    ones = np.ones(len(labels), np.float32)
    all_weights = tf.convert_to_tensor(ones if weights is None else weights)
    return {
        "num_examples": len(labels),
        "records": index_records(len(labels)),
        "read": lambda index: (
            finish(tf.gather(all_values, index)),
            tf.gather(all_labels, index),
        ),
        "labels": labels,
        "is_multi_label": labels.ndim == 2,
        "weights": weights,
        "read_weight": lambda index: tf.gather(all_weights, index),
    }


def from_arrays(
    images: np.ndarray,
    labels: np.ndarray | Sequence[int],
    class_names: Sequence[str] | None = None,
    name: str = "arrays",
    split: str = "train",
    *,
    channels: int | None = None,
    pixel_range: tuple[float, float] | None = None,
) -> Source:
    """Makes a source of images that are in memory, such as in a notebook.

    Args:
      images: [N, height, width, channels] of 1 to 16 channels, or gray [N,
        height, width]; uint8, or float of a `pixel_range`.
      labels: [N] or [N, 1] integers in 0..classes-1.
      class_names: one per class, no two the same; None names the classes "0",
        "1", ...
      name: name of the source.
      split: "train" or "test", for messages only.
      channels: 3 repeats one channel, 1 keeps it; None is 3 for gray images,
        else those of the images.
      pixel_range: the numbers of black and white in float images, which become
        float32 in 0..255; values outside of the range stay outside.

    Example:
      >>> import numpy as np
      >>> from supcon_tf import data
      >>> images = np.zeros([6, 32, 32, 3], np.uint8)
      >>> data.from_arrays(images, [0, 1, 2, 0, 1, 2]).class_names
      ('0', '1', '2')

    Returns:
      A source that keeps `images` in memory once.

    Raises:
      ValueError: `images` or `labels` has another shape or dtype, their
        lengths differ or are 0, a label has no class name, or two classes have
        one name.
    """
    images = _check_images(np.asarray(images), pixel_range)
    if channels is None:
        channels = 3 if images.shape[-1] == 1 else images.shape[-1]
    exceptions.require(
        images.shape[-1] in (1, channels) and 1 <= channels <= MOST_CHANNELS,
        f"`channels` must be {images.shape[-1]}, those of the images"
        + (f", or up to {MOST_CHANNELS}" if images.shape[-1] == 1 else ""),
        channels,
    )
    labels = _check_labels(np.asarray(labels), len(images))
    if class_names is None:
        exceptions.require(
            labels.max() < _CLASSES_PER_IMAGE * len(images) + _MAX_UNNAMED,
            "`labels` must be in 0..classes-1, or `class_names` be given, of "
            f"{len(images)} images",
            f"labels up to {labels.max()}, which would be so many classes: "
            "np.unique(labels, return_inverse=True) makes numbers from 0 on",
        )
        class_names = [str(label) for label in range(int(labels.max()) + 1)]
    exceptions.require(
        not isinstance(class_names, str),
        "`class_names` must be a list of names",
        repr(class_names),
    )
    exceptions.require(
        0 <= labels.min() <= labels.max() < len(class_names),
        f"`labels` must be in 0..{len(class_names) - 1}",
        f"{labels.min()}..{labels.max()}",
    )
    height, width = images.shape[1:3]
    return Source(
        name=name,
        split=split,
        class_names=tuple(class_names),
        image_size=height if height == width else None,
        channels=channels,
        dtype=tf.as_dtype(images.dtype),
        fingerprint=lambda: fingerprint(images),
        **by_index(
            images,
            labels,
            lambda image: tf.broadcast_to(image, [height, width, channels]),
        ),
    )


def fingerprint(*parts: np.ndarray | str) -> str:
    """The SHA-256 of arrays and texts, in hexadecimal digits."""
    digest = hashlib.sha256()
    for part in parts:
        contents = part.encode() if isinstance(part, str) else part
        digest.update(np.ascontiguousarray(contents))
    return digest.hexdigest()


def load_digits(split: str) -> Source:
    """Loads scikit-learn's 8x8 digits, enlarged to 32 pixels and RGB.

    The 1,797 images are part of the package. The stratified split into 1,437
    for "train" and 360 for "test" is the same for everyone.
    """
    # scikit-learn takes a second to import.
    from sklearn import datasets, model_selection

    digits = datasets.load_digits()
    train, test = model_selection.train_test_split(
        np.arange(len(digits.target)),
        test_size=360,  # of 1,797: the usual fifth
        random_state=0,
        stratify=digits.target,
    )
    positions = np.sort({"train": train, "test": test}[split])
    images = digits.images[positions, :, :, None] * (255 / 16)  # were 0..16
    # 8 px is too small for five stages of a ResNet.
    images = tf.image.resize(images, [32, 32], method="bicubic")
    # Bicubic overshoots at edges; saturate_cast clips to 0..255.
    images = tf.saturate_cast(tf.round(images), tf.uint8).numpy()
    names = [str(digit) for digit in digits.target_names]
    return from_arrays(images, digits.target[positions], names, "digits", split)


def _check_images(
    images: np.ndarray, pixel_range: tuple[float, float] | None
) -> np.ndarray:
    """Checks dtype and shape; gray becomes [N, height, width, 1]."""
    is_float = np.issubdtype(images.dtype, np.floating)
    exceptions.require(
        images.dtype == np.uint8 or is_float,
        "`images` must be uint8 in 0..255, or float with a `pixel_range`",
        images.dtype,
    )
    exceptions.require(
        is_float == (pixel_range is not None),
        "`pixel_range` must be given for float images, such as (0, 1), and for "
        "no others",
        f"{pixel_range} for {images.dtype}",
    )
    if images.ndim == 3:
        images = images[..., None]
    exceptions.require(
        images.ndim == 4
        and images.shape[-1] <= MOST_CHANNELS
        and bool(images.size),
        "`images` must have shape [N, height, width, channels] or [N, height, "
        f"width], none of them 0, and at most {MOST_CHANNELS} channels",
        list(images.shape),
    )
    if not is_float:
        return images
    low, high = pixel_range
    exceptions.require(low < high, "`pixel_range` must rise", pixel_range)
    exceptions.require(
        bool(np.isfinite(images).all()), "`images` must be finite", "NaN or inf"
    )
    minimum, maximum = images.min(), images.max()
    exceptions.require(
        # A range of 0..255 for images in 0..1 would make all of them black.
        not 0 < maximum - minimum < (high - low) / 128,
        "`pixel_range` must be about that of the images",
        f"{pixel_range} for images in {minimum:g}..{maximum:g}",
    )
    return ((images - low) * (255.0 / (high - low))).astype(np.float32)


def _check_labels(labels: np.ndarray, num_images: int) -> np.ndarray:
    """Checks dtype, shape and length; returns [N]."""
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    exceptions.require(
        labels.ndim == 1 and np.issubdtype(labels.dtype, np.integer),
        "`labels` must be integers of shape [N] or [N, 1]",
        f"{labels.dtype} of shape {list(labels.shape)}",
    )
    exceptions.require(
        len(labels) == num_images,
        "`labels` must be as many as `images`",
        f"{len(labels)} labels for {num_images} images",
    )
    return labels
