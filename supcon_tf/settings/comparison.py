"""Settings of two commands: what differs, and what one takes from another."""

from __future__ import annotations

import dataclasses
import os

from etils import epath

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


def changes(
    before: Settings, after: Settings, is_finished: bool = False
) -> list[str]:
    """Differences that make another run, each as "--flag=now (was before)".

    Settings of one command alone, or that a resumed run may change, are
    ignored: see `recorded`, `resumable` and `grows` of `setting`. A finished
    run is not resumed: nothing grows, what its results depend on stays, and a
    resumable path may change only where files have moved.
    """
    texts = []
    for field in dataclasses.fields(after):
        old, new = getattr(before, field.name), getattr(after, field.name)
        rules = field.metadata
        if new == old or not rules["recorded"]:
            continue
        may_change = rules["resumable"] or (rules["grows"] and new > old)
        if is_finished:
            is_other = rules["path"] and _is_other_place(old, new)
            may_change = rules["resumable"] and not (
                rules["measured"] or is_other
            )
        if not may_change:
            texts.append(f"--{field.name}={to_text(new)} (was {to_text(old)})")
    return texts


def _is_other_place(old: str | None, new: str | None) -> bool:
    """Whether two different paths, or names to download, have other content.

    Files that have moved are no longer at `old`, a copied file has equal bytes,
    and a folder may be named that was the default.
    """
    old, new = (
        None if path is None else epath.Path(path) for path in (old, new)
    )
    if new is None or old is None:
        return new is None or not new.is_dir()
    if not old.exists():
        return not new.exists()
    if old.is_file() and new.is_file():
        return old.read_bytes() != new.read_bytes()
    return not (new.exists() and os.path.realpath(old) == os.path.realpath(new))


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
