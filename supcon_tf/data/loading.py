"""From the name of a data set to its source."""

from __future__ import annotations

from supcon_tf import exceptions
from supcon_tf.data import folder, sources, tfds_source

_TFDS_PREFIX = "tfds:"


def load(
    dataset: str,
    split: str,
    data_dir: str | None = None,
    *,
    test_fraction: float = 0.2,
    split_seed: int = 0,
    check_images: bool = True,
    skip_bad_images: bool = False,
    shard: tuple[int, int] | None = None,
) -> sources.Source:
    """Loads one split of a data set by name.

    "digits" is scikit-learn's 1,797 digits, 32 pixels, no download. "folder"
    is `data_dir` with one sub-folder of .jpg, .jpeg and .png files per class,
    inside `train/` and `test/` (or `val/`), or directly: then a split is made
    by a hash of each file's name, in which an image stays whatever others come
    and go. "tfds:NAME" is a set of TensorFlow Datasets, downloaded and prepared
    under `data_dir` when it is not there yet.

    Args:
      dataset: "digits", "folder" or "tfds:NAME".
      split: "train" or "test".
      data_dir: the image folder, or where TFDS keeps its sets.
      test_fraction: folder without splits: share of the test split, (0, 1).
      split_seed: folder without splits: seed of the split.
      check_images: folder: decode every file of the split once, first. Finds
        bad files now, not hours into training, and learns the image size;
        50,000 files of 32 pixels take 3 s on 4 cores.
      skip_bad_images: folder: leave out image files that cannot be read,
        listed in `skipped`, instead of stopping.
      shard: TFDS: (index, count) to read only one worker's part of the files;
        None for all.

    Returns:
      The source of the split.

    Raises:
      ValueError: a name is not known, `data_dir` does not fit `dataset`, or
        the set cannot be shared by file.
      ImportError: TensorFlow Datasets does not import.
      RuntimeError: TensorFlow Datasets could not prepare the set.
    """
    if split not in ("train", "test"):
        raise exceptions.InvalidValue(
            f"`split` must be train or test, got {split}"
        )
    if shard is not None and not dataset.startswith(_TFDS_PREFIX):
        raise exceptions.InvalidValue(
            "`shard` must be None except for TFDS, whose files it divides, "
            f"got {shard} for {dataset}"
        )
    if dataset == "digits":
        return sources.load_digits(split)
    if dataset.startswith(_TFDS_PREFIX) and dataset != _TFDS_PREFIX:
        name = dataset.removeprefix(_TFDS_PREFIX)
        return tfds_source.load_tfds(name, split, data_dir, shard)
    if dataset != "folder":
        raise exceptions.InvalidValue(
            f"`dataset` must be digits, folder or tfds:NAME, got {dataset}"
        )
    if data_dir is None:
        raise exceptions.InvalidValue(
            "`data_dir` must be given for the dataset `folder`, got None"
        )
    return folder.load_folder(
        data_dir,
        split,
        test_fraction=test_fraction,
        split_seed=split_seed,
        check_images=check_images,
        skip_bad_images=skip_bad_images,
    )
