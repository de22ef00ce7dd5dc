"""Random rows of every kind, random searches for them, and what fits a search: said once more, without a database."""

import random
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from pymongo.database import Database

from kikwiflow_worker.model.runtime import (
    Attachment,
    ExecutableTask,
    ExternalTask,
    ExternalTaskType,
    HostKind,
    Incident,
    IncidentStatus,
    IncidentType,
    InstanceStatus,
    Parent,
    ProcessInstance,
    TaskStatus,
    TaskType,
)
from kikwiflow_worker.store.mongo.codec import (
    encode_external_task,
    encode_incident,
    encode_instance,
    encode_task,
)
from kikwiflow_worker.store.search import (
    ENDED,
    RUNNING,
    ExternalTaskSearch,
    IncidentSearch,
    InstanceSearch,
    TaskSearch,
    TimerSearch,
)
from tests.support.stores import (
    LONG_AGO,
    Json,
    a_task,
    an_external_task,
    an_incident,
    an_instance,
)

ROWS = 120
KEYS = ("parcel", "letter", "pallet")
VERSIONS = tuple(f"{key}-{version}" for key in KEYS for version in (1, 2))
NODES = ("WEIGH", "APPROVE", "LATER")
TENANTS = (None, "acme", "bolt")
PEOPLE = (None, "ann", "bob")


def at(random_: random.Random) -> datetime:
    """Return an instant that many rows share."""
    return LONG_AGO + timedelta(minutes=random_.randrange(40))


def key_of(definition_id: str) -> str:
    return definition_id.partition("-")[0]


def some_of(random_: random.Random, values: Sequence[Any], most: int = 2) -> tuple[Any, ...]:
    return tuple(random_.sample(list(values), random_.randint(1, most)))


