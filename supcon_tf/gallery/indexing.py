"""From images or texts to a gallery of a run, and changes of a gallery."""

from __future__ import annotations

import dataclasses
import os

import numpy as np
from etils import epath

from supcon_tf import config, data, datasets, exceptions, measures, text
from supcon_tf.data import folder, manifest, subsets
from supcon_tf.disk import files, image_names, locks
from supcon_tf.gallery import approximate, belonging, known_data, store
from supcon_tf.training import console, representations, runs

_DEFAULT_RATE = 0.95  # of known examples


def index(settings: config.IndexSettings) -> store.Gallery:
    """Makes or changes a gallery: tools/index.py.

    Everything is checked and encoded first; the gallery is then written whole,
    in the place of an earlier one.

    Example:
      >>> from supcon_tf import config, gallery
      >>> settings = config.IndexSettings(
      ...     "runs/mine", data_dir="photos/train", overwrite=True
      ... )
      >>> shelf = gallery.index(settings)
      >>> len(shelf), shelf.class_names
      (48, ('bright', 'dark', 'mid'))

    Returns:
      The gallery.

    Raises:
      ImportError: --approximate needs the extra `search`.
      ValueError: there is no run; the gallery exists, or is to be changed and
        does not exist or is of another checkpoint; the data cannot be read; or
        an id or a class that is to be removed is not there.
    """
    if settings.approximate:
        approximate.import_faiss()  # early, before what takes long
    run = runs.open_run(settings.run_dir, architecture=settings.architecture)
    galleries = run.files.galleries
    path = galleries / settings.name
    files.check_writable("run_dir", galleries)
    with locks.held(path, "gallery"):
        exceptions.require(
            settings.data_dir is None
            or settings.overwrite
            or not store.exists(path),
            "--name must be of no gallery that exists; --add grows it, and "
            "--overwrite replaces it",
            path,
        )
        gallery = None
        if settings.data_dir is None:
            gallery = open_of_run(run, settings.name)
            _check_rate(settings, gallery.threshold)
        changed = _changed(settings, run, gallery)
        threshold = _threshold(settings, run, gallery, changed)
        is_approximate = changed.is_approximate
        if settings.approximate is not None:
            is_approximate = settings.approximate
        has_changed = (
            changed is not gallery
            or threshold != gallery.threshold
            or is_approximate != gallery.is_approximate
        )
        if has_changed:
            changed = dataclasses.replace(
                changed, threshold=threshold, is_approximate=is_approximate
            )
            changed.save(path, overwrite=settings.overwrite)
    written = store.open_gallery(path)
    _print(path, written)
    return written


def open_of_run(run: runs.Run, name: str) -> store.Gallery:
    """Opens a gallery of a run.

    Raises:
      ValueError: there is none, it is of another checkpoint, or a file of it is
        not as it was written.
    """
    folder = run.files.galleries
    gallery = store.open_named(folder, name, check_digests=True)
    store.check_made_of(str(folder / name), gallery.made_of, run.identity)
    return gallery


def _changed(
    settings: config.IndexSettings,
    run: runs.Run,
    gallery: store.Gallery | None,
) -> store.Gallery:
    """The new gallery, or the earlier one after the change of the settings."""
    if settings.remove or settings.remove_class:
        with (
            exceptions.argument("remove", "ids"),
            exceptions.argument("remove_class", "class_names"),
        ):
            remaining = gallery.remove(settings.remove, settings.remove_class)
        removed = len(gallery) - len(remaining)
        console.print_line("removed", f"{removed:,} rows")
        return remaining
    if not (settings.data_dir or settings.add):
        return gallery
    flag = "data_dir" if settings.data_dir else "add"
    source, examples = _read_examples(settings, run, flag)
    counts = examples.class_counts()
    if empty := [name for name in counts if not counts[name]]:
        console.print_line(
            "left out", f"classes without rows: {exceptions.listed(empty)}"
        )
    if gallery is None:
        return encode(run, source, examples, settings.gallery_dtype)
    is_missing = gallery.missing(examples)
    positions = np.flatnonzero(is_missing)
    num_present = len(examples) - len(positions)
    console.print_line("there already", f"{num_present:,} of {len(examples):,}")
    if not len(positions):
        return gallery
    source = subsets.subset(source, positions)
    grown = gallery.add(encode(run, source, examples.part(is_missing)))
    _print_other_classes(grown, len(positions))
    return grown


