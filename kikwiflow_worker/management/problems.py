"""Errors as RFC 9457 problem documents, each with a code that programs may rely on.

``docs/reference/problem-codes.md`` is made from ``Code``.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from http import HTTPStatus
from typing import Any, ClassVar, Self

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from kikwiflow_worker.errors import (
    ClaimLostError,
    ConflictError,
    DefinitionError,
    DefinitionNotFoundError,
    DuplicateMessageError,
    DuplicateStartError,
    ExecutionError,
    InvalidDefinitionError,
    KikwiflowError,
    LockLostError,
    NotFoundError,
    OperationError,
    StoreUnavailableError,
    TenantBoundError,
    VariableError,
)
from kikwiflow_worker.model.texts import storable
from kikwiflow_worker.telemetry import mask_credentials

PROBLEM_TYPE = "application/problem+json"
RETRY_AFTER_S = 2
_LONGEST_DETAIL = 4_000


class Code(StrEnum):
    """What is wrong with a request, for programs; a code never changes its meaning.

    Attributes:
        status: That it is answered with.
        meaning: What happened and what to do, in one line.
    """

    status: HTTPStatus
    meaning: str

    def __new__(cls, name: str, status: HTTPStatus, meaning: str) -> Self:
        """Make a member whose value is ``name``."""
        member = str.__new__(cls, name)
        member._value_ = name
        member.status = status
        member.meaning = meaning
        return member

    BAD_REQUEST = (
        "BAD_REQUEST",
        HTTPStatus.BAD_REQUEST,
        "The request is not as the API's description says; `problems` lists where.",
    )
    UNAUTHENTICATED = (
        "UNAUTHENTICATED",
        HTTPStatus.UNAUTHORIZED,
        "It carries no credentials, or none that are valid.",
    )
    FORBIDDEN = "FORBIDDEN", HTTPStatus.FORBIDDEN, "The caller lacks the role that it needs."
    NOT_FOUND = (
        "NOT_FOUND",
        HTTPStatus.NOT_FOUND,
        "Nothing of the caller's tenant has this id, or it has ended; also: there is no such path.",
    )
    DEFINITION_NOT_FOUND = (
        "DEFINITION_NOT_FOUND",
        HTTPStatus.NOT_FOUND,
        "No definition has this key, version or id.",
    )
    METHOD_NOT_ALLOWED = (
        "METHOD_NOT_ALLOWED",
        HTTPStatus.METHOD_NOT_ALLOWED,
        "The path is there, but not with this method; `Allow` names those that it has.",
    )
    CROSS_SITE = "CROSS_SITE", HTTPStatus.FORBIDDEN, "A page of another site sent it."
    UNKNOWN_HOST = (
        "UNKNOWN_HOST",
        HTTPStatus.MISDIRECTED_REQUEST,
        "It names a host that is not served while everybody is trusted; configure authentication to use another name.",
    )
    CONFLICT = (
        "CONFLICT",
        HTTPStatus.CONFLICT,
        "The state does not allow it, or somebody else was faster; look at it again.",
    )
    LOCK_LOST = (
        "LOCK_LOST",
        HTTPStatus.CONFLICT,
        "The lock of a fetched task lapsed and somebody else has it; drop what was done for it and fetch again.",
    )
    STEP_FAILED = (
        "STEP_FAILED",
        HTTPStatus.CONFLICT,
        "A node behind it failed, so nothing was changed; put right what the detail names and repeat.",
    )
    IDEMPOTENCY_KEY_IN_USE = (
        "IDEMPOTENCY_KEY_IN_USE",
        HTTPStatus.CONFLICT,
        "The first request with this `Idempotency-Key` is still under way; repeat after `Retry-After`.",
    )
    TOO_LARGE = (
        "TOO_LARGE",
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        "The body is larger than any that could be stored.",
    )
    UNSUPPORTED_MEDIA_TYPE = (
        "UNSUPPORTED_MEDIA_TYPE",
        HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
        "The body is not of a media type that is taken here; send JSON.",
    )
    UNPROCESSABLE = (
        "UNPROCESSABLE",
        HTTPStatus.UNPROCESSABLE_ENTITY,
        "It is well formed, but a value in it cannot be used; the detail names it.",
    )
    INVALID_DEFINITION = (
        "INVALID_DEFINITION",
        HTTPStatus.UNPROCESSABLE_ENTITY,
        "The definition cannot be deployed; `problems` lists all that is wrong with it.",
    )
    INVALID_VARIABLE = (
        "INVALID_VARIABLE",
        HTTPStatus.UNPROCESSABLE_ENTITY,
        "A variable cannot be stored; `variable` names it. Nothing was changed.",
    )
    IDEMPOTENCY_KEY_REUSED = (
        "IDEMPOTENCY_KEY_REUSED",
        HTTPStatus.UNPROCESSABLE_ENTITY,
        "This `Idempotency-Key` belongs to another request; use a new one for each.",
    )
    INTERNAL = (
        "INTERNAL",
        HTTPStatus.INTERNAL_SERVER_ERROR,
        "None of the caller's doing; the server's log has it under the request id.",
    )
    ISSUER_UNAVAILABLE = (
        "ISSUER_UNAVAILABLE",
        HTTPStatus.SERVICE_UNAVAILABLE,
        "The issuer of JWTs does not give the keys by which they are checked; repeat after `Retry-After`.",
    )
    TOO_MANY_STREAMS = (
        "TOO_MANY_STREAMS",
        HTTPStatus.SERVICE_UNAVAILABLE,
        "The server has as many streams open as it may; close some, or repeat after `Retry-After`.",
    )
    STORE_UNAVAILABLE = (
        "STORE_UNAVAILABLE",
        HTTPStatus.SERVICE_UNAVAILABLE,
        "The database does not answer; repeat after `Retry-After`.",
    )

    @property
    def words(self) -> str:
        """The code in words."""
        return self.value.replace("_", " ").capitalize()

    @property
    def urn(self) -> str:
        """The ``type`` of its documents."""
        return f"urn:kikwiflow:problem:{self.value.lower().replace('_', '-')}"


class RequestRefusedError(KikwiflowError):
    """The base of the errors of this layer; each class has the code that it is answered with.

    Attributes:
        headers: Of the answer.
    """

    code: ClassVar[Code] = Code.BAD_REQUEST
    headers: Mapping[str, str] = {}


class PermissionDeniedError(RequestRefusedError):
    """The identity lacks the role that a request needs."""

    code = Code.FORBIDDEN


class UnauthenticatedError(RequestRefusedError):
    """The request carries no credentials, or none that are valid."""

    code = Code.UNAUTHENTICATED
    headers: Mapping[str, str] = {"WWW-Authenticate": "Bearer"}


class KeysUnavailableError(RequestRefusedError):
    """The issuer of JWTs does not give its keys, by which they are checked."""

    code = Code.ISSUER_UNAVAILABLE
    headers: Mapping[str, str] = {"Retry-After": str(RETRY_AFTER_S)}


class TooManyStreamsError(RequestRefusedError):
    """As many streams are open as may be."""

    code = Code.TOO_MANY_STREAMS
    headers: Mapping[str, str] = {"Retry-After": str(RETRY_AFTER_S)}


class BadRequestError(RequestRefusedError):
    """The request is not as the API's description says."""

    code = Code.BAD_REQUEST


