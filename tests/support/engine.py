"""Runs segments of the engine with scripted replies: no store, no event loop, no clock."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import repeat

from kikwiflow_worker.engine.draft import Surroundings
from kikwiflow_worker.engine.effects import (
    AskAnswer,
    AskCorrelationKeys,
    AskDueDate,
    CallHandler,
    Deliver,
    DueDateGiven,
    Effect,
    Failure,
    FailureKind,
    FindDefinition,
    HandlerReturned,
    KeysGiven,
    Raised,
    Reply,
    UserCode,
)
from kikwiflow_worker.engine.messages import Delivery, Receiver, end_wait
from kikwiflow_worker.engine.retries import RetryDefaults
from kikwiflow_worker.engine.running import run_task
from kikwiflow_worker.engine.segments import Segment, SegmentResult, start_instance
from kikwiflow_worker.handler import CorrelationItem
from kikwiflow_worker.model.capability import Capabilities, Capability, HandlerKind
from kikwiflow_worker.model.definition import ProcessDefinition
from kikwiflow_worker.model.events import EventLevel
from kikwiflow_worker.model.runtime import (
    Branch,
    Claim,
    ClaimedTask,
    ExecutableTask,
    ExternalTask,
    ProcessInstance,
    TaskStatus,
    TaskType,
)
from kikwiflow_worker.model.unit_of_work import (
    ChangeVariables,
    ClaimGuard,
    CompleteExternalTask,
    EndPath,
    Guard,
    InsertExternalTask,
    InsertInstance,
    InsertTask,
    OpenIncident,
    RecordEnded,
    UnitOfWork,
)
from kikwiflow_worker.model.variables import SetVariable, VariableChange, Variables
from tests.support.definitions import Json, a_file, a_node, a_start, a_task, an_end, read

NOON = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
INSTANCE_ID = "0d6ae1f2-0000-4000-8000-000000000001"
TASK_ID = "0d6ae1f2-0000-4000-8000-000000000002"
OUTER = Branch("outer-join:1", "outer-join")

Replies = Mapping[str, Reply | Sequence[Reply]]
"""What user code answers, by its name: always the same, or one reply after the other."""


@dataclass(frozen=True, slots=True)
class Run:
    """What came of a segment, and what it asked for on the way."""

    result: SegmentResult
    effects: tuple[Effect, ...]

    @property
    def unit(self) -> UnitOfWork:
        return self.result.unit

    @property
    def guard(self) -> Guard:
        (guard,) = self.unit.guards
        return guard

    @property
    def asked(self) -> list[UserCode]:
        """The user code that ran, in order."""
        return [effect for effect in self.effects if isinstance(effect, UserCode)]

    @property
    def called(self) -> list[str]:
        """The names of the user code that ran, in order."""
        return [effect.capability.name for effect in self.asked]

    @property
    def thrown(self) -> list[Deliver]:
        """The messages that were thrown, in order."""
        return [effect for effect in self.effects if isinstance(effect, Deliver)]

    @property
    def keys(self) -> list[str]:
        """The idempotency keys that user code was given, in order."""
        return [effect.view.idempotency_key for effect in self.asked]

    @property
    def born(self) -> list[ExecutableTask]:
        """The executable tasks that were born, in order."""
        return [change.task for change in self.unit.changes if isinstance(change, InsertTask)]

    @property
    def born_waits(self) -> list[ExternalTask]:
        """The external tasks that were born, in order."""
        changes = self.unit.changes
        return [change.task for change in changes if isinstance(change, InsertExternalTask)]

    @property
    def rows(self) -> dict[str, ExecutableTask]:
        """The executable tasks that were born, by node."""
        by_node = {task.node_id: task for task in self.born}
        assert len(by_node) == len(self.born)
        return by_node

    @property
    def row(self) -> ExecutableTask:
        """The only executable task that was born."""
        (row,) = self.rows.values()
        return row

    @property
    def waits(self) -> dict[str, ExternalTask]:
        """The external tasks that were born, by node."""
        return {task.node_id: task for task in self.born_waits}

    @property
    def variable_changes(self) -> tuple[VariableChange, ...]:
        return tuple(
            change
            for found in self.unit.changes
            if isinstance(found, ChangeVariables)
            for change in found.changes
        )

    @property
    def incidents(self) -> list[OpenIncident]:
        return [change for change in self.unit.changes if isinstance(change, OpenIncident)]

    @property
    def ends_path(self) -> bool:
        return any(isinstance(change, EndPath) for change in self.unit.changes)

    @property
    def stored_instance(self) -> ProcessInstance:
        """The instance as a start leaves it."""
        (stored,) = [
            change.instance
            for change in self.unit.changes
            if isinstance(change, InsertInstance | RecordEnded)
        ]
        return stored


def run(segment: Segment, replies: Replies | None = None) -> Run:
    """Run a segment to its end; user code that ``replies`` does not name just succeeds."""
    script = {
        name: iter(reply) if isinstance(reply, Sequence) else repeat(reply)
        for name, reply in (replies or {}).items()
    }
    return run_with(segment, lambda effect: _scripted(effect, script))


def run_with(segment: Segment, answer: Callable[[Effect], Reply]) -> Run:
    """Run a segment to its end; the unit it returns inserts nothing without a guard (protocol R7)."""
    effects: list[Effect] = []
    try:
        effect = next(segment)
        while True:
            effects.append(effect)
            effect = segment.send(answer(effect))
    except StopIteration as done:
        result: SegmentResult = done.value
    assert_conserves_tokens(result.unit)
    return Run(result, tuple(effects))


def assert_conserves_tokens(unit: UnitOfWork) -> None:
    """Whatever inserts rows also decides about a row of the same instance, or inserts the instance (protocol R7)."""
    inserts = [c for c in unit.changes if isinstance(c, InsertTask | InsertExternalTask)]
    new = {c.instance.id for c in unit.changes if isinstance(c, InsertInstance)}
    decided = {g.instance_id for g in unit.guards if isinstance(g, CompleteExternalTask)}
    # Some rows belong to no instance, such as the one that delivers a kept message.
    others = {insert.task.instance_id for insert in inserts} - new - decided - {""}
    # A claim does not say whose task it is; there is one at most, so it allows one instance.
    assert len(others) <= sum(isinstance(guard, ClaimGuard) for guard in unit.guards) <= 1


def name_of(effect: Effect) -> str:
    """Return the name of the user code, or the key of the message or definition, that is asked for."""
    if isinstance(effect, Deliver | FindDefinition):
        return effect.key
    return effect.capability.name


def _scripted(effect: Effect, script: Mapping[str, Iterator[Reply]]) -> Reply:
    replies = script.get(name_of(effect))
    if replies is not None:
        return next(replies)
    match effect:
        case CallHandler():
            return HandlerReturned((), {name: effect.variables[name] for name in effect.transient})
        case AskDueDate():
            return DueDateGiven(timedelta(hours=1))
        case AskCorrelationKeys():
            return KeysGiven((CorrelationItem("order-7", "Order 7"),))
        case AskAnswer() | Deliver() | FindDefinition():
            raise AssertionError(f"no answer for {effect}")


def a_definition(*nodes: Json, key: str = "parcel") -> ProcessDefinition:
    """Return a deployed definition of these nodes; START and END are added where they are missing."""
    ids = {str(node["id"]) for node in nodes}
    first = () if "START" in ids else (a_start(str(nodes[0]["id"])),)
    last = () if "END" in ids else (an_end(),)
    return read(a_file(*first, *nodes, *last, key=key)).deployed(
        definition_id=f"{key}:1", version=1
    )


def a_step(node_id: str, *targets: str, **fields: object) -> Json:
    """Return an executable task whose handler has the node's name in small letters."""
    return a_task(node_id, *(targets or ("END",)), **{"executor": node_id.lower(), **fields})


