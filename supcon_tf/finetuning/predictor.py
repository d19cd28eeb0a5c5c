"""The interface of three lines: `finetune`, `load` and `Predictor`."""

from __future__ import annotations

import dataclasses
import functools
import os
import pathlib
import tempfile
import warnings

import numpy as np
import tensorflow as tf
from etils import epath

from supcon_tf import (
    config,
    distribute,
    exceptions,
    pixels,
    run_files,
    serving,
)
from supcon_tf import gallery as galleries
from supcon_tf.clients import model, paths, requests, saved_model
from supcon_tf.disk import files
from supcon_tf.finetuning import images
from supcon_tf.gallery import store
from supcon_tf.host import trust

_TEXT = "text"  # the input of an export that takes texts
_BATCH = 64


@dataclasses.dataclass(frozen=True)
class Prediction:
    """The prediction of a classifier for an image or a text.

    Example:
      >>> import supcon_tf
      >>> answer = supcon_tf.Prediction("dark", 0.9, {"dark": 0.9, "mid": 0.1})
      >>> answer.name, answer.probabilities["mid"]
      ('dark', 0.1)

    Attributes:
      name: of the most probable class; "unknown" by the gallery of an export,
        "" where an image may have several labels and reaches none.
      probability: of the most probable class, in 0..1.
      probabilities: of all classes by name, the most probable first.
    """

    name: str
    probability: float
    probabilities: dict[str, float]


class Predictor:
    """A trained model with the answers of its export to images or texts.

    An image is a path, the bytes of a JPEG or PNG file, a PIL image, or an
    array [height, width] or [height, width, channels] of 0..255. A file or a
    PIL image of 16 bits counts by its high byte. A text is a str. Several are
    any other iterable, such as a list or an array of images.

    Example:
      >>> import supcon_tf
      >>> model = supcon_tf.load("runs/mine")
      >>> model.encode(["photos/test/dark/00.png"]).shape
      (1, 26)

    Attributes:
      path: of the run or the export.
    """

    def __init__(
        self, path: str | os.PathLike[str], export: str | os.PathLike[str]
    ):
        paths.check_files(export)
        self.path = path
        record = epath.Path(export) / run_files.EXPORT_RECORD
        # {} for a SavedModel of another program.
        self._checkpoints = files.read_json(record, {}).get("checkpoints", {})
        self._model = saved_model.SavedModel(export)
        signatures = self._model.signatures()
        self._classify = signatures.get("serving_default")
        exceptions.require(
            "represent" in signatures,
            "`path` must be of a run of supcon_tf, or of an export with a "
            "signature `represent`; tools/predict.py asks other SavedModels",
            f"{path} with {', '.join(signatures) or 'none'}",
        )
        self._represent = signatures["represent"]
        self.takes_texts = self._represent.input == _TEXT

    def predict(self, examples: object) -> Prediction | list[Prediction]:
        """The class of an image or a text, or of each of several.

        Raises:
          ValueError: an example is no image, or the model has no classifier.
          FileNotFoundError: there is no such file.
        """
        exceptions.require(
            self._classify is not None,
            "the model must have a classifier to predict",
            f"{self.path}, which has none; `encode` takes it",
        )
        rows = self._answers(self._classify, examples)
        predictions = [_prediction(row) for row in rows]
        return predictions[0] if _is_single(examples) else predictions

    def encode(self, examples: object) -> np.ndarray:
        """Representations of unit length: [dim] of one, [n, dim] of several.

        float32. Raises as `predict`.
        """
        rows = self._answers(self._represent, examples)
        representations = np.array(
            [row["representation"] for row in rows], np.float32
        )
        return representations[0] if _is_single(examples) else representations

    def gallery(self, name: str = "gallery") -> galleries.Searcher:
        """A gallery of the run, with this model as its encoder.

        Args:
          name: of the gallery, as of tools/index.py.

        Raises:
          ValueError: there is no such gallery, or its checkpoint is not that
            of the export.
        """
        run = run_files.RunDirectory(self.path)
        folder = run.galleries
        path, gallery = folder / name, store.open_named(folder, name)
        exceptions.require(
            "encoder" in self._checkpoints,
            "a model with a gallery must be an export of tools/export.py",
            self.path,
        )
        checkpoint = self._checkpoints["encoder"]
        identity = {
            "checkpoint": checkpoint["name"],
            "sha256": checkpoint["sha256"],
        }
        remedy = {}
        if gallery.made_of == run.newest_identity():  # it is the export's turn
            remedy["remedy"] = "tools/export.py exports this checkpoint"
        store.check_made_of(str(path), gallery.made_of, identity, **remedy)
        return galleries.Searcher(
            gallery,
            self.encode,
            path,
            self.takes_texts,
            content=self._content,
            request=functools.partial(self._model.predict, self._represent),
        )

    def _answers(
        self, signature: model.Signature, examples: object
    ) -> list[model.Row]:
        inputs = [examples] if _is_single(examples) else list(examples)
        contents = [self._content(example) for example in inputs]
        request = functools.partial(self._model.predict, signature)
        rows, noun = [], "texts" if self.takes_texts else "images"
        for first in range(0, len(contents), _BATCH):
            batch = contents[first : first + _BATCH]
            rows += requests.outputs(request, batch)
            # Now, and not after hours of other batches.
            for example, row in zip(inputs[first:], rows[first:], strict=False):
                name = example if _is_path(example) else type(example).__name__
                exceptions.require(
                    "error" not in row,
                    f"`examples` must be {noun} that the model answers",
                    f"{name}: {row.get('error')}",
                )
        return rows

    def _content(self, example: object) -> bytes:
        """The bytes of an image file or of a text."""
        if self.takes_texts:
            exceptions.require(
                isinstance(example, str), "`examples` must be texts", example
            )
            content = example.encode("utf-8", "ignore")
            exceptions.require(
                content.decode() == example,
                "`examples` must be texts of whole characters, without the "
                "half of an emoji that was cut, or bytes of another encoding",
                ascii(example),
            )
            return content
        if isinstance(example, bytes):
            return example
        if _is_path(example):
            path = pathlib.Path(files.expanded(example, "examples"))
            if not path.is_file():
                raise exceptions.NotFound(f"no image {path}")
            return path.read_bytes()
        if hasattr(example, "convert"):
            return _png(_of_pil(example))
        return _png(np.asarray(example))


