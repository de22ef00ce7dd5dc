"""Routes of external workers: programs in any language that fetch tasks by topic or node and report what came of them."""

from datetime import datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from pydantic import ConfigDict, Field, model_validator

from kikwiflow_worker.clock import Clock, SystemClock
from kikwiflow_worker.management.api.refusals import refuses
from kikwiflow_worker.management.api.shapes import (
    LARGEST_INT,
    NOT_BLANK,
    Body,
    Id,
    NewVariable,
    NodeShape,
    Shape,
    Variable,
    values_of,
    variables_of,
)
from kikwiflow_worker.management.backend import Caller, Operator
from kikwiflow_worker.management.privacy import VariablePolicy, check_writes, policy_of
from kikwiflow_worker.management.problems import Code
from kikwiflow_worker.model.external_work import ReportKind, ReportOutcome, WorkReport
from kikwiflow_worker.model.runtime import Claim, ClaimedTask, ProcessInstance
from kikwiflow_worker.operations import external_workers
from kikwiflow_worker.operations.incidents import MAX_ATTEMPTS
from kikwiflow_worker.store.external_work import MAX_NODES, MAX_TOPICS

router = APIRouter(prefix="/external-work", tags=["external workers"])

LONGEST_WAIT_S = 60
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0
_LONGEST_LOCK_S = int(external_workers.LONGEST_LOCK.total_seconds())
_LONGEST_DELAY_S = int(external_workers.LONGEST_DELAY.total_seconds())

WorkerId = Annotated[
    str,
    Field(
        min_length=1,
        max_length=200,
        pattern=r"^[^/]*[^/\s][^/]*$",
        description="What the worker calls itself, the same in all calls about a task; two processes need two names.",
    ),
]
LockSeconds = Annotated[
    int, Field(ge=1, le=_LONGEST_LOCK_S, description="How long the task is the worker's, from now.")
]
Topic = Annotated[str, Field(pattern=r"^[^:]*[^:\s][^:]*$", max_length=500)]
_LOST = refuses(Code.NOT_FOUND, Code.LOCK_LOST)
_REFUSED = refuses(Code.NOT_FOUND, Code.LOCK_LOST, Code.CONFLICT)
_REFUSED_VALUES = refuses(Code.NOT_FOUND, Code.LOCK_LOST, Code.CONFLICT, Code.INVALID_VARIABLE)


class Fetch(Body):
    """What a worker can do: tasks of topics, of nodes, or of both."""

    model_config = ConfigDict(
        json_schema_extra={"anyOf": [{"required": ["topics"]}, {"required": ["nodes"]}]}
    )

    worker_id: WorkerId
    topics: list[Topic] = Field(
        default_factory=list,
        min_length=1,
        max_length=MAX_TOPICS,
        description="Names of task handlers, as a definition's `executor` or `kikwiflow.topic`.",
    )
    nodes: list[NodeShape] = Field(
        default_factory=list,
        min_length=1,
        max_length=MAX_NODES,
        description="Nodes that have a `kikwiflow.topic`: only their tasks, whoever else shares the topic.",
    )
    lock_seconds: LockSeconds = 60
    wait_seconds: float = Field(
        0,
        ge=0,
        le=LONGEST_WAIT_S,
        description="How long to wait for a task if none is due.",
    )
    max_tasks: int = Field(1, ge=1, le=external_workers.MAX_FETCHED)
    variables: list[str] | None = Field(
        None, description="Names of those that are wanted; all if it is not given."
    )

    @model_validator(mode="after")
    def _names_something(self) -> "Fetch":
        if not self.topics and not self.nodes:
            raise ValueError("names neither topics nor nodes")
        return self


class Held(Body):
    """A task that a worker has fetched."""

    worker_id: WorkerId
    epoch: int = Field(ge=1, le=LARGEST_INT, description="Of the fetched task.")

    def claim(self, caller: Caller, task_id: str) -> Claim:
        """Return the claim that the caller says it has."""
        return external_workers.claim_of(
            task_id, actor=caller.identity.actor, worker_id=self.worker_id, epoch=self.epoch
        )


