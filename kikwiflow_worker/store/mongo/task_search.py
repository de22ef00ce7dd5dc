"""Searches of what waits: executable tasks, timers, external tasks, incidents."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from kikwiflow_worker.model.runtime import (
    ExecutableTask,
    ExternalTask,
    ExternalTaskType,
    HostKind,
    Incident,
    IncidentStatus,
    TaskStatus,
    TaskType,
)
from kikwiflow_worker.store.mongo.codec import decode_external_task
from kikwiflow_worker.store.mongo.driver import Document, fetched
from kikwiflow_worker.store.mongo.errors import translated
from kikwiflow_worker.store.mongo.keyset import CREATED, DUE, NEWEST
from kikwiflow_worker.store.mongo.search_base import (
    Behind,
    SearchBase,
    Ways,
    place_conditions,
)
from kikwiflow_worker.store.mongo.ways import (
    Condition,
    Wanted,
    Way,
    among,
    choose,
    given,
    one_of,
    within,
)
from kikwiflow_worker.store.mongo.windows import MAX_TIME_MS, Look, count
from kikwiflow_worker.store.search import (
    Count,
    ExternalTaskSearch,
    IncidentSearch,
    TaskSearch,
    TimerSearch,
)
from kikwiflow_worker.store.views import Page

_MAX_IDS = 500
_NEVER = datetime(9999, 12, 31, tzinfo=UTC)

_TASK_WAYS = Ways(
    strong=(
        Way("instance_created", ("processInstanceId",)),
        Way("retrying", ("status", "attempts")),
    ),
    weak=(
        Way("handler_created", ("handlerName",)),
        Way("tenant_created", ("tenantId",)),
        Way("status_created", ("status",)),
    ),
)
_EXTERNAL_WAYS = Ways(
    strong=(
        Way("instance_created", ("processInstanceId",)),
        Way("key_created", ("correlationKey",)),
        Way("assignee_created", ("assignee",)),
    ),
    weak=(Way("tenant_created", ("tenantId",)), Way("created")),
)
_UNASSIGNED_WAYS = Ways(
    strong=_EXTERNAL_WAYS.strong[:2],
    weak=(_EXTERNAL_WAYS.weak[0], _EXTERNAL_WAYS.strong[2], _EXTERNAL_WAYS.weak[1]),
)
_INCIDENT_WAYS = (
    Way("instance_status_created", ("processInstanceId", "status")),
    Way("node_status_created", ("taskDefinitionId", "status")),
    Way("definition_status_created", ("processDefinitionId", "status")),
    Way("tenant_status_created", ("tenantId", "status")),
    Way("type_status_created", ("type", "status")),
    Way("status_created", ("status",)),
)
_ALL_TASKS = {"status": one_of([each.value for each in TaskStatus])}
_ALL_INCIDENTS = {"status": one_of([each.value for each in IncidentStatus])}
_TIMERS = (TaskType.INTERRUPTIVE_TIMER, TaskType.NON_INTERRUPTIVE_TIMER, TaskType.TIMER_TASK)
_DUE_WAY = Way("timers", ("type",))


class TaskSearches(SearchBase):
    """Searches of what waits."""

    async def search_tasks(
        self, query: TaskSearch, *, limit: int = 20, cursor: str | None = None
    ) -> Page[ExecutableTask]:
        """Return executable tasks."""
        with translated("searching tasks"):
            return await self._page(await self._task_looks(query), self._row, limit, cursor)

    async def count_tasks(self, query: TaskSearch) -> Count:
        """Return how many executable tasks a search would find."""
        with translated("counting tasks"):
            return await count(await self._task_looks(query))

    async def _task_looks(self, query: TaskSearch) -> tuple[Look, ...]:
        conditions = {
            **given(
                processInstanceId=query.instance_id,
                tenantId=query.tenant_id,
                handlerName=query.handler_name,
            ),
            **among(status=query.statuses, type=query.types),
        }
        if query.retrying:
            conditions |= {
                "status": Condition(TaskStatus.PENDING.value),
                "attempts": Condition({"$gt": 0}),
            }
        wanted = Wanted(conditions, _ALL_TASKS)
        place = await self._place(query)
        return await self._looks(self._collections.tasks, CREATED, _TASK_WAYS, wanted, place)

    async def search_timers(
        self, query: TimerSearch, *, limit: int = 20, cursor: str | None = None
    ) -> Page[ExecutableTask]:
        """Return timers that have not fired; those of one instance in the order in which they were set up."""
        with translated("searching timers"):
            return await self._page(await self._timer_looks(query), self._row, limit, cursor)

    async def _timer_looks(self, query: TimerSearch) -> tuple[Look, ...]:
        tasks = self._collections.tasks
        place = await self._place(query)
        if place[0] == ():
            return ()
        conditions = {
            **given(processInstanceId=query.instance_id, tenantId=query.tenant_id),
            **place_conditions(place),
            "type": one_of([each.value for each in _TIMERS]),
            "status": Condition(TaskStatus.PENDING.value),
        }
        if query.instance_id is not None:
            due = {"dueDate": Condition({"$lt": query.due_before})} if query.due_before else {}
            wanted = Wanted({**conditions, **due})
            return (_TASK_WAYS.strong[0].look(tasks, CREATED, wanted),)
        return (_DUE_WAY.look(tasks, DUE, Wanted(conditions, span=_due(query.due_before))),)

    async def search_external_tasks(
        self, query: ExternalTaskSearch, *, limit: int = 20, cursor: str | None = None
    ) -> Page[ExternalTask]:
        """Return open external tasks."""
        with translated("searching external tasks"):
            if query.due_before is not None:
                return await self._urgent_page(query, query.due_before, limit, cursor)
            looks = await self._external_looks(query)
            return await self._page(looks, decode_external_task, limit, cursor)

    async def count_external_tasks(self, query: ExternalTaskSearch) -> Count:
        """Return how many open external tasks a search would find; with ``due_before``, at most."""
        with translated("counting external tasks"):
            if query.due_before is not None:
                return await count((self._host_look(query, query.due_before),))
            return await count(await self._external_looks(query))

    async def _external_looks(self, query: ExternalTaskSearch) -> tuple[Look, ...]:
        wanted = Wanted(_external_conditions(query))
        place = await self._place(query)
        rows = self._collections.external_tasks
        ways = _UNASSIGNED_WAYS if query.unassigned else _EXTERNAL_WAYS
        return await self._looks(rows, CREATED, ways, wanted, place)

    async def _urgent_page(
        self, query: ExternalTaskSearch, due_before: datetime, limit: int, cursor: str | None
    ) -> Page[ExternalTask]:
        place = await self._place(query)
        if place[0] == ():
            return Page((), None)
        conditions = {**_external_conditions(query), **place_conditions(place)}
        behind = Behind(
            "attachedToRefId",
            self._collections.external_tasks,
            {name: each.wanted for name, each in conditions.items()},
            decode_external_task,
        )
        look = self._host_look(query, due_before)
        return await self._page_behind((look,), behind, limit, cursor)

    def _host_look(self, query: ExternalTaskSearch, due_before: datetime) -> Look:
        """Return the look at the timers that end external tasks."""
        conditions = {
            **given(processInstanceId=query.instance_id, tenantId=query.tenant_id),
            "type": Condition(TaskType.INTERRUPTIVE_TIMER.value),
            "attachedToRefType": Condition(HostKind.EXTERNAL_TASK.value),
        }
        wanted = Wanted(conditions, span=_due(due_before))
        return _DUE_WAY.look(self._collections.tasks, DUE, wanted)

    async def find_deadlines(
        self, task_ids: Sequence[str], *, tenant_id: str | None = None
    ) -> Mapping[str, datetime]:
        """Return when a timer ends each of these tasks, for those that have one."""
        conditions = {
            **among(attachedToRefId=task_ids[:_MAX_IDS]),
            **given(tenantId=tenant_id),
            "type": Condition(TaskType.INTERRUPTIVE_TIMER.value),
        }
        if not task_ids:
            return {}
        found = {name: each.wanted for name, each in conditions.items()}
        fields = {"attachedToRefId": 1, "dueDate": 1}
        with translated("looking for deadlines"):
            cursor = self._collections.tasks.find(
                found, fields, max_time_ms=MAX_TIME_MS, hint="host"
            )
            rows = await fetched(cursor, 2 * _MAX_IDS)
        deadlines: dict[str, datetime] = {}
        for row in rows:
            if "dueDate" in row:
                known = deadlines.get(row["attachedToRefId"], row["dueDate"])
                deadlines[row["attachedToRefId"]] = min(known, row["dueDate"])
        return deadlines

    async def search_incidents(
        self, query: IncidentSearch, *, limit: int = 20, cursor: str | None = None
    ) -> Page[Incident]:
        """Return incidents."""
        with translated("searching incidents"):
            looks = await self._incident_looks(query)
            return await self._page(looks, self._incident, limit, cursor)

    async def count_incidents(self, query: IncidentSearch) -> Count:
        """Return how many incidents a search would find."""
        with translated("counting incidents"):
            return await count(await self._incident_looks(query))

    async def _incident_looks(self, query: IncidentSearch) -> tuple[Look, ...]:
        place = await self._place(query)
        if place[0] == ():
            return ()
        conditions = {
            **given(
                processInstanceId=query.instance_id,
                tenantId=query.tenant_id,
                type=query.type,
                status=query.status,
            ),
            **place_conditions(place),
        }
        span = within(query.created_after, query.created_before)
        wanted = Wanted(conditions, _ALL_INCIDENTS, {"createdAt": span} if span else {})
        way = choose(_INCIDENT_WAYS, wanted)
        return (way.look(self._collections.incidents, NEWEST, wanted),)


def _due(before: datetime | None) -> Document:
    """Return the range of due dates; a bound in any case, since it is what lets the server use the partial index."""
    return {"dueDate": {"$lt": before or _NEVER}}


def _external_conditions(query: ExternalTaskSearch) -> dict[str, Condition]:
    conditions = given(
        processInstanceId=query.instance_id,
        correlationKey=query.correlation_key,
        tenantId=query.tenant_id,
        assignee=query.assignee,
    )
    if query.unassigned:
        conditions["assignee"] = Condition({"$exists": False}, is_in_keys=False)
    if query.for_people:
        # The type is left out where it is the ordinary one.
        conditions["type"] = Condition(
            {"$in": [None, ExternalTaskType.TASK.value]}, 2, is_in_keys=False
        )
    return conditions
