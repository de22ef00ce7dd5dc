"""How long to wait between polls."""

import random


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

    def found_work(self) -> None:
        """Start again from the shortest wait."""
        self._next_s = self._shortest_s

    def next_wait_s(self) -> float:
        """Return how many seconds to wait, between half and all of the present step, and take the next step."""
        step = self._next_s
        self._next_s = min(self._next_s * 1.5, self._longest_s)
        return step * (0.5 + self._jitter.random() / 2)
