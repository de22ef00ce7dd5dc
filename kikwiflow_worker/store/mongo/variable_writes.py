"""Writes variables of running instances, and refuses what would make one too large to be stored.

Steps check the limit on what they loaded (``model.limits``). What parallel branches, children and people add at the same
time comes together here only, so here it is decided, in the commit, on the document itself.
"""

from collections.abc import Mapping, Sequence
from typing import assert_never

from bson import encode

from kikwiflow_worker.errors import ExecutionError, StoreError, VariableTooLargeError
from kikwiflow_worker.model.limits import MAX_DOCUMENT_BYTES
from kikwiflow_worker.model.runtime import InstanceStatus
from kikwiflow_worker.model.variables import (
    AppendToVariable,
    IncrementVariable,
    SetVariable,
    UnsetVariable,
    Value,
    VariableChange,
    apply_change,
)
from kikwiflow_worker.store.mongo.collections import Collections
from kikwiflow_worker.store.mongo.driver import (
    CODEC_OPTIONS,
    Collection,
    Document,
    Session,
    fetched,
    settled,
)
from kikwiflow_worker.store.mongo.sealing import Sealing
from kikwiflow_worker.store.mongo.value_codec import (
    decode_variable,
    encode_value,
    encode_variable,
    escape_key,
)

RUNNING = {"$in": [InstanceStatus.ACTIVE.value, InstanceStatus.SUSPENDED.value]}
"""The status of an instance that may still be changed."""

_STORED_SIZE = {"$bsonSize": "$$ROOT"}
_GROWING = {"$set", "$push"}


async def write_variables(
    collections: Collections,
    instance_id: str,
    changes: Sequence[VariableChange],
    *,
    session: Session,
) -> bool:
    """Write net changes of variables; return False if the instance does not run.

    One command, unless the instance comes near the limit: then a second one looks what the update really makes of it,
    since what is replaced counts twice before.

    Raises:
        VariableTooLargeError: The document would pass ``MAX_DOCUMENT_BYTES``. The transaction must be aborted.
        StoreError: What is incremented or appended to is of another type, or cannot be decrypted.
    """
    instances, sealing = collections.instances, collections.sealing
    while True:
        sets, as_seen = await computed(
            instances, {instance_id: changes}, sealing=sealing, session=session
        )
        update = variable_update(sets[instance_id], instance_id, sealing)
        # In a transaction nobody comes in between; without one it is seen, and computed anew.
        found = {} if session is not None else as_seen.get(instance_id, {})
        if await _write_update(instances, instance_id, found, update, session):
            return True
        running = {"_id": instance_id, "status": RUNNING}
        if not found or await settled(instances.find_one(running, {"_id": 1})) is None:
            return False


async def computed(
    instances: Collection,
    changes: Mapping[str, Sequence[VariableChange]],
    *,
    sealing: Sealing | None,
    session: Session,
) -> tuple[Mapping[str, Sequence[VariableChange]], Mapping[str, Document]]:
    """Return net changes of instances with those computed here that the database cannot make to a sealed value.

    Where nothing can be sealed the database computes itself, and nothing is read.

    Returns:
        The changes by instance id, and filters that the instances match as long as they hold what was computed with.

    Raises:
        StoreError: What is incremented or appended to is of another type, as where the database finds it, or cannot be
            decrypted.
    """
    touched = {
        instance_id: own
        for instance_id, all_of_one in changes.items()
        if (own := [c for c in all_of_one if isinstance(c, IncrementVariable | AppendToVariable)])
    }
    if sealing is None or not touched:
        return changes, {}
    fields = {f"variables.{escape_key(c.name)}": 1 for own in touched.values() for c in own}
    rows = instances.find({"_id": {"$in": list(touched)}}, fields, session=session)
    stored = {row["_id"]: row.get("variables", {}) for row in await fetched(rows, len(touched))}
    made = dict(changes)
    as_seen: dict[str, Document] = {}
    for instance_id, own in touched.items():
        entries = stored.get(instance_id, {})
        names = {c.name for c in own}
        values = _applied(own, entries, instance_id, sealing)
        others = [c for c in changes[instance_id] if c.name not in names]
        made[instance_id] = [*others, *(SetVariable(name, values[name]) for name in values)]
        as_seen[instance_id] = {
            f"variables.{key}": {"$eq": entries[key]} if key in entries else {"$exists": False}
            for key in map(escape_key, names)
        }
    return made, as_seen


