"""Initial weights of a training: from a file or from another run."""

from __future__ import annotations

from supcon_tf import config, exceptions, models, run_files
from supcon_tf.host import trust
from supcon_tf.keras_2 import keras
from supcon_tf.settings import to_text
from supcon_tf.training import checkpoints, runs

_ENCODER_FIELDS = (
    *("architecture", "stem", "stem_padding", "width"),
    *("image_mean", "image_std", "pooling", "lora_rank"),
)
_HEAD_FIELDS = (
    *("hidden_dims", "projection_dim"),
    *("projection_batch_norm", "projection_bias"),
)


def inherited(
    settings: config.PretrainSettings,
    run: run_files.RunDirectory,
    recorded: config.PretrainSettings | None,
) -> dict[str, object]:
    """The fields that --init_from decides, the recorded ones of a resumed run.

    Raises:
      ValueError: there is no such encoder, or a setting contradicts it.
    """
    if settings.init_from is None:
        if ":" in settings.architecture:
            models.check_named(settings.architecture, settings.image_size)
        return {}
    if recorded is not None:
        source = recorded
        trust.check_named(source.architecture, _module(settings), run.path)
    else:
        source_run = _source(settings)
        source_run.checkpoint  # noqa: B018 - raises if there is none
        source = source_run.settings
    fields = network(source)
    if settings.init_head:
        fields |= {name: getattr(source, name) for name in _HEAD_FIELDS}
    for name, value in fields.items():
        setting = getattr(settings, name)
        exceptions.require(
            setting in (value, settings.__dataclass_fields__[name].default),
            f"--{name} must be left out with --init_from, which has "
            f"{to_text(value)}",
            to_text(setting),
        )
    return fields


def _source(settings: config.PretrainSettings) -> runs.Run:
    """The run of --init_from; raises ValueError for none."""
    return runs.Run.open(settings.init_from, architecture=_module(settings))


def _module(settings: config.PretrainSettings) -> str | None:
    """The architecture, if it is a function of a module; else None."""
    name = settings.architecture
    return name if trust.names_module(name) else None


def network(source: config.PretrainSettings) -> dict[str, object]:
    """The settings of the encoder of a run, for images of any size."""
    fields = {name: getattr(source, name) for name in _ENCODER_FIELDS}
    if fields["stem"] == "auto" and fields["architecture"].startswith("resnet"):
        fields["stem"] = models.encoder.usual_stem(source.image_size)
    return fields


def load(settings: config.PretrainSettings, model: keras.Model) -> None:
    """Puts the weights that the settings name into a built model of stage 1.

    Raises:
      ValueError: there are no such weights, or they do not fit the encoder.
    """
    encoder = model.encoder
    if settings.weights == "imagenet":
        weights = models.imagenet_weights(
            settings.architecture, settings.image_size
        )
        models.set_weights(encoder, weights)
    elif settings.weights == "preset":
        models.load_preset(encoder, settings.architecture)
    elif settings.weights:
        models.load_weights(encoder, settings.weights)
    elif settings.init_from:
        parts = {"encoder": encoder}
        if settings.init_head:
            parts["projection_head"] = model.projection_head
        source = _source(settings)
        checkpoints.restore(source.checkpoint, **parts)
    if isinstance(model, models.MomentumSupConModel):
        model.start_copies()