def a_wait(node_id: str, target: str = "END", **fields: object) -> Json:
    """Return an external task."""
    return a_node(node_id, "EXTERNAL_TASK", target, **fields)


def a_delay(node_id: str, target: str = "END", **fields: object) -> Json:
    """Return a timer task of one hour, unless ``fields`` say otherwise."""
    chosen = {"providerType": "STATIC", "staticValue": "PT1H", **fields}
    return a_node(node_id, "TIMER_TASK", target, **chosen)


def surroundings(
    *names: str,
    now: datetime = NOON,
    defaults: RetryDefaults | None = None,
    events: EventLevel = EventLevel.OFF,
) -> Surroundings:
    """Return surroundings with these handlers, and with providers written as ``answer_provider:route``."""
    return Surroundings(
        now=now,
        capabilities=Capabilities(a_capability(name) for name in names),
        retry_defaults=defaults or RetryDefaults(),
        event_level=events,
    )


def a_capability(stored: str) -> Capability:
    """Return the capability with this stored form."""
    kind, colon, name = stored.partition(":")
    return (
        Capability(HandlerKind(kind), name) if colon else Capability(HandlerKind.TASK_HANDLER, kind)
    )


def an_instance(definition: ProcessDefinition, **variables: object) -> ProcessInstance:
    """Return a running instance with these variables."""
    return ProcessInstance(
        id=INSTANCE_ID,
        business_key="PARCEL-7",
        definition_id=definition.id,
        definition_key=definition.key,
        definition_version=definition.version,
        started_at=NOON,
        variables=variables,  # type: ignore[arg-type]
        tenant_id="acme",
        priority=7,
    )


