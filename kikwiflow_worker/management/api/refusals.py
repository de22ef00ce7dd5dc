"""What the API's description says about requests that are refused."""

from collections.abc import Mapping
from typing import Any

from kikwiflow_worker.management.problems import PROBLEM_TYPE, Code

Responses = dict[int | str, dict[str, Any]]

PROBLEM_SCHEMA = {
    "title": "Problem",
    "type": "object",
    "description": "A refused request (RFC 9457). Programs look at `code`; `detail` is for people and may change.",
    "required": ["type", "title", "status", "code", "detail", "instance"],
    "properties": {
        "type": {"type": "string", "description": "The code as a URN."},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "code": {"type": "string", "enum": [code.value for code in Code]},
        "detail": {"type": "string"},
        "instance": {"type": "string", "description": "The path of the request."},
        "requestId": {"type": "string", "description": "Under which the server logs it."},
        "variable": {"type": "string", "description": "Of INVALID_VARIABLE."},
        "problems": {
            "type": "array",
            "description": "Of BAD_REQUEST and INVALID_DEFINITION: all that is wrong.",
            "items": {
                "type": "object",
                "required": ["path", "message"],
                "properties": {
                    "path": {"type": "string"},
                    "message": {"type": "string"},
                    "hint": {"type": "string"},
                    "isError": {"type": "boolean"},
                },
            },
        },
    },
}

_REFERENCE = {PROBLEM_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}


def refuses(*codes: Code) -> Responses:
    """Return what a route declares about the codes that it refuses requests with, beside those that all routes have."""
    by_status: dict[int, list[Code]] = {}
    for code in codes:
        by_status.setdefault(code.status.value, []).append(code)
    return {status: refused_with(found) for status, found in by_status.items()}


def refused_with(codes: list[Code]) -> dict[str, Any]:
    """Return the description of one status that these codes have."""
    names = [code.value for code in codes]
    return {"description": " or ".join(names), "content": _REFERENCE, CODES: names}


CODES = "x-codes"
"""Beside each refusal in the API's description: which codes it may have."""

COMMON: Mapping[str, tuple[Code, ...]] = {
    "all": (
        Code.BAD_REQUEST,
        Code.UNAUTHENTICATED,
        Code.FORBIDDEN,
        Code.UNKNOWN_HOST,
        Code.UNPROCESSABLE,
        Code.INTERNAL,
        Code.STORE_UNAVAILABLE,
    ),
    "change": (Code.CROSS_SITE,),
    "POST": (Code.IDEMPOTENCY_KEY_IN_USE, Code.IDEMPOTENCY_KEY_REUSED),
    "body": (Code.TOO_LARGE,),
}
"""The codes of all routes, of those that change something, of POSTs, and of those that take a body."""
