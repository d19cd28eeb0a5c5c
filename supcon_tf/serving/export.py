"""From a run directory to a version that TF Serving takes."""

from __future__ import annotations

from etils import epath

from supcon_tf import config, exceptions, measures, text
from supcon_tf.disk import files, locks
from supcon_tf.gallery import indexing
from supcon_tf.serving import inputs, metadata, model
from supcon_tf.training import console, representations, runs


def export(
    settings: config.ExportSettings, directory: epath.PathLike | None = None
) -> epath.Path:
    """Exports encoder and classifier of a run as a SavedModel.

    Args:
      settings: of the tool.
      directory: of the SavedModel, which must not exist; None for
        export/<version> in the run.

    Example:
      >>> from supcon_tf import config, serving
      >>> settings = config.ExportSettings("runs/mine", classifier="none")
      >>> directory = serving.export(settings)
      >>> str(directory.parent), (directory / "saved_model.pb").exists()
      ('runs/mine/export', True)

    Returns:
      The directory.

    Raises:
      ValueError: run or linear stage has no checkpoint, the run has no such
        classifier or is being exported by another process, the directory or
        the version exists, or `max_pixels` refuses ordinary photographs.
    """
    if directory is not None:
        directory = model.new_directory(directory)
    run = runs.open_run(
        settings.run_dir,
        settings.linear_stage,
        data_dir=settings.data_dir,
        train_file=settings.train_file,
        architecture=settings.architecture,
        dataset=settings.dataset,
    )
    if directory is not None:
        with run.reading():
            return _write_export(settings, run, directory)
    versions = run.files.export
    files.check_writable("run_dir", versions)
    with locks.held(run.files.path, "export"), run.reading():
        newest = max(run.files.exports(), default=0)
        directory = versions / str(settings.version or newest + 1)
        exceptions.require(
            not directory.exists(),
            f"--version must not exist in {versions}",
            settings.version,
        )
        _write_export(settings, run, directory)
    name = run.choose_classifier(settings.classifier)
    console.print_line("classifier", name)
    console.print_line("exported", directory)
    return directory


def _write_export(
    settings: config.ExportSettings, run: runs.Run, directory: epath.Path
) -> epath.Path:
    """Writes the export; `export` says what is raised."""
    content = _content(run, settings)
    gallery = gallery_identity = None
    if settings.gallery:
        # Before it is opened: a change in between then counts as one since.
        gallery_identity = run.files.gallery_identity(settings.gallery)
        gallery = indexing.open_of_run(run, settings.gallery)
    name = run.choose_classifier(settings.classifier)
    exceptions.require(
        not (run.is_multi_label and settings.prototypes),
        "--prototypes must be left out for images of several labels",
        settings.prototypes,
    )
    is_named = name != "none" or settings.prototypes
    prototypes = None
    if settings.prototypes:
        train_representations, labels = representations.represent(
            run.encoder, run.source("train"), image_size=run.image_size
        )
        prototypes, _ = measures.class_prototypes(
            train_representations, labels, num_classes=len(run.class_names)
        )
    served = model.ServedModel(
        run.encoder,
        content,
        class_names=run.class_names if is_named else (),
        classifier=None if name == "none" else run.classifier(name),
        prototypes=prototypes,
        gallery=gallery,
        top_k=settings.top_k,
        threshold=settings.threshold if run.is_multi_label else None,
        max_batch_size=settings.max_batch_size,
        batch_timeout=settings.batch_timeout_ms / 1000,
    )

    def write_records(path: epath.Path, signatures: model.Signatures) -> None:
        parameters = served.num_parameters
        metadata.write_metadata(
            path,
            run,
            settings,
            name,
            parameters,
            signatures,
            gallery_identity,
        )

    model.write_version(served, directory, write_records)
    return directory


def _content(
    run: runs.Run, settings: config.ExportSettings
) -> inputs.Images | inputs.Texts:
    """The content of requests to the run's model, checked."""
    if run.is_of_texts:
        exceptions.require(
            not settings.max_batch_size,
            "--max_batch_size must be left out for texts",
            settings.max_batch_size,
        )
        pairs = len(run.settings.text_columns) == 2
        length = run.settings.max_length
        tokenizer = text.GraphTokenizer(run.tokenizer, length, pairs)
        return inputs.Texts(tokenizer)
    run.check_rgb("export")
    return inputs.Images(run.image_size, settings.max_pixels)