def a_claimed_task(
    definition: ProcessDefinition,
    node_id: str,
    task_type: TaskType = TaskType.STANDARD,
    **fields: object,
) -> ClaimedTask:
    """Return a task that this worker holds, at its first attempt unless ``fields`` say otherwise."""
    task = ExecutableTask(
        id=TASK_ID,
        type=task_type,
        node_id=node_id,
        instance_id=INSTANCE_ID,
        definition_id=definition.id,
        created_at=NOON,
        status=TaskStatus.LOCKED,
        worker_id="worker-1",
        epoch=1,
        retries_left=3,
    )
    return claimed(replace(task, **fields))  # type: ignore[arg-type]


def claimed(task: ExecutableTask, worker_id: str = "worker-1") -> ClaimedTask:
    """Return ``task`` as held by a worker."""
    return ClaimedTask(
        task=task,
        claim=Claim(task.id, worker_id, task.epoch),
        instance=None,
        claimed_at=NOON,
        locked_until=60.0,
    )


def an_external_task(
    definition: ProcessDefinition, node_id: str, branch: Branch | None = None, **fields: object
) -> ExternalTask:
    """Return an open external task."""
    task = ExternalTask(
        id=TASK_ID,
        node_id=node_id,
        instance_id=INSTANCE_ID,
        definition_id=definition.id,
        created_at=NOON,
        tenant_id="acme",
        branch=branch,
    )
    return replace(task, **fields)  # type: ignore[arg-type]


def started(
    definition: ProcessDefinition,
    *names: str,
    replies: Replies | None = None,
    **variables: object,
) -> Run:
    """Start an instance in a process that has the handlers ``names``."""
    instance = an_instance(definition, **variables)
    return run(start_instance(definition, instance, surroundings(*names)), replies)


def worked(
    definition: ProcessDefinition,
    task: ClaimedTask,
    *names: str,
    replies: Replies | None = None,
    **variables: object,
) -> Run:
    """Run a claimed task in a process that has the handlers ``names``."""
    instance = an_instance(definition, **variables)
    return run(run_task(definition, task, instance, surroundings(*names)), replies)


def completed(
    definition: ProcessDefinition,
    task: ExternalTask,
    *names: str,
    replies: Replies | None = None,
    variables: Variables | None = None,
    group: ExternalTask | None = None,
    by_thrower: bool = False,
) -> Run:
    """Complete or correlate an external task in a process that has the handlers ``names``."""
    receiver = Receiver(
        definition=definition, instance=an_instance(definition), task=task, group=group
    )
    delivery = Delivery(variables=variables or {}, actor="ana", caller_drives=not by_thrower)
    segment = end_wait(receiver, delivery, surroundings(*names))
    return run(segment, replies)


def sets(**variables: object) -> HandlerReturned:
    """Return what a handler that sets these variables answers."""
    return HandlerReturned(tuple(SetVariable(n, v) for n, v in variables.items()))  # type: ignore[arg-type]


def fails(
    message: str = "no connection",
    *,
    kind: FailureKind = FailureKind.TECHNICAL,
    error_type: str = "ConnectionError",
    delay: timedelta = timedelta(0),
    cause: BaseException | None = None,
) -> Raised:
    """Return what user code that raises answers."""
    return Raised(a_failure(message, kind=kind, error_type=error_type, delay=delay, cause=cause))


def a_failure(
    message: str = "no connection",
    *,
    kind: FailureKind = FailureKind.TECHNICAL,
    error_type: str = "ConnectionError",
    delay: timedelta = timedelta(0),
    cause: BaseException | None = None,
) -> Failure:
    """Return a failure, a technical one unless said otherwise."""
    return Failure(kind=kind, error_type=error_type, message=message, delay=delay, cause=cause)


def raises(
    code: str | None = None, *, kind: FailureKind = FailureKind.BUSINESS, **variables: object
) -> Raised:
    """Return what a handler answers that sets these variables and then raises, a process error unless said otherwise."""
    failure = Failure(kind=kind, error_type="ProcessError", message="refused", code=code)
    return Raised(failure, sets(**variables).changes)
