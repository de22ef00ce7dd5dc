"""Visits: one passage of a path through a node, and the id that belongs to it."""

import re
from dataclasses import dataclass
from hashlib import sha1
from uuid import NAMESPACE_OID, UUID, uuid5

from kikwiflow_worker.model.capability import Capability
from kikwiflow_worker.model.nodes import FlowNode
from kikwiflow_worker.model.runtime import Attachment, Branch, ExecutableTask, TaskType


@dataclass(frozen=True, slots=True)
class Visit:
    """One passage of a path through a node.

    Attributes:
        id: The id of the row that rests here, if one does, and the idempotency key of the user code that runs here
            (protocol R5). It follows from the visit before, so it does not depend on where a path was cut into segments.
        task_type: Of the row, if one rests here.
        capability: The user code that the node needs, if any.
        head: The claimed task that is being resumed here, if any.
        attached_to: The host, for a boundary event.
    """

    id: str
    node: FlowNode
    task_type: TaskType
    branch: Branch | None = None
    capability: Capability | None = None
    head: ExecutableTask | None = None
    attached_to: Attachment | None = None


def derived_id(before: str, name: str) -> str:
    """Return the id of what follows ``before`` under ``name``: the same whenever a step is repeated.

    It is ``uuid5(UUID(before), name)``, written out because every node that a path passes needs one.
    """
    text = sha1(_namespace(before) + name.encode(), usedforsecurity=False).hexdigest()
    variant = _VARIANTS[text[16]]
    return f"{text[:8]}-{text[8:12]}-5{text[13:16]}-{variant}{text[17:20]}-{text[20:32]}"


def part_id(of: str, name: str) -> str:
    """Return the id of what belongs to ``of`` and is no node, such as a cycle: that of no node, whatever nodes are called."""
    return str(uuid5(NAMESPACE_OID, f"part of {of}\n{name}"))


_CANONICAL = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

_VARIANTS = {digit: "89ab"[int(digit, 16) % 4] for digit in "0123456789abcdef"}
"""The digit by which a UUID of RFC 4122 says so, for each that the hash may have in its place."""


def _namespace(before: str) -> bytes:
    """Return the bytes of the UUID ``before``, or of one that stands for it: callers name some things themselves."""
    if _CANONICAL.fullmatch(before):
        return bytes.fromhex(before.replace("-", ""))
    try:
        return UUID(before).bytes
    except ValueError:
        return uuid5(NAMESPACE_OID, before).bytes
