"""How long to wait between polls."""

import random

_FIRST_HINT_PAUSE_S = 0.01


class Pacing:
    """Polls at once while there is work, and backs off with jitter while there is none.

    Args:
        shortest_s: The first wait after a poll that found nothing.
        longest_s: What the waits grow to; with the jitter no wait is longer.
    """

    def __init__(self, *, shortest_s: float, longest_s: float, jitter: random.Random) -> None:
        self._shortest_s = shortest_s
        self._longest_s = max(shortest_s, longest_s)
        self._jitter = jitter
        self._next_s = shortest_s
        self._next_pause_s = 0.0

    def found_work(self) -> None:
        """Start again from the shortest wait, and follow the next hint at once."""
        self._next_s = self._shortest_s
        self._next_pause_s = 0.0

    def next_wait_s(self) -> float:
        """Return how many seconds to wait, between half and all of the present step, and take the next step."""
        step = self._next_s
        self._next_s = min(self._next_s * 1.5, self._longest_s)
        return self._jittered(step)

    def next_hint_pause_s(self) -> float:
        """Return how many seconds to wait before a hint is followed.

        None at first. Every hint in a row that leads to no work doubles the pause, up to the shortest wait: where a hint
        reaches a hundred idle workers and one of them finds work, the others soon stop asking for every task.
        """
        pause = self._next_pause_s
        self._next_pause_s = min(max(pause * 2, _FIRST_HINT_PAUSE_S), self._shortest_s)
        return self._jittered(pause)

    def _jittered(self, seconds: float) -> float:
        return seconds * (0.5 + self._jitter.random() / 2)
