"""The in-memory harness for authors of handlers."""

import json
from datetime import timedelta

import pytest

from kikwiflow_worker.errors import OperationError
from kikwiflow_worker.handler import ExecutionContext, Fatal, task_handler
from kikwiflow_worker.model.runtime import IncidentType, TaskStatus
from kikwiflow_worker.testing import Harness
from tests.support.definitions import Json, a_file, a_node, a_start, a_task, an_end

RETRIES = {"strategy": "LINEAR", "maxRetries": 3, "intervals": ["PT10S"]}


@task_handler("weigh_parcel")
def weigh(ctx: ExecutionContext) -> dict[str, object]:
    return {"grams": 120}


def failing(times: int) -> object:
    calls: list[int] = []

    @task_handler("weigh_parcel")
    async def handler(ctx: ExecutionContext) -> None:
        calls.append(ctx.attempt)
        if len(calls) <= times:
            raise OSError("the scales are away")
        ctx.set("attempts", calls)

    return handler


def text(*nodes: Json) -> str:
    return json.dumps(a_file(*nodes))


async def test_an_instance_runs_to_its_end() -> None:
    async with Harness(handlers=[weigh]) as harness:
        await harness.deploy(text())
        started = await harness.start("parcel", "P-1")
        runs = await harness.run()
        instance = await harness.instance(started.id)

    assert (runs, instance.status, instance.variables) == (1, "COMPLETED", {"grams": 120})


async def test_a_retry_waits_for_its_time() -> None:
    async with Harness(handlers=[failing(1)]) as harness:  # type: ignore[list-item]
        await harness.deploy(text(a_start(), a_task("TASK", "END", retryPolicy=RETRIES), an_end()))
        started = await harness.start("parcel", "P-1")
        await harness.run()
        early = await harness.instance(started.id)
        await harness.advance(timedelta(seconds=10))
        late = await harness.instance(started.id)

    assert early.status == "ACTIVE"
    assert (late.status, late.variables) == ("COMPLETED", {"attempts": [1, 2]})


async def test_a_failure_for_good_is_an_incident_that_can_be_retried() -> None:
    should_fail = [True]

    @task_handler("weigh_parcel")
    def handler(ctx: ExecutionContext) -> None:
        if should_fail[0]:
            raise Fatal("no scales")

    async with Harness(handlers=[handler]) as harness:
        await harness.deploy(text())
        started = await harness.start("parcel", "P-1")
        await harness.run()
        (incident,) = await harness.incidents()
        (task,) = await harness.tasks()
        should_fail[0] = False
        await harness.client.retry_incident(incident.id)
        await harness.run()
        instance = await harness.instance(started.id)

    assert (incident.type, incident.message) == (IncidentType.FAILED_JOB, "Fatal: no scales")
    assert task.status is TaskStatus.ERROR
    assert instance.status == "COMPLETED"


async def test_a_person_and_a_timer_are_waited_for() -> None:
    file = text(
        a_start("WAIT"),
        a_node("WAIT", "TIMER_TASK", "SIGN", providerType="STATIC", staticValue="PT48H"),
        a_node("SIGN", "EXTERNAL_TASK", "END"),
        an_end(),
    )
    async with Harness() as harness:
        await harness.deploy(file)
        started = await harness.start("parcel", "P-1")
        too_early = await harness.advance(timedelta(hours=47))
        in_time = await harness.advance(timedelta(hours=1))
        ended = await harness.complete("SIGN", {"signed": True})

    assert (too_early, in_time) == (0, 1)
    assert (ended.id, ended.status, ended.variables) == (started.id, "COMPLETED", {"signed": True})


async def test_completing_what_nobody_waits_for_says_where_instances_wait() -> None:
    file = text(a_start("SIGN"), a_node("SIGN", "EXTERNAL_TASK", "END"), an_end())
    async with Harness() as harness:
        await harness.deploy(file)
        await harness.start("parcel", "P-1")

        with pytest.raises(OperationError, match="instances wait at: SIGN"):
            await harness.complete("PAY")


async def test_branches_meet() -> None:
    file = text(
        a_start("SPLIT"),
        a_node("SPLIT", "PARALLEL_GATEWAY", "LEFT", "RIGHT", targetJoinId="JOIN"),
        a_task("LEFT", "JOIN"),
        a_node("RIGHT", "EXTERNAL_TASK", "JOIN"),
        a_node("JOIN", "JOIN_GATEWAY", "END"),
        an_end(),
    )
    async with Harness(handlers=[weigh]) as harness:
        await harness.deploy(file)
        started = await harness.start("parcel", "P-1")
        await harness.run()
        one_side = await harness.instance(started.id)
        await harness.complete("RIGHT")
        await harness.run()
        both_sides = await harness.instance(started.id)
        left_over = await harness.tasks()

    assert (one_side.status, both_sides.status, left_over) == ("ACTIVE", "COMPLETED", ())


async def test_a_retry_is_counted_from_the_end_of_a_long_handler() -> None:
    async with Harness() as harness:

        @task_handler("weigh_parcel")
        async def slow(ctx: ExecutionContext) -> None:
            harness.clock.advance(timedelta(minutes=5))
            raise OSError("the scales are away")

        harness.use([slow])
        await harness.deploy(text(a_start(), a_task("TASK", "END", retryPolicy=RETRIES), an_end()))
        await harness.start("parcel", "P-1")
        await harness.run_next()
        (task,) = await harness.tasks()

    assert task.due_at == harness.clock.now() + timedelta(seconds=10)


async def test_an_incident_is_resolved_with_another_variable() -> None:
    @task_handler("weigh_parcel")
    def handler(ctx: ExecutionContext) -> None:
        if ctx["scales"] == "broken":
            raise Fatal("no scales")

    async with Harness(handlers=[handler]) as harness:
        await harness.deploy(text())
        started = await harness.start("parcel", "P-1", variables={"scales": "broken"})
        await harness.run()
        (incident,) = await harness.incidents()
        await harness.client.retry_incident(incident.id, variables={"scales": "new"})
        await harness.run()
        instance = await harness.instance(started.id)

    assert (instance.status, instance.variables) == ("COMPLETED", {"scales": "new"})


async def test_a_step_that_nobody_needs_is_skipped() -> None:
    calls: list[int] = []

    @task_handler("weigh_parcel")
    def handler(ctx: ExecutionContext) -> None:
        calls.append(ctx.attempt)
        raise Fatal("no scales")

    async with Harness(handlers=[handler]) as harness:
        await harness.deploy(text())
        started = await harness.start("parcel", "P-1")
        await harness.run()
        (incident,) = await harness.incidents()
        resolved = await harness.client.retry_incident(incident.id, skip=True, resolved_by="ana")
        await harness.run()
        instance = await harness.instance(started.id)

    assert (calls, instance.status, resolved.resolved_by) == ([1], "COMPLETED", "ana")
