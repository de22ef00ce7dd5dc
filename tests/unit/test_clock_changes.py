"""When a recurring timer fires whose zone changes its clocks."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kikwiflow_worker.engine.schedules import (
    Occurrence,
    first_occurrence,
)
from tests.support.schedules import BERLIN, at, cron, cycles, local_cycles

FALL_BACK = "2026-10-24T12:00:00"  # the clocks repeat 02:00 to 03:00 on the 25th
SPRING_FORWARD = "2026-03-28T12:00:00"  # the clocks leave out 02:00 to 03:00 on the 29th
LORD_HOWE = "Australia/Lord_Howe"  # half an hour


@pytest.mark.field_case("S-57", "S-62", "S-63")
@pytest.mark.parametrize(
    ("expression", "zone", "since", "expected"),
    [
        pytest.param(
            "30 2 * * *",
            BERLIN,
            FALL_BACK,
            ["25 02:30:00 +0200", "26 02:30:00 +0100"],
            id="a repeated time fires the first time only",
        ),
        pytest.param(
            "0,30 1-3 * * *",
            BERLIN,
            FALL_BACK,
            [
                "25 01:00:00 +0200",
                "25 01:30:00 +0200",
                "25 02:00:00 +0200",
                "25 02:30:00 +0200",
                "25 03:00:00 +0100",
                "25 03:30:00 +0100",
                "26 01:00:00 +0100",
            ],
            id="times of the day around a repeated hour",
        ),
        pytest.param(
            "30 * * * *",
            BERLIN,
            "2026-10-25T01:00:00",
            ["25 01:30:00 +0200", "25 02:30:00 +0200", "25 02:30:00 +0100", "25 03:30:00 +0100"],
            id="every hour fires in the repeated hour as well",
        ),
        pytest.param(
            "*/15 * * * *",
            BERLIN,
            "2026-10-25T02:30:00",
            ["25 02:45:00 +0200", "25 02:00:00 +0100", "25 02:15:00 +0100"],
            id="every 15 minutes goes on when the clocks go back",
        ),
        pytest.param(
            "*/20 * 25 10 *",
            BERLIN,
            "2026-10-25T02:40:00",
            ["25 02:00:00 +0100", "25 02:20:00 +0100"],
            id="every hour of one day",
        ),
        pytest.param(
            "30 2 * * *",
            BERLIN,
            SPRING_FORWARD,
            ["29 03:00:00 +0200", "30 02:30:00 +0200"],
            id="a time left out fires when the clocks change",
        ),
        pytest.param(
            "*/15 2 * * *",
            BERLIN,
            SPRING_FORWARD,
            ["29 03:00:00 +0200", "30 02:00:00 +0200"],
            id="several times left out fire once",
        ),
        pytest.param(
            "0 2,3 * * *",
            BERLIN,
            SPRING_FORWARD,
            ["29 03:00:00 +0200", "30 02:00:00 +0200", "30 03:00:00 +0200"],
            id="a time left out and the one it falls on fire once",
        ),
        pytest.param(
            "*/15 * * * *",
            BERLIN,
            "2026-03-29T01:30:00",
            ["29 01:45:00 +0100", "29 03:00:00 +0200", "29 03:15:00 +0200"],
            id="every 15 minutes goes on when the clocks go forward",
        ),
        pytest.param(
            "30 * * * *",
            BERLIN,
            "2026-03-29T01:00:00",
            ["29 01:30:00 +0100", "29 03:30:00 +0200"],
            id="every hour fires an hour later when the clocks go forward",
        ),
        pytest.param(
            "0 0 * * *",
            "America/Sao_Paulo",
            "2018-11-03T12:00:00",
            ["04 01:00:00 -0200", "05 00:00:00 -0200"],
            id="a midnight that does not exist",
        ),
        pytest.param(
            "0 0 4 11 *",
            "America/Sao_Paulo",
            "2018-11-03T12:00:00",
            ["04 01:00:00 -0200", "04 00:00:00 -0300"],
            id="a midnight that does not exist, once a year",
        ),
        pytest.param(
            "45 1 * * *",
            LORD_HOWE,
            "2026-04-04T12:00:00",
            ["05 01:45:00 +1100", "06 01:45:00 +1030"],
            id="half an hour repeated",
        ),
        pytest.param(
            "*/15 * * * *",
            LORD_HOWE,
            "2026-04-05T01:30:00",
            ["05 01:45:00 +1100", "05 01:30:00 +1030", "05 01:45:00 +1030", "05 02:00:00 +1030"],
            id="every 15 minutes when half an hour is repeated",
        ),
        pytest.param(
            "15 2 * * *",
            LORD_HOWE,
            "2026-10-03T12:00:00",
            ["04 02:30:00 +1100", "05 02:15:00 +1100"],
            id="half an hour left out",
        ),
        pytest.param(
            "0 9 30 12 *",
            "Pacific/Apia",
            "2011-12-01T00:00:00",
            ["31 00:00:00 +1400", "30 09:00:00 +1400"],
            id="a whole day left out",
        ),
        pytest.param(
            "59 59 2 * * *",
            BERLIN,
            FALL_BACK,
            ["25 02:59:59 +0200", "26 02:59:59 +0100"],
            id="the last second before the clocks go back",
        ),
    ],
)
def test_the_change_of_the_clocks(
    expression: str, zone: str, since: str, expected: Sequence[str]
) -> None:
    assert local_cycles(expression, zone, since, len(expected)) == expected


@pytest.mark.parametrize("expression", ["30 2 * * *", "*/10 2 * * *", "* * 2 * * *"])
def test_counted_from_within_the_repeated_hour_times_of_the_day_wait_for_the_next_day(
    expression: str,
) -> None:
    second_pass = at("2026-10-25T02:20:00+01:00")

    cycle = first_occurrence(cron(expression, BERLIN), now=second_pass)

    assert cycle is not None
    assert cycle.due_at.astimezone(ZoneInfo(BERLIN)).day == 26


def test_counted_from_within_the_repeated_hour_the_time_at_its_end_is_still_to_come() -> None:
    second_pass = at("2026-10-25T02:20:00+01:00")

    cycle = first_occurrence(cron("0 3 * * *", BERLIN), now=second_pass)

    assert cycle == Occurrence(at("2026-10-25T03:00:00+01:00"), 1)


@pytest.mark.parametrize(
    ("zone", "since"),
    [
        (BERLIN, "2026-10-24T12:00:00Z"),
        (BERLIN, "2026-03-28T12:00:00Z"),
        ("America/Sao_Paulo", "2018-11-03T12:00:00Z"),
        ("America/Sao_Paulo", "2018-02-17T12:00:00Z"),
        (LORD_HOWE, "2026-04-04T03:00:00Z"),
        (LORD_HOWE, "2026-10-03T03:00:00Z"),
        ("Asia/Kathmandu", "2026-10-03T03:00:00Z"),
    ],
)
def test_every_15_minutes_is_every_15_minutes_whatever_the_clocks_do(zone: str, since: str) -> None:
    dues = list(islice(cycles(cron("*/15 * * * *", zone), since=at(since)), 160))

    assert {later - earlier for earlier, later in pairwise(dues)} == {timedelta(minutes=15)}


@pytest.mark.parametrize("zone", [BERLIN, "America/Sao_Paulo", LORD_HOWE])
@pytest.mark.parametrize("time", ["0 0", "45 1", "15 2", "30 2", "0 3"])
def test_a_time_of_the_day_fires_on_every_day_once(zone: str, time: str) -> None:
    dues = list(islice(cycles(cron(f"{time} * * *", zone), since=at("2018-01-01T12:00:00Z")), 400))

    days = [due.astimezone(ZoneInfo(zone)).date() for due in dues]
    assert [later - earlier for earlier, later in pairwise(days)] == [timedelta(days=1)] * 399


FIELD = st.one_of(st.just("*"), st.sampled_from(["*/2", "*/7", "0", "1,2"]))
EXPRESSIONS = st.one_of(
    st.builds(
        lambda minute, hour, day, weekday: f"{minute} {hour} {day} * {weekday}",
        st.one_of(FIELD, st.integers(0, 59).map(str)),
        st.one_of(FIELD, st.integers(0, 23).map(str)),
        st.sampled_from(["*", "1", "25-31", "L"]),
        st.sampled_from(["*", "SUN", "0-3"]),
    ),
    st.builds(lambda second, hour: f"{second} * {hour} * * *", FIELD, FIELD),
    st.sampled_from(["0 0 29 2 *", "* * 29 3 *", "0 30 2 L * ?"]),
)
ZONES = st.sampled_from(
    ["UTC", BERLIN, "America/Sao_Paulo", LORD_HOWE, "Pacific/Apia", "Africa/Casablanca"]
)
# The hours around the changes of the clocks, where a mistake would be.
INSTANTS = st.builds(
    lambda start, offset: start + timedelta(seconds=offset),
    st.sampled_from(
        [
            at("2026-10-25T01:00:00Z"),
            at("2026-03-29T01:00:00Z"),
            at("2018-11-04T03:00:00Z"),
            at("2018-02-18T02:00:00Z"),
            at("2026-04-04T15:00:00Z"),
            at("2026-10-03T15:30:00Z"),
            at("2011-12-30T10:00:00Z"),
            at("2024-02-29T00:00:00Z"),
        ]
    ),
    st.floats(-90_000, 90_000),
)


@pytest.mark.field_case("S-62")
@settings(max_examples=150, deadline=2000)
@given(expression=EXPRESSIONS, zone=ZONES, since=INSTANTS)
def test_cycles_strictly_increase(expression: str, zone: str, since: datetime) -> None:
    dues = list(islice(cycles(cron(expression, zone), since=since), 12))

    assert all(earlier < later for earlier, later in pairwise([since, *dues]))


@settings(max_examples=100, deadline=2000)
@given(minutes=st.sets(st.integers(0, 59), min_size=1, max_size=4), zone=ZONES, since=INSTANTS)
def test_every_hour_fires_at_each_instant_whose_local_minute_fits(
    minutes: set[int], zone: str, since: datetime
) -> None:
    node = cron(f"{','.join(map(str, minutes))} * * * *", zone)
    minute = since.replace(second=0, microsecond=0) + timedelta(minutes=1)
    while minute.astimezone(ZoneInfo(zone)).minute not in minutes:
        minute += timedelta(minutes=1)

    assert first_occurrence(node, now=since) == Occurrence(minute, 1)


@settings(max_examples=100, deadline=2000)
@given(
    expression=EXPRESSIONS,
    zone=ZONES,
    since=INSTANTS,
    later=st.floats(0, 90_000).map(lambda seconds: timedelta(seconds=seconds)),
)
def test_the_next_cycle_does_not_depend_on_where_one_looks_from(
    expression: str, zone: str, since: datetime, later: timedelta
) -> None:
    node = cron(expression, zone)
    first = first_occurrence(node, now=since)
    assert first is not None

    seen = first_occurrence(node, now=min(since + later, first.due_at - timedelta(microseconds=1)))

    assert seen == first