class ExtendLock(Held):
    """A longer lock."""

    lock_seconds: LockSeconds = 60


class Complete(Held):
    """What came of a task."""

    variables: dict[str, NewVariable] = Field(default_factory=dict)


class ReportFailure(Held):
    """What went wrong; without ``retries`` and ``retryAfterSeconds`` the node's retry policy decides."""

    message: str = Field(pattern=NOT_BLANK)
    details: str = Field("", description="A stack trace or the like, for the incident.")
    retries: int | None = Field(
        None,
        ge=0,
        lt=MAX_ATTEMPTS,
        description="Attempts left after this one; 0 opens an incident.",
    )
    retry_after_seconds: int | None = Field(None, ge=0, le=_LONGEST_DELAY_S)


class ReportError(Held):
    """An error that the process knows: the node's error handler takes over, or an incident opens."""

    code: str | None = Field(None, description="That the node's error handler is for.")
    message: str = Field(pattern=NOT_BLANK)
    variables: dict[str, NewVariable] = Field(default_factory=dict)


class FetchedTask(Shape):
    """A task that is the worker's until ``lockExpiresAt``.

    Variables that the caller may not read are left out. ``idempotencyKey`` is the same for all attempts. ``traceparent`` is
    the trace context in which the task was created; a report in a request with that header, or one of the same trace,
    goes on with the trace.
    """

    id: str
    epoch: int
    worker_id: str
    topic: str
    lock_expires_at: datetime | None
    node_id: str = Field(alias="taskDefinitionId")
    instance_id: str = Field(alias="processInstanceId")
    definition_id: str = Field(alias="processDefinitionId")
    definition_key: str = Field(alias="processDefinitionKey")
    business_key: str
    tenant_id: str | None
    priority: int
    attempt: int
    retries: int
    idempotency_key: str
    created_at: datetime
    traceparent: str | None
    variables: dict[str, Variable]


class Fetched(Shape):
    """What is the worker's now; empty if nothing was due in time."""

    tasks: list[FetchedTask]


class Extended(Shape):
    """When the lock ends now."""

    lock_expires_at: datetime


class Report(Shape):
    """What came of a report: the path went on, or the task waits for another attempt, or for a person."""

    kind: ReportKind
    outcome: ReportOutcome
    instance_id: str = Field(alias="processInstanceId")
    reported_at: datetime

    @classmethod
    def of(cls, report: WorkReport) -> "Report":
        """Return the document of ``report``."""
        return cls.model_validate(report, by_name=True, by_alias=False)


def waiting_clock() -> Clock:
    """Return what a fetch waits by."""
    return SystemClock()


@router.post(
    "/fetch-and-lock",
    operation_id="fetchAndLock",
    responses=refuses(Code.DEFINITION_NOT_FOUND, Code.NOT_FOUND),
)
async def fetch_and_lock(
    caller: Operator,
    request: Request,
    body: Fetch,
    clock: Annotated[Clock, Depends(waiting_clock)],
) -> Fetched:
    """Lock due tasks for a worker, the most urgent first and now and then the oldest; wait for one if none is due.

    A lock that lapses can be fetched by another worker; until then its worker can still report. After three locks that
    lapsed the task is left to a person.
    """
    tasks: list[FetchedTask] = []
    for claimed, instance in await _wait_for_tasks(caller, request, body, clock):
        policy = await policy_of(caller, instance)
        tasks.append(_fetched(claimed, instance, body, policy))
    if not tasks:
        caller.changes_nothing()
    caller.concerns(**{f"task_{number}": task.id for number, task in enumerate(tasks, 1)})
    return Fetched(tasks=tasks)


