"""Files that are there whole, or not at all."""

from __future__ import annotations

from etils import epath


def write_atomically(path: epath.PathLike, content: str | bytes) -> None:
    """Writes a file under another name, and gives it its own at the end.

    Args:
      path: local or gs://; what is there stays until the new one is complete.
      content: text becomes UTF-8.
    """
    path = epath.Path(path)
    partial = path.with_name(f".{path.name}.partial")
    data = content.encode() if isinstance(content, str) else content
    partial.write_bytes(data)
    partial.replace(path)
