"""Settings of the service that makes views for other processes."""

from __future__ import annotations

import dataclasses

from supcon_tf import exceptions
from supcon_tf.settings import Settings, setting

_LOCAL = ("localhost", "127.0.0.1", "[::1]")
_DISPATCHES = {"role": ("all", "dispatcher")}
_WORKS = {"role": ("all", "worker")}


@dataclasses.dataclass(frozen=True)
class DataServiceSettings(Settings):
    """Settings of tools/data_service.py."""

    run_dir: str = "runs/data_service"
    role: str = setting("all", choices=("all", "dispatcher", "worker"))
    """What runs here: the one dispatcher, workers, or a dispatcher and workers
    (all)."""
    port: int = setting(5050, at_least=0, at_most=65535, used_by=_DISPATCHES)
    """Port of the dispatcher; 0 for a free one."""
    dispatcher: str | None = setting(None, used_by={"role": ("worker",)})
    """grpc:// address of the dispatcher, for --role=worker."""
    workers: int = setting(1, at_least=1, used_by=_WORKS)
    """Workers in this process; they share its cores, so one is enough. Each
    makes an epoch of its own."""
    worker_port: int = setting(0, at_least=0, at_most=65535, used_by=_WORKS)
    """Port of the first worker, the others count on; 0 for free ones."""
    host: str = "localhost"
    """Name or address of this machine by which the others reach it."""
    journal: bool = setting(False, used_by=_DISPATCHES)
    """Keep the dispatcher's journal in run_dir: one that is started again
    there, with the same port, goes on with the runs that it served."""

    def _check(self) -> None:
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