async def _wait_for_tasks(
    caller: Caller, request: Request, body: Fetch, clock: Clock
) -> list[tuple[ClaimedTask, ProcessInstance]]:
    nodes = {node.value for node in body.nodes}
    await external_workers.check_nodes(caller.services, nodes)
    deadline, pause = clock.monotonic() + body.wait_seconds, _FIRST_PAUSE_S
    while True:
        found = await external_workers.fetch(
            caller.services,
            actor=caller.identity.actor,
            worker_id=body.worker_id,
            topics=body.topics,
            nodes=nodes,
            lock=timedelta(seconds=body.lock_seconds),
            limit=body.max_tasks,
        )
        if await request.is_disconnected():
            for claimed in found:
                await caller.services.external_work.unlock(claimed.claim)
            return []
        left = deadline - clock.monotonic()
        if found or left <= 0:
            return [(one, one.instance) for one in found if one.instance is not None]
        await clock.sleep(min(pause, left))
        pause = min(2 * pause, _LONGEST_PAUSE_S)


@router.post("/{task_id}/extend-lock", operation_id="extendLock", responses=_LOST)
async def extend_lock(caller: Operator, task_id: Id, body: ExtendLock) -> Extended:
    """Keep a task for longer, also if its lock has lapsed and nobody else has taken it."""
    ends = await external_workers.extend(
        caller.services, body.claim(caller, task_id), lock=timedelta(seconds=body.lock_seconds)
    )
    return Extended(lock_expires_at=ends)


@router.post("/{task_id}/complete", operation_id="completeWork", responses=_REFUSED_VALUES)
async def complete(caller: Operator, task_id: Id, body: Complete) -> Report:
    """Set variables and let the path go on. A repeat changes nothing, and is answered as the first for a day."""
    await _check_writes(caller, task_id, body.variables)
    report = await external_workers.complete(
        caller.services, body.claim(caller, task_id), variables=values_of(body.variables)
    )
    return Report.of(report)


@router.post("/{task_id}/failure", operation_id="reportFailure", responses=_REFUSED)
async def report_failure(caller: Operator, task_id: Id, body: ReportFailure) -> Report:
    """Let a task be tried again later, or leave it to a person. A repeat is answered as the first."""
    after = body.retry_after_seconds
    report = await external_workers.fail(
        caller.services,
        body.claim(caller, task_id),
        message=body.message,
        details=body.details,
        retries=body.retries,
        delay=None if after is None else timedelta(seconds=after),
    )
    return Report.of(report)


@router.post("/{task_id}/error", operation_id="reportBusinessError", responses=_REFUSED_VALUES)
async def report_error(caller: Operator, task_id: Id, body: ReportError) -> Report:
    """Let the node's error handler take over, or leave the task to a person. A repeat is answered as the first."""
    await _check_writes(caller, task_id, body.variables)
    report = await external_workers.throw_error(
        caller.services,
        body.claim(caller, task_id),
        code=body.code,
        message=body.message,
        variables=values_of(body.variables),
    )
    return Report.of(report)


@router.post("/{task_id}/unlock", status_code=204, operation_id="unlockWork", responses=_LOST)
async def unlock(caller: Operator, task_id: Id, body: Held) -> Response:
    """Give a task back undone; it is due at once, and no attempt is used."""
    await external_workers.unlock(caller.services, body.claim(caller, task_id))
    return Response(status_code=204)


async def _check_writes(caller: Caller, task_id: str, variables: dict[str, NewVariable]) -> None:
    task = await caller.services.reads.find_task(task_id) if variables else None
    if task is not None:
        await check_writes(caller, task.instance_id, variables)


def _fetched(
    claimed: ClaimedTask, instance: ProcessInstance, body: Fetch, policy: VariablePolicy
) -> FetchedTask:
    task = claimed.task
    variables = {
        name: value
        for name, value in instance.variables.items()
        if policy.may_read(name) and (body.variables is None or name in body.variables)
    }
    return FetchedTask(
        id=task.id,
        epoch=claimed.claim.epoch,
        worker_id=body.worker_id,
        topic=task.handler_name or "",
        lock_expires_at=task.lock_expires_at,
        node_id=task.node_id,
        instance_id=task.instance_id,
        definition_id=task.definition_id,
        definition_key=instance.definition_key,
        business_key=instance.business_key,
        tenant_id=task.tenant_id,
        priority=task.priority,
        attempt=task.attempts + 1,
        retries=task.retries_left,
        idempotency_key=task.id,
        created_at=task.created_at,
        traceparent=task.traceparent,
        variables=variables_of(variables, policy),
    )
