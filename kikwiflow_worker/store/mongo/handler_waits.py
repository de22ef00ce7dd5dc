"""What due tasks need, by handler."""

from collections.abc import Collection
from datetime import datetime
from typing import Any

from kikwiflow_worker.model.runtime import TopicNode
from kikwiflow_worker.model.texts import check_texts
from kikwiflow_worker.store.mongo.codec import encode_topic_node
from kikwiflow_worker.store.mongo.collections import Collections
from kikwiflow_worker.store.mongo.driver import Document, settled
from kikwiflow_worker.store.mongo.windows import MAX_TIME_MS
from kikwiflow_worker.store.search import COUNT_CAP, Count

_MAX_HANDLERS = 200
_HEAD = 100
_PRIORITIES = list(range(10))


class HandlerWaits:
    """Due tasks by handler; locks that have lapsed are due as well.

    One seek leads from each handler to the next, so that none is hidden behind the backlog of another.
    """

    def __init__(self, collections: Collections, now: datetime, tenant_id: str | None) -> None:
        check_texts(tenant_id=tenant_id)
        self._tasks = collections.tasks
        # The type is what lets the server use the partial indexes.
        self._due: Document = {"claimableAt": {"$type": "date", "$lte": now}}
        self._index = "claim"
        self._of_handler: Document = {}
        if tenant_id is not None:
            self._due["tenantId"] = tenant_id
            self._index = "fair_claim"
            # Between the handler and the time: named, they are ten ranges that the server merges.
            self._of_handler = {"priority": {"$in": _PRIORITIES}}

    async def find(self) -> list[tuple[str, Count, datetime]]:
        """Return each handler, how many due tasks need it, and since when the oldest waits; the first ones by name."""
        found: list[tuple[str, Count, datetime]] = []
        after = ""
        while len(found) < _MAX_HANDLERS:
            ahead = {**self._due, "handlerName": {"$gt": after}}
            after = await self._least(ahead, "handlerName")
            if after is None:
                break
            due = {**self._due, **self._of_handler, "handlerName": after}
            oldest = await self._least(due, "claimableAt")
            if oldest is not None:
                found.append((after, await self._count(due), oldest))
        return found

    async def has_others(self, handler_name: str, tenants: Collection[str]) -> bool:
        """Return whether a due task that needs a handler belongs to none of ``tenants``."""
        of_others = {
            **self._due,
            "tenantId": {"$nin": sorted(tenants)},
            "handlerName": handler_name,
            "priority": {"$in": _PRIORITIES},
        }
        row = await settled(
            self._tasks.find_one(of_others, {"_id": 1}, hint="fair_claim", max_time_ms=MAX_TIME_MS)
        )
        return row is not None

    async def has_others_at_the_head(
        self,
        handler_name: str,
        tenants: Collection[str],
        nodes: Collection[tuple[TopicNode, str | None]],
    ) -> bool:
        """Return whether one of the ``_HEAD`` oldest tasks that need a handler is of none of these tenants and at no such node.

        What is served goes away, so a task that is not comes to the head in time; a look at all has no end.

        Args:
            nodes: Each with the tenant whose tasks are taken there, or None for those of all.
        """
        due = {**self._due, **self._of_handler, "handlerName": handler_name}
        at_nodes = [
            {
                "topicNode": encode_topic_node(node),
                **({} if tenant is None else {"tenantId": tenant}),
            }
            for node, tenant in nodes
        ]
        pipeline = [
            {"$match": due},
            {"$sort": {"claimableAt": 1}},
            {"$limit": _HEAD},
            {"$match": {"$nor": [{"tenantId": {"$in": sorted(tenants)}}, *at_nodes]}},
            {"$limit": 1},
        ]
        cursor = await settled(
            self._tasks.aggregate(pipeline, hint=self._index, maxTimeMS=MAX_TIME_MS)
        )
        return bool(await cursor.to_list(1))

    async def _least(self, found: Document, name: str) -> Any:
        """Return the least value of a field; None if there is no row."""
        row = await settled(
            self._tasks.find_one(
                found, {"_id": 0, name: 1}, sort=[(name, 1)], hint=self._index, max_time_ms=MAX_TIME_MS
            )
        )  # fmt: skip
        return row[name] if row else None

    async def _count(self, due: Document) -> Count:
        number = await settled(
            self._tasks.count_documents(
                due, limit=COUNT_CAP + 1, hint=self._index, maxTimeMS=MAX_TIME_MS
            )
        )
        return Count(min(number, COUNT_CAP), number > COUNT_CAP)
