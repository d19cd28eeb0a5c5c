"""How far a loop over a data set is, where that takes long."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import tqdm

_QUIET_SECONDS = 2.0  # a loop that takes longer says how far it is
_LOG_SECONDS = 30.0  # between the lines of one whose output is no terminal

Item = TypeVar("Item")


def shown(
    items: Iterable[Item],
    total: int,
    what: str,
    size: Callable[[Item], int] = lambda item: 1,
) -> Iterator[Item]:
    """Passes items on: a bar on a terminal, a line now and then in a log.

    Args:
      items: what is passed on.
      total: sum of their sizes.
      what: is done to them, for people.
      size: of an item.
    """
    is_terminal = sys.stderr.isatty()
    done, began, next_line = 0, time.monotonic(), _QUIET_SECONDS
    with tqdm.tqdm(
        total=total,
        desc=what,
        delay=_QUIET_SECONDS,
        disable=not is_terminal,
        leave=False,
    ) as bar:
        for item in items:
            yield item
            done += size(item)
            bar.update(size(item))
            seconds = time.monotonic() - began
            if not is_terminal and seconds > next_line:
                next_line = seconds + _LOG_SECONDS
                left = seconds / max(done, 1) * (total - done)
                print(
                    f"{what:<12} {done:,} of {total:,}, {left:.0f} s left",
                    file=sys.stderr,
                    flush=True,
                )
