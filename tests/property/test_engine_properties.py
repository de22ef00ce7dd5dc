"""Whatever process is run, in whatever order, with whatever going wrong: no token is lost and none is doubled.

``KIKWIFLOW_TEST_DEEP=1`` runs them by the thousand.
"""

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kikwiflow_worker.engine.validation import validate
from kikwiflow_worker.model.runtime import TaskStatus
from tests.support.engine import INSTANCE_ID
from tests.support.process_builder import ROOT, ProcessBuilder
from tests.support.random_process import Sequence, processes
from tests.support.scheduler import Scheduler
from tests.support.token_flow import Ledger

DEEP = os.environ.get("KIKWIFLOW_TEST_DEEP") == "1"
pytestmark = [pytest.mark.deep, pytest.mark.timeout(3600)] if DEEP else []

SEEDS = st.integers(0, 2**32)
bounded = settings(
    max_examples=20_000 if DEEP else 300,
    deadline=None,
    derandomize=not DEEP,
    database=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)


def assert_all_went_right(process: ProcessBuilder, scheduler: Scheduler) -> None:
    """The instance has ended, and every node was passed as often as its tokens say."""
    store = scheduler.store
    assert not store.instances
    assert not store.tasks
    assert not store.waits
    assert INSTANCE_ID in store.ended
    seen = scheduler.seen()
    ledger = Ledger(seen, scheduler.ended())
    ledger.follow(process.flow, 1)
    assert ledger.wrong == []
    assert {n: c for n, c in seen.items() if c} == {n: c for n, c in ledger.expected.items() if c}
    assert scheduler.stray_keys() == []
    assert_variables_were_counted(process, scheduler)


def assert_variables_were_counted(process: ProcessBuilder, scheduler: Scheduler) -> None:
    """What handlers did to variables is in the instance that they ran in, and transient variables are nowhere."""
    seen = scheduler.seen()
    for node_id, (action, variable) in process.handlers.items():
        home = {k for k, d in process.definitions.items() if node_id in d.flow_nodes}
        counted = sum(
            int(str(instance.variables.get(variable, 0)))
            for instance in scheduler.store.ended.values()
            if instance.definition_key in home
        )
        assert action != "work" or counted == seen[node_id]
    for instance in scheduler.store.ended.values():
        assert "token" not in instance.variables


@bounded
@given(processes())
def test_the_random_processes_are_accepted_at_a_deploy(blocks: Sequence) -> None:
    process = ProcessBuilder(blocks)

    found = [p for definition in process.definitions.values() for p in validate(definition)]

    assert [problem for problem in found if problem.is_error] == []


@pytest.mark.field_case("S-68", "S-70")
@bounded
@given(processes(), SEEDS)
def test_a_process_ends_once_and_every_step_of_it_is_done_once(blocks: Sequence, seed: int) -> None:
    process = ProcessBuilder(blocks)
    scheduler = Scheduler(process, seed)

    scheduler.start()
    scheduler.work_until_it_ends()

    assert_all_went_right(process, scheduler)


@bounded
@given(processes(), SEEDS)
def test_a_process_that_nobody_completes_rests_on_its_waits_alone(
    blocks: Sequence, seed: int
) -> None:
    process = ProcessBuilder(blocks)
    scheduler = Scheduler(process, seed)
    store = scheduler.store

    scheduler.start()
    scheduler.work_until_it_rests()
    while store.instances:
        assert scheduler.completable()
        assert ROOT in {instance.definition_key for instance in store.instances.values()}
        for task in store.tasks.values():
            resting = {TaskStatus.AWAITING_BRANCHES, TaskStatus.STARTED}
            assert task.status in resting or scheduler.is_blocked(task)
        scheduler.complete_a_wait()
        scheduler.work_until_it_rests()

    assert_all_went_right(process, scheduler)
