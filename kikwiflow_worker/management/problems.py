"""Errors as RFC 9457 problem documents, each with a code that programs may rely on."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from kikwiflow_worker.errors import (
    ConflictError,
    DefinitionError,
    DefinitionNotFoundError,
    ExecutionError,
    InvalidDefinitionError,
    KikwiflowError,
    NotFoundError,
    OperationError,
    StoreUnavailableError,
    VariableError,
)

PROBLEM_TYPE = "application/problem+json"
RETRY_AFTER_S = 2

_KINDS: tuple[tuple[type[KikwiflowError], HTTPStatus, str], ...] = (
    (DefinitionNotFoundError, HTTPStatus.NOT_FOUND, "DEFINITION_NOT_FOUND"),
    (InvalidDefinitionError, HTTPStatus.UNPROCESSABLE_ENTITY, "INVALID_DEFINITION"),
    (DefinitionError, HTTPStatus.UNPROCESSABLE_ENTITY, "INVALID_DEFINITION"),
    (NotFoundError, HTTPStatus.NOT_FOUND, "NOT_FOUND"),
    (ConflictError, HTTPStatus.CONFLICT, "CONFLICT"),
    (OperationError, HTTPStatus.BAD_REQUEST, "BAD_REQUEST"),
    (VariableError, HTTPStatus.UNPROCESSABLE_ENTITY, "INVALID_VARIABLE"),
    (ExecutionError, HTTPStatus.CONFLICT, "STEP_FAILED"),
    (StoreUnavailableError, HTTPStatus.SERVICE_UNAVAILABLE, "STORE_UNAVAILABLE"),
)
"""The first that fits decides: subclasses stand before their bases."""


class PermissionDeniedError(KikwiflowError):
    """The identity lacks the role that a request needs."""


class UnauthenticatedError(KikwiflowError):
    """The request carries no credentials, or none that are valid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One refused request.

    Attributes:
        code: Stable; ``detail`` is for people and may change.
        extra: Members beside the standard ones, such as all ``problems`` of a definition.
    """

    status: HTTPStatus
    code: str
    detail: str
    headers: Mapping[str, str] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)

    def response(self, request: Request) -> JSONResponse:
        """Return it as a response."""
        body = {
            "type": f"urn:kikwiflow:problem:{self.code.lower().replace('_', '-')}",
            "title": self.status.phrase,
            "status": self.status.value,
            "code": self.code,
            "detail": self.detail,
            "instance": request.url.path,
            **self.extra,
        }
        return JSONResponse(
            body, self.status.value, headers=dict(self.headers), media_type=PROBLEM_TYPE
        )


def problem_of(error: KikwiflowError) -> Problem:
    """Return how an error of the package is answered; what is none of the caller's doing is a 500."""
    if isinstance(error, UnauthenticatedError):
        headers = {"WWW-Authenticate": "Bearer"}
        return Problem(
            status=HTTPStatus.UNAUTHORIZED,
            code="UNAUTHENTICATED",
            detail=str(error),
            headers=headers,
        )
    if isinstance(error, PermissionDeniedError):
        return Problem(status=HTTPStatus.FORBIDDEN, code="FORBIDDEN", detail=str(error))
    for kind, status, code in _KINDS:
        if isinstance(error, kind):
            return Problem(
                status=status,
                code=code,
                detail=str(error),
                headers=_headers(error),
                extra=_extra(error),
            )
    return Problem(status=HTTPStatus.INTERNAL_SERVER_ERROR, code="INTERNAL", detail=str(error))


def _headers(error: KikwiflowError) -> Mapping[str, str]:
    return {"Retry-After": str(RETRY_AFTER_S)} if error.retryable else {}


def _extra(error: KikwiflowError) -> Mapping[str, Any]:
    match error:
        case InvalidDefinitionError(problems=problems):
            fields = ("path", "message", "hint", "is_error")
            return {"problems": [{name: getattr(one, name) for name in fields} for one in problems]}
        case VariableError(variable=variable):
            return {"variable": variable}
        case _:
            return {}


def add_problem_handlers(app: FastAPI) -> None:
    """Answer every error of ``app`` with a problem document."""

    async def ours(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, KikwiflowError)  # noqa: S101 - registered for it
        return problem_of(error).response(request)

    async def invalid(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for it
        problems = [
            {"path": ".".join(str(part) for part in one["loc"]), "message": one["msg"]}
            for one in error.errors()
        ]
        detail = "; ".join(f"{one['path']}: {one['message']}" for one in problems)
        problem = Problem(
            status=HTTPStatus.BAD_REQUEST,
            code="BAD_REQUEST",
            detail=detail,
            extra={"problems": problems},
        )
        return problem.response(request)

    async def http(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)  # noqa: S101 - registered for it
        status = HTTPStatus(error.status_code)
        problem = Problem(
            status=status, code=status.name, detail=str(error.detail), headers=error.headers or {}
        )
        return problem.response(request)

    app.add_exception_handler(KikwiflowError, ours)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http)
