"""Query parameters: a misspelled one is an error, never silently dropped, and Kikwiflow's spelling is taken as well."""

from dataclasses import dataclass
from difflib import get_close_matches
from urllib.parse import parse_qsl, urlencode

from fastapi import Request
from pydantic.alias_generators import to_camel
from starlette.types import ASGIApp, Receive, Scope, Send

from kikwiflow_worker.management.openapi import query_parameters
from kikwiflow_worker.management.problems import BadRequestError


async def refuse_unknown(request: Request) -> None:
    """Refuse a request with a query parameter that its operation does not have; a dependency of every route of the API.

    Raises:
        BadRequestError: It is named, and what may have been meant.
    """
    if not request.query_params:
        return
    known = query_parameters(request.app.openapi(), request.scope["route"].operation_id)
    for name in request.query_params:
        if name not in known:
            close = get_close_matches(name, known, n=1)
            hint = (
                f"did you mean {close[0]}?" if close else f"there are: {', '.join(known) or 'none'}"
            )
            raise BadRequestError(f"there is no query parameter {name[:100]!r} here; {hint}")


@dataclass(frozen=True, slots=True)
class KebabNames:
    """The middleware: takes ``process-definition-id``, as Kikwiflow writes it, for ``processDefinitionId``."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http" and b"-" in scope["query_string"]:
            scope["query_string"] = _respelled(scope["query_string"])
        await self.app(scope, receive, send)


def _respelled(query: bytes) -> bytes:
    pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
    if not any("-" in name for name, _ in pairs):
        return query
    return urlencode([(to_camel(name.replace("-", "_")), value) for name, value in pairs]).encode()
