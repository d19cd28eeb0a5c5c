"""Command lines: flags, the command `supcon`."""
