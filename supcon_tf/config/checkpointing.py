"""When a run saves, and how it goes on after an interruption."""

from __future__ import annotations

import dataclasses

from supcon_tf import exceptions, settings


@dataclasses.dataclass(frozen=True)
class CheckpointSettings(settings.Settings):
    """Checkpoints of a run and what becomes of an earlier one."""

    overwrite: bool = settings.setting(
        False,
        "Replace what an earlier run left in run_dir.",
        recorded=False,
        common=True,
    )
    resume: bool = settings.setting(
        False,
        "Go on with the run in run_dir from its newest checkpoint, or start "
        "it where there is none: the same command starts and restarts.",
        recorded=False,
        common=True,
    )
    checkpoint_every: int = settings.setting(
        10,
        "Epochs between checkpoints; the last one always.",
        at_least=1,
        resumable=True,
    )
    checkpoint_steps: int | None = settings.setting(
        None,
        "Steps between further checkpoints, for long epochs.",
        at_least=1,
        resumable=True,
    )
    keep_checkpoints: int = settings.setting(
        3,
        "How many of the newest checkpoints are kept.",
        at_least=1,
        resumable=True,
    )
    keep_every: int | None = settings.setting(
        None,
        "Epochs between checkpoints that are kept for good.",
        at_least=1,
        resumable=True,
    )

    def _check(self) -> None:
        """Checks rules between fields; raises ValueError."""
        super()._check()
        if self.overwrite and self.resume:
            raise exceptions.InvalidValue(
                "--resume must be left out with --overwrite: one goes on with "
                "the earlier run, the other deletes it"
            )
        if self.keep_every and self.keep_every % self.checkpoint_every:
            raise exceptions.InvalidValue(
                "--keep_every must be a multiple of --checkpoint_every, got "
                f"{self.keep_every} and {self.checkpoint_every}"
            )
