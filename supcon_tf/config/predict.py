"""Settings of tools/predict.py."""

from __future__ import annotations

import dataclasses
import pathlib
import urllib.parse

from supcon_tf import exceptions, settings

_SUFFIXES = (".csv", ".json", ".jsonl")


@dataclasses.dataclass(frozen=True)
class PredictSettings(settings.Settings):
    """Settings of tools/predict.py."""

    run_dir: str = settings.setting(
        ".",
        "Run directory whose newest export is asked in this process; default: "
        "the working directory.",
    )
    images: tuple[str, ...] = settings.setting(
        (),
        "Image files, and folders that are searched for .jpg, .jpeg, .png, "
        ".gif and .bmp; also as arguments without a flag.",
    )
    model_dir: str | None = settings.setting(
        None,
        "SavedModel, or directory of its versions, in place of the run's "
        "export.",
    )
    server: str | None = settings.setting(
        None,
        "TF Serving to ask in place of this process: grpc://HOST:8500, "
        "http://HOST:8501 or https://HOST.",
    )
    model_name: str | None = settings.setting(
        None, "Name of the model there; default: the last part of run_dir."
    )
    model_version: int | None = settings.setting(
        None, "Version of the model; default: the newest.", at_least=0
    )
    signature: str | None = settings.setting(
        None,
        "Signature to ask; default: serving_default, or represent of a model "
        "without classifier.",
    )
    batch_size: int = settings.setting(32, "Images per request.", at_least=1)
    requests_in_flight: int = settings.setting(
        2,
        "Requests at a time: one is read while another is answered.",
        at_least=1,
    )
    timeout: float = settings.setting(
        60.0, "Seconds that a server has for an answer.", above=0
    )
    retries: int = settings.setting(
        3,
        "How often a server is asked again that is not there or too busy, "
        "after 1, 2, 4, ... seconds.",
        at_least=0,
    )
    output: str | None = settings.setting(
        None,
        "File of the answers, .csv, .json or .jsonl; default: CSV on stdout.",
    )
    overwrite: bool = settings.setting(
        False, "Replace an output file that exists.", recorded=False
    )
    top: int = settings.setting(
        5, "Most probable classes that have columns in CSV.", at_least=0
    )

    def _check(self) -> None:
        """Checks rules between fields; raises ValueError."""
        if self.output and not self.output.lower().endswith(_SUFFIXES):
            raise exceptions.InvalidValue(
                f"--output must end in {', '.join(_SUFFIXES)}, got "
                f"{self.output}"
            )
        if self.server is None:
            if self.model_name:
                raise exceptions.InvalidValue(
                    "--model_name must be left out without --server, got "
                    f"{self.model_name}"
                )
            return
        if self.model_dir:
            raise exceptions.InvalidValue(
                "--model_dir must be left out with --server, got "
                f"{self.model_dir}"
            )
        self._check_server()
        if not self.model_name and not pathlib.PurePath(self.run_dir).name:
            raise exceptions.InvalidValue(
                "--model_name must be given with --server where no --run_dir "
                "tells it"
            )

    def _check_server(self) -> None:
        """Raises ValueError unless the server's address is complete."""
        try:
            url = urllib.parse.urlsplit(self.server)
            has_port = url.port is not None
        except ValueError:  # of a port that is no number
            url, has_port = urllib.parse.urlsplit(""), False
        if not url.hostname or not (
            url.scheme in ("http", "https")
            or (url.scheme == "grpc" and has_port and not url.path)
        ):
            raise exceptions.InvalidValue(
                "--server must be grpc://HOST:PORT, http://HOST:PORT or "
                f"https://HOST:PORT, got {self.server}"
            )