def _print_other_classes(gallery: store.Gallery, num_added: int) -> None:
    """Prints earlier rows that have a copy of another class in the last rows.

    A file that has moved to the folder of another class is such a copy.
    """
    first, is_labelled = len(gallery) - num_added, gallery.labels >= 0
    is_new = np.arange(len(gallery)) >= first
    added = np.flatnonzero(is_new & is_labelled)
    label_of = dict(
        zip(gallery.digests[added], gallery.labels[added], strict=True)
    )
    is_copied = np.isin(gallery.digests, gallery.digests[added])
    ids = [
        gallery.ids[row]
        for row in np.flatnonzero(is_copied & ~is_new & is_labelled)
        if gallery.labels[row] != label_of[gallery.digests[row]]
    ]
    if ids:
        console.print_line(
            "note",
            f"{len(ids):,} earlier rows have a copy of another class by now: "
            f"{exceptions.listed(ids)}; --remove takes wrong ones out",
        )


def encode(
    run: runs.Run,
    source: data.Source,
    examples: store.Gallery,
    dtype: str = "float32",
) -> store.Gallery:
    """A gallery of examples, by the encoder of a run.

    Args:
      run: of the encoder.
      source: of the examples.
      examples: their gallery, without representations.
      dtype: of the representations.
    """
    with data.reading(lambda: [source]):
        rows, _ = representations.represent(
            run.encoder, source, image_size=run.image_size
        )
    exceptions.require(
        np.isfinite(rows).all(),
        f"the representations of {run.checkpoint} must be finite",
        "NaN or infinity",
    )
    stored = store.quantized(rows, dtype)
    if stored.dtype != rows.dtype:
        share = approximate.recall(
            rows,
            lambda queries, k: measures.nearest_neighbors(queries, stored, k),
        )
        count = approximate.RECALL_K
        console.print_line(
            dtype, f"finds {share:.1%} of the {count} nearest rows of float32"
        )
    all_rows = examples.part(np.ones(len(examples), bool))
    return dataclasses.replace(all_rows, representations=stored)


def _read_examples(
    settings: config.IndexSettings, run: runs.Run, flag: str
) -> tuple[data.Source, store.Gallery]:
    """The examples of --data_dir, --add or --known_data, with different ids.

    Returns:
      Their source, and their gallery without representations, [n, 0].
    """
    path = files.whole(getattr(settings, flag))
    with exceptions.argument(flag, "data_dir"):
        source = _read_source(settings, run, path)
    if text := console.files_text(source):
        count = f"{source.num_examples:,} examples"
        console.print_line("data", f"{count} of {path}{text}")
    if source.note:
        console.print_line("note", source.note)
    folder_path = path if os.path.isdir(path) else os.path.dirname(path)
    # Whole, as in Python: a list may call a file ./a.png, or ../b/a.png.
    ids = tuple(
        image_names.readable(files.whole(os.path.join(folder_path, name)))
        for name in source.ids
    )
    duplicate = store.first_duplicate(ids)
    exceptions.require(
        duplicate is None,
        f"{path} must have files of different names, by which the gallery "
        "calls its rows; rename one",
        f"two that are called {duplicate}",
    )
    return source, store.Gallery(
        np.zeros([len(ids), 0], np.float32),
        np.asarray(source.labels, np.int32),
        source.class_names,
        ids,
        np.asarray(source.digests, np.int64),
        run.identity,
    )


def _read_source(
    settings: config.IndexSettings, run: runs.Run, path: str
) -> data.Source:
    """The images in a folder or a manifest, or the texts in a file."""
    is_manifest = not (run.is_of_texts or os.path.isdir(path))
    exceptions.require(
        is_manifest or settings.split is None,
        "--split must be left out but for a manifest",
        f"{settings.split} of {path}",
    )
    if run.is_of_texts:
        exceptions.require(
            not settings.skip_bad_images,
            "--skip_bad_images must be left out for texts",
            True,
        )
        fields = run.settings
        texts = text.read_texts(path, fields.text_columns, fields.label_column)
        return text.to_source(texts, run.tokenizer, fields.max_length)
    run.check_rgb("a gallery")
    if is_manifest:
        source = _read_manifest(settings, path)
    else:
        source = folder.load_all_images(path, settings.skip_bad_images)
    exceptions.require(
        not source.is_multi_label,
        f"{path} must have one label per image for a gallery",
        "several",
    )
    return source


