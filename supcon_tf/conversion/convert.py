"""Conversion of a run to files for other runtimes, which are measured."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata

from supcon_tf import config, data, exceptions
from supcon_tf.augment import geometry
from supcon_tf.conversion import comparison, formats
from supcon_tf.data import subsets
from supcon_tf.disk import files, locks
from supcon_tf.training import console, runs

_FILES = {
    "tflite_float32": "model_float32.tflite",
    "tflite_float16": "model_float16.tflite",
    "tflite_int8": "model_int8.tflite",
    "onnx": "model.onnx",
    "torchvision": "model_torchvision.pth",
}
_PREPROCESSING = (
    "The caller decodes to RGB, resizes the shorter side to round(S / "
    f"{geometry.CENTRAL_FRACTION}), bilinear and antialiased, and crops the "
    "central S x S; images of S x S stay as they are. The normalisation of the "
    "pixels is in the model, but for torchvision: its caller divides pixels by "
    "255, subtracts `mean` and divides by `std`."
)


def convert(settings: config.ConvertSettings) -> dict[str, object]:
    """Converts encoder and classifier of a run, and measures the files.

    Every file is run on all test images by its own runtime, TFLite's
    interpreter or ONNX Runtime; memory holds the answers of all files, 4 bytes
    for each image and class. The directory converted/ of the run directory
    appears with all its files at once.

    Example:
      >>> from supcon_tf import config, conversion
      >>> settings = config.ConvertSettings(
      ...     "runs/mine", formats=("tflite_float32",), overwrite=True
      ... )
      >>> results = conversion.convert(settings)
      >>> {name: model["file"] for name, model in results["models"].items()}
      {'tflite_float32': 'model_float32.tflite'}

    Returns:
      What conversion.json holds: `float_model`, the measures of the model that
      was converted, and in `models`, by format, the measures of each file, its
      differences from the float model, and milliseconds per image.

    Raises:
      ImportError: the extra `onnx` is not installed and needed.
      ValueError: run or linear stage has no checkpoint, the run has no such
        classifier or is being converted by another process, the data has other
        classes, or the directory exists or cannot be written.
    """
    run = runs.Run.open(
        settings.run_dir,
        settings.linear_stage,
        settings.data_dir,
        settings.architecture,
        settings.dataset,
    )
    files.check_writable("run_dir", run.files.converted)
    with locks.held(run.files.path, "conversion"), run.reading():
        return _write_converted(settings, run)


def _write_converted(
    settings: config.ConvertSettings, run: runs.Run
) -> dict[str, object]:
    """Writes the directory converted/; returns what conversion.json holds."""
    run.check_rgb("conversion")
    run.check_one_label("conversion")
    checkpoint, directory = run.checkpoint, run.files.converted
    if directory.exists() and not settings.overwrite:
        raise exceptions.InvalidValue(
            f"{directory} must not exist; replace it with --overwrite"
        )
    versions = console.versions()
    if "torchvision" in settings.formats:
        formats.import_torch()
    if "onnx" in settings.formats:
        formats.import_onnx()
        for package in ("tf2onnx", "onnx", "onnxruntime"):
            versions[package] = importlib.metadata.version(package)
    test_source, image_size = run.source("test"), run.settings.image_size
    name = run.choose_classifier(settings.classifier)
    classifier = None if name == "none" else run.classifier(name)
    model = formats.ImageModel(run.encoder, image_size, classifier)
    console.print_header(test_source, image_size)
    console.print_line("encoder", checkpoint)
    console.print_line("classifier", name)

    contents = _convert_all(settings, model, run)
    results = {
        "dataset": test_source.name,
        "test_images": test_source.num_examples,
        "encoder": checkpoint,
        "classifier": name,
        "made_of": run.made_of(name),
        "settings": dataclasses.asdict(settings),
        "versions": versions,
        "preprocessing": _PREPROCESSING,
        **_measure_files(
            settings, model, contents, test_source, run.has_unseen_classes
        ),
    }
    with files.make_atomically(directory, settings.overwrite) as partial:
        for file_format, content in contents.items():
            (partial / _FILES[file_format]).write_bytes(content)
        if classifier is not None:
            lines = "".join(f"{name}\n" for name in run.class_names)
            (partial / "class_names.txt").write_bytes(lines.encode())
        files.write_json(partial / "conversion.json", results)
    console.print_line("converted", directory)
    return results


def _convert_all(
    settings: config.ConvertSettings, model: formats.ImageModel, run: runs.Run
) -> dict[str, bytes]:
    """Converts the model to each format; returns the content of each file."""
    calibration_images = None
    if "tflite_int8" in settings.formats:
        train_source = run.source("train")
        positions = subsets.draw_evenly(
            subsets.labels_of(train_source),
            settings.calibration_images,
            settings.seed,
        )
        examples = data.make_examples(
            train_source,
            len(positions),
            image_size=model.image_size,
            positions=positions,
        )
        images, _ = examples.get_single_element()
        calibration_images = images.numpy()  # [n, S, S, 3]
    contents = {}
    for file_format in settings.formats:
        if file_format == "onnx":
            content = formats.to_onnx(model)
        elif file_format == "torchvision":
            content = formats.to_torchvision(model)
        else:
            precision = file_format.removeprefix("tflite_")
            content = formats.to_tflite(model, precision, calibration_images)
        console.print_line(
            "made", f"{_FILES[file_format]} ({len(content):,} B)"
        )
        contents[file_format] = content
    return contents


def _measure_files(
    settings: config.ConvertSettings,
    model: formats.ImageModel,
    contents: dict[str, bytes],
    test_source: data.Source,
    has_unseen_classes: bool,
) -> dict[str, object]:
    """Measures the float model and each converted file.

    There are no accuracies where the model knows no class of the test images.
    """
    float_model, size = model.function(), model.image_size
    loaders = {
        "onnx": formats.onnx_function,
        "torchvision": lambda content: formats.torchvision_function(
            content, model
        ),
    }
    runtimes = {
        file_format: loaders.get(file_format, formats.tflite_function)(content)
        for file_format, content in contents.items()
    }
    expected, outputs, labels = comparison.outputs(
        lambda images: float_model(images)[model.output].numpy(),
        runtimes,
        data.make_examples(test_source, settings.batch_size, image_size=size),
    )
    classifies = model.classifier is not None
    has_accuracy = classifies and not has_unseen_classes
    accuracy = comparison.accuracy if has_accuracy else lambda *_: {}
    models = {
        file_format: {
            "file": _FILES[file_format],
            "bytes": len(contents[file_format]),
            "sha256": hashlib.sha256(contents[file_format]).hexdigest(),
            "input": _input(file_format, model),
            "output": {
                "name": _output_name(file_format, model),
                "shape": ["N", output.shape[1]],
                "dtype": "float32",
            },
            **accuracy(output, labels),
            **comparison.differences(output, expected, classifies),
            "milliseconds": comparison.milliseconds(
                runtimes[file_format], size
            ),
        }
        for file_format, output in outputs.items()
    }
    return {"float_model": accuracy(expected, labels), "models": models}


def _input(file_format: str, model: formats.ImageModel) -> dict[str, object]:
    """Describes the images that a file takes."""
    side = model.image_size
    description = {
        "name": "images",
        "shape": ["N", side, side, 3],
        "dtype": "uint8" if file_format == "tflite_int8" else "float32",
        "range": [0, 255],
    }
    if file_format == "torchvision":
        description |= {
            "shape": ["N", 3, side, side],
            "range": [0, 1],
            "mean": list(model.encoder.image_mean),
            "std": list(model.encoder.image_std),
        }
    return description


def _output_name(file_format: str, model: formats.ImageModel) -> str:
    """Returns what a file puts out; torchvision's networks end earlier."""
    if file_format != "torchvision":
        return model.output
    return "pooled features" if model.classifier is None else "logits"
