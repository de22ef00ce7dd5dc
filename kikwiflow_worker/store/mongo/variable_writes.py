"""Writes variables of running instances, and refuses what would make one too large to be stored.

Steps check the limit on what they loaded (``model.limits``). What parallel branches, children and people add at the same
time comes together here only, so here it is decided, in the commit, on the document itself.
"""

from collections.abc import Sequence
from typing import assert_never

from bson import encode

from kikwiflow_worker.errors import VariableTooLargeError
from kikwiflow_worker.model.limits import MAX_DOCUMENT_BYTES
from kikwiflow_worker.model.runtime import InstanceStatus
from kikwiflow_worker.model.variables import (
    AppendToVariable,
    IncrementVariable,
    SetVariable,
    UnsetVariable,
    VariableChange,
)
from kikwiflow_worker.store.mongo.codec import encode_value, encode_variable, escape_key
from kikwiflow_worker.store.mongo.driver import (
    CODEC_OPTIONS,
    Collection,
    Document,
    Session,
    settled,
)

RUNNING = {"$in": [InstanceStatus.ACTIVE.value, InstanceStatus.SUSPENDED.value]}
"""The status of an instance that may still be changed."""

_STORED_SIZE = {"$bsonSize": "$$ROOT"}
_GROWING = {"$set", "$push"}


async def write_variables(
    instances: Collection, instance_id: str, update: Document, *, session: Session
) -> bool:
    """Write an update of variables; return False if the instance does not run.

    One command, unless the instance comes near the limit: then a second one looks what the update really makes of it,
    since what is replaced counts twice before.

    Raises:
        VariableTooLargeError: The document would pass ``MAX_DOCUMENT_BYTES``. The transaction must be aborted.
    """
    found: Document = {"_id": instance_id, "status": RUNNING}
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


def variable_update(changes: Sequence[VariableChange]) -> Document:
    """Return the update for net changes of variables, each by its own path (protocol R17)."""
    update: Document = {}
    for change in changes:
        path = f"variables.{escape_key(change.name)}"
        match change:
            case SetVariable(name, value):
                update.setdefault("$set", {})[path] = encode_variable(name, value)
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
