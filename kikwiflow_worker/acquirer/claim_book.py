"""Which claims this worker holds, shared between the event loop and the renewal thread."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from kikwiflow_worker.model.runtime import Claim, ClaimedTask


@dataclass(slots=True)
class _Entry:
    claim: Claim
    locked_until: float
    on_lost: Callable[[], None]
    is_committing: bool = False


class ClaimBook:
    """The claims held now, each with the monotonic time at which its lock lapses. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: dict[str, _Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    @contextmanager
    def holding(self, claimed: ClaimedTask, on_lost: Callable[[], None]) -> Iterator[None]:
        """Hold a claim while the block lasts.

        Args:
            on_lost: Called from the renewal thread when the claim turns out to be lost.
        """
        entry = _Entry(claimed.claim, claimed.locked_until, on_lost)
        with self._lock:
            self._entries[claimed.claim.task_id] = entry
        try:
            yield
        finally:
            with self._lock:
                if self._entries.get(claimed.claim.task_id) is entry:
                    del self._entries[claimed.claim.task_id]

    @contextmanager
    def committing(self, claim: Claim) -> Iterator[None]:
        """Leave a claim out of renewals while its commit is under way (protocol R15)."""
        self._mark(claim, is_committing=True)
        try:
            yield
        finally:
            self._mark(claim, is_committing=False)

    def holds(self, task_id: str) -> bool:
        """Return whether this worker holds the task already."""
        with self._lock:
            return task_id in self._entries

    def known_ids(self) -> frozenset[str]:
        """Return the ids of all tasks held."""
        with self._lock:
            return frozenset(self._entries)

    def to_renew(self, now: float, *, lock_s: float) -> tuple[Claim, ...]:
        """Return the claims to renew: all but those being committed, unless less than a third of their lock is left."""
        with self._lock:
            return tuple(
                entry.claim
                for entry in self._entries.values()
                if not entry.is_committing or entry.locked_until - now < lock_s / 3
            )

    def renewed(
        self, claims: tuple[Claim, ...], *, locked_until: float, missed: frozenset[Claim]
    ) -> frozenset[Claim]:
        """Note the result of a renewal, tell the owners of lost claims, and return those.

        Args:
            missed: The claims that were not found. One whose step has ended meanwhile, or is being committed, is not lost.
        """
        on_lost: dict[Claim, Callable[[], None]] = {}
        with self._lock:
            for claim in claims:
                entry = self._entries.get(claim.task_id)
                if entry is None or entry.claim != claim:
                    continue
                if claim not in missed:
                    entry.locked_until = locked_until
                elif not entry.is_committing:
                    on_lost[claim] = entry.on_lost
        for tell in on_lost.values():
            tell()
        return frozenset(on_lost)

    def is_locked(self, claim: Claim, now: float) -> bool:
        """Return whether the claim's lock has not lapsed by this worker's own reckoning, so that a handler may start."""
        with self._lock:
            entry = self._entries.get(claim.task_id)
            return entry is not None and entry.claim == claim and now < entry.locked_until

    def soonest_lapse(self) -> float | None:
        """Return when the first lock lapses, on the monotonic clock; None if none is held."""
        with self._lock:
            return min((entry.locked_until for entry in self._entries.values()), default=None)

    def _mark(self, claim: Claim, *, is_committing: bool) -> None:
        with self._lock:
            entry = self._entries.get(claim.task_id)
            if entry is not None and entry.claim == claim:
                entry.is_committing = is_committing
