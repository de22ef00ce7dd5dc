"""Looks up who may read which variable; contracts are those of ``RuleStore``."""

from collections.abc import Collection, Mapping

from kikwiflow_worker.model.definition import ProcessDefinition
from kikwiflow_worker.store.mongo.codec import decode_rules
from kikwiflow_worker.store.mongo.collections import Collections
from kikwiflow_worker.store.mongo.definitions import Definitions
from kikwiflow_worker.store.mongo.errors import translated

_MAX_TIME_MS = 5_000


class Rules:
    """The rules of one database."""

    def __init__(self, collections: Collections, definitions: Definitions) -> None:
        self._collections = collections
        self._definitions = definitions

    async def find_inherited(
        self, instance_ids: Collection[str]
    ) -> Mapping[str, Mapping[str, str]]:
        """Return the rules of children, by their ids: one read by id of each of the two collections."""
        found = {"_id": {"$in": list(instance_ids)}, "inheritedRules": {"$exists": True}}
        rules: dict[str, Mapping[str, str]] = {}
        if not instance_ids:
            return rules
        with translated("looking up who may read variables"):
            for collection in (self._collections.instances, self._collections.history):
                rows = collection.find(found, {"inheritedRules": 1}, max_time_ms=_MAX_TIME_MS)
                rules |= {row["_id"]: decode_rules(row) for row in await rows.to_list(None)}
        return rules

    async def find_definitions(self, names: Collection[str]) -> tuple[ProcessDefinition, ...]:
        """Return the versions with a rule for one of ``names``, by an index."""
        with translated("looking up which definitions mask a variable"):
            found = {"ruledVariables": {"$in": list(names)}}
            rows = self._collections.definitions.find(found, {"_id": 1}, max_time_ms=_MAX_TIME_MS)
            ids = [row["_id"] for row in await rows.to_list(None)]
        versions = [await self._definitions.find(definition_id) for definition_id in ids]
        return tuple(version for version in versions if version is not None)
