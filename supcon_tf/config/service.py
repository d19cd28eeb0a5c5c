"""Settings of the service that makes views for other processes."""

from __future__ import annotations

import dataclasses

from supcon_tf import exceptions, settings

_LOCAL = ("localhost", "127.0.0.1", "[::1]")


@dataclasses.dataclass(frozen=True)
class DataServiceSettings(settings.Settings):
    """Settings of tools/data_service.py."""

    run_dir: str = settings.with_default(
        settings.Settings, "run_dir", "runs/data_service"
    )
    role: str = settings.setting(
        "all",
        "What runs here: the one dispatcher, workers, or a dispatcher and "
        "workers (all).",
        choices=("all", "dispatcher", "worker"),
    )
    port: int = settings.setting(
        5050,
        "Port of the dispatcher; 0 for a free one.",
        at_least=0,
        at_most=65535,
    )
    dispatcher: str | None = settings.setting(
        None, "grpc:// address of the dispatcher, for --role=worker."
    )
    workers: int = settings.setting(
        1,
        "Workers in this process; they share its cores, so one is enough. "
        "Each makes an epoch of its own.",
        at_least=1,
    )
    worker_port: int = settings.setting(
        0,
        "Port of the first worker, the others count on; 0 for free ones.",
        at_least=0,
        at_most=65535,
    )
    host: str = settings.setting(
        "localhost",
        "Name or address of this machine by which the others reach it.",
    )
    journal: bool = settings.setting(
        False,
        "Keep the dispatcher's journal in run_dir: one that is started again "
        "there, with the same port, goes on with the runs that it served.",
    )

    def _check(self) -> None:
        """Checks rules between fields; raises ValueError."""
        settings.check_used(
            self,
            {
                "port": ("role", ("all", "dispatcher")),
                "journal": ("role", ("all", "dispatcher")),
                "dispatcher": ("role", ("worker",)),
                "workers": ("role", ("all", "worker")),
                "worker_port": ("role", ("all", "worker")),
            },
        )
        if self.role != "worker":
            return
        if not (self.dispatcher or "").startswith("grpc://"):
            raise exceptions.InvalidValue(
                "--dispatcher must be the grpc:// address of the dispatcher "
                f"with --role=worker, got {self.dispatcher}"
            )
        at = self.dispatcher.removeprefix("grpc://").rpartition(":")[0]
        if self.host == "localhost" and at not in _LOCAL:
            raise exceptions.InvalidValue(
                "--host must be the name of this machine with a dispatcher "
                f"on another one, got localhost for {self.dispatcher}"
            )
