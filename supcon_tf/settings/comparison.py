"""Settings of two commands: what differs, and what one takes from another."""

from __future__ import annotations

import dataclasses

from supcon_tf.settings.fields import Settings, SettingsType, to_text


def shown_fields(
    settings_class: type[Settings],
) -> list[dataclasses.Field]:
    """The fields that users set: all but those that the data alone decide."""
    fields = dataclasses.fields(settings_class)
    return [field for field in fields if not field.metadata["decided"]]


def to_texts(settings: Settings) -> dict[str, str]:
    """The settings that a result depends on, as texts by their name.

    Settings that are None, or that `changes` ignores, are left out.
    """
    return {
        field.name: to_text(value)
        for field in dataclasses.fields(settings)
        if (value := getattr(settings, field.name)) is not None
        and field.metadata["recorded"]
        and not field.metadata["resumable"]
    }


def changes(before: Settings, after: Settings) -> list[str]:
    """Differences that make another run, each as "--flag=now (was before)".

    Settings of one command alone, or that a resumed run may change, are
    ignored: see `recorded`, `resumable` and `grows` of `setting`.
    """
    texts = []
    for field in dataclasses.fields(after):
        old, new = getattr(before, field.name), getattr(after, field.name)
        rules = field.metadata
        is_other = new != old and rules["recorded"] and not rules["resumable"]
        if is_other and not (rules["grows"] and new > old):
            texts.append(f"--{field.name}={to_text(new)} (was {to_text(old)})")
    return texts


def shared_fields(
    settings: Settings, settings_class: type[Settings]
) -> dict[str, object]:
    """The values of the fields that another class of settings has too."""
    names = {field.name for field in dataclasses.fields(settings_class)}
    return {k: v for k, v in vars(settings).items() if k in names}


def adopt(settings: SettingsType, before: Settings) -> SettingsType:
    """The settings of a command, with the adaptive values of a resumed run."""
    resolved = {
        field.name: getattr(before, field.name)
        for field in dataclasses.fields(settings)
        if field.metadata["adaptive"] and getattr(settings, field.name) is None
    }
    return dataclasses.replace(settings, **resolved)
