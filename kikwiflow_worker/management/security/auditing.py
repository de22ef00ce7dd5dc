"""Records what changes something: before, so that no change goes unrecorded, and what became of it."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from http import HTTPStatus
from uuid import uuid4

from fastapi import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kikwiflow_worker.errors import StoreUnavailableError
from kikwiflow_worker.management.headers import request_id_of
from kikwiflow_worker.management.identity import Identity
from kikwiflow_worker.management.problems import Code
from kikwiflow_worker.management.request_log import route_of
from kikwiflow_worker.management.web.navigation import DASHBOARD_PATH
from kikwiflow_worker.store.access import AuditEntry, AuditLog

DONE = "DONE"
_STATE = "audited"
_LONGEST_ID = 200
_MOST_SUBJECTS = 50


@dataclass(slots=True)
class Audited:
    """The change that is under way.

    Attributes:
        subjects: The ids of what it is about, by what they name.
        changed_nothing: It found nothing to change: if it succeeds, its entry goes.
    """

    log: AuditLog
    entry: AuditEntry
    subjects: dict[str, str] = field(default_factory=dict)
    changed_nothing: bool = False

    async def end(self, status: int) -> None:
        """Note how it was answered; only the first call counts."""
        if self.entry.result is not None:
            return
        subjects = _shortened({**self.entry.subjects, **self.subjects})
        self.entry = replace(self.entry, result=result_of(status), subjects=subjects)
        # The change is made, or is not: that its result cannot be recorded must not make it look otherwise.
        with suppress(StoreUnavailableError):
            if self.changed_nothing and self.entry.result == DONE:
                await self.log.withdraw(self.entry)
            else:
                await self.log.end(self.entry)


async def begin_change(
    request: Request, identity: Identity, log: AuditLog, *, now: Callable[[], datetime]
) -> Audited:
    """Record that ``identity`` is about to make a change; ``Auditing`` records what becomes of it.

    Raises:
        StoreUnavailableError: It cannot be recorded, so it must not be made.
    """
    entry = AuditEntry(
        id=str(uuid4()),
        at=now(),
        actor=identity.actor,
        tenant_id=identity.tenant_id,
        operation=operation_of(request),
        request_id=request_id_of(request),
        subjects=_shortened(request.path_params),
    )
    await log.begin(entry)
    audited = Audited(log, entry)
    request.scope["state"][_STATE] = audited
    return audited


@dataclass(frozen=True, slots=True)
class Auditing:
    """The middleware: notes how a change was answered before the answer is sent."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""

        async def noted(message: Message) -> None:
            if message["type"] == "http.response.start":
                await _end(scope, message["status"])
            await send(message)

        try:
            await self.app(scope, receive, noted)
        except Exception:
            await _end(scope, HTTPStatus.INTERNAL_SERVER_ERROR)
            raise


async def _end(scope: Scope, status: int) -> None:
    audited: Audited | None = scope.get("state", {}).get(_STATE)
    if audited is not None:
        await audited.end(status)


def operation_of(request: Request) -> str:
    """Return the operation's id in the API's description, or a page's method and path without the ids in it."""
    operation = getattr(request.scope.get("route"), "operation_id", None)
    return str(operation or f"{request.method} {route_of(request.scope, (DASHBOARD_PATH,))}")


def result_of(status: int) -> str:
    """Return what became of a change that was answered with ``status``."""
    if status < HTTPStatus.BAD_REQUEST:
        return DONE
    return next((code.value for code in Code if code.status == status), f"HTTP_{status}")


def _shortened(subjects: Mapping[str, object]) -> dict[str, str]:
    return {
        name: str(value)[:_LONGEST_ID] for name, value in list(subjects.items())[:_MOST_SUBJECTS]
    }
