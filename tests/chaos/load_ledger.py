"""The ledger of the load: what it asked for and what it was promised, one JSON object a line.

What is asked for is written before the call, what was promised after it. So whatever the database holds beyond that was
never asked for, and whatever it lacks of what was promised is lost.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from tests.chaos.load_shape import Json


class Ledger:
    """Writes lines that are complete as soon as they are written."""

    def __init__(self, path: Path) -> None:
        self._file: IO[bytes] = path.open("ab", buffering=0)

    def note(self, op: str, **fields: object) -> None:
        """Append a line."""
        self._file.write(json.dumps({"op": op, **fields}, separators=(",", ":")).encode() + b"\n")

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_ledger(path: Path) -> Iterator[Json]:
    """Yield the lines of a ledger; one that is being written is left out."""
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield json.loads(line)
