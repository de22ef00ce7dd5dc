"""The record of claims shared with the renewal thread."""

from contextlib import suppress
from datetime import UTC, datetime

import pytest

from kikwiflow_worker.acquirer.claim_book import ClaimBook
from kikwiflow_worker.errors import StoreUnavailableError
from kikwiflow_worker.model.runtime import Claim, ClaimedTask, ExecutableTask, TaskType

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def a_claimed_task(
    task_id: str = "t", *, epoch: int = 1, locked_until: float = 30.0
) -> ClaimedTask:
    task = ExecutableTask(
        id=task_id,
        type=TaskType.STANDARD,
        node_id="N",
        instance_id="i",
        definition_id="d",
        created_at=NOON,
    )
    return ClaimedTask(
        task=task,
        claim=Claim(task_id, "w", epoch),
        instance=None,
        claimed_at=NOON,
        locked_until=locked_until,
    )


def test_a_claim_is_known_while_it_is_held() -> None:
    book, claimed = ClaimBook(), a_claimed_task()

    book.hold(claimed, lambda: None)
    while_held = book.known_ids(), book.holds("t")
    book.let_go(claimed.claim)

    assert while_held == ({"t"}, True)
    assert book.known_ids() == frozenset()


def test_letting_go_of_an_older_claim_keeps_the_newer_one() -> None:
    book, older, newer = ClaimBook(), a_claimed_task(epoch=1), a_claimed_task(epoch=2)

    book.hold(older, lambda: None)
    book.hold(newer, lambda: None)
    book.let_go(older.claim)

    assert book.is_locked(newer.claim, 1.0)


def test_what_a_commit_under_way_may_bear_is_known_and_not_renewed() -> None:
    book = ClaimBook()

    with book.committing([], births=["heir"]):
        during = book.known_ids(), book.to_renew(29.0, lock_s=30)

    assert during == ({"heir"}, ())
    assert book.known_ids() == frozenset()


def test_two_commits_under_way_do_not_forget_each_others_births() -> None:
    book = ClaimBook()

    with book.committing([], births=["one"]):
        with book.committing([], births=["other"]):
            during = book.known_ids()
        after = book.known_ids()

    assert during == {"one", "other"}
    assert after == {"one"}


def test_a_claim_under_commit_is_left_out_of_renewals() -> None:
    book, claimed = ClaimBook(), a_claimed_task()

    book.hold(claimed, lambda: None)
    with suppress(StoreUnavailableError), book.committing([claimed.claim]):
        during = book.to_renew(0.0, lock_s=30)
        raise StoreUnavailableError("away")
    after = book.to_renew(0.0, lock_s=30)

    assert during == ()
    assert after == (claimed.claim,)


def test_a_claim_under_commit_is_renewed_when_less_than_a_third_of_its_lock_is_left() -> None:
    book, claimed = ClaimBook(), a_claimed_task(locked_until=30.0)

    book.hold(claimed, lambda: None)
    with book.committing([claimed.claim]):
        assert book.to_renew(19.0, lock_s=30) == ()
        assert book.to_renew(21.0, lock_s=30) == (claimed.claim,)


def test_the_owner_of_a_lost_claim_is_told_and_others_are_renewed() -> None:
    book, lost, kept = ClaimBook(), a_claimed_task("a"), a_claimed_task("b")
    told: list[str] = []

    book.hold(lost, lambda: told.append("a"))
    book.hold(kept, lambda: told.append("b"))
    claims = book.to_renew(0.0, lock_s=30)
    book.renewed(claims, locked_until=50.0, lost=frozenset([lost.claim]))

    assert told == ["a"]
    assert book.is_locked(kept.claim, 45.0)
    assert not book.is_locked(lost.claim, 45.0)


def test_a_claim_that_seems_lost_while_it_is_committed_is_not_reported() -> None:
    book, claimed = ClaimBook(), a_claimed_task()
    told: list[str] = []

    book.hold(claimed, lambda: told.append("t"))
    claims = book.to_renew(0.0, lock_s=30)
    with book.committing([claimed.claim]):
        book.renewed(claims, locked_until=50.0, lost=frozenset([claimed.claim]))

    assert told == []


def test_a_claim_that_seems_lost_after_its_commit_is_not_reported() -> None:
    book, claimed = ClaimBook(), a_claimed_task()

    book.hold(claimed, lambda: pytest.fail("it is not lost"))
    claims = book.to_renew(0.0, lock_s=30)
    with book.committing([claimed.claim]) as ended:
        ended.add(claimed.claim)
    lost = book.renewed(claims, locked_until=50.0, lost=frozenset([claimed.claim]))

    assert lost == ()


def test_a_claim_whose_commit_failed_can_be_lost() -> None:
    book, claimed = ClaimBook(), a_claimed_task()

    book.hold(claimed, lambda: None)
    with suppress(StoreUnavailableError), book.committing([claimed.claim]):
        raise StoreUnavailableError("away")
    claims = book.to_renew(0.0, lock_s=30)
    lost = book.renewed(claims, locked_until=50.0, lost=frozenset([claimed.claim]))

    assert lost == (claimed.claim,)


@pytest.mark.parametrize(("now", "locked"), [(29.9, True), (30.0, False)])
def test_a_lock_lapses_by_the_monotonic_clock(now: float, locked: bool) -> None:
    book, claimed = ClaimBook(), a_claimed_task(locked_until=30.0)

    book.hold(claimed, lambda: None)
    assert book.is_locked(claimed.claim, now) is locked


def test_a_newer_claim_of_the_same_task_does_not_renew_the_older_one() -> None:
    book, older = ClaimBook(), a_claimed_task(epoch=1)
    newer = Claim("t", "w", 2)

    book.hold(older, lambda: None)
    book.renewed((newer,), locked_until=99.0, lost=frozenset())

    assert not book.is_locked(older.claim, 31.0)
    assert not book.is_locked(newer, 1.0)
