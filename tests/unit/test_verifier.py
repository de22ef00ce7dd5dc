"""The external verifier finds every kind of violation, and nothing where there is none."""

import pytest

from tests.support.verifier import Expected, Facts, Row, calls, violations
from tests.support.workers import Effect

STARTED = {"done": Expected.of("PACK", "SHIP"), "waits": Expected.of("PACK", rests_at=["CONFIRM"])}
PROPER = Facts(
    running={"waits": {"PACK": 1}},
    ended={"done": {"PACK": 1, "SHIP": 1}},
    rows=(Row("row-1", "waits", "CONFIRM", "CREATED"),),
)


def a_call(key: str, node: str, instance: str, *, phases: str = "start end") -> list[Effect]:
    return [Effect(key, node, instance, 7, phase, 1.0) for phase in phases.split()]


LOG = [
    *a_call("key-1", "PACK", "done"),
    *a_call("key-2", "SHIP", "done"),
    *a_call("key-3", "PACK", "waits"),
]


def changed(
    *,
    running: dict[str, dict[str, float]] | None = None,
    ended: dict[str, dict[str, float]] | None = None,
    rows: tuple[Row, ...] | None = None,
) -> Facts:
    """Return the proper facts with some of them replaced."""
    return Facts(
        running=PROPER.running if running is None else running,
        ended=PROPER.ended if ended is None else ended,
        rows=PROPER.rows if rows is None else rows,
    )


def test_a_proper_run_has_no_violation() -> None:
    assert violations(LOG, PROPER, STARTED) == []


def test_a_step_that_was_tried_twice_under_one_key_is_no_violation() -> None:
    log = [*a_call("key-1", "PACK", "done", phases="start"), *LOG]

    assert violations(log, PROPER, STARTED) == []
    assert calls(log)["key-1"] == 2


@pytest.mark.parametrize(
    ("facts", "complaint"),
    [
        (changed(ended={}), "instance done is gone without a record"),
        (
            changed(
                ended={},
                running={**PROPER.running, "done": {"PACK": 1, "SHIP": 1}},
                rows=(*PROPER.rows, Row("row-2", "done", "SHIP", "PENDING")),
            ),
            "instance done has not ended",
        ),
        (
            changed(running={**PROPER.running, "done": {"PACK": 1, "SHIP": 1}}),
            "instance done runs and has ended at once",
        ),
        (
            changed(running={}, ended={**PROPER.ended, "waits": {"PACK": 1}}, rows=()),
            "instance waits has ended; it should rest at CONFIRM",
        ),
        (changed(ended={**PROPER.ended, "other": {}}), "instance other was never started"),
        (changed(rows=()), "instance waits runs without a task: its token is lost"),
        (
            changed(rows=(Row("row-1", "waits", "PACK", "PENDING"),)),
            "instance waits rests at PACK and not at CONFIRM",
        ),
        (
            changed(rows=(*PROPER.rows, Row("row-2", "waits", "CONFIRM", "LOCKED"))),
            "task row-2 at CONFIRM of waits is still locked",
        ),
        (
            changed(rows=(*PROPER.rows, Row("row-2", "done", "SHIP", "ARRIVED"))),
            "task row-2 at SHIP outlived its instance done",
        ),
        (
            changed(ended={"done": {"PACK": 1, "SHIP": 2}}),
            "SHIP of done was committed 2 times and not once",
        ),
        (changed(ended={"done": {"PACK": 1}}), "SHIP of done was committed 0 times and not once"),
        (
            changed(ended={"done": {"PACK": 1, "SHIP": 1, "BURN": 1}}),
            "BURN of done was committed and should not have run",
        ),
    ],
)
def test_what_is_stored_wrongly_is_found(facts: Facts, complaint: str) -> None:
    assert complaint in violations(LOG, facts, STARTED)


@pytest.mark.parametrize(
    ("log", "complaint"),
    [
        (
            [*LOG, *a_call("key-9", "SHIP", "done")],
            "SHIP of done ran under 2 idempotency keys",
        ),
        (
            [*LOG[:2], *a_call("key-2", "SHIP", "done", phases="start"), *LOG[4:]],
            "SHIP of done was committed and its handler never finished",
        ),
        (
            [*LOG, *a_call("key-8", "PACK", "stranger")],
            "PACK ran for stranger, which was never started",
        ),
        (
            [*LOG[:2], *a_call("key-1", "SHIP", "done"), *LOG[4:]],
            "idempotency key key-1 was given to 2 steps",
        ),
    ],
)
def test_what_handlers_should_not_have_done_is_found(log: list[Effect], complaint: str) -> None:
    assert complaint in violations(log, PROPER, STARTED)


def test_a_join_that_fired_twice_is_found_by_the_node_behind_it() -> None:
    started = {"fan": Expected.of("LEFT", "RIGHT", "AFTER")}
    log = [
        *a_call("key-1", "LEFT", "fan"),
        *a_call("key-2", "RIGHT", "fan"),
        *a_call("key-3", "AFTER", "fan"),
        *a_call("key-4", "AFTER", "fan"),
    ]
    facts = Facts(ended={"fan": {"LEFT": 1, "RIGHT": 1, "AFTER": 2}})

    assert violations(log, facts, started) == [
        "AFTER of fan was committed 2 times and not once",
        "AFTER of fan ran under 2 idempotency keys",
    ]
