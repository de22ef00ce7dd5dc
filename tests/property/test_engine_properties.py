"""Whatever process is run, in whatever order, with whatever going wrong: no token is lost and none is doubled."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kikwiflow_worker.engine.validation import validate
from kikwiflow_worker.model.runtime import InstanceStatus, TaskStatus
from tests.support.random_process import ProcessBuilder, Sequence, processes
from tests.support.scheduler import Scheduler

SEEDS = st.integers(0, 2**32)
bounded = settings(
    max_examples=300,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def assert_all_went_right(process: ProcessBuilder, scheduler: Scheduler) -> None:
    ended = scheduler.store.ended
    assert ended is not None
    assert {name: len(keys) for name, keys in scheduler.keys.items()} == dict(process.expected)
    for node_id, (action, variable) in process.handlers.items():
        if action == "work":
            assert ended.variables.get(variable, 0) == process.expected[node_id]
    assert "token" not in ended.variables
    assert set(scheduler.store.fired.values()) <= {1}


@bounded
@given(processes())
def test_the_random_processes_are_accepted_at_a_deploy(blocks: Sequence) -> None:
    process = ProcessBuilder(blocks)

    found = validate(process.definition)

    assert [problem for problem in found if problem.is_error] == []


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
    while store.ended is None:
        assert store.waits
        assert store.instance is not None
        assert store.instance.status is InstanceStatus.ACTIVE
        for task in store.tasks.values():
            assert task.status is TaskStatus.AWAITING_BRANCHES
            assert task.pending_branch_ids
        scheduler.complete_a_wait()
        scheduler.work_until_it_rests()

    assert_all_went_right(process, scheduler)
