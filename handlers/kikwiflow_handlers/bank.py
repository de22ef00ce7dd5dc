"""Plays a bank whose transfers carry an idempotency key, as those of real payment providers do.

A key that it has seen is answered as the first time, and no money moves again. Its book is a directory, so that several
workers share one bank: ``SAMPLE_BANK_DIRECTORY``, or a folder of the user's in the system's place for temporary files.
"""

import json
import os
import tempfile
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from uuid import NAMESPACE_URL, uuid4, uuid5

DIRECTORY_VARIABLE = "SAMPLE_BANK_DIRECTORY"


@dataclass(frozen=True, slots=True)
class Transfer:
    """A transfer that was made.

    Attributes:
        receipt: The bank's own number.
        requests: How often it was asked for; all but the first moved no money.
    """

    reference: str
    amount: Decimal
    receipt: str
    requests: int = 1


class Bank:
    """The book of transfers in a directory, one file for each transfer; any number of processes may use it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @classmethod
    def from_environment(cls) -> "Bank":
        """Return the bank that all workers with the same environment share."""
        default = Path(tempfile.gettempdir()) / f"sample-bank-{os.getuid()}"
        return cls(Path(os.environ.get(DIRECTORY_VARIABLE) or default))

    def transfer(self, reference: str, amount: Decimal, *, key: str) -> str:
        """Move money, unless ``key`` was used before; return the receipt of the one transfer of this key."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        receipt = f"T-{uuid5(NAMESPACE_URL, key).hex[:12]}"
        entry = {"reference": reference, "amount": str(amount), "receipt": receipt}
        draft = self._directory / f"{uuid4().hex}.draft"
        draft.write_text(json.dumps(entry))
        try:
            # A link appears whole or not at all, and only if nothing has this name: the bank's transaction.
            (self._directory / f"{receipt}.json").hardlink_to(draft)
        except FileExistsError:
            with (self._directory / f"{receipt}.repeats").open("a") as repeats:
                repeats.write("again\n")
        finally:
            draft.unlink()
        return receipt

    def transfers(self) -> list[Transfer]:
        """Return all transfers."""
        return [self._read(path) for path in sorted(self._directory.glob("*.json"))]

    def _read(self, path: Path) -> Transfer:
        entry = json.loads(path.read_text())
        repeats = path.with_suffix(".repeats")
        return Transfer(
            reference=entry["reference"],
            amount=Decimal(entry["amount"]),
            receipt=entry["receipt"],
            requests=1 + (len(repeats.read_text().splitlines()) if repeats.exists() else 0),
        )
