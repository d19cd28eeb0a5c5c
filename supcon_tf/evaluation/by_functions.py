"""The measures of users: functions of representations and labels."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from supcon_tf import exceptions, scores
from supcon_tf.evaluation import splits
from supcon_tf.host import trust

_SHOWN = 200  # characters of what a function returns, in a message


def measure(
    names: Sequence[str], test: splits.EncodedSplit
) -> dict[str, dict[str, float]]:
    """What `function(representations, labels)` of each name returns.

    Args:
      names: of the functions, package.module:function.
      test: the test images, all of them.

    Returns:
      All numbers together, below `scores.USER_MEASURES`; {} without functions.

    Raises:
      ValueError: a function returns no dict of names and numbers, or a name
        that another one has.
    """
    numbers: dict[str, float] = {}
    for name in names:
        function = trust.import_function(name, "measures")
        returned = function(test.representations, test.labels)
        part = _numbers(returned)
        exceptions.require(
            part is not None,
            f"`measures` {name} must return a dict of finite numbers by names "
            "without dots",
            " ".join(repr(returned).split())[:_SHOWN],
        )
        exceptions.require(
            part.keys().isdisjoint(numbers),
            f"`measures` {name} must return other names than those before it",
            ", ".join(part.keys() & numbers.keys()),
        )
        numbers |= part
    return {scores.USER_MEASURES: numbers} if names else {}


def _numbers(returned: object) -> dict[str, float] | None:
    """Numbers as floats, of tensors and NumPy too; None for other values.

    JSON has no infinity and no NaN.
    """
    if not isinstance(returned, Mapping):
        return None
    if not all(isinstance(name, str) and "." not in name for name in returned):
        return None
    try:
        numbers = {name: float(value) for name, value in returned.items()}
    except (TypeError, ValueError):
        return None
    return numbers if all(map(math.isfinite, numbers.values())) else None