class UnsupportedMediaTypeError(RequestRefusedError):
    """The body is of a media type that is not taken."""

    code = Code.UNSUPPORTED_MEDIA_TYPE


_CODES: tuple[tuple[type[KikwiflowError], Code], ...] = (
    (DefinitionNotFoundError, Code.DEFINITION_NOT_FOUND),
    (InvalidDefinitionError, Code.INVALID_DEFINITION),
    (DefinitionError, Code.CONFLICT),
    (NotFoundError, Code.NOT_FOUND),
    (LockLostError, Code.LOCK_LOST),
    (ConflictError, Code.CONFLICT),
    (ClaimLostError, Code.CONFLICT),
    (DuplicateStartError, Code.CONFLICT),
    (DuplicateMessageError, Code.CONFLICT),
    (TenantBoundError, Code.FORBIDDEN),
    (OperationError, Code.UNPROCESSABLE),
    (VariableError, Code.INVALID_VARIABLE),
    (ExecutionError, Code.STEP_FAILED),
    (StoreUnavailableError, Code.STORE_UNAVAILABLE),
)
"""The first that fits decides: subclasses stand before their bases."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One refused request.

    Attributes:
        detail: For people; it may change.
        extra: Members beside the standard ones, such as all ``problems`` of a definition.
    """

    code: Code
    detail: str
    headers: Mapping[str, str] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def status(self) -> HTTPStatus:
        """That it is answered with."""
        return self.code.status

    def response(self, request: Request) -> Response:
        """Return it as the response to ``request``."""
        request_id = getattr(request.state, "request_id", None)
        document = {
            "type": self.code.urn,
            "title": self.code.words,
            "status": self.code.status.value,
            "code": self.code.value,
            "detail": mask_credentials(storable(self.detail))[:_LONGEST_DETAIL],
            "instance": _path_of(request.scope),
            **({"requestId": request_id} if request_id else {}),
            **self.extra,
        }
        # ASCII, since what a caller sent may be no Unicode and is repeated in places.
        body = json.dumps(document, separators=(",", ":")).encode()
        return Response(
            body, self.code.status.value, headers=dict(self.headers), media_type=PROBLEM_TYPE
        )


