"""Settings of galleries: representations that are searched, and grow."""

from __future__ import annotations

import dataclasses

from supcon_tf import exceptions
from supcon_tf.config import images, running, stages
from supcon_tf.settings import field_of, setting

_CHANGES = "data_dir", "add", "remove", "remove_class"


@dataclasses.dataclass(frozen=True)
class IndexSettings(stages.RecordedCodeSettings):
    """Settings of tools/index.py."""

    name: str = setting("gallery", must=stages.STAGE_NAME)
    """Name of the gallery, a folder in galleries/ of run_dir."""
    data_dir: str | None = setting(None, common=True, path=True)
    """Images of a new gallery: a folder with one sub-folder of images per
    class, or of images without classes, or a manifest. Of a run on texts, a
    file like the one it was trained on."""
    add: str | None = setting(None, common=True, path=True)
    """Images or texts that are added to the gallery, like --data_dir. What the
    gallery has already is not encoded again."""
    remove: tuple[str, ...] = setting((), repeated=True)
    """An id that the gallery loses, as tools/search.py prints it. May be given
    several times."""
    remove_class: tuple[str, ...] = setting((), repeated=True)
    """A class that the gallery loses. May be given several times."""
    split: str | None = setting(
        None, choices=("train", "test", "validation", "all")
    )
    """The rows of a manifest that are taken. Default: those of train, or all of
    a manifest without splits."""
    skip_bad_images: bool = field_of(images.DataSettings, "skip_bad_images")
    gallery_dtype: str = setting(
        "float32", choices=("float32", "float16", "int8")
    )
    """Numbers of a new gallery: float16 takes half of the memory, int8 a
    quarter."""
    known_data: str | None = setting(None, path=True)
    """Images or texts of the classes of the gallery that are neither in the
    gallery nor trained on, like --data_dir: the threshold between known and
    unknown comes from them. Default: each row of the gallery beside the
    others."""
    known_rate: float | None = setting(None, above=0, at_most=1)
    """Share of known examples that the threshold calls known. Default: as the
    gallery was; 0.95 for a new one."""
    approximate: bool | None = None
    """Also build an index of faiss (pip install 'supcon_tf[search]'), which
    finds nearly all neighbours in a fraction of the time; its recall is
    measured. Default: as the gallery was; a new one is searched exactly."""
    overwrite: bool = field_of(running.CheckpointSettings, "overwrite")

    def _check(self) -> None:
        changes = [f"--{name}" for name in _CHANGES if getattr(self, name)]
        traits = self.known_data, self.known_rate, self.approximate
        changes_traits = any(value is not None for value in traits)
        exceptions.require(
            len(changes) == 1 or (changes_traits and not changes),
            "one of --data_dir, --add, --remove and --remove_class must be "
            "given, or --known_data, --known_rate or --approximate alone",
            ", ".join(changes) or "none",
        )
        if self.data_dir is None:
            self._check_left_out(
                "without --data_dir, since the gallery exists",
                *("gallery_dtype", "overwrite"),
            )


@dataclasses.dataclass(frozen=True)
class SearchSettings(stages.RecordedCodeSettings):
    """Settings of tools/search.py."""

    gallery: str = setting("gallery", must=stages.STAGE_NAME)
    """Name of the gallery of run_dir."""
    images: tuple[str, ...] = setting((), path=True)
    """Image files, and folders that are searched for images, with all their
    sub-folders; also as arguments without a flag."""
    text: tuple[str, ...] = setting((), repeated=True)
    """A text to search for, of a run on texts. May be given several times."""
    neighbors: int = setting(5, at_least=1)
    """Rows of the gallery that each answer lists."""
    answer_by: str = setting("mean", choices=("mean", "votes"))
    """The class of an answer: the one whose mean is most similar, or the votes
    of --neighbors rows, which a class of few rows loses."""
    output: str | None = setting(
        None,
        path=True,
        must=(
            "end in .jsonl or .html, got {}",
            lambda path: not path or path.lower().endswith((".jsonl", ".html")),
        ),
    )
    """File of the answers: JSON lines, or a page with the images; default: a
    table on stdout."""
    overwrite: bool = setting(False, recorded=False)
    """Replace an output file that exists."""

    def _check(self) -> None:
        exceptions.require(
            bool(self.images) != bool(self.text),
            "either images or --text must be given",
            "both" if self.images else "none",
        )
