"""From a run directory to files for other runtimes, measured."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import json

from etils import epath

from supcon_tf import config, data, exceptions, files
from supcon_tf.augment import geometry
from supcon_tf.conversion import (
    calibration,
    comparison,
    graph,
    onnx_model,
    tflite_model,
)
from supcon_tf.training import console, runs

_FILES = {
    "tflite_float32": "model_float32.tflite",
    "tflite_float16": "model_float16.tflite",
    "tflite_int8": "model_int8.tflite",
    "onnx": "model.onnx",
}
_PREPROCESSING = (
    "The caller decodes to RGB, resizes the shorter side to round(S / "
    f"{geometry.CENTRAL_FRACTION}), bilinear and antialiased, and crops the "
    "central S x S; images of S x S stay as they are. The normalisation of the "
    "pixels is in the model."
)


def convert(chosen: config.ConvertSettings) -> dict[str, object]:
    """Converts encoder and classifier of a run, and measures what came out.

    Every file is run on all test images by its own runtime, TFLite's
    interpreter or ONNX Runtime.

    Args:
      chosen: the settings.

    Returns:
      What conversion.json holds: `float_model`, the measures of the model that
      was converted, and in `models`, by format, those of each file, with its
      name, bytes, SHA-256, input, output, differences from the float model and
      milliseconds per image on one thread. The directory converted/ of the run
      directory appears with all its files at once.

    Raises:
      ImportError: the extra `onnx` is not installed and needed.
      ValueError: run or linear stage has no checkpoint, the run has no such
        classifier, the data has other classes, or the directory exists.
    """
    run = runs.Run.open(chosen.run_dir, chosen.linear_stage)
    checkpoint, directory = run.checkpoint, run.files.converted
    if directory.exists() and not chosen.overwrite:
        raise exceptions.InvalidValue(
            f"{directory} must not exist; replace it with --overwrite"
        )
    if "onnx" in chosen.formats:
        onnx_model.import_libraries()
    test, size = run.images("test"), run.settings.image_size
    name = run.choose_classifier(chosen.classifier)
    classifier = None if name == "none" else run.classifier(name)
    model = graph.ImageModel(run.encoder, size, classifier)
    console.print_header(test, size)
    console.print_line("encoder", checkpoint)
    console.print_line("classifier", name)

    contents = _contents(chosen, model, run)
    found = {
        "dataset": test.name,
        "test_images": test.num_examples,
        "encoder": checkpoint,
        "classifier": name,
        "settings": dataclasses.asdict(chosen),
        "versions": console.versions() | _versions(chosen),
        "preprocessing": _PREPROCESSING,
        **_measured(chosen, model, contents, test),
    }
    class_names = run.class_names if classifier else ()
    with files.make_atomically(directory, chosen.overwrite) as partial:
        _write(partial, contents, found, class_names)
    console.print_line("converted", directory)
    return found


def _versions(chosen: config.ConvertSettings) -> dict[str, str]:
    """What converts and runs besides TensorFlow, by name."""
    used = (
        ("tf2onnx", "onnx", "onnxruntime") if "onnx" in chosen.formats else ()
    )
    return {name: importlib.metadata.version(name) for name in used}


def _contents(
    chosen: config.ConvertSettings,
    model: graph.ImageModel,
    run: runs.Run,
) -> dict[str, bytes]:
    """The content of each file, by its format."""
    calibrating = None
    if "tflite_int8" in chosen.formats:
        calibrating = calibration.calibration_images(
            run.images("train"),
            model.image_size,
            chosen.calibration_images,
            chosen.seed,
        )
    contents = {}
    for name in chosen.formats:
        kind, _, precision = name.partition("_")
        contents[name] = (
            onnx_model.to_onnx(model)
            if kind == "onnx"
            else tflite_model.to_tflite(model, precision, calibrating)
        )
        console.print_line(
            "made", f"{_FILES[name]} ({len(contents[name]):,} B)"
        )
    return contents


def _measured(
    chosen: config.ConvertSettings,
    model: graph.ImageModel,
    contents: dict[str, bytes],
    test: data.Source,
) -> dict[str, object]:
    """Measures of the float model and of all that was made of it."""
    float_model = model.function()
    runtimes = {
        name: (onnx_model if name == "onnx" else tflite_model).interpreted(
            content
        )
        for name, content in contents.items()
    }
    examples = data.make_examples(
        test, chosen.batch_size, image_size=model.image_size
    )
    with comparison.one_by_one(runtimes) as alone:
        found, labels = comparison.outputs(
            {
                "": lambda images: float_model(images)[model.output].numpy(),
                **alone,
            },
            examples,
        )
    expected = found.pop("")
    classifies = model.classifier is not None
    models = {
        name: {
            **_described(name, contents[name], model, output.shape[1]),
            **(comparison.accuracy(output, labels) if classifies else {}),
            **comparison.differences(output, expected, classifies),
            "milliseconds": comparison.milliseconds(
                runtimes[name], model.image_size
            ),
        }
        for name, output in found.items()
    }
    accuracy = comparison.accuracy(expected, labels) if classifies else {}
    return {"float_model": accuracy, "models": models}


def _described(
    name: str, content: bytes, model: graph.ImageModel, output_size: int
) -> dict[str, object]:
    """What whoever uses a file must know of it."""
    side = model.image_size
    return {
        "file": _FILES[name],
        "bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
        "input": {
            "name": "images",
            "shape": ["N", side, side, 3],
            "dtype": "uint8" if name == "tflite_int8" else "float32",
            "range": [0, 255],
        },
        "output": {
            "name": model.output,
            "shape": ["N", output_size],
            "dtype": "float32",
        },
    }


def _write(
    directory: epath.Path,
    contents: dict[str, bytes],
    found: dict[str, object],
    class_names: tuple[str, ...],
) -> None:
    """Fills the directory."""
    for name, content in contents.items():
        (directory / _FILES[name]).write_bytes(content)
    if class_names:
        lines = "".join(f"{name}\n" for name in class_names)
        (directory / "class_names.txt").write_bytes(lines.encode())
    text = json.dumps(found, indent=1)
    (directory / "conversion.json").write_text(text + "\n")