def _read_manifest(settings: config.IndexSettings, path: str) -> data.Source:
    """The rows of --split of a manifest.

    Without the flag those of training, or all of a manifest without splits: a
    fifth held out by a hash would be missed in a gallery.
    """
    kind, split = datasets.name_by_path(path, "folder"), settings.split
    if kind == "manifest" and split is None and not manifest.has_splits(path):
        split = "all"
    if kind == "manifest" and split == "all":
        return manifest.load_all_images(path, settings.skip_bad_images)
    return data.load(
        kind,
        split or "train",
        path,
        skip_bad_images=settings.skip_bad_images,
    )


def _check_rate(
    settings: config.IndexSettings, threshold: store.Threshold | None
) -> None:
    """Raises ValueError for another rate without the known examples."""
    if settings.known_rate is None or settings.known_data:
        return
    if threshold is None or not threshold.known_data:
        return
    exceptions.require(
        settings.known_rate == threshold.known_rate,
        "--known_rate must be given with --known_data, since the threshold of "
        f"this gallery comes from {threshold.known_data}",
        f"{settings.known_rate} alone",
    )


def _threshold(
    settings: config.IndexSettings,
    run: runs.Run,
    earlier: store.Gallery | None,
    gallery: store.Gallery,
) -> store.Threshold | None:
    """The threshold between known and unknown queries; None for too few rows.

    It comes from --known_data, now or at an earlier change, or from rows of
    classes of two rows or more, each beside all others.
    """
    rate = settings.known_rate
    if rate is None:
        has_rate = earlier is not None and earlier.threshold is not None
        rate = earlier.threshold.known_rate if has_rate else _DEFAULT_RATE
    if settings.known_data:
        source, examples = _read_examples(settings, run, "known_data")
        known_data.check(examples, gallery, run)
        held_out = encode(run, source, examples).representations
        path = files.whole(settings.known_data)
        return belonging.fit(gallery, rate, held_out, path)
    is_of_data = gallery.threshold and gallery.threshold.known_data
    if is_of_data and not gallery.can_be_scored:
        console.print_line(
            "threshold",
            "a Mahalanobis distance, which has too few rows now; --known_data="
            f"{gallery.threshold.known_data} measures another",
        )
    elif is_of_data:
        if gallery is not earlier:
            path = gallery.threshold.known_data
            console.print_line(
                "threshold",
                "that of the rows before this change; "
                f"--known_data={path} measures it anew",
            )
        return gallery.threshold
    threshold = belonging.fit(gallery, rate)
    if threshold is None and rate != _DEFAULT_RATE:
        console.print_line(
            "note",
            f"a gallery without a threshold does not keep the rate {rate:g}: "
            "give --known_rate again with the rows that make one",
        )
    return threshold


def _print(path: epath.Path, gallery: store.Gallery) -> None:
    """Prints what a gallery has."""
    unlabelled = int((gallery.labels == store.NO_LABEL).sum())
    classes = f"{len(gallery.class_names):,} classes"
    if unlabelled:
        classes += f", {unlabelled:,} rows without a class"
    dtype = gallery.representations.dtype.name
    console.print_line(
        "gallery",
        f"{path}: {len(gallery):,} rows of {gallery.dim} {dtype}, {classes}",
    )
    if gallery.index:
        console.print_line(
            "index",
            f"{gallery.index.kind} of faiss, which finds "
            f"{gallery.index.recall:.2%} of the {approximate.RECALL_K} "
            "nearest rows",
        )
    threshold = gallery.threshold
    if threshold is None:
        console.print_line(
            "unknown", "no threshold: no class has two rows (--known_data)"
        )
        return
    for name, auroc in threshold.aurocs.items():
        console.print_line(
            name, f"AUROC {auroc:.4f} of classes that are held out"
        )
    origin = threshold.known_data or "each row beside the others"
    limit = f"below a cosine of {threshold.minimum:.4f}"
    if threshold.score == "mahalanobis":
        limit = f"beyond a Mahalanobis distance of {-threshold.minimum:.4f}"
    console.print_line(
        "unknown",
        f"{limit}, which {threshold.known_rate:.0%} of the known reach "
        f"({origin})",
    )
