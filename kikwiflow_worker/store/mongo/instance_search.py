"""Searches of instances, running and ended: by what they are, and by where they stand."""

from collections.abc import Mapping, Sequence

from kikwiflow_worker.errors import OperationError
from kikwiflow_worker.model.runtime import InstanceStatus, ProcessInstance
from kikwiflow_worker.model.variables import Value
from kikwiflow_worker.store.mongo.driver import BY_ID, Collection, Document, fetched
from kikwiflow_worker.store.mongo.errors import translated
from kikwiflow_worker.store.mongo.keyset import CREATED, STARTED
from kikwiflow_worker.store.mongo.places import (
    NODE_WAY,
    STANDING,
    STANDING_OUTSIDE,
    find_places,
)
from kikwiflow_worker.store.mongo.search_base import Behind, SearchBase
from kikwiflow_worker.store.mongo.value_codec import encode_value, escape_key
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
from kikwiflow_worker.store.mongo.windows import MAX_TIME_MS, Look, count, every
from kikwiflow_worker.store.search import ENDED, RUNNING, Count, InstanceSearch
from kikwiflow_worker.store.views import Page

_MAX_IDS = 500
_WAYS = (
    Way("parent_started", ("parentInstanceId",)),
    Way("business_key", ("businessKey",)),
    Way("tenant_key_status_started", ("tenantId", "processDefinitionKey", "status")),
    Way("tenant_started", ("tenantId",)),
    Way("key_status_started", ("processDefinitionKey", "status")),
    Way("status_started", ("status",)),
)


class InstanceSearches(SearchBase):
    """Searches of instances."""

    async def search_instances(
        self, query: InstanceSearch, *, limit: int = 20, cursor: str | None = None
    ) -> Page[ProcessInstance]:
        """Return instances."""
        self._check_values(query)
        with translated("searching instances"):
            if query.node_id is None:
                looks = await self._instance_looks(query)
                return await self._page(looks, self._instance, limit, cursor)
            looks = await self._token_looks(query)
            if not looks:
                return Page((), None)
            found = every(_documents(query), _more(query), _span(query))
            behind = Behind("processInstanceId", self._collections.instances, found, self._instance)
            return await self._page_behind(looks, behind, limit, cursor)

    async def count_instances(self, query: InstanceSearch) -> Count:
        """Return how many instances a search would find; for a node, how many paths stand there."""
        self._check_values(query)
        with translated("counting instances"):
            if query.node_id is None:
                return await count(await self._instance_looks(query))
            return await count(await self._token_looks(query))

    def _check_values(self, query: InstanceSearch) -> None:
        if query.variables and self._collections.sealing is not None:
            raise OperationError(
                "variables are encrypted here, so that none can be searched by its value; search by the business key, or "
                "by the name of a variable"
            )

    async def find_business_keys(
        self, instance_ids: Sequence[str], *, tenant_id: str | None = None
    ) -> Mapping[str, str]:
        """Return the business keys of running instances, for those that run."""
        wanted = {**among(_id=instance_ids[:_MAX_IDS]), **given(tenantId=tenant_id)}
        if "_id" not in wanted:
            return {}
        found = {name: each.wanted for name, each in wanted.items()}
        with translated("looking for business keys"):
            rows = self._collections.instances.find(
                found, {"businessKey": 1}, max_time_ms=MAX_TIME_MS, hint=BY_ID
            )
            return {row["_id"]: row["businessKey"] for row in await fetched(rows, _MAX_IDS)}

    async def _instance_looks(self, query: InstanceSearch) -> tuple[Look, ...]:
        conditions = _conditions(query)
        if query.definition_ids:
            keys = await self._keys_of(query.definition_ids)
            if not keys:
                return ()
            conditions |= among(processDefinitionId=query.definition_ids)
            conditions.setdefault("processDefinitionKey", one_of(keys))
        running, ended = _statuses(query)
        looks = [
            self._look(collection, query, conditions, statuses, every_one)
            for collection, statuses, every_one in (
                (self._collections.instances, running, RUNNING),
                (self._collections.history, ended, ENDED),
            )
            if statuses
        ]
        return tuple(looks)

    def _look(
        self,
        collection: Collection,
        query: InstanceSearch,
        conditions: dict[str, Condition],
        statuses: Sequence[InstanceStatus],
        every_one: Sequence[InstanceStatus],
    ) -> Look:
        status = {"status": one_of([each.value for each in statuses])}
        matters = len(statuses) < len(every_one)
        span = _span(query)
        wanted = Wanted(conditions | (status if matters else {}), status, span)
        look = choose(_WAYS, wanted).look(collection, STARTED, wanted)
        return look.with_rest(_more(query))

    async def _token_looks(self, query: InstanceSearch) -> tuple[Look, ...]:
        versions = await self._versions(query.definition_ids, query.definition_keys)
        running, _ = _statuses(query)
        if versions == () or not running:
            return ()
        looks: list[Look] = []
        for collection, standing in (
            (self._collections.tasks, STANDING),
            (self._collections.external_tasks, STANDING_OUTSIDE),
        ):
            wanted = Wanted({**given(tenantId=query.tenant_id), "type": standing})
            places = await find_places(collection, versions, query.node_id)
            looks += [
                NODE_WAY.look(collection, CREATED, wanted.also(each))
                for each in places.conditions()
            ]
        return tuple(looks)


def _statuses(
    query: InstanceSearch,
) -> tuple[tuple[InstanceStatus, ...], tuple[InstanceStatus, ...]]:
    wanted = query.statuses or RUNNING
    return (
        tuple(each for each in RUNNING if each in wanted),
        tuple(each for each in ENDED if each in wanted),
    )


def _conditions(query: InstanceSearch) -> dict[str, Condition]:
    """Return the conditions on fields that an index may lead with; not the status."""
    return {
        **given(parentInstanceId=query.parent_id, tenantId=query.tenant_id),
        **among(businessKey=query.business_keys, processDefinitionKey=query.definition_keys),
    }


def _span(query: InstanceSearch) -> Document:
    span = within(query.started_after, query.started_before)
    return {"startedAt": span} if span else {}


def _more(query: InstanceSearch) -> Document:
    """Return what only the documents tell: their variables."""
    return every(
        *(_equals(name, value) for name, value in query.variables.items()),
        *({f"variables.{escape_key(name)}": {"$exists": True}} for name in query.variables_exist),
        *({f"inheritedRules.{escape_key(n)}": {"$exists": False}} for n in query.not_inherited),
    )


def _equals(name: str, value: Value) -> Document:
    """Return the filter for a variable that is ``value`` as a whole: a plain equality finds it inside lists too."""
    path = f"$variables.{escape_key(name)}.value"
    return {"$expr": {"$eq": [path, {"$literal": encode_value(value)}]}}


def _documents(query: InstanceSearch) -> Document:
    """Return the filter for the running instances, on fields that an index might lead with."""
    running, _ = _statuses(query)
    conditions = _conditions(query)
    if len(running) < len(RUNNING):
        conditions["status"] = one_of([each.value for each in running])
    return {name: each.wanted for name, each in conditions.items()}
