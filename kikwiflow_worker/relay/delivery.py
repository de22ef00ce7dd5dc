"""Sending the events of one round to the sink, and deciding what becomes of those that it does not take."""

import asyncio
import random
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from kikwiflow_worker.clock import Clock
from kikwiflow_worker.relay.message import message_of
from kikwiflow_worker.relay.sinks import RefusedError, Sink
from kikwiflow_worker.store.relay import ClaimedSlice, FailedEvent, Round, StoredEvent
from kikwiflow_worker.telemetry import mask_credentials

_HOPELESS = 16
"""So many instances whose events the sink does not take, and none that it takes, end a round: it is probably away."""

_LONGEST_RETRY_S = 60.0
_LONGEST_PAUSE_S = 30.0
_LONGEST_ERROR = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryOptions:
    """How events are sent; lengths in seconds.

    Attributes:
        at_once: How many instances' events are sent at the same time.
        begin_s: For so long a round begins to send further events.
        timeout_s: For one event.
        most_strikes: How often an event may fail, while the sink takes others, until it is a dead letter.
    """

    at_once: int = 8
    begin_s: float = 5.0
    timeout_s: float = 15.0
    most_strikes: int = 10

    @property
    def longest_s(self) -> float:
        """How long a round may take."""
        return self.begin_s + self.timeout_s


@dataclass(slots=True)
class _Progress:
    """What came of a round so far."""

    delivered: list[StoredEvent] = field(default_factory=list)
    failed: list[tuple[StoredEvent, Exception]] = field(default_factory=list)

    @property
    def is_hopeless(self) -> bool:
        return not self.delivered and len(self.failed) >= _HOPELESS

    @property
    def seems_away(self) -> bool:
        """Whether the sink may be to blame, not the events.

        A refusal is an answer, and one event that failed before fails by itself: the others need not wait for it.
        """
        unanswered = [one for one, error in self.failed if not isinstance(error, RefusedError)]
        return not self.delivered and (
            len(unanswered) > 1 or any(not one.attempts for one in unanswered)
        )


class Delivery:
    """Sends rounds.

    Args:
        may_go_on: Whether further events may be sent; asked before each.
    """

    def __init__(
        self,
        sink: Sink,
        options: DeliveryOptions,
        *,
        clock: Clock,
        jitter: random.Random,
        may_go_on: Callable[[], bool],
    ) -> None:
        self._sink = sink
        self._options = options
        self._clock = clock
        self._jitter = jitter
        self._may_go_on = may_go_on

    async def send(self, claimed: ClaimedSlice, now: datetime) -> Round:
        """Send what can be sent in one round; events of one instance one after the other, up to one that fails.

        Args:
            now: The database's time, from which the next tries are counted.
        """
        progress = _Progress()
        instances = deque(self._shuffled(claimed.events))
        ends_at = self._clock.monotonic() + self._options.begin_s

        def goes_on() -> bool:
            is_in_time = self._clock.monotonic() < ends_at
            return is_in_time and self._may_go_on() and not progress.is_hopeless

        async def send_some() -> None:
            while instances and goes_on():
                await self._send_instance(instances.popleft(), progress, goes_on)

        async with asyncio.TaskGroup() as group:
            for _ in range(min(self._options.at_once, len(instances))):
                group.create_task(send_some())
        return self._judged(claimed, progress, now)

    def _shuffled(self, events: Iterable[StoredEvent]) -> list[list[StoredEvent]]:
        """Return the events of each instance; which instance comes first is left to chance, so that none is always last."""
        by_instance: dict[str, list[StoredEvent]] = {}
        for event in events:
            by_instance.setdefault(event.instance_id, []).append(event)
        instances = list(by_instance.values())
        self._jitter.shuffle(instances)
        return instances

    async def _send_instance(
        self, events: list[StoredEvent], progress: _Progress, goes_on: Callable[[], bool]
    ) -> None:
        for event in events:
            if not goes_on():
                return
            try:
                async with asyncio.timeout(self._options.timeout_s):
                    await self._sink.deliver(message_of(event))
            except Exception as error:
                progress.failed.append((event, error))
                return
            progress.delivered.append(event)

    def _judged(self, claimed: ClaimedSlice, progress: _Progress, now: datetime) -> Round:
        failed = [
            self._failed(event, error, claimed, now, sink_works=bool(progress.delivered))
            for event, error in progress.failed
        ]
        if progress.delivered:
            return Round(delivered=progress.delivered, failed=failed)
        if not progress.seems_away:
            return Round(delivered=(), failed=failed, failures=claimed.failures)
        failures = claimed.failures + 1
        pause = timedelta(seconds=self._backed_off(failures, _LONGEST_PAUSE_S))
        return Round(delivered=(), failed=failed, failures=failures, pause=pause)

    def _failed(
        self,
        event: StoredEvent,
        error: Exception,
        claimed: ClaimedSlice,
        now: datetime,
        *,
        sink_works: bool,
    ) -> FailedEvent:
        """Judge a failure: only what the sink refuses for good, or fails at while it takes others, counts as a strike."""
        took_others_since = (
            event.failed_at is not None
            and claimed.delivered_at is not None
            and claimed.delivered_at > event.failed_at
        )
        counts = isinstance(error, RefusedError) or sink_works or took_others_since
        strikes = event.strikes + counts
        wait_s = self._backed_off(event.attempts + 1, _LONGEST_RETRY_S)
        is_dead = strikes >= self._options.most_strikes
        return FailedEvent(
            event=event,
            strikes=strikes,
            error=_in_words(error),
            retry_at=None if is_dead else now + timedelta(seconds=wait_s),
        )

    def _backed_off(self, failures: int, longest_s: float) -> float:
        """Return the wait after so many failures: from half a second on it doubles, with a quarter of jitter."""
        wait_s = min(longest_s, 0.25 * 2.0 ** min(failures, 20))
        return wait_s * (0.75 + 0.25 * self._jitter.random())


def _in_words(error: Exception) -> str:
    text = mask_credentials(f"{type(error).__name__}: {error}".rstrip(": "))
    return text if len(text) <= _LONGEST_ERROR else text[:_LONGEST_ERROR] + "…"
