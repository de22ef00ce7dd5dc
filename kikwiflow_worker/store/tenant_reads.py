"""One tenant's view of the ports for people; see ``kikwiflow_worker.store.tenancy``."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeVar

from kikwiflow_worker.model.definition import ProcessDefinition
from kikwiflow_worker.model.events import EventType
from kikwiflow_worker.model.runtime import ExecutableTask, ExternalTask, Incident, ProcessInstance
from kikwiflow_worker.store.access import AuditEntry, AuditLog, AuditQuery
from kikwiflow_worker.store.protocol import ReadStore
from kikwiflow_worker.store.rules import RuleStore
from kikwiflow_worker.store.search import (
    Count,
    DefinitionFigures,
    ExternalTaskSearch,
    HandlerWait,
    IncidentSearch,
    InstanceSearch,
    NodeFigures,
    Path,
    SearchStore,
    Standing,
    TaskSearch,
    TimelineEvent,
    TimerSearch,
    WorkerLook,
)
from kikwiflow_worker.store.tenancy import Tenancy, refusal
from kikwiflow_worker.store.views import (
    CompletedExternalTask,
    DefinitionSummary,
    ExternalTaskQuery,
    IncidentQuery,
    InstanceQuery,
    Page,
    QueueMeasures,
    TaskQuery,
    WorkerRecord,
)

Query = TypeVar(
    "Query",
    AuditQuery,
    ExternalTaskQuery,
    ExternalTaskSearch,
    IncidentQuery,
    IncidentSearch,
    InstanceQuery,
    InstanceSearch,
    TaskQuery,
    TaskSearch,
    TimerSearch,
)


def _narrowed(query: Query, tenant_id: str) -> Query | None:
    """Return a query for the tenant only; None if it is for another one, of which there is nothing to find."""
    if query.tenant_id not in {None, tenant_id}:
        return None
    return replace(query, tenant_id=tenant_id)


@dataclass(frozen=True, slots=True)
class TenantReadStore:
    """``ReadStore`` for one tenant."""

    _inner: ReadStore
    _tenancy: Tenancy

    async def list_definitions(self, *, key: str | None = None) -> tuple[DefinitionSummary, ...]:
        """Return the definitions, which all tenants share."""
        return await self._inner.list_definitions(key=key)

    async def list_instances(
        self, query: InstanceQuery, *, limit: int = 50, cursor: str | None = None
    ) -> Page[ProcessInstance]:
        """Return instances of the tenant."""
        own = _narrowed(query, self._tenancy.tenant_id)
        if own is None:
            return Page((), None)
        return await self._inner.list_instances(own, limit=limit, cursor=cursor)

    async def list_tasks(
        self, query: TaskQuery, *, limit: int = 50, cursor: str | None = None
    ) -> Page[ExecutableTask]:
        """Return executable tasks of the tenant."""
        own = _narrowed(query, self._tenancy.tenant_id)
        if own is None:
            return Page((), None)
        return await self._inner.list_tasks(own, limit=limit, cursor=cursor)

    async def list_external_tasks(
        self, query: ExternalTaskQuery, *, limit: int = 50, cursor: str | None = None
    ) -> Page[ExternalTask]:
        """Return open external tasks of the tenant."""
        own = _narrowed(query, self._tenancy.tenant_id)
        if own is None:
            return Page((), None)
        return await self._inner.list_external_tasks(own, limit=limit, cursor=cursor)

    async def list_incidents(
        self, query: IncidentQuery, *, limit: int = 50, cursor: str | None = None
    ) -> Page[Incident]:
        """Return incidents of the tenant."""
        own = _narrowed(query, self._tenancy.tenant_id)
        if own is None:
            return Page((), None)
        return await self._inner.list_incidents(own, limit=limit, cursor=cursor)

    async def find_incident(self, incident_id: str) -> Incident | None:
        """Return one incident of the tenant."""
        return self._tenancy.kept(await self._inner.find_incident(incident_id))

    async def find_task(self, task_id: str) -> ExecutableTask | None:
        """Return one executable task of the tenant."""
        return self._tenancy.kept(await self._inner.find_task(task_id))

    async def find_completed_external_task(self, task_id: str) -> CompletedExternalTask | None:
        """Return the record of a completion, if the instance is the tenant's."""
        found = await self._inner.find_completed_external_task(task_id)
        if found is None or not await self._tenancy.owns_instance(found.instance_id):
            return None
        return found

    async def count_by_status(self, *, definition_key: str | None = None) -> dict[str, int]:
        """Refuse: it counts the instances of all."""
        raise refusal("counting all instances by status")

    async def list_workers(self) -> tuple[WorkerRecord, ...]:
        """Refuse: workers serve all."""
        raise refusal("the list of workers")

    async def measure_queue(self) -> QueueMeasures:
        """Refuse: it measures the queue of all."""
        raise refusal("the queue's figures")

    async def record_worker(self, record: WorkerRecord) -> None:
        """Refuse: workers serve all."""
        raise refusal("recording a worker")


