"""From the name of a data set to its source."""

from __future__ import annotations

from supcon_tf import exceptions
from supcon_tf.data import folder, sources, tfds_source


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
    prefix, _, tfds_name = dataset.partition(":")
    is_tfds = prefix == "tfds" and tfds_name
    exceptions.require(
        split in ("train", "test"), "`split` must be train or test", split
    )
    exceptions.require(
        shard is None or is_tfds,
        "`shard` must be None except for TFDS, whose files it divides",
        f"{shard} for {dataset}",
    )
    if is_tfds:
        return tfds_source.load_tfds(tfds_name, split, data_dir, shard)
    if dataset == "digits":
        return sources.load_digits(split)
    exceptions.require(
        dataset == "folder",
        "`dataset` must be digits, folder or tfds:NAME",
        dataset,
    )
    exceptions.require(
        data_dir is not None,
        "`data_dir` must be given for the dataset `folder`",
        None,
    )
    return folder.load_folder(
        data_dir,
        split,
        test_fraction=test_fraction,
        split_seed=split_seed,
        check_images=check_images,
        skip_bad_images=skip_bad_images,
    )