def finetune(
    data_dir: str | os.PathLike[str],
    run_dir: str | os.PathLike[str] = config.FinetuneSettings.run_dir,
    **settings: object,
) -> Predictor:
    """Makes a classifier of the images in a folder, from a pretrained network.

    It does the same as tools/finetune.py, without evaluation and report, for
    which there are `evaluation.evaluate` and `reports.write_report`.

    Args:
      data_dir: of `config.FinetuneSettings`: a folder with one sub-folder of
        images per class, or another data set.
      run_dir: of the run, which gets an export.
      **settings: others of `config.FinetuneSettings`.

    Example:
      >>> import supcon_tf
      >>> model = supcon_tf.finetune(
      ...     "photos", "runs/by_hand", init_from="runs/mine", image_size=16,
      ...     epochs=1, learning_rates=(0.01,), overwrite=True,
      ... )
      >>> model.predict("photos/test/dark/00.png").name in ("dark", "mid")
      True

    Raises:
      ValueError: as `finetuning.finetune_images`.
    """
    exceptions.require(
        distribute.num_machines() == 1,
        "`finetune` runs on one machine, TF_CONFIG must not name more; "
        "tools/finetune.py takes several",
        os.environ.get("TF_CONFIG"),
    )
    finetune_settings = config.FinetuneSettings(
        str(run_dir), data_dir=str(data_dir), **settings
    )
    run = images.finetune_images(finetune_settings)
    if not run.exports() or run.outdated_export():
        functions = trust.repeated(vars(finetune_settings))
        serving.export(config.ExportSettings(str(run_dir), **functions))
    return load(run_dir)


def load(
    path: str | os.PathLike[str], architecture: str | None = None
) -> Predictor:
    """Loads a trained model from a run directory or an export.

    A run's model is its newest export, with a warning if the run has trained
    further since, or if the gallery of the export has changed. A run without
    exports is exported into a temporary folder, which takes some seconds.

    Args:
      path: of a run, an export, or a folder of versions of exports.
      architecture: as of `load_encoder`, for a run without an export.

    Example:
      >>> import supcon_tf
      >>> model = supcon_tf.load("runs/mine")
      >>> model.encode("photos/test/dark/00.png").shape
      (26,)

    Raises:
      ValueError: there is no run and no export, or files of the export have
        changed.
    """
    path = files.expanded(path, "path")
    run = run_files.RunDirectory(path)
    if not run.exists():
        return Predictor(path, paths.find_export(path))
    if run.exports():
        if text := run.outdated_export() or run.outdated_gallery():
            warnings.warn(f"{text}; tools/export.py exports it", stacklevel=2)
        return Predictor(path, paths.find_export(run.export))
    with tempfile.TemporaryDirectory() as folder:
        export = os.path.join(folder, "1")
        export_settings = config.ExportSettings(path, architecture=architecture)
        serving.export(export_settings, export)
        return Predictor(path, export)


def _is_path(example: object) -> bool:
    return isinstance(example, str | os.PathLike)


def _is_single(examples: object) -> bool:
    """Whether `examples` is a single image or text."""
    if isinstance(examples, np.ndarray | tf.Tensor):
        *_, channels = shape = tuple(examples.shape)
        return len(shape) == 2 or (len(shape) == 3 and channels in (1, 3, 4))
    is_of_pil = hasattr(examples, "convert")
    return isinstance(examples, bytes) or is_of_pil or _is_path(examples)


def _of_pil(image: object) -> np.ndarray:
    """The pixels of a PIL image, as those of its file."""
    if image.mode not in ("I", "F") and not image.mode.startswith("I;16"):
        return np.asarray(image.convert("RGB"))
    # Converted, values above 255 would be white.
    array = np.asarray(image)
    if image.mode == "F" or (image.mode == "I" and array.max() <= 255):
        return array
    return array >> 8  # the high byte of 16 bits


def _png(image: np.ndarray) -> bytes:
    """The PNG file of an image [H, W] or [H, W, C] in 0..255."""
    exceptions.require(
        image.ndim in (2, 3)
        and image.shape[2:] in ((), (1,), (3,), (4,))
        and image.size > 0,
        "`examples` must be images [height, width, channels]",
        f"shape {image.shape}",
    )
    exceptions.require(
        image.dtype != bool,
        "`examples` must be images in 0..255",
        "True and False, which would be black: multiply them by 255",
    )
    if image.dtype != np.uint8:
        pixels.check(tf.constant(image, tf.float32))
        image = np.rint(image)
        exceptions.require(
            image.min() >= 0 and image.max() <= 255,
            "`examples` must be images in 0..255",
            f"{image.min():g} to {image.max():g}",
        )
    image = image.reshape(*image.shape[:2], -1).astype(np.uint8)
    return tf.io.encode_png(image).numpy()


def _prediction(row: model.Row) -> Prediction:
    """The prediction of a row of the export."""
    pairs = zip(row["class_names"], row["probabilities"], strict=True)
    probabilities = dict(sorted(pairs, key=lambda pair: -pair[1]))
    return Prediction(
        row["predicted_class"],
        max(row["probabilities"]),
        probabilities,
    )
