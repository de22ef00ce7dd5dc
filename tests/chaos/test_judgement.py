"""A run that broke a promise is found out: late recoveries, untrue health, workers that left."""

import json
from pathlib import Path

import pytest

from tests.chaos.faults import Record
from tests.chaos.fleet import LOCK_S, Exit
from tests.chaos.outcome import Figures, Findings
from tests.chaos.probes import Lag, Outage, Sample, Wait, dead_answers, lags
from tests.chaos.recovery import (
    FAILOVER_S,
    TAKE_OVER_S,
    Election,
    Recovery,
    failovers,
    outages,
    take_overs,
)
from tests.chaos.schedule import Kind, Track
from tests.chaos.summary import add_up, markdown
from tests.chaos.verify_report import Report

VICTIM, HEIR = 11, 22
KILLED_AT = 100.0


def a_record(
    kind: Kind, *, began: float = KILLED_AT, ended: float = 101.0, **fields: object
) -> Record:
    track = Track.WORKER if "worker" in kind else Track.SERVER
    given = {"number": 1, "planned_s": 0.0, "hits": 1, **fields}
    return Record(kind=kind, track=track, began=began, ended=ended, **given)  # type: ignore[arg-type]


def a_log(folder: Path, *calls: tuple[float, int, str]) -> Path:
    lines = [{"key": "k", "at": at, "pid": pid, "phase": phase} for at, pid, phase in calls]
    path = folder / "effects.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture
def killed() -> Record:
    return a_record(Kind.WORKER_KILLED, pids=[VICTIM])


def test_a_task_of_a_killed_worker_counts_until_another_runs_it(
    tmp_path: Path, killed: Record
) -> None:
    log = a_log(tmp_path, (99.0, VICTIM, "start"), (107.5, HEIR, "start"), (107.6, HEIR, "end"))

    (found,) = take_overs([killed], log, [])

    assert (found.seconds, found.bound_s, found.is_late) == (7.5, TAKE_OVER_S, True)


def test_a_task_that_takes_its_turn_in_a_long_queue_is_not_late(
    tmp_path: Path, killed: Record
) -> None:
    log = a_log(tmp_path, (99.0, VICTIM, "start"), (107.5, HEIR, "start"))

    (found,) = take_overs([killed], log, [Wait(50.0, 99.0), Wait(KILLED_AT + LOCK_S, 2.0)])

    assert not found.is_late
    assert found.bound_s == TAKE_OVER_S + 2.0


def test_a_take_over_while_a_server_was_damaged_has_no_bound(
    tmp_path: Path, killed: Record
) -> None:
    log = a_log(tmp_path, (99.0, VICTIM, "start"), (150.0, HEIR, "start"))
    damage = a_record(Kind.PRIMARY_KILLED, number=2, began=102.0, ended=110.0)

    (found,) = take_overs([killed, damage], log, [])

    assert found.bound_s is None


@pytest.mark.parametrize(
    "calls",
    [
        [(99.0, VICTIM, "start"), (99.5, VICTIM, "raised"), (110.0, HEIR, "start")],
        [(99.0, VICTIM, "start"), (99.5, VICTIM, "end")],
        [(99.0, HEIR, "start"), (110.0, HEIR, "start")],
    ],
    ids=["failed on purpose", "committed", "held by another"],
)
def test_what_the_killed_worker_did_not_hold_is_not_taken_over(
    tmp_path: Path, killed: Record, calls: list[tuple[float, int, str]]
) -> None:
    assert take_overs([killed], a_log(tmp_path, *calls), []) == []


def test_work_that_goes_on_late_after_an_election_is_late() -> None:
    fault = a_record(Kind.PRIMARY_KILLED, ended=120.0)

    found = failovers([fault], [Election(105.0, FAILOVER_S + 0.1), Election(115.0, 0.2)])

    assert [each.is_late for each in found] == [True, False]


def test_an_election_that_another_follows_at_once_has_no_bound() -> None:
    fault = a_record(Kind.PRIMARY_KILLED, ended=120.0)

    found = failovers([fault], [Election(105.0, 9.0), Election(106.0, 8.0)])

    assert [each.bound_s for each in found] == [None, FAILOVER_S]


def test_an_outage_lasts_until_the_next_election() -> None:
    fault = a_record(Kind.ALL_DOWN, ended=150.0, away_from=KILLED_AT)
    later = a_record(Kind.NETWORK_HOLDS, number=2, began=160.0, ended=170.0)

    assert outages([fault, later], [Election(90.0, 0.0), Election(140.0, 0.0)]) == [
        Outage(100.0, 140.0, steady_until=160.0)
    ]


