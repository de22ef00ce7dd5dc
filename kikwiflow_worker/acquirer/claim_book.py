"""Which claims this worker holds, shared between the event loop and the renewal thread."""

import threading
from collections.abc import Callable, Collection, Iterator
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
        self._births: list[Collection[str]] = []

    def __len__(self) -> int:
        return len(self._entries)

    def hold(self, claimed: ClaimedTask, on_lost: Callable[[], None]) -> None:
        """Hold a claim until ``let_go``.

        Args:
            on_lost: Called from the renewal thread when the claim turns out to be lost.
        """
        entry = _Entry(claimed.claim, claimed.locked_until, on_lost)
        with self._lock:
            self._entries[claimed.claim.task_id] = entry

    def let_go(self, claim: Claim) -> None:
        """Hold a claim no longer: it has ended."""
        with self._lock:
            entry = self._entries.get(claim.task_id)
            if entry is not None and entry.claim == claim:
                del self._entries[claim.task_id]

    @contextmanager
    def committing(
        self, claims: Collection[Claim], *, births: Collection[str] = ()
    ) -> Iterator[set[Claim]]:
        """Leave claims out of renewals while their commit is under way (protocol R15).

        Yields a set for the claims that the commit has ended: they stay out of renewals until they are let go.

        Args:
            births: Ids of tasks that the commit may let be born claimed: they are known before it has returned (R4).
        """
        ended: set[Claim] = set()
        with self._lock:
            self._mark(claims, is_committing=True)
            self._births.append(births)
        try:
            yield ended
        finally:
            with self._lock:
                self._mark([one for one in claims if one not in ended], is_committing=False)
                self._births.remove(births)

    def holds(self, task_id: str) -> bool:
        """Return whether this worker holds the task already."""
        with self._lock:
            return task_id in self._entries

    def known_ids(self) -> frozenset[str]:
        """Return the ids of all tasks held, and of those that a commit under way may let be born claimed."""
        with self._lock:
            return frozenset(self._entries).union(*self._births)

    def to_renew(self, now: float, *, lock_s: float) -> tuple[Claim, ...]:
        """Return the claims to renew: all but those being committed, unless less than a third of their lock is left."""
        with self._lock:
            return tuple(
                entry.claim
                for entry in self._entries.values()
                if not entry.is_committing or entry.locked_until - now < lock_s / 3
            )

    def renewed(
        self, claims: tuple[Claim, ...], *, locked_until: float, lost: frozenset[Claim]
    ) -> tuple[Claim, ...]:
        """Note the result of a renewal, and tell the owners of lost claims; return those claims.

        A claim whose outcome was committed meanwhile, or is being committed, is not lost.
        """
        taken: list[_Entry] = []
        with self._lock:
            for claim in claims:
                entry = self._entries.get(claim.task_id)
                if entry is None or entry.claim != claim:
                    continue
                if claim not in lost:
                    entry.locked_until = locked_until
                elif not entry.is_committing:
                    taken.append(entry)
        for entry in taken:
            entry.on_lost()
        return tuple(entry.claim for entry in taken)

    def is_locked(self, claim: Claim, now: float) -> bool:
        """Return whether the claim's lock has not lapsed by this worker's own reckoning, so that a handler may start."""
        with self._lock:
            entry = self._entries.get(claim.task_id)
            return entry is not None and entry.claim == claim and now < entry.locked_until

    def _mark(self, claims: Collection[Claim], *, is_committing: bool) -> None:
        for claim in claims:
            entry = self._entries.get(claim.task_id)
            if entry is not None and entry.claim == claim:
                entry.is_committing = is_committing
