"""The places of the dashboard, and how to link to them."""

from dataclasses import dataclass
from urllib.parse import quote, urlencode

from starlette.requests import Request

from kikwiflow_worker.management.identity import Identity, Role

DASHBOARD_PATH = "/dashboard"


@dataclass(frozen=True, slots=True)
class Place:
    """An entry of the navigation.

    Attributes:
        path: Below ``DASHBOARD_PATH``.
        is_of_all: It is about all tenants together, so that who is bound to one may not see it.
        role: What somebody needs to see it.
    """

    label: str
    path: str
    is_of_all: bool = False
    role: Role = Role.VIEWER


PLACES: tuple[Place, ...] = (
    Place("Now", "/overview"),
    Place("Definitions", "/definitions"),
    Place("Instances", "/instances"),
    Place("Tasks", "/tasks"),
    Place("Incidents", "/incidents"),
    Place("Retrying", "/retrying"),
    Place("Timers", "/timers"),
    Place("Handlers", "/handlers"),
    Place("Workers", "/workers", is_of_all=True),
    Place("Relay", "/relay", is_of_all=True),
    Place("Tokens", "/tokens", is_of_all=True, role=Role.ADMIN),
)


def places_for(identity: Identity | None) -> tuple[Place, ...]:
    """Return what somebody can go to; of nobody it is not known what they may not."""
    return tuple(
        place
        for place in PLACES
        if identity is None
        or (identity.may(place.role) and (identity.tenant_id is None or not place.is_of_all))
    )


def link(request: Request, *parts: object, **query: object) -> str:
    """Return the address of a page: each of ``parts`` is one segment of its path, safely quoted.

    Query values that are None or empty are left out.
    """
    base = f"{request.scope.get('root_path', '')}{DASHBOARD_PATH}"
    path = "".join(f"/{quote(str(part), safe='')}" for part in parts)
    return base + path + _query(query)


def link_here(request: Request, **changes: object) -> str:
    """Return the address of the present page with some of its query changed; None removes a value."""
    query: dict[str, object] = {**request.query_params, **changes}
    root = request.scope.get("root_path", "")
    own = request.url.path
    return quote(own if own.startswith(root) else root + own) + _query(query)


def stream_of(request: Request, kind: str, of_id: str, **query: object) -> str:
    """Return the address of the server-sent events of an instance or a version; ``kind`` as in the API's paths."""
    base = request.url_for("stream_incidents").path.removesuffix("/incidents/stream")
    return f"{base}/{kind}/{quote(of_id, safe='')}/stream{_query(query)}"


def is_within(request: Request, place: Place) -> bool:
    """Return whether the present page belongs to ``place``."""
    root = f"{request.scope.get('root_path', '')}{DASHBOARD_PATH}{place.path}"
    own = request.url.path
    return own == root or own.startswith(f"{root}/")


def _query(query: dict[str, object]) -> str:
    given = {name: value for name, value in query.items() if value not in {None, ""}}
    return f"?{urlencode(given)}" if given else ""
