"""Settings of tools/report.py."""

from __future__ import annotations

import dataclasses

from supcon_tf import exceptions, settings


@dataclasses.dataclass(frozen=True)
class ReportSettings(settings.Settings):
    """Settings of tools/report.py."""

    run_dir: str = settings.setting(
        "runs/report", "Directory that report.html is written into."
    )
    runs: tuple[str, ...] = settings.setting(
        (),
        "Run directories, also as arguments without a flag; the others are "
        "compared with the first.",
    )
    names: tuple[str, ...] = settings.setting(
        (), "What to call them; default: the ends of their paths."
    )

    def _check(self) -> None:
        """Checks rules between fields; raises ValueError."""
        super()._check()
        if self.names and len(self.names) != len(self.runs):
            raise exceptions.InvalidValue(
                f"--names must be {len(self.runs)}, one per run, got "
                f"{settings.to_text(self.names)}"
            )
