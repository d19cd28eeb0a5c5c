"""The examples that a run was trained on: images.json."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from supcon_tf import exceptions
from supcon_tf.disk import files

if TYPE_CHECKING:
    from supcon_tf.run_files.directory import RunDirectory


class TrainedOn:
    """The training examples of a run by their names, and checks of data.

    Example:
      >>> from supcon_tf import training
      >>> run = training.RunDirectory("runs/mine")
      >>> len(run.trained_on.names())
      48
    """

    def __init__(self, run: RunDirectory):
        self._run = run

    def write(
        self,
        names: Sequence[str],
        skipped: Sequence[str],
        digests: np.ndarray | None,
    ) -> None:
        """Writes images.json; the arguments are those of a new run."""
        record = {"trained_on": list(names), "skipped": list(skipped)}
        if digests is not None:
            record["digests"] = digests.tolist()
        files.write_json(self._run.images_file, record, ensure_ascii=False)

    def names(self) -> set[str]:
        """The names of the examples; empty for examples without names."""
        return set(self._record().get("trained_on", ()))

    def digests(self) -> np.ndarray:
        """Hashes of the bytes of the training images, [images] int64.

        Empty where they were not read, and for runs of earlier versions.
        """
        return np.array(self._record().get("digests", ()), np.int64)

    def check_same(self, ids: Sequence[str] | None) -> None:
        """Raises ValueError unless the run was trained on these examples."""
        trained, names = self.names(), set(ids or ())
        remedy = "restore the folder"
        if self._run.is_of_texts():  # named by the file and their lines
            remedy = "restore the file, with its name and lines"
        if trained and trained != names:
            raise exceptions.InvalidValue(
                f"--resume must find the training {self._noun()} of "
                f"{self._run.path}, got {len(names - trained)} others and "
                f"{len(trained - names)} missing: "
                f"{exceptions.listed(sorted(trained ^ names))}; {remedy}, or "
                "train in another --run_dir"
            )

    def check_contained(self, ids: Sequence[str]) -> None:
        """Raises ValueError for data without some of the examples.

        They are other data then, under the name or the path of the run's data.
        """
        trained = self.names()
        # Images may have moved into a train folder.
        missing = trained - set(ids) - {i.partition("/")[2] for i in ids}
        exceptions.require(
            not missing,
            f"the data must have the training {self._noun()} of "
            f"{self._run.path}",
            f"none of {len(missing)} of {len(trained)}: "
            + exceptions.listed(sorted(missing)),
        )

    def check_unseen(self, ids: Sequence[str] | None) -> None:
        """Raises ValueError for test images that the run was trained on.

        `ids` are of its data folder; None for a split of the publisher.
        """
        if ids is None:
            return
        trained = self.names()
        seen = trained.intersection(ids)
        # An image may have moved into a test folder after the training. The
        # folders in a list are those of the user.
        if self._run.flags().get("dataset") != "manifest":
            seen |= {i for i in ids if i.partition("/")[2] in trained}
        exceptions.require(
            not seen,
            f"the test images must be none that {self._run.path} was trained "
            "on",
            f"{len(seen)} of {len(ids)}: {exceptions.listed(sorted(seen))}",
        )
        has_folder = ids[0].startswith(("test/", "val/"))
        if not trained and not has_folder:
            raise exceptions.InvalidValue(
                f"{self._run.path} must have an {self._run.images_file.name}: "
                "it was trained on a split that depended on all files of the "
                "folder, so that nobody knows which images it has seen; "
                "pretrain again"
            )

    def check_split(self, ids: Sequence[str]) -> None:
        """Raises ValueError if no file name of the training images is left.

        `ids` are the training images of data whose file names decide on their
        split. Renamed images have another split than in the training; they may
        be written anew, too, so that no digest tells which they are.
        """
        trained = self.names()
        file_names = {name.rpartition("/")[2] for name in trained}
        if file_names and file_names.isdisjoint(
            i.rpartition("/")[2] for i in ids
        ):
            raise exceptions.InvalidValue(
                f"the data must have file names of the training images of "
                f"{self._run.path}, by which training and test images are "
                f"divided, got none of {len(trained)}: "
                f"{exceptions.listed(sorted(trained))}; give the files their "
                "former names, or train again"
            )

    def _noun(self) -> str:
        return "texts" if self._run.is_of_texts() else "images"

    def _record(self) -> dict[str, list]:
        return files.read_json(self._run.images_file, {})