def _applied(
    changes: Sequence[VariableChange], entries: Document, instance_id: str, sealing: Sealing
) -> dict[str, Value]:
    values: dict[str, Value] = {}
    try:
        for change in changes:
            key = escape_key(change.name)
            if change.name not in values and key in entries:
                stored = entries[key].get("value")
                values[change.name] = decode_variable(change.name, stored, instance_id, sealing)
            apply_change(values, change)
    except ExecutionError as error:
        raise StoreError(f"changing variables of instance {instance_id} failed: {error}") from error
    return values


async def _write_update(
    instances: Collection, instance_id: str, more: Document, update: Document, session: Session
) -> bool:
    found: Document = {"_id": instance_id, "status": RUNNING, **more}
    if not _GROWING & update.keys():
        return await _write(instances, found, update, session)
    if session is None:
        await _refuse_before(instances, found, _added(update))
        return await _write(instances, found, update, session)
    if await _write(instances, {**found, **fitting(update)}, update, session):
        return True
    written = await settled(
        instances.find_one_and_update(
            found,
            update,
            projection={"size": _STORED_SIZE},
            return_document=True,
            session=session,
        )
    )
    if written is None:
        return False
    if written["size"] > MAX_DOCUMENT_BYTES:
        raise _too_large(instance_id, written["size"])
    return True


def fitting(update: Document) -> Document:
    """Return the filter for documents that stay below the limit with ``update``, whatever it replaces in them."""
    if not _GROWING & update.keys():
        return {}
    return {"$expr": {"$lte": [_STORED_SIZE, MAX_DOCUMENT_BYTES - _added(update)]}}


def _added(update: Document) -> int:
    return len(encode(update, codec_options=CODEC_OPTIONS))


async def _write(
    instances: Collection, found: Document, update: Document, session: Session
) -> bool:
    written = await settled(instances.update_one(found, update, session=session))
    return bool(written.matched_count == 1)


async def _refuse_before(instances: Collection, found: Document, added: int) -> None:
    """Refuse without a transaction, where nothing that is written can be taken back: what is replaced counts twice."""
    document = await settled(instances.find_one(found))
    if document is not None:
        size = len(encode(document, codec_options=CODEC_OPTIONS)) + added
        if size > MAX_DOCUMENT_BYTES:
            raise _too_large(document["_id"], size)


def _too_large(instance_id: str, size: int) -> VariableTooLargeError:
    return VariableTooLargeError(
        "(all together)",
        f"would make instance {instance_id} {size:,} bytes as it is stored, the limit is {MAX_DOCUMENT_BYTES:,} "
        "(MAX_DOCUMENT_BYTES); unset what is no longer needed or keep references, then retry",
    )


def variable_update(
    changes: Sequence[VariableChange], owner: str, sealing: Sealing | None
) -> Document:
    """Return the update for net changes of the variables of an instance, each by its own path (protocol R17).

    Args:
        owner: The instance's id.
        sealing: If values can be sealed, what the database cannot compute must be ``computed`` before.
    """
    update: Document = {}
    for change in changes:
        path = f"variables.{escape_key(change.name)}"
        match change:
            case SetVariable(name, value):
                update.setdefault("$set", {})[path] = encode_variable(name, value, owner, sealing)
            case UnsetVariable():
                update.setdefault("$unset", {})[path] = ""
            case IncrementVariable(name, by):
                update.setdefault("$set", {})[f"{path}.name"] = name
                update.setdefault("$inc", {})[f"{path}.value"] = by
            case AppendToVariable(name, value):
                update.setdefault("$set", {})[f"{path}.name"] = name
                each = update.setdefault("$push", {}).setdefault(f"{path}.value", {"$each": []})
                each["$each"].append(encode_value(value))
            case _:
                assert_never(change)
    return update
