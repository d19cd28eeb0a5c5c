"""The progress of a long loop over a data set."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import tqdm

_QUIET_SECONDS = 2.0  # loops that take longer print their progress
_LOG_SECONDS = 30.0  # between lines, where the output is no terminal

Item = TypeVar("Item")


def track(
    items: Iterable[Item],
    total: int,
    label: str,
    size: Callable[[Item], int] = lambda item: 1,
) -> Iterator[Item]:
    """Yields the items, with a bar on a terminal or some lines in a log.

    Args:
      items: to be yielded.
      total: sum of their sizes.
      label: of the bar, such as "encoding".
      size: of an item.
    """
    is_terminal = sys.stderr.isatty()
    count, start, next_line = 0, time.monotonic(), _QUIET_SECONDS
    with tqdm.tqdm(
        total=total,
        desc=label,
        delay=_QUIET_SECONDS,
        disable=not is_terminal,
        leave=False,
    ) as bar:
        for item in items:
            yield item
            count += size(item)
            bar.update(size(item))
            seconds = time.monotonic() - start
            if not is_terminal and seconds > next_line:
                next_line = seconds + _LOG_SECONDS
                remaining = seconds / max(count, 1) * (total - count)
                print(
                    f"{label:<12} {count:,} of {total:,}, {remaining:.0f} s "
                    "left",
                    file=sys.stderr,
                    flush=True,
                )