class Rows:
    """Random rows of every kind, as they are stored and as values."""

    def __init__(self, random_: random.Random) -> None:
        self.instances = [self._instance(random_, number) for number in range(ROWS)]
        self.tasks = [self._task(random_, number) for number in range(ROWS)]
        self.external_tasks = [self._external(random_, number) for number in range(ROWS)]
        self.incidents = [self._incident(random_, number) for number in range(ROWS)]
        deadlines = [self._deadline(random_, task) for task in self.external_tasks[::3]]
        self.tasks += deadlines

    def store(self, data: Database[Json]) -> None:
        data.process_definitions.insert_many(
            {"_id": version, "key": key_of(version), "version": int(version[-1]), "source": ""}
            for version in VERSIONS
        )
        for where, statuses in ((data.process_instances, RUNNING), (data.process_history, ENDED)):
            where.insert_many(
                encode_instance(each, None) for each in self.instances if each.status in statuses
            )
        data.executable_tasks.insert_many(encode_task(task, None) for task in self.tasks)
        data.external_tasks.insert_many(map(encode_external_task, self.external_tasks))
        data.incidents.insert_many(map(encode_incident, self.incidents))

    def _instance(self, random_: random.Random, number: int) -> ProcessInstance:
        version = random_.choice(VERSIONS)
        parent = Parent(
            instance_id="parent",
            coordinator_task_id="c",
            branch_id="b",
            starter_task_id="s",
            depth=1,
        )
        return an_instance(
            id=f"{number:04d}",
            definition_id=version,
            definition_key=key_of(version),
            started_at=at(random_),
            status=random_.choice([*RUNNING, *ENDED]),
            tenant_id=random_.choice(TENANTS),
            business_key=f"order-{random_.randrange(5)}",
            parent=random_.choice((None, parent)),
            variables=random_.choice(
                (
                    {},
                    {"city": "Bremen"},
                    {"city": ["Bremen", "Kiel"]},
                    {"city": "Kiel", "a.b": None},
                    {"city": {"name": "Bremen"}},
                )
            ),
        )

    def _place(self, random_: random.Random, number: int) -> Json:
        version = random_.choice(VERSIONS)
        return {
            "id": f"{number:04d}",
            "definition_id": version,
            "node_id": random_.choice(NODES),
            "instance_id": f"{random_.randrange(ROWS):04d}",
            "created_at": at(random_),
            "tenant_id": random_.choice(TENANTS),
        }

    def _task(self, random_: random.Random, number: int) -> ExecutableTask:
        kinds = (TaskType.STANDARD, TaskType.TIMER_TASK, TaskType.JOIN_GATEWAY)
        type_ = random_.choice(kinds)
        due_at = at(random_) if type_ is TaskType.TIMER_TASK or random_.random() < 0.3 else None
        return a_task(
            **self._place(random_, number),
            type=type_,
            status=random_.choice((TaskStatus.PENDING, TaskStatus.LOCKED, TaskStatus.ERROR)),
            handler_name=random_.choice((None, "weigh", "pack")),
            attempts=random_.choice((0, 0, 2)),
            due_at=due_at,
        )

    def _deadline(self, random_: random.Random, host: ExternalTask) -> ExecutableTask:
        return a_task(
            id=f"{host.id}-deadline",
            type=TaskType.INTERRUPTIVE_TIMER,
            definition_id=host.definition_id,
            node_id="DEADLINE",
            instance_id=host.instance_id,
            tenant_id=host.tenant_id,
            due_at=at(random_),
            attached_to=Attachment(host.id, host.node_id, HostKind.EXTERNAL_TASK),
        )

    def _external(self, random_: random.Random, number: int) -> ExternalTask:
        type_ = random_.choice((ExternalTaskType.TASK, ExternalTaskType.CATCHER))
        is_task = type_ is ExternalTaskType.TASK
        return an_external_task(
            **self._place(random_, number),
            type=type_,
            assignee=random_.choice(PEOPLE) if is_task else None,
            correlation_key=None if is_task else f"key-{random_.randrange(3)}",
        )

    def _incident(self, random_: random.Random, number: int) -> Incident:
        place = self._place(random_, number)
        tenant_id = place.pop("tenant_id")
        task = a_task(**{**place, "id": f"task-{number}"})
        return an_incident(
            task,
            id=place["id"],
            created_at=place["created_at"],
            tenant_id=tenant_id,
            status=random_.choice(list(IncidentStatus)),
            type=random_.choice((IncidentType.FAILED_JOB, IncidentType.WORKER_LOST)),
        )

    def deadline_of(self, task: ExternalTask) -> datetime | None:
        found = [
            each.due_at
            for each in self.tasks
            if each.type is TaskType.INTERRUPTIVE_TIMER
            and each.attached_to is not None
            and each.attached_to.host_id == task.id
        ]
        return found[0] if found else None


def maybe(random_: random.Random, **choices: Callable[[], Any]) -> Json:
    """Return values for about a third of the fields."""
    return {name: choose() for name, choose in choices.items() if random_.random() < 0.35}


def placed(random_: random.Random) -> dict[str, Callable[[], Any]]:
    return {
        "definition_ids": lambda: some_of(random_, (*VERSIONS, "unknown")),
        "definition_keys": lambda: some_of(random_, (*KEYS, "unknown")),
        "node_id": lambda: random_.choice(NODES),
        "tenant_id": lambda: random_.choice(TENANTS[1:]),
    }


def is_placed(query: Any, row: Any) -> bool:
    return (
        (not query.definition_ids or row.definition_id in query.definition_ids)
        and (not query.definition_keys or key_of(row.definition_id) in query.definition_keys)
        and query.node_id in {None, row.node_id}
        and query.tenant_id in {None, row.tenant_id}
        and query.instance_id in {None, row.instance_id}
    )


def instance_query(random_: random.Random) -> InstanceSearch:
    places = placed(random_)
    del places["node_id"]
    return InstanceSearch(
        **maybe(
            random_,
            **places,
            parent_id=lambda: "parent",
            statuses=lambda: some_of(random_, list(InstanceStatus), 4),
            business_keys=lambda: some_of(random_, [f"order-{n}" for n in range(5)]),
            started_after=lambda: at(random_),
            started_before=lambda: at(random_),
            variables=lambda: {"city": random_.choice(("Bremen", ["Bremen", "Kiel"], "Rome"))},
            variables_exist=lambda: random_.choice((("city",), ("a.b",), ("city", "a.b"))),
        )
    )


