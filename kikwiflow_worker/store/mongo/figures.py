"""Figures for people: of the nodes of a version, of definitions, of handlers and workers."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime

from kikwiflow_worker.model.runtime import IncidentStatus, InstanceStatus, TopicNode
from kikwiflow_worker.model.texts import check_texts
from kikwiflow_worker.store.mongo.driver import settled
from kikwiflow_worker.store.mongo.errors import translated
from kikwiflow_worker.store.mongo.handler_waits import HandlerWaits
from kikwiflow_worker.store.mongo.keyset import CREATED, NEWEST, STARTED
from kikwiflow_worker.store.mongo.places import (
    NODE_WAY,
    STANDING,
    STANDING_OUTSIDE,
    nodes_with_rows,
)
from kikwiflow_worker.store.mongo.queries import decode_worker
from kikwiflow_worker.store.mongo.search_base import SearchBase
from kikwiflow_worker.store.mongo.visits import average_visits
from kikwiflow_worker.store.mongo.ways import Condition, Wanted, Way, given, one_of
from kikwiflow_worker.store.mongo.windows import MAX_TIME_MS, Look, count
from kikwiflow_worker.store.search import (
    ENDED_LATELY,
    RUNNING,
    Count,
    DefinitionFigures,
    HandlerWait,
    NodeFigures,
    WorkerLook,
)

SILENT_S = 30.0
"""A worker reports every ten seconds; one that has not for so long is silent."""

_INCIDENT_WAY = Way("definition_node", ("processDefinitionId", "status"), ("tenantId",))
_NODE_INCIDENT_WAY = Way(
    "definition_node", ("processDefinitionId", "status", "taskDefinitionId"), ("tenantId",)
)
_RUNNING_WAY = Way("key_status_started", ("processDefinitionKey", "status"))
_TENANT_RUNNING_WAY = Way(
    "tenant_key_status_started", ("tenantId", "processDefinitionKey", "status")
)
_ENDED_WAY = Way("key_ended", ("processDefinitionKey", "status"), ("tenantId",))
_NONE = Count(0)


class Figures(SearchBase):
    """Figures for people."""

    async def measure_nodes(
        self, definition_id: str, node_ids: Sequence[str], *, tenant_id: str | None = None
    ) -> Mapping[str, NodeFigures]:
        """Return figures for each of these nodes of one version."""
        check_texts(definition_id=definition_id, tenant_id=tenant_id)
        with translated("measuring the nodes of a definition"):
            looks = await self._busy_nodes(definition_id, tenant_id)
            events, nodes = self._collections.outbox_events, tuple(dict.fromkeys(node_ids))
            averages = await average_visits(events, definition_id, nodes, tenant_id)
            figures = {}
            for node_id in nodes:
                average = averages.get(node_id)
                tokens, incidents = looks.get(node_id, ((), ()))
                figures[node_id] = NodeFigures(
                    tokens=await count(tokens) if tokens else _NONE,
                    incidents=await count(incidents) if incidents else _NONE,
                    average=average.length if average else None,
                    sampled=average.sampled if average else 0,
                )
        return figures

    async def _busy_nodes(
        self, definition_id: str, tenant_id: str | None
    ) -> dict[str, tuple[tuple[Look, ...], tuple[Look, ...]]]:
        """Return the looks that count tokens and incidents, for nodes that have rows of one kind or another."""
        base = {
            "processDefinitionId": Condition(definition_id),
            **given(tenantId=tenant_id),
        }
        found: dict[str, tuple[tuple[Look, ...], tuple[Look, ...]]] = {}
        parts = self._collections
        for collection, standing in (
            (parts.tasks, STANDING),
            (parts.external_tasks, STANDING_OUTSIDE),
        ):
            for node_id in await nodes_with_rows(collection, definition_id):
                tokens, incidents = found.get(node_id, ((), ()))
                wanted = Wanted(base | {"taskDefinitionId": Condition(node_id), "type": standing})
                found[node_id] = (*tokens, NODE_WAY.look(collection, CREATED, wanted)), incidents
        is_open = {"status": Condition(IncidentStatus.OPEN.value)}
        for node_id in await self._nodes_with_incidents(definition_id):
            tokens, _ = found.get(node_id, ((), ()))
            wanted = Wanted(base | is_open | {"taskDefinitionId": Condition(node_id)})
            look = _NODE_INCIDENT_WAY.look(parts.incidents, NEWEST, wanted)
            found[node_id] = tokens, (look,)
        return found

    async def _nodes_with_incidents(self, definition_id: str) -> tuple[str, ...]:
        found = {"processDefinitionId": definition_id, "status": IncidentStatus.OPEN.value}
        nodes = await settled(
            self._collections.incidents.distinct("taskDefinitionId", found, maxTimeMS=MAX_TIME_MS)
        )
        return tuple(nodes)

    async def measure_definitions(
        self, keys: Sequence[str], *, tenant_id: str | None = None
    ) -> Mapping[str, DefinitionFigures]:
        """Return figures for each of these keys."""
        since = self._time.now() - ENDED_LATELY
        with translated("measuring definitions"):
            return {
                key: await self._measure_definition(key, tenant_id, since)
                for key in dict.fromkeys(keys)
            }

    async def _measure_definition(
        self, key: str, tenant_id: str | None, since: datetime
    ) -> DefinitionFigures:
        parts = self._collections
        named = given(processDefinitionKey=key, tenantId=tenant_id)
        running = Wanted(named | {"status": one_of([each.value for each in RUNNING])})
        way = _RUNNING_WAY if tenant_id is None else _TENANT_RUNNING_WAY
        completed, cancelled = (
            _ENDED_WAY.look(
                parts.history,
                STARTED,
                Wanted(
                    named | {"status": Condition(status.value)}, span={"endedAt": {"$gte": since}}
                ),
            )
            for status in (InstanceStatus.COMPLETED, InstanceStatus.CANCELLED)
        )
        counts = await asyncio.gather(
            count((way.look(parts.instances, STARTED, running),)),
            self._open_incidents(key, tenant_id),
            count((completed,)),
            count((cancelled,)),
        )
        return DefinitionFigures(
            running=counts[0], incidents=counts[1], completed=counts[2], cancelled=counts[3]
        )

    async def _open_incidents(self, key: str, tenant_id: str | None) -> Count:
        versions = await self._versions((), (key,))
        if not versions:
            return _NONE
        wanted = Wanted(
            {
                "processDefinitionId": one_of(versions),
                "status": Condition(IncidentStatus.OPEN.value),
                **given(tenantId=tenant_id),
            }
        )
        return await count((_INCIDENT_WAY.look(self._collections.incidents, NEWEST, wanted),))

    async def list_handler_waits(self, *, tenant_id: str | None = None) -> tuple[HandlerWait, ...]:
        """Return what due tasks need, those without a worker first."""
        with translated("looking for waiting tasks"):
            served = _served(await self.list_workers())
            waits = HandlerWaits(self._collections, self._time.now(), tenant_id)
            found = [
                HandlerWait(
                    handler_name=name,
                    waiting=waiting,
                    oldest=oldest,
                    is_served=await served.has_all(waits, name, tenant_id),
                )
                for name, waiting, oldest in await waits.find()
            ]
        return tuple(sorted(found, key=lambda wait: (wait.is_served, wait.handler_name)))

    async def list_workers(self) -> tuple[WorkerLook, ...]:
        """Return the workers that were seen in the last day, by name."""
        now = self._time.now()
        cursor = self._collections.workers.find({}, max_time_ms=MAX_TIME_MS, hint="seen")
        with translated("listing workers"):
            rows = await cursor.sort("seenAt", -1).limit(1_000).to_list(1_000)
        looks = []
        for worker in map(decode_worker, rows):
            silent_s = max(0.0, (now - worker.seen_at).total_seconds())
            looks.append(WorkerLook(worker, silent_s, silent_s > SILENT_S + worker.busy_s))
        return tuple(sorted(looks, key=lambda look: (look.worker.instance_name, look.worker.id)))


@dataclass(frozen=True, slots=True)
class _Served:
    """What workers that live take, and whose: of a tenant, or of all for None."""

    handlers: Mapping[str, AbstractSet[str | None]]
    nodes: AbstractSet[tuple[TopicNode, str | None]]

    async def has_all(self, waits: HandlerWaits, handler_name: str, tenant_id: str | None) -> bool:
        """Return whether each due task that needs a handler has a worker: one for all tenants, or one for its own."""
        takers = self.handlers.get(handler_name, set())
        if None in takers or (tenant_id is not None and tenant_id in takers):
            return True
        named = {taker for taker in takers if taker is not None}
        if tenant_id is None and named and not await waits.has_others(handler_name, named):
            return True
        if not self.nodes:
            return False
        return not await waits.has_others_at_the_head(handler_name, named, self.nodes)


def _served(looks: Iterable[WorkerLook]) -> _Served:
    handlers: dict[str, set[str | None]] = {}
    nodes: set[tuple[TopicNode, str | None]] = set()
    for worker in (look.worker for look in looks if look.is_alive):
        for handler in worker.handlers:
            handlers.setdefault(handler, set()).add(worker.tenant_id)
        nodes |= {(node, worker.tenant_id) for node in worker.nodes}
    return _Served(handlers, nodes)
