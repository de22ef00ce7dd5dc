"""Whether due work waits too long, so that this worker should come back for it sooner."""

from collections.abc import Sequence

from kikwiflow_worker.model.runtime import ClaimedTask


class Backlog:
    """Judges by the polls: one that comes back full, and with nothing but old tasks, has more of them behind it.

    Args:
        limit_s: How long due tasks may wait before their age counts.
    """

    def __init__(self, *, limit_s: float) -> None:
        self._limit_s = limit_s
        self.is_old = False

    def polled(self, claimed: Sequence[ClaimedTask], *, limit: int) -> None:
        """Note what a poll for at most ``limit`` tasks brought."""
        is_full = len(claimed) >= limit
        self.is_old = is_full and min(map(_waited_s, claimed)) > self._limit_s


def _waited_s(claimed: ClaimedTask) -> float:
    """Return how long a task has been due; both instants are the database's."""
    task = claimed.task
    return (claimed.claimed_at - (task.due_at or task.created_at)).total_seconds()
