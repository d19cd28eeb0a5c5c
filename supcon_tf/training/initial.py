"""What a training starts from: weights of a file or of another run."""

from __future__ import annotations

from supcon_tf import config, exceptions, models, run_files, trust
from supcon_tf.keras_2 import keras
from supcon_tf.settings import to_text
from supcon_tf.training import checkpoints, runs

_OF_ENCODER = (
    *("architecture", "stem", "stem_padding", "width"),
    *("image_mean", "image_std", "pooling", "lora_rank"),
)
_OF_HEAD = (
    *("hidden_dims", "projection_dim"),
    *("projection_batch_norm", "projection_bias"),
)


def inherited(
    settings: config.PretrainSettings,
    run: run_files.RunDirectory,
    recorded: config.PretrainSettings | None,
) -> dict[str, object]:
    """The fields that --init_from decides, as they were where a run goes on.

    Raises:
      ValueError: there is no such encoder, or settings of another one are
        given beside it.
    """
    if settings.init_from is None:
        if ":" in settings.architecture:
            models.check_named(settings.architecture, settings.image_size)
        return {}
    if recorded is not None:
        source = recorded
        trust.check_named(source.architecture, _module(settings), run.path)
    else:
        other = _source(settings)
        other.checkpoint  # noqa: B018 - it must have one
        source = other.settings
    fields = network(source)
    if settings.init_head:
        fields |= {name: getattr(source, name) for name in _OF_HEAD}
    for name, value in fields.items():
        given = getattr(settings, name)
        exceptions.require(
            given in (value, settings.__dataclass_fields__[name].default),
            f"--{name} must be left out with --init_from, which has "
            f"{to_text(value)}",
            to_text(given),
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
    fields = {name: getattr(source, name) for name in _OF_ENCODER}
    if fields["stem"] == "auto" and fields["architecture"].startswith("resnet"):
        fields["stem"] = models.encoder.usual_stem(source.image_size)
    return fields


def load(settings: config.PretrainSettings, model: keras.Model) -> None:
    """Puts the weights that the settings name into a built model of stage 1.

    Raises:
      ValueError: they are not there, or not those of this encoder.
    """
    encoder = model.encoder
    if settings.weights == "imagenet":
        named = settings.architecture, settings.image_size
        models.set_weights(encoder, models.imagenet_weights(*named))
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
