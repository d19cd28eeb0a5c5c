"""Settings of export, conversion and prediction: a run that is used."""

from __future__ import annotations

import dataclasses
import pathlib
import urllib.parse

from supcon_tf import exceptions
from supcon_tf.config import images, running, stages, texts
from supcon_tf.settings import Settings, field_of, setting

_SUFFIXES = (".csv", ".json", ".jsonl")
# TF Serving takes a folder of a larger number for no version, and serves none.
_LARGEST_VERSION = 2**63 - 1
_NONE_OR_THREE = (
    "be three numbers, got {}",
    lambda values: len(values) in (0, 3),
)
CONVERSION_FORMATS = (
    *("tflite_float32", "tflite_float16", "tflite_int8"),
    *("onnx", "torchvision"),
)


@dataclasses.dataclass(frozen=True)
class ClassifierSettings(stages.RecordedCodeSettings):
    """Which trained classifier of a run a tool takes."""

    classifier: str = setting(
        "auto", choices=("auto", "linear", "pretrained", "none")
    )
    """linear: that of the linear stage; pretrained: that which stage 1 trained
    with the encoder (ce, max_margin, joint, online); none: the encoder alone;
    auto: the first of these that the run has."""
    linear_stage: str = setting("linear", must=stages.STAGE_NAME)
    """Name of the linear stage whose classifier is taken."""


@dataclasses.dataclass(frozen=True)
class ExportSettings(ClassifierSettings, images.MovedDataSettings):
    """Settings of tools/export.py."""

    prototypes: bool = False
    """Add the signature classify_by_neighbours: the class whose training images
    are nearest in the mean. Needs the training images."""
    train_file: str | None = field_of(texts.MovedTextsSettings, "train_file")
    gallery: str | None = None
    """Add the signature search, and is_known to the answers of a classifier, by
    this gallery of tools/index.py."""
    top_k: int = setting(5, at_least=1)
    """Classes in top_classes, and rows of search, at most all."""
    threshold: float = setting(0.5, above=0, at_most=0.9999)
    """Probability from which a label is given, of images that may have
    several."""
    max_pixels: int = setting(2**26, at_least=1)
    """Pixels of the largest image file that is decoded, by its header; a larger
    one is refused. Each takes 4 bytes while it is decoded, up to 12 in rare
    formats."""
    max_batch_size: int = setting(0, at_least=0)
    """Images of several requests that the encoder takes at once, after each
    request has decoded its own, so that a bad file fails only its own. 0: none;
    the server's own batching then joins requests before."""
    batch_timeout_ms: float = setting(2.0, at_least=0)
    """How long a batch waits to be filled."""
    version: int | None = setting(None, at_least=1, at_most=_LARGEST_VERSION)
    """Number of the sub-directory of export/; default: one more than the newest
    there."""

    def _check(self) -> None:
        if not self.max_batch_size:
            self._check_left_out("without --max_batch_size", "batch_timeout_ms")
        if not self.prototypes:
            self._check_left_out(
                "without --prototypes, which alone need data",
                *("data_dir", "train_file"),
            )


@dataclasses.dataclass(frozen=True)
class ImportSettings(images.DataSettings):
    """Settings of tools/import_weights.py."""

    DEFAULT_DATASET = None

    format: str = setting(
        "torchvision",
        choices=("google_supcon", "simclr_tf2", "supcontrast", "torchvision"),
    )
    """Whose: google-research/supcon (google_supcon), google-research/simclr's
    tf2 (simclr_tf2), HobbitLong/SupContrast (supcontrast), or a ResNet of
    torchvision."""
    checkpoint: str | None = setting(None, path=True)
    """File .pth, prefix of TensorFlow's files such as model.ckpt-1000, or
    SavedModel. The formats of PyTorch need the extra torch."""
    drop: tuple[str, ...] = ()
    """Beginnings of names in it that are left out, such as fc. for a classifier
    of other classes."""
    image_mean: tuple[float, ...] = setting((), must=_NONE_OR_THREE)
    """Mean subtracted from R,G,B in [0, 1]; default: that of the format, or of
    the CIFAR data that a checkpoint of SupContrast names."""
    image_std: tuple[float, ...] = setting((), must=_NONE_OR_THREE)
    """Standard deviation that divides R,G,B; default: as of the mean."""
    overwrite: bool = field_of(running.CheckpointSettings, "overwrite")

    def _check(self) -> None:
        if self.checkpoint is None:
            raise exceptions.InvalidValue("--checkpoint must be given")