def problem_of(error: KikwiflowError) -> Problem:
    """Return how an error of the package is answered; what is none of the caller's doing says no more than that."""
    if isinstance(error, RequestRefusedError):
        return Problem(code=error.code, detail=str(error), headers=error.headers)
    for kind, code in _CODES:
        if isinstance(error, kind):
            return Problem(
                code=code, detail=str(error), headers=_headers(code), extra=_extra(error)
            )
    return INTERNAL_PROBLEM


INTERNAL_PROBLEM = Problem(
    code=Code.INTERNAL,
    detail="the server met an error that it did not expect; its log has it under the request id",
)


def _headers(code: Code) -> Mapping[str, str]:
    return {"Retry-After": str(RETRY_AFTER_S)} if code is Code.STORE_UNAVAILABLE else {}


def _extra(error: KikwiflowError) -> Mapping[str, Any]:
    match error:
        case InvalidDefinitionError(problems=problems):
            return {
                "problems": [
                    {
                        "path": one.path,
                        "message": one.message,
                        "hint": one.hint,
                        "isError": one.is_error,
                    }
                    for one in problems
                ]
            }
        case VariableError(variable=variable):
            return {"variable": variable}
        case _:
            return {}


def codes_reference() -> str:
    """Return the Markdown table of all codes."""
    rows = [f"| `{code.value}` | {code.status.value} | {code.meaning} |" for code in Code]
    return "\n".join(["| Code | Status | Meaning |", "|---|---|---|", *rows]) + "\n"


def add_problem_handlers(app: FastAPI, allowed: Callable[[str], list[str]]) -> None:
    """Answer every error of ``app`` with a problem document.

    Args:
        allowed: Returns the methods that a path has, all of them; a route knows its own only.
    """

    async def ours(request: Request, error: Exception) -> Response:
        assert isinstance(error, KikwiflowError)  # noqa: S101 - registered for it
        problem = problem_of(error)
        if problem.code is Code.INTERNAL:
            raise error
        return problem.response(request)

    async def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for it
        problems = [
            {"path": ".".join(str(part) for part in one["loc"]), "message": one["msg"]}
            for one in error.errors()
        ]
        detail = "; ".join(f"{one['path']}: {one['message']}" for one in problems)
        problem = Problem(code=Code.BAD_REQUEST, detail=detail, extra={"problems": problems})
        return problem.response(request)

    async def http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)  # noqa: S101 - registered for it
        code = next((each for each in Code if each.status == error.status_code), Code.BAD_REQUEST)
        headers = dict(error.headers or {})
        if code is Code.METHOD_NOT_ALLOWED and (methods := allowed(request.url.path)):
            headers["Allow"] = ", ".join(methods)
        return Problem(code=code, detail=str(error.detail), headers=headers).response(request)

    app.add_exception_handler(KikwiflowError, ours)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http)


def _path_of(scope: Mapping[str, Any]) -> str:
    """Return the path of a request as it was sent: escaped, and without its query."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode("utf-8", "replace")
    return raw.partition(b"?")[0].decode("ascii", "replace")
