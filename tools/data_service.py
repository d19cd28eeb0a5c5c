r"""Serves views to training: reads and augments in processes of its own.

  python tools/data_service.py

runs a dispatcher and a worker, and prints what to give to tools/pretrain.py:
--data_service=grpc://localhost:5050. For workers on other machines, one
dispatcher, and on each of them

  python tools/data_service.py --role=worker \
    --dispatcher=grpc://HOST:5050 --host=NAME_OF_THE_MACHINE

Workers may come and go during a run, and must see the images under the same
paths. SIGTERM ends each. Writes nothing but, with --journal, the dispatcher's
journal into the run directory.
"""

from __future__ import annotations

import checkout  # noqa: F401

from supcon_tf import command_line, config


def main(chosen: config.DataServiceSettings) -> None:
    """Serves; TensorFlow is imported once the settings are right."""
    from supcon_tf.data import service

    service.serve(
        chosen.role,
        port=chosen.port,
        dispatcher=chosen.dispatcher,
        workers=chosen.workers,
        host=chosen.host,
        worker_port=chosen.worker_port,
        journal=chosen.run_dir if chosen.journal else None,
    )


if __name__ == "__main__":
    command_line.run(main, config.DataServiceSettings)
