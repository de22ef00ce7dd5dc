"""What the Java engine's own tests prove, on a real database: its fixtures, and ours of the same shape.

"Execute a row" is what those tests do and no worker would: claim that very row, due or not, and run it.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kikwiflow_worker.client import Kikwiflow
from kikwiflow_worker.clock import SystemClock
from kikwiflow_worker.handler import (
    EvaluationContext,
    ExecutionContext,
    answer_provider,
    task_handler,
)
from kikwiflow_worker.model.runtime import (
    ExecutableTask,
    ExternalTask,
    IncidentStatus,
    IncidentType,
    InstanceStatus,
    ProcessInstance,
    TaskStatus,
    TaskType,
)
from kikwiflow_worker.operations.execution import Outcome, OutcomeKind, execute_task
from kikwiflow_worker.store.mongo.store import MongoStore
from kikwiflow_worker.store.protocol import ExternalTaskQuery, IncidentQuery, TaskQuery
from kikwiflow_worker.worker.handlers import HandlerRuntime
from kikwiflow_worker.worker.registry import registry_of
from tests.support.conformance import fixture_path
from tests.support.definitions import PROCESS_FOLDER
from tests.support.mongo import MongoServer

LOCK = timedelta(seconds=60)
TENANT = "tenant-a"


@dataclass(frozen=True, slots=True)
class Case:
    """A definition and what its nodes, handlers and variables are called, by the part they play."""

    path: Path
    names: Mapping[str, str] = field(default_factory=dict)

    def __getitem__(self, part: str) -> str:
        return self.names[part]

    @property
    def key(self) -> str:
        return self.path.stem


def java(key: str, **names: str) -> object:
    """Return a fixture of the Java engine, to be skipped where the folder does not exist."""
    path = fixture_path(key)
    reason = "9 conformance fixtures of the Java engine not found in ../shared/conformance"
    return pytest.param(
        Case(path, names), id=key, marks=pytest.mark.skipif(not path.exists(), reason=reason)
    )


def own(key: str, **names: str) -> object:
    """Return one of our own process files."""
    return pytest.param(Case(PROCESS_FOLDER / f"{key}.kikwi", names), id=key)


EXECUTABLE = [
    java("executable-task-flow", handler="calculateRisk"),
    own("own-executable-task", handler="weigh_parcel"),
]
EXTERNAL = [
    java("external-task-wait", wait="WAIT_FOR_INPUT"),
    own("own-external-task", wait="CONFIRM"),
]
GATEWAY = [
    java(
        "exclusive-gateway-decision", task="calculateRisk", provider="riskStrategy",
        one="APROVADO", one_handler="notifyApproved", other="FRAUDE", other_handler="notifyFraud",
    ),
    own(
        "own-gateway-bean", task="weigh_parcel", provider="carrier_choice",
        one="ROAD", one_handler="book_road", other="AIR", other_handler="book_air",
    ),
]  # fmt: skip
COMMIT_AFTER = [
    java("commit-after-forces-async", first="taskAHandler", second="taskBHandler", node="TASK_B"),
    own("own-commit-after", first="weigh_parcel", second="print_label", node="LABEL"),
]
PARALLEL = [
    java(
        "parallel-gateway-fan-out-join", fast="FAST_TASK", slow="SLOW_TASK", join="JOIN_SYNC",
        fast_handler="fastBranchHandler", slow_handler="slowBranchHandler", after="afterJoinHandler",
    ),
    own(
        "own-parallel-join", fast="LABEL", slow="NOTIFY", join="JOIN",
        fast_handler="print_label", slow_handler="notify_receiver", after="load_parcel",
    ),
]  # fmt: skip
RETRYABLE = [
    java("retryable-executable-task-flow", handler="calculateRisk", node="CALCULATE_RISK_TASK"),
    own("own-retryable-task", handler="weigh_parcel", node="WEIGH"),
]
TIMER = [
    java("timer-task-static", timer="WAIT_SLA", after="AFTER_TIMER"),
    own("own-timer-static", timer="WAIT", after="CONFIRM"),
]
VARIABLE_TIMER = [
    java("timer-task-variable", timer="WAIT_SLA", variable="slaDuration"),
    own("own-timer-variable", timer="WAIT", variable="pickup_time"),
]
COMMIT_BEFORE = [
    java("call-activity-child-process", handler="childTaskHandler", node="CHILD_TASK"),
    own("own-retryable-task", handler="weigh_parcel", node="WEIGH"),
]


class Engine:
    """A client whose handlers record what ran, and a way to run one chosen row."""

    def __init__(self, store: MongoStore) -> None:
        self._store = store
        self.ran: list[str] = []
        self.failures_left = 0
        self.answer = ""
        self._open: list[Kikwiflow | HandlerRuntime] = []

    async def with_handlers(
        self, case: Case, *names: str, provider: str | None = None, **variables: object
    ) -> Kikwiflow:
        """Deploy the case and return a client whose handlers ``names`` set ``variables``."""
        handlers: list[Callable[..., object]] = [self._handler(name, variables) for name in names]
        if provider is not None:
            handlers.append(self._provider(provider))
        client = Kikwiflow(self._store, handlers=handlers)
        self.runtime = HandlerRuntime(registry_of(handlers), threads=1)
        self._open += [client, self.runtime]
        await client.deploy(case.path)
        return client

    async def execute(self, client: Kikwiflow, task: ExecutableTask) -> Outcome:
        """Claim a row, due or not, and run it."""
        claimed = await self._store.queue.claim(task.id, worker_id="worker-1", lock=LOCK)
        assert claimed is not None
        services = client.services
        return await execute_task(
            services, self.runtime.invoker(), claimed, services.runtime.commit
        )

    async def is_stored(self, instance: ProcessInstance) -> bool:
        """Return whether the instance runs."""
        return await self._store.runtime.find_instance(instance.id) is not None

    def close(self) -> None:
        for each in self._open:
            each.close()

    def _handler(self, name: str, variables: Mapping[str, object]) -> Callable[..., object]:
        @task_handler(name)
        async def record(context: ExecutionContext) -> Mapping[str, object]:
            self.ran.append(name)
            if self.failures_left:
                self.failures_left -= 1
                raise ConnectionError("no connection")
            return variables

        return record

    def _provider(self, name: str) -> Callable[..., object]:
        @answer_provider(name)
        async def answer(context: EvaluationContext) -> str:
            return self.answer

        return answer


@pytest.fixture
async def engine(mongo_server: MongoServer, database_name: str) -> AsyncIterator[Engine]:
    """Return an engine on the database of this test."""
    store = MongoStore.open(mongo_server.uri, database_name, clock=SystemClock())
    await store.prepare()
    engine = Engine(store)
    yield engine
    engine.close()
    await store.close()


async def rows(client: Kikwiflow, instance: ProcessInstance) -> dict[str, ExecutableTask]:
    """Return the executable tasks of an instance by node; there is one per node."""
    page = await client.list_tasks(TaskQuery(instance_id=instance.id))
    by_node = {task.node_id: task for task in page.items}
    assert len(by_node) == len(page.items)
    return by_node


async def waits(client: Kikwiflow, instance: ProcessInstance) -> list[ExternalTask]:
    """Return the open external tasks of an instance."""
    page = await client.list_external_tasks(ExternalTaskQuery(instance_id=instance.id))
    return list(page.items)


@pytest.mark.parametrize("case", EXECUTABLE)
async def test_a_task_without_boundary_runs_in_the_call_that_starts_it(
    engine: Engine, case: Case
) -> None:
    client = await engine.with_handlers(case, case["handler"], riskScore=87.5)

    instance = await client.start(case.key, "BK-001")

    assert engine.ran == [case["handler"]]
    assert instance.status is InstanceStatus.COMPLETED
    assert instance.variables == {"riskScore": 87.5}


@pytest.mark.parametrize("case", EXECUTABLE)
async def test_an_instance_that_never_rests_is_never_stored_as_running(
    engine: Engine, case: Case
) -> None:
    client = await engine.with_handlers(case, case["handler"], riskScore=87.5)

    instance = await client.start(case.key, "BK-002")

    assert not await engine.is_stored(instance)


@pytest.mark.parametrize("case", EXTERNAL)
async def test_an_external_task_lets_the_instance_wait(engine: Engine, case: Case) -> None:
    client = await engine.with_handlers(case)

    instance = await client.start(case.key, "BK-WAIT-1")

    assert await engine.is_stored(instance)
    assert [task.node_id for task in await waits(client, instance)] == [case["wait"]]


@pytest.mark.parametrize("case", EXTERNAL)
async def test_completing_the_external_task_ends_the_instance(engine: Engine, case: Case) -> None:
    client = await engine.with_handlers(case)
    instance = await client.start(case.key, "BK-WAIT-2")
    (task,) = await waits(client, instance)

    ended = await client.complete(task.id, {"inputReceived": True})

    assert ended.status is InstanceStatus.COMPLETED
    assert ended.variables == {"inputReceived": True}
    assert await waits(client, instance) == []


@pytest.mark.parametrize("case", GATEWAY)
@pytest.mark.parametrize("chosen", ["one", "other"])
async def test_the_providers_answer_chooses_the_flow(
    engine: Engine, case: Case, chosen: str
) -> None:
    client = await engine.with_handlers(
        case, case["task"], case["one_handler"], case["other_handler"], provider=case["provider"]
    )
    engine.answer = case[chosen]

    instance = await client.start(case.key, "BK-XOR-1")

    assert engine.ran == [case["task"], case[f"{chosen}_handler"]]
    assert instance.status is InstanceStatus.COMPLETED


@pytest.mark.parametrize("case", COMMIT_AFTER)
async def test_commit_after_leaves_the_next_task_to_a_row(engine: Engine, case: Case) -> None:
    client = await engine.with_handlers(case, case["first"], case["second"])

    instance = await client.start(case.key, "BK-ASYNC-1")

    (row,) = (await rows(client, instance)).values()
    assert engine.ran == [case["first"]]
    assert instance.status is InstanceStatus.ACTIVE
    assert (row.node_id, row.status) == (case["node"], TaskStatus.PENDING)


@pytest.mark.parametrize("case", COMMIT_AFTER)
async def test_executing_the_row_after_commit_after_ends_the_instance(
    engine: Engine, case: Case
) -> None:
    client = await engine.with_handlers(case, case["first"], case["second"])
    instance = await client.start(case.key, "BK-ASYNC-2")
    (row,) = (await rows(client, instance)).values()

    outcome = await engine.execute(client, row)

    assert engine.ran == [case["first"], case["second"]]
    assert outcome.kind is OutcomeKind.COMPLETED
    assert (await client.get_instance(instance.id)).status is InstanceStatus.COMPLETED


@pytest.mark.parametrize("case", EXTERNAL)
async def test_set_variables_returns_the_instance_with_them(engine: Engine, case: Case) -> None:
    client = await engine.with_handlers(case)
    instance = await client.start(case.key, "BK-VAR-1")

    changed = await client.set_variables(instance.id, {"approved": True})

    assert changed.variables == {"approved": True}
    assert (await client.get_instance(instance.id)).variables == {"approved": True}


@pytest.mark.parametrize("case", EXTERNAL)
async def test_unset_variables_returns_the_instance_without_them(
    engine: Engine, case: Case
) -> None:
    client = await engine.with_handlers(case)
    instance = await client.start(case.key, "BK-VAR-2", variables={"temporaryFlag": True})

    changed = await client.unset_variables(instance.id, "temporaryFlag")

    assert instance.variables == {"temporaryFlag": True}
    assert changed.variables == {}


@pytest.mark.parametrize("case", EXTERNAL)
async def test_unsetting_one_variable_leaves_the_others(engine: Engine, case: Case) -> None:
    client = await engine.with_handlers(case)
    given = {"temporaryFlag": True, "customerId": "CUST-1"}
    instance = await client.start(case.key, "BK-VAR-3", variables=given)

    await client.unset_variables(instance.id, "temporaryFlag")

    assert (await client.get_instance(instance.id)).variables == {"customerId": "CUST-1"}


@pytest.mark.parametrize("case", PARALLEL)
async def test_a_split_creates_the_join_and_every_branch_at_once(
    engine: Engine, case: Case
) -> None:
    client = await engine.with_handlers(
        case, case["fast_handler"], case["slow_handler"], case["after"]
    )

    instance = await client.start(case.key, "BK-PG-1")

    found = await rows(client, instance)
    branches = [found[case["fast"]], found[case["slow"]]]
    join = found[case["join"]]
    assert engine.ran == []
    assert await engine.is_stored(instance)
    assert len(found) == 3
    assert [(b.type, b.status) for b in branches] == [(TaskType.STANDARD, TaskStatus.PENDING)] * 2
    assert (join.type, join.status) == (TaskType.JOIN_GATEWAY, TaskStatus.AWAITING_BRANCHES)
    ids = {branch.branch.id for branch in branches if branch.branch}
    assert len(ids) == 2
    assert set(join.pending_branch_ids) == ids


@pytest.mark.parametrize("case", PARALLEL)
@pytest.mark.parametrize("order", [("fast", "slow"), ("slow", "fast")], ids=["fast", "slow"])
async def test_the_join_waits_for_both_branches_whichever_comes_first(
    engine: Engine, case: Case, order: tuple[str, str]
) -> None:
    client = await engine.with_handlers(
        case, case["fast_handler"], case["slow_handler"], case["after"]
    )
    instance = await client.start(case.key, "BK-PG-2")
    found = await rows(client, instance)
    first, second = order

    await engine.execute(client, found[case[first]])
    after_first = (await rows(client, instance))[case["join"]]
    ran_first = list(engine.ran)
    await engine.execute(client, found[case[second]])
    after_second = (await rows(client, instance))[case["join"]]
    ran_second = list(engine.ran)
    was_active = await engine.is_stored(instance)
    await engine.execute(client, after_second)

    assert ran_first == [case[f"{first}_handler"]]
    assert after_first.status is TaskStatus.AWAITING_BRANCHES
    assert len(after_first.pending_branch_ids) == 1
    assert after_second.status is TaskStatus.PENDING
    assert case["after"] not in ran_second
    assert was_active
    assert engine.ran == [*ran_second, case["after"]]
    assert (await client.get_instance(instance.id)).status is InstanceStatus.COMPLETED


@pytest.mark.parametrize("case", RETRYABLE)
async def test_a_failure_with_an_attempt_left_is_no_incident(engine: Engine, case: Case) -> None:
    client = await engine.with_handlers(case, case["handler"])
    engine.failures_left = 1
    instance = await client.start(case.key, "BK-RETRY-1")
    (before,) = (await rows(client, instance)).values()

    outcome = await engine.execute(client, before)

    (after,) = (await rows(client, instance)).values()
    assert (before.node_id, before.retries_left) == (case["node"], 2)
    assert outcome.kind is OutcomeKind.RETRY_SCHEDULED
    assert (after.status, after.retries_left) == (TaskStatus.PENDING, 1)
    assert after.error == "no connection"
    assert not (await client.list_incidents()).items


@pytest.mark.parametrize("case", RETRYABLE)
async def test_an_incident_that_is_retried_gives_the_attempts_back(
    engine: Engine, case: Case
) -> None:
    client = await engine.with_handlers(case, case["handler"])
    engine.failures_left = 2
    instance = await client.start(case.key, "BK-RETRY-2")
    (row,) = (await rows(client, instance)).values()
    await engine.execute(client, row)
    await engine.execute(client, row)
    (failed,) = (await rows(client, instance)).values()
    (incident,) = (await client.list_incidents(IncidentQuery(instance_id=instance.id))).items

    resolved = await client.retry_incident(incident.id, resolved_by="system")
    (again,) = (await rows(client, instance)).values()
    outcome = await engine.execute(client, again)

    assert (failed.status, failed.retries_left) == (TaskStatus.ERROR, 0)
    assert (incident.type, incident.status) == (IncidentType.FAILED_JOB, IncidentStatus.OPEN)
    assert resolved.status is IncidentStatus.RESOLVED
    assert (again.status, again.retries_left) == (TaskStatus.PENDING, 2)
    assert outcome.kind is OutcomeKind.COMPLETED
    assert (await client.get_instance(instance.id)).status is InstanceStatus.COMPLETED


@pytest.mark.parametrize("case", TIMER)
async def test_a_timer_task_waits_for_its_due_date(engine: Engine, case: Case) -> None:
    client = await engine.with_handlers(case)
    began = datetime.now(UTC)

    instance = await client.start(case.key, "BK-TIMER-1", tenant_id=TENANT)

    (row,) = (await rows(client, instance)).values()
    assert instance.status is InstanceStatus.ACTIVE
    assert (row.node_id, row.type, row.status, row.tenant_id) == (
        case["timer"],
        TaskType.TIMER_TASK,
        TaskStatus.PENDING,
        TENANT,
    )
    assert row.due_at is not None
    assert row.due_at > began + timedelta(minutes=55)


@pytest.mark.parametrize("case", TIMER)
async def test_a_timer_task_that_fires_goes_on_to_the_next_wait(engine: Engine, case: Case) -> None:
    client = await engine.with_handlers(case)
    instance = await client.start(case.key, "BK-TIMER-2", tenant_id=TENANT)
    (row,) = (await rows(client, instance)).values()

    await engine.execute(client, row)
    active = await client.get_instance(instance.id)
    (wait,) = await waits(client, instance)
    rows_left = await rows(client, instance)
    ended = await client.complete(wait.id)

    assert active.status is InstanceStatus.ACTIVE
    assert (wait.node_id, wait.tenant_id) == (case["after"], TENANT)
    assert rows_left == {}
    assert ended.status is InstanceStatus.COMPLETED


@pytest.mark.parametrize("case", VARIABLE_TIMER)
async def test_a_timer_tasks_due_date_can_come_from_a_variable(engine: Engine, case: Case) -> None:
    client = await engine.with_handlers(case)
    began = datetime.now(UTC)

    instance = await client.start(
        case.key, "BK-TIMER-3", tenant_id=TENANT, variables={case["variable"]: "PT30M"}
    )
    (row,) = (await rows(client, instance)).values()
    await engine.execute(client, row)

    assert row.due_at is not None
    assert timedelta(minutes=25) < row.due_at - began < timedelta(minutes=35)
    assert (await client.get_instance(instance.id)).status is InstanceStatus.COMPLETED


@pytest.mark.parametrize("case", COMMIT_BEFORE)
async def test_commit_before_leaves_the_task_itself_to_a_row(engine: Engine, case: Case) -> None:
    client = await engine.with_handlers(case, case["handler"])
    instance = await client.start(case.key, "BK-CHILD-1")
    (row,) = (await rows(client, instance)).values()
    ran_before = list(engine.ran)

    await engine.execute(client, row)

    assert ran_before == []
    assert (row.node_id, row.status) == (case["node"], TaskStatus.PENDING)
    assert engine.ran == [case["handler"]]
    assert (await client.get_instance(instance.id)).status is InstanceStatus.COMPLETED