def test_a_primary_that_another_follows_soon_was_not_there_all_the_time() -> None:
    fault = a_record(Kind.PRIMARY_KILLED, ended=150.0, away_from=KILLED_AT)

    assert outages([fault], [Election(105.0, 0.0), Election(115.0, 0.0)]) == [
        Outage(100.0, 105.0, steady_until=105.0)
    ]


def test_a_primary_that_wakes_up_ends_the_outage_itself() -> None:
    fault = a_record(Kind.PRIMARY_FROZEN, ended=150.0, away_from=KILLED_AT, same_again=107.0)

    assert outages([fault], []) == [Outage(100.0, 107.0, steady_until=float("inf"))]


@pytest.mark.parametrize(
    ("answers", "down_s", "up_s"),
    [
        ([(99.0, 200), (101.5, 200), (102.1, 503), (110.5, 503), (111.0, 200)], 1.5, 0.5),
        ([(99.0, 200), (103.5, 200), (104.0, 503), (110.1, 200)], 3.5, 0.0),
        ([(99.0, 200), (101.0, 503), (113.0, 503), (113.2, 200)], 0.0, 3.0),
    ],
    ids=["true", "late to say away", "late to say back"],
)
def test_readiness_is_late_by_its_last_untrue_answer(
    answers: list[tuple[float, int]], down_s: float, up_s: float
) -> None:
    samples = [Sample(at, VICTIM, 200, ready) for at, ready in [*answers, (120.0, 200)]]

    assert lags(samples, [Outage(100.0, 110.0, steady_until=130.0)]) == [
        Lag(VICTIM, 100.0, down_s, up_s)
    ]


def test_only_a_worker_that_has_lived_can_be_dead() -> None:
    born = [Sample(1.0, VICTIM, 0, 0), Sample(2.0, VICTIM, 200, 200)]

    assert dead_answers(born) == []
    assert dead_answers([*born, Sample(3.0, VICTIM, 503, 503)]) == [Sample(3.0, VICTIM, 503, 503)]


def findings(**fields: object) -> Findings:
    report = Report(
        lost=(), doubled=(), stuck=(), other=(), tasks=10, instances=2,
        handler_calls=9, handler_repeats=1, incidents={},
    )  # fmt: skip
    empty: dict[str, object] = {
        name: []
        for name in (
            "records",
            "take_overs",
            "failovers",
            "samples",
            "lags",
            "deserters",
            "dead_answers",
        )
    }
    given = {"seed": 1, "command": "again", "seconds": 5.0, "report": report, **empty, **fields}
    return Findings(**given)  # type: ignore[arg-type]


def test_a_run_in_which_nothing_is_wrong_is_good() -> None:
    assert findings(records=[a_record(Kind.WORKER_KILLED)]).figures().is_good


@pytest.mark.parametrize(
    "fields",
    [
        {"take_overs": [Recovery(1, Kind.WORKER_KILLED, 9.0, 6.5)]},
        {"failovers": [Recovery(1, Kind.PRIMARY_KILLED, 5.1, 5.0)]},
        {"lags": [Lag(1, 0.0, 2.1, None)]},
        {"lags": [Lag(1, 0.0, None, 2.1)]},
        {"deserters": [Exit("worker-1", 1, 1)]},
        {"dead_answers": [Sample(1.0, 1, 503, 503)]},
        {"crashes": ["worker-1 logged an unexpected error"]},
        {"unfinished": ["instance 1"]},
        {"records": [a_record(Kind.WORKER_STOPPED_TWICE, broken="out after 9 s")]},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_each_broken_promise_makes_a_run_bad(fields: dict[str, object]) -> None:
    assert not findings(**fields).figures().is_good


def test_runs_are_added_up_and_the_worst_stays_the_worst(tmp_path: Path) -> None:
    one = findings(
        records=[a_record(Kind.WORKER_KILLED), a_record(Kind.ALL_DOWN)],
        take_overs=[Recovery(1, Kind.WORKER_KILLED, 4.0, 6.5)],
    )
    two = findings(
        seed=2,
        records=[a_record(Kind.WORKER_KILLED)],
        take_overs=[Recovery(1, Kind.WORKER_KILLED, 5.0, 6.5)],
    )
    one.figures().store(tmp_path)
    runs = [Figures.load(tmp_path), two.figures()]

    total = add_up(runs)

    assert runs[0] == one.figures()
    assert (total.tasks, total.seeds) == (20, (1, 2))
    assert total.faults == {Kind.WORKER_KILLED: 2, Kind.ALL_DOWN: 1}
    assert total.worst_s == {Kind.WORKER_KILLED: 5.0}
    assert "| worker killed, restarted under its name | 2 | 5.00 s | — |" in markdown(runs)
