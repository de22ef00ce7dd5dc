"""Records what changes something: before, so that no change goes unrecorded, and what became of it."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from uuid import uuid4

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from kikwiflow_worker.errors import KikwiflowError, StoreUnavailableError
from kikwiflow_worker.management.headers import request_id_of
from kikwiflow_worker.management.identity import Identity
from kikwiflow_worker.management.problems import problem_of
from kikwiflow_worker.store.access import AuditEntry, AuditLog

DONE = "DONE"
_LONGEST_ID = 200
_MOST_SUBJECTS = 50


@dataclass(slots=True)
class Audited:
    """The change that is under way; ``subjects`` are the ids of what it is about, by what they name."""

    subjects: dict[str, str] = field(default_factory=dict)


@asynccontextmanager
async def audited(
    request: Request, identity: Identity, log: AuditLog, *, now: Callable[[], datetime]
) -> AsyncIterator[Audited]:
    """Record that ``identity`` is about to make a change, and afterwards what became of it.

    Raises:
        StoreUnavailableError: It cannot be recorded; the block was not entered.
    """
    change = Audited(dict(request.path_params))
    entry = AuditEntry(
        id=str(uuid4()),
        at=now(),
        actor=identity.actor,
        tenant_id=identity.tenant_id,
        operation=operation_of(request),
        request_id=request_id_of(request),
        subjects=_shortened(change.subjects),
    )
    await log.begin(entry)
    try:
        yield change
    except Exception as error:
        await _end(log, entry, change, _result_of(error))
        raise
    await _end(log, entry, change, DONE)


async def _end(log: AuditLog, entry: AuditEntry, change: Audited, result: str) -> None:
    # The change is made, or is not: that its result cannot be recorded must not make it look otherwise.
    with suppress(StoreUnavailableError):
        await log.end(replace(entry, subjects=_shortened(change.subjects), result=result))


def operation_of(request: Request) -> str:
    """Return the operation's id in the API's description, or a page's method and path without the ids in it."""
    route = request.scope.get("route")
    operation = getattr(route, "operation_id", None)
    return str(operation or f"{request.method} {getattr(route, 'path', request.url.path)}")


def _result_of(error: Exception) -> str:
    match error:
        case KikwiflowError():
            return problem_of(error).code
        case RequestValidationError():
            return "BAD_REQUEST"
        case HTTPException(status_code=status):
            return f"HTTP_{status}"
        case _:
            return "INTERNAL"


def _shortened(subjects: dict[str, str]) -> dict[str, str]:
    return {
        name: str(value)[:_LONGEST_ID] for name, value in list(subjects.items())[:_MOST_SUBJECTS]
    }
