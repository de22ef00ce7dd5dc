"""A seed says which faults come when, and nothing else does."""

import random
from itertools import pairwise

import pytest

from tests.chaos.executor import ACTIONS
from tests.chaos.schedule import RULES, SHARES, Kind, Track, plan


def test_the_same_seed_gives_the_same_schedule_whatever_else_draws_numbers() -> None:
    first = plan(7, faults=300, seconds=600)
    random.seed(1)

    assert plan(7, faults=300, seconds=600) == first
    assert plan(8, faults=300, seconds=600) != first


@pytest.mark.parametrize("faults", [0, 1, 7, 40, 340])
def test_there_are_as_many_faults_as_asked_for_in_order_and_within_the_time(faults: int) -> None:
    found = plan(3, faults=faults, seconds=60)

    assert [fault.number for fault in found] == list(range(1, faults + 1))
    assert all(0 <= fault.at_s <= 60 for fault in found)
    assert all(a.at_s <= b.at_s for a, b in pairwise(found))


def test_each_fault_lasts_as_long_as_its_rule_allows() -> None:
    for fault in plan(5, faults=2_000, seconds=60):
        rule = RULES[fault.kind]
        assert rule.shortest_s <= fault.lasts_s <= rule.longest_s
        assert fault.times >= 1


def test_every_kind_of_a_track_comes_before_one_comes_again() -> None:
    found = plan(11, faults=340, seconds=600)

    assert {fault.kind for fault in found} == set(Kind)
    for track in Track:
        mine = [fault.kind for fault in found if fault.track is track]
        kinds = {kind for kind, rule in RULES.items() if rule.track is track}
        assert set(mine[: len(kinds)]) == kinds


def test_the_tracks_have_their_shares() -> None:
    found = plan(2, faults=1_000, seconds=600)

    for track, share in SHARES.items():
        count = sum(fault.track is track for fault in found)
        assert count == pytest.approx(1_000 * share, abs=1)


def test_every_kind_is_planned_by_a_rule_and_done_by_an_action() -> None:
    assert set(RULES) == set(Kind)
    assert set(ACTIONS) == set(Kind)