def fits_instance(query: InstanceSearch, row: ProcessInstance) -> bool:
    return (
        (not query.definition_ids or row.definition_id in query.definition_ids)
        and (not query.definition_keys or row.definition_key in query.definition_keys)
        and query.tenant_id in {None, row.tenant_id}
        and (query.parent_id is None or row.parent is not None)
        and row.status in (query.statuses or RUNNING)
        and (not query.business_keys or row.business_key in query.business_keys)
        and (query.started_after is None or row.started_at >= query.started_after)
        and (query.started_before is None or row.started_at < query.started_before)
        and all(
            name in row.variables and row.variables[name] == value
            for name, value in query.variables.items()
        )
        and all(name in row.variables for name in query.variables_exist)
    )


def task_query(random_: random.Random) -> TaskSearch:
    return TaskSearch(
        **maybe(
            random_,
            **placed(random_),
            instance_id=lambda: f"{random_.randrange(20):04d}",
            statuses=lambda: some_of(random_, list(TaskStatus)),
            types=lambda: some_of(random_, (TaskType.STANDARD, TaskType.TIMER_TASK)),
            handler_name=lambda: random_.choice(("weigh", "pack", "nobody")),
            retrying=lambda: True,
        )
    )


def fits_task(query: TaskSearch, row: ExecutableTask) -> bool:
    is_retrying = row.status is TaskStatus.PENDING and row.attempts > 0
    return (
        is_placed(query, row)
        and (query.retrying or not query.statuses or row.status in query.statuses)
        and (not query.types or row.type in query.types)
        and query.handler_name in {None, row.handler_name}
        and (not query.retrying or is_retrying)
    )


def external_query(random_: random.Random) -> ExternalTaskSearch:
    chosen = maybe(
        random_,
        **placed(random_),
        instance_id=lambda: f"{random_.randrange(20):04d}",
        assignee=lambda: random_.choice(PEOPLE[1:]),
        unassigned=lambda: True,
        correlation_key=lambda: f"key-{random_.randrange(3)}",
        for_people=lambda: True,
    )
    if chosen.get("unassigned"):
        chosen.pop("assignee", None)
    return ExternalTaskSearch(**chosen)


def fits_external(query: ExternalTaskSearch, row: ExternalTask) -> bool:
    return (
        is_placed(query, row)
        and query.assignee in {None, row.assignee}
        and (not query.unassigned or row.assignee is None)
        and query.correlation_key in {None, row.correlation_key}
        and (not query.for_people or row.type is ExternalTaskType.TASK)
    )


def incident_query(random_: random.Random) -> IncidentSearch:
    return IncidentSearch(
        **maybe(
            random_,
            **placed(random_),
            instance_id=lambda: f"{random_.randrange(20):04d}",
            type=lambda: random_.choice((IncidentType.FAILED_JOB, IncidentType.WORKER_LOST)),
            status=lambda: random_.choice((None, *IncidentStatus)),
            created_after=lambda: at(random_),
            created_before=lambda: at(random_),
        )
    )


def fits_incident(query: IncidentSearch, row: Incident) -> bool:
    return (
        is_placed(query, row)
        and query.type in {None, row.type}
        and query.status in {None, row.status}
        and (query.created_after is None or row.created_at >= query.created_after)
        and (query.created_before is None or row.created_at < query.created_before)
    )


def timer_query(random_: random.Random) -> TimerSearch:
    return TimerSearch(**maybe(random_, **placed(random_), due_before=lambda: at(random_)))


def fits_timer(query: TimerSearch, row: ExecutableTask) -> bool:
    return (
        row.type in {TaskType.TIMER_TASK, TaskType.INTERRUPTIVE_TIMER}
        and row.status is TaskStatus.PENDING
        and is_placed(query, row)
        and (query.due_before is None or row.due_at < query.due_before)
    )
