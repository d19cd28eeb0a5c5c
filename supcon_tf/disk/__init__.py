"""Files: written whole or not at all, locked, read row by row."""