@dataclasses.dataclass(frozen=True)
class ConvertSettings(ClassifierSettings, images.MovedDataSettings):
    """Settings of tools/convert.py."""

    formats: tuple[str, ...] = setting(
        CONVERSION_FORMATS[:3],
        choices=CONVERSION_FORMATS,
        must=(
            "be different names, one or more, got {!r}",
            lambda names: 0 < len(names) == len(set(names)),
        ),
    )
    """Files to write: tflite_float32; tflite_float16, weights of half the size;
    tflite_int8, convolutions in integers, for bytes of pixels; onnx, which
    needs the extra onnx; torchvision, a state dict of its ResNet, for encoders
    with --stem_padding=symmetric, which needs the extra torch."""
    calibration_images: int = setting(256, at_least=1)
    """tflite_int8: training images, of all classes alike, that tell the ranges
    of the activations."""
    seed: int = setting(0, at_least=0)
    """Seed of their draw."""
    batch_size: int = setting(32, at_least=1)
    """Images per step, without effect on the result."""
    overwrite: bool = field_of(running.CheckpointSettings, "overwrite")


def _is_server(address: str) -> bool:
    """Whether the address of a server has a host and a protocol."""
    try:
        url = urllib.parse.urlsplit(address)
        _ = url.port
    except ValueError:  # of a port that is no number
        return False
    return bool(url.hostname) and url.scheme in ("http", "https")


@dataclasses.dataclass(frozen=True)
class PredictSettings(Settings):
    """Settings of tools/predict.py."""

    run_dir: str = "."
    """Run directory whose newest export is asked in this process; default: the
    working directory."""
    images: tuple[str, ...] = setting((), path=True)
    """Image files, and folders that are searched for images, with all their
    sub-folders; also as arguments without a flag."""
    text: tuple[str, ...] = setting((), repeated=True)
    """A text to ask an export on texts about, in the place of images; two
    sentences have a tab between. May be given several times."""
    text_files: tuple[str, ...] = setting((), path=True)
    """Files with a text per line, and no header or labels: not .tsv, .csv or
    .jsonl. Empty lines are left out."""
    model_dir: str | None = setting(None, path=True)
    """SavedModel, or directory of its versions, in place of the run's
    export."""
    server: str | None = setting(
        None,
        must=("be http://HOST:PORT or https://HOST:PORT, got {}", _is_server),
    )
    """TF Serving to ask in place of this process, by REST: http://HOST:8501 or
    https://HOST."""
    model_name: str | None = None
    """Name of the model there; default: the last part of run_dir."""
    model_version: int | None = setting(
        None, at_least=0, at_most=_LARGEST_VERSION
    )
    """Version of the model; default: the newest."""
    signature: str | None = None
    """Signature to ask; default: serving_default, or represent of a model
    without classifier."""
    batch_size: int = setting(32, at_least=1)
    """Images or texts per request."""
    timeout: float = setting(60.0, above=0)
    """Seconds that a server has for an answer."""
    output: str | None = setting(
        None,
        path=True,
        must=(
            f"end in {', '.join(_SUFFIXES)}, got {{}}",
            lambda path: not path or path.lower().endswith(_SUFFIXES),
        ),
    )
    """File of the answers, .csv, .json or .jsonl; default: CSV on stdout."""
    overwrite: bool = setting(False, recorded=False)
    """Replace an output file that exists."""
    top: int = setting(5, at_least=0)
    """Most probable classes that have columns in CSV."""

    def _check(self) -> None:
        if self.text or self.text_files:
            self._check_left_out("with texts", "images")
        if self.server is None:
            if self.model_name:
                self._check_left_out("without --server", "model_name")
            return
        if self.model_dir:
            self._check_left_out("with --server", "model_dir")
        if not self.model_name and not pathlib.PurePath(self.run_dir).name:
            raise exceptions.InvalidValue(
                "--model_name must be given with --server where no --run_dir "
                "tells it"
            )
