"""What a process takes for the database's time (protocol R19)."""

from datetime import UTC, datetime, timedelta

import pytest

from kikwiflow_worker.store.mongo.server_time import ServerTime

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


class HandClock:
    """A clock that a test moves."""

    def __init__(self, now: datetime) -> None:
        self._start = now
        self._elapsed = 0.0

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self._elapsed)

    def monotonic(self) -> float:
        return 100.0 + self._elapsed

    async def sleep(self, seconds: float) -> None:
        self.pass_(seconds)

    def pass_(self, seconds: float) -> None:
        self._elapsed += seconds


@pytest.mark.parametrize("host_ahead_s", [-3600, -30, 0, 30, 3600])
def test_the_first_answer_replaces_the_host_s_clock(host_ahead_s: int) -> None:
    server_time = ServerTime(HandClock(NOON + timedelta(seconds=host_ahead_s)))

    server_time.learn(NOON)

    assert server_time.now() == NOON
    assert server_time.skew_s() == host_ahead_s


def test_time_goes_on_between_answers() -> None:
    clock = HandClock(NOON)
    server_time = ServerTime(clock)
    server_time.learn(NOON)

    clock.pass_(1.5)

    assert server_time.now() == NOON + timedelta(seconds=1.5)


def test_a_late_answer_does_not_turn_time_back() -> None:
    clock = HandClock(NOON)
    server_time = ServerTime(clock)
    server_time.learn(NOON)
    clock.pass_(10)

    server_time.learn(NOON + timedelta(seconds=9))

    assert server_time.now() == NOON + timedelta(seconds=10)


def test_an_answer_ahead_of_what_is_known_counts() -> None:
    server_time = ServerTime(HandClock(NOON))
    server_time.learn(NOON)

    server_time.learn(NOON + timedelta(seconds=5))

    assert server_time.now() == NOON + timedelta(seconds=5)


def test_a_server_s_clock_that_was_set_back_far_counts() -> None:
    server_time = ServerTime(HandClock(NOON))
    server_time.learn(NOON)

    server_time.learn(NOON - timedelta(minutes=10))

    assert server_time.now() == NOON - timedelta(minutes=10)


def test_time_is_to_the_millisecond() -> None:
    clock = HandClock(NOON)
    server_time = ServerTime(clock)
    server_time.learn(NOON)

    clock.pass_(0.0019)

    assert server_time.now().microsecond == 1000
