"""Trust in code of files: only modules that the user names are imported.

A user's own network, data set, policy, loss or measure is a function of a
module, "package.module:function", in the flags of `FLAGS`. The page
docs/guides/your_own.md lists the arguments and the result of each function.

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
import inspect
import os
import pathlib
import site
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping, Sequence

from supcon_tf import exceptions
from supcon_tf.disk import flagfiles

# Stands for every function of a module among the choices of a flag.
FUNCTION = "package.module:function"
# The flags that take such a function, and the arguments of each function.
FLAGS = {
    "architecture": (),
    "dataset": ("split", "data_dir"),
    "augmentation": ("images", "seeds"),
    "objective": ("settings",),
    "measures": ("representations", "labels"),
}
# The flags whose functions later tools need too.
_NEEDED_LATER = "architecture", "dataset"
# Prefixes of networks and data sets of libraries, which are no modules.
_LIBRARIES = "keras:", "keras_hub:", "tfds:"


def names_module(value: str) -> bool:
    """Whether the value of a flag is a function of a module, which is code.

    Example:
      >>> from supcon_tf.host import trust
      >>> [trust.names_module(x) for x in ("vgg8", "keras:VGG16", "mine:net")]
      [False, False, True]
    """
    return ":" in value and not value.startswith(_LIBRARIES)


def choice(value: str) -> str:
    """The value among the choices of a flag, `FUNCTION` for a function.

    Example:
      >>> from supcon_tf.host import trust
      >>> trust.choice("supcon"), trust.choice("mine:loss+ce")
      ('supcon', 'package.module:function+ce')
    """
    name, plus, second = value.partition("+")
    return FUNCTION + plus + second if names_module(name) else value


def functions(values: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Flag and value of every function of a module among settings.

    Args:
      values: settings by flag, their values or texts.

    Example:
      >>> from supcon_tf.host import trust
      >>> list(trust.functions({"dataset": "mine:load", "objective": "ce"}))
      [('dataset', 'mine:load')]
    """
    for flag in FLAGS:
        value = values.get(flag) or ""
        names = value.split(",") if isinstance(value, str) else value
        yield from ((flag, name) for name in names if names_module(name))


def repeated(values: Mapping[str, object]) -> dict[str, str]:
    """The functions of a run that every later command must name again.

    Example:
      >>> from supcon_tf.host import trust
      >>> trust.repeated({"architecture": "mine:net", "dataset": "digits"})
      {'architecture': 'mine:net'}
    """
    return {
        flag: name for flag, name in functions(values) if flag in _NEEDED_LATER
    }


def check_named(
    recorded: str,
    user_value: str | None,
    run_dir: str | os.PathLike[str],
    flag: str = "architecture",
) -> None:
    """Raises unless the user repeats the module that a run has recorded.

    Args:
      recorded: the value of the flag in the run.
      user_value: the value of the command, or of the call; None for none.
      run_dir: of the run.
      flag: name of the flag.

    Raises:
      ValueError: `recorded` is a module and `user_value` is None, or the two
        differ.
    """
    exceptions.require(
        user_value in (None, recorded),
        f"`{flag}` must be left out, or be that of {run_dir}, "
        f"{recorded or 'which has none'}",
        user_value,
    )
    exceptions.require(
        user_value is not None or not names_module(recorded),
        f"`{flag}` must name {recorded} again, which {run_dir} has "
        "recorded: importing it runs its code; read the module first if the "
        "run is not your own",
        user_value,
    )


def check_command(
    values: Mapping[str, object], arguments: Sequence[str]
) -> None:
    """Raises unless a command names its modules itself, or by its own files.

    A flagfile in a run directory does not count: it is a record of the run.

    Args:
      values: settings of the command with its flagfiles, by flag.
      arguments: of the command line.

    Raises:
      ValueError: only a flagfile of a run directory names a module.
    """
    for flag, name in functions(values):
        names = ",".join(flagfiles.values(flag, arguments)).split(",")
        for path in recorded_flagfiles(arguments):
            if name not in names:
                check_named(name, None, run_directory_of(path), flag)


def recorded_flagfiles(arguments: Sequence[str]) -> Iterator[str]:
    """The flagfiles of a command that are in run directories.

    Example:
      >>> from supcon_tf.host import trust
      >>> list(trust.recorded_flagfiles(
      ...     ["--flagfile=runs/mine/settings.flags", "--flagfile=my.flags"]
      ... ))
      ['runs/mine/settings.flags']
    """
    return filter(run_directory_of, flagfiles.named_by(arguments))


def import_function(name: str, flag: str = "architecture") -> Callable:
    """Imports "package.module:function"; also from the current folder.

    Args:
      name: the value of the flag; "+ce" at its end is left out.
      flag: name of the flag, for messages.

    Raises:
      ValueError: it cannot be imported, is in a run directory, or does not
        take the arguments of `FLAGS`.
    """
    module, _, attribute = name.partition("+")[0].partition(":")
    folder = os.getcwd()
    if not {"", folder} & {*sys.path} and not run_directory_of(folder):
        sys.path.append(folder)

    def check(file: str) -> None:
        exceptions.require(
            run_directory_of(file) is None,
            f"`{flag}` must import no code that lies in a run directory",
            file,
        )

    try:
        with _importing(check):
            function = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, SyntaxError) as error:
        raise exceptions.InvalidValue(
            f"`{flag}` must be {FUNCTION} that can be imported, got {name}: "
            f"{error}"
        ) from error
    _check_arguments(function, FLAGS[flag], f"`{flag}` {name}")
    return function


def _check_arguments(
    function: object, names: Sequence[str], title: str
) -> None:
    """Raises ValueError unless a function takes arguments of these names."""
    rule = f"{title} must be a function of ({', '.join(names)})"
    exceptions.require(callable(function), rule, type(function))
    try:
        signature = inspect.signature(function)
    except ValueError:  # a function of C without a signature
        return
    try:
        signature.bind(*names)
    except TypeError as error:
        raise exceptions.InvalidValue(
            f"{rule}, got {signature}: {error}"
        ) from error


def run_directory_of(path: str | os.PathLike[str]) -> pathlib.Path | None:
    """The run directory around a local path, links followed, or None.

    Example:
      >>> from supcon_tf.host import trust
      >>> run_dir = trust.run_directory_of("runs/mine/linear/net.py")
      >>> run_dir.name, trust.run_directory_of("runs")
      ('linear', None)
    """
    path = pathlib.Path(path)
    for start in (pathlib.Path(os.path.abspath(path)), path.resolve()):
        for folder in (start, *start.parents):
            if (folder / flagfiles.RECORD).is_file():
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
        os.path.dirname(os.path.dirname(__file__)),
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