@dataclass(frozen=True, slots=True)
class TenantSearchStore:
    """``SearchStore`` for one tenant."""

    _inner: SearchStore
    _tenant_id: str

    async def search_instances(
        self, query: InstanceSearch, *, limit: int = 20, cursor: str | None = None
    ) -> Page[ProcessInstance]:
        """Return instances of the tenant."""
        own = _narrowed(query, self._tenant_id)
        if own is None:
            return Page((), None)
        return await self._inner.search_instances(own, limit=limit, cursor=cursor)

    async def count_instances(self, query: InstanceSearch) -> Count:
        """Count instances of the tenant."""
        own = _narrowed(query, self._tenant_id)
        return Count(0) if own is None else await self._inner.count_instances(own)

    async def search_tasks(
        self, query: TaskSearch, *, limit: int = 20, cursor: str | None = None
    ) -> Page[ExecutableTask]:
        """Return executable tasks of the tenant."""
        own = _narrowed(query, self._tenant_id)
        if own is None:
            return Page((), None)
        return await self._inner.search_tasks(own, limit=limit, cursor=cursor)

    async def count_tasks(self, query: TaskSearch) -> Count:
        """Count executable tasks of the tenant."""
        own = _narrowed(query, self._tenant_id)
        return Count(0) if own is None else await self._inner.count_tasks(own)

    async def search_external_tasks(
        self, query: ExternalTaskSearch, *, limit: int = 20, cursor: str | None = None
    ) -> Page[ExternalTask]:
        """Return open external tasks of the tenant."""
        own = _narrowed(query, self._tenant_id)
        if own is None:
            return Page((), None)
        return await self._inner.search_external_tasks(own, limit=limit, cursor=cursor)

    async def count_external_tasks(self, query: ExternalTaskSearch) -> Count:
        """Count open external tasks of the tenant."""
        own = _narrowed(query, self._tenant_id)
        return Count(0) if own is None else await self._inner.count_external_tasks(own)

    async def find_deadlines(
        self, task_ids: Sequence[str], *, tenant_id: str | None = None
    ) -> Mapping[str, datetime]:
        """Return the deadlines of those tasks that are the tenant's."""
        if not self._may(tenant_id):
            return {}
        return await self._inner.find_deadlines(task_ids, tenant_id=self._tenant_id)

    async def find_business_keys(
        self, instance_ids: Sequence[str], *, tenant_id: str | None = None
    ) -> Mapping[str, str]:
        """Return the business keys of those instances that are the tenant's."""
        if not self._may(tenant_id):
            return {}
        return await self._inner.find_business_keys(instance_ids, tenant_id=self._tenant_id)

    async def search_incidents(
        self, query: IncidentSearch, *, limit: int = 20, cursor: str | None = None
    ) -> Page[Incident]:
        """Return incidents of the tenant."""
        own = _narrowed(query, self._tenant_id)
        if own is None:
            return Page((), None)
        return await self._inner.search_incidents(own, limit=limit, cursor=cursor)

    async def count_incidents(self, query: IncidentSearch) -> Count:
        """Count incidents of the tenant."""
        own = _narrowed(query, self._tenant_id)
        return Count(0) if own is None else await self._inner.count_incidents(own)

    async def search_timers(
        self, query: TimerSearch, *, limit: int = 20, cursor: str | None = None
    ) -> Page[ExecutableTask]:
        """Return timers of the tenant."""
        own = _narrowed(query, self._tenant_id)
        if own is None:
            return Page((), None)
        return await self._inner.search_timers(own, limit=limit, cursor=cursor)

    async def list_events(
        self,
        instance_id: str,
        *,
        tenant_id: str | None = None,
        types: tuple[EventType, ...] = (),
        newest_first: bool = False,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[TimelineEvent]:
        """Return what happened to an instance of the tenant."""
        if not self._may(tenant_id):
            return Page((), None)
        return await self._inner.list_events(
            instance_id,
            tenant_id=self._tenant_id,
            types=types,
            newest_first=newest_first,
            limit=limit,
            cursor=cursor,
        )

    async def find_path(self, instance_id: str, *, tenant_id: str | None = None) -> Path:
        """Return the path that an instance of the tenant took."""
        if not self._may(tenant_id):
            return Path(visits=(), flows=(), is_complete=False)
        return await self._inner.find_path(instance_id, tenant_id=self._tenant_id)

    async def find_standing(
        self, instance_id: str, *, tenant_id: str | None = None
    ) -> Mapping[str, Standing]:
        """Return where an instance of the tenant stands."""
        if not self._may(tenant_id):
            return {}
        return await self._inner.find_standing(instance_id, tenant_id=self._tenant_id)

    async def measure_nodes(
        self, definition_id: str, node_ids: Sequence[str], *, tenant_id: str | None = None
    ) -> Mapping[str, NodeFigures]:
        """Return figures of the tenant's instances."""
        if not self._may(tenant_id):
            return {}
        return await self._inner.measure_nodes(definition_id, node_ids, tenant_id=self._tenant_id)

    async def measure_definitions(
        self, keys: Sequence[str], *, tenant_id: str | None = None
    ) -> Mapping[str, DefinitionFigures]:
        """Return figures of the tenant's instances."""
        if not self._may(tenant_id):
            return {}
        return await self._inner.measure_definitions(keys, tenant_id=self._tenant_id)

    async def list_handler_waits(self, *, tenant_id: str | None = None) -> tuple[HandlerWait, ...]:
        """Return what the tenant's due tasks need."""
        if not self._may(tenant_id):
            return ()
        return await self._inner.list_handler_waits(tenant_id=self._tenant_id)

    async def list_workers(self) -> tuple[WorkerLook, ...]:
        """Refuse: workers serve all."""
        raise refusal("the list of workers")

    def _may(self, tenant_id: str | None) -> bool:
        return tenant_id in {None, self._tenant_id}


@dataclass(frozen=True, slots=True)
class TenantRuleStore:
    """``RuleStore`` for one tenant: rules come from definitions, which all share, and can only hide more."""

    _inner: RuleStore

    async def find_inherited(
        self, instance_ids: Collection[str]
    ) -> Mapping[str, Mapping[str, str]]:
        """Return the rules of instances."""
        return await self._inner.find_inherited(instance_ids)

    async def find_definitions(self, names: Collection[str]) -> tuple[ProcessDefinition, ...]:
        """Return the versions with a rule for one of these variables."""
        return await self._inner.find_definitions(names)


@dataclass(frozen=True, slots=True)
class TenantAuditLog:
    """``AuditLog`` for one tenant."""

    _inner: AuditLog
    _tenant_id: str

    async def begin(self, entry: AuditEntry) -> None:
        """Refuse: the record is written before anybody's view of it is made."""
        raise refusal("writing the audit")

    async def end(self, entry: AuditEntry) -> None:
        """Refuse, as ``begin``."""
        raise refusal("writing the audit")

    async def withdraw(self, entry: AuditEntry) -> None:
        """Refuse, as ``begin``."""
        raise refusal("writing the audit")

    async def list(
        self, query: AuditQuery, *, limit: int = 50, cursor: str | None = None
    ) -> Page[AuditEntry]:
        """Return what identities of the tenant changed."""
        own = _narrowed(query, self._tenant_id)
        if own is None:
            return Page((), None)
        return await self._inner.list(own, limit=limit, cursor=cursor)
