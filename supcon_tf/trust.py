"""Trust in code of files: only modules that the user names are imported.

Run directories and data come from anybody. A module that a run names is
imported only if the command, or the call, names it too, and never from inside
of a run directory; a module that data name, only from installed packages.
Importing this module does not import TensorFlow.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.abc
import importlib.machinery
import os
import pathlib
import site
import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence

from supcon_tf import exceptions, flagfiles

# Prefixes of networks of libraries, which are no modules.
_NETWORKS = "keras:", "keras_hub:"
# A folder with this file is a run directory, or a stage of one.
_RECORD = "settings.flags"


def names_module(architecture: str) -> bool:
    """Whether an architecture is a function of a module, which is code.

    Example:
      >>> from supcon_tf import trust
      >>> [trust.names_module(x) for x in ("vgg8", "keras:VGG16", "mine:net")]
      [False, False, True]
    """
    return ":" in architecture and not architecture.startswith(_NETWORKS)


def named_module(architecture: str) -> str | None:
    """The architecture if it is a function of a module; else None.

    A command gives it to the next commands on its run, which repeat it.

    Example:
      >>> from supcon_tf import trust
      >>> trust.named_module("vgg8"), trust.named_module("mine:net")
      (None, 'mine:net')
    """
    return architecture if names_module(architecture) else None


def check_named(
    recorded: str, repeated: str | None, run_dir: str | os.PathLike[str]
) -> None:
    """Raises unless the user repeats the module that a run has recorded.

    Args:
      recorded: the architecture of the run.
      repeated: the architecture of the command, or of the call; None for none.
      run_dir: of the run.

    Raises:
      ValueError: `recorded` is a module and `repeated` is None; or they differ.
    """
    exceptions.require(
        repeated in (None, recorded),
        f"`architecture` must be left out, or be that of {run_dir}, {recorded}",
        repeated,
    )
    exceptions.require(
        repeated is not None or not names_module(recorded),
        f"`architecture` must name {recorded} again, which {run_dir} has "
        "recorded: importing it runs its code; read the module first if the "
        "run is not your own",
        repeated,
    )


def check_command(architecture: str | None, arguments: Sequence[str]) -> None:
    """Raises unless a command names its module itself, or by its own flagfile.

    A flagfile in a run directory does not count: it is a record of the run.

    Args:
      architecture: of the command, with its flagfiles.
      arguments: of the command line.

    Raises:
      ValueError: only a flagfile of a run directory names the module.
    """
    if not names_module(architecture or ""):
        return
    if architecture in flagfiles.values("architecture", arguments):
        return
    for path in recorded_flagfiles(arguments):
        check_named(architecture, None, run_directory_of(path))


def recorded_flagfiles(arguments: Sequence[str]) -> Iterator[str]:
    """The flagfiles of a command that are in run directories.

    Example:
      >>> from supcon_tf import trust
      >>> list(trust.recorded_flagfiles(
      ...     ["--flagfile=runs/mine/settings.flags", "--flagfile=my.flags"]
      ... ))
      ['runs/mine/settings.flags']
    """
    return filter(run_directory_of, flagfiles.named_by(arguments))


def import_function(name: str) -> object:
    """Imports "package.module:function"; also from the current folder.

    Raises:
      ValueError: it cannot be imported, or is in a run directory.
    """
    module, _, function = name.partition(":")
    folder = os.getcwd()
    if not {"", folder} & {*sys.path} and not run_directory_of(folder):
        sys.path.append(folder)
    try:
        with _importing(_check_outside_of_runs):
            return getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise exceptions.InvalidValue(
            "`architecture` must be package.module:function that can be "
            f"imported, got {name}: {error}"
        ) from error


def run_directory_of(path: str | os.PathLike[str]) -> pathlib.Path | None:
    """The run directory around a local path, links followed, or None.

    Example:
      >>> from supcon_tf import trust
      >>> run_dir = trust.run_directory_of("runs/mine/linear/net.py")
      >>> run_dir.name, trust.run_directory_of("runs")
      ('linear', None)
    """
    path = pathlib.Path(path)
    for start in (pathlib.Path(os.path.abspath(path)), path.resolve()):
        for folder in (start, *start.parents):
            if (folder / _RECORD).is_file():
                return folder
    return None


@contextlib.contextmanager
def only_installed(folder: str | os.PathLike[str] | None) -> Iterator[None]:
    """Refuses modules from a folder of data, or the current one, in a block.

    Libraries may import modules that the files of a data set name.

    Args:
      folder: of the data, local or gs://; None for none.

    Raises:
      ValueError: a module of these folders would be imported. Import it before
        the block to allow it.
    """
    local = [os.getcwd()]
    if folder is not None and "://" not in str(folder):
        local.append(str(folder))
    locations = [os.path.realpath(path) for path in local]
    packages = (
        os.path.dirname(__file__),
        sys.prefix,
        *map(sysconfig.get_path, ("stdlib", "purelib", "platlib")),
        *site.getsitepackages(),
        site.getusersitepackages(),
    )
    installed = [os.path.realpath(path) for path in packages]

    def check(file: str) -> None:
        path = pathlib.Path(os.path.realpath(file))
        exceptions.require(
            not any(map(path.is_relative_to, locations))
            or any(map(path.is_relative_to, installed)),
            "data must name no module that is not installed; import it before "
            "if it is yours",
            file,
        )

    with _importing(check):
        yield


def _check_outside_of_runs(file: str) -> None:
    """Raises ValueError for a module's file in a run directory."""
    exceptions.require(
        run_directory_of(file) is None,
        "`architecture` must import no code that lies in a run directory",
        file,
    )


class _Checked(importlib.abc.MetaPathFinder):
    """Finds modules by the finders after it, and checks their files."""

    def __init__(self, check: Callable[[str], None]):
        self._check = check

    def find_spec(
        self, name: str, path: object, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        """See `importlib.abc.MetaPathFinder`."""
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            if spec := finder.find_spec(name, path, target):
                if spec.has_location:
                    self._check(spec.origin)
                return spec
        return None


@contextlib.contextmanager
def _importing(check: Callable[[str], None]) -> Iterator[None]:
    """Checks the file of each module that is imported in a block."""
    finder = _Checked(check)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
