"""The files of a run: their names, and functions to read and write them.

Reports on runs need no TensorFlow, and neither does this room.
"""

from supcon_tf.run_files.checkpoints import path_of, steps_in
from supcon_tf.run_files.contents import (
    read_arrays,
    read_metrics,
    write_arrays,
)
from supcon_tf.run_files.directory import (
    ENCODED_LABELS,
    ENCODED_RECORD,
    EXPORT_RECORD,
    GALLERY_RECORD,
    SWEEP_FOLDERS,
    TAKEN_NAMES,
    RunDirectory,
    command,
    gallery_versions,
)
from supcon_tf.run_files.moved import moved_data
