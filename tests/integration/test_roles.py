"""Every endpoint and every page with no identity and with each role: nothing is open that was not meant to be."""

import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from fastapi import APIRouter, Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pymongo.database import Database

from kikwiflow_worker.management.app import ROUTERS
from kikwiflow_worker.management.backend import Requires
from kikwiflow_worker.management.headers import SAFE_METHODS
from kikwiflow_worker.management.identity import Identity, Role
from kikwiflow_worker.management.problems import UnauthenticatedError
from kikwiflow_worker.management.web.navigation import DASHBOARD_PATH
from kikwiflow_worker.management.web.router import _PAGES, home
from tests.support.management import Managed, manage
from tests.support.mongo import MongoServer

OPEN_PAGES = {"GET /login", "POST /login", "POST /logout", "GET /", "GET /dashboard", "GET /dashboard/"}  # fmt: skip
"""Of the dashboard: those that lead to the login, and out."""

LOOKS_BY_POST = {"searchInstances"}
"""What changes nothing, although it is a POST: a query that is too large for an address."""


class RoleHeader:
    """Believes the header ``X-Role``."""

    async def identify(self, request: Request) -> Identity:
        role = request.headers.get("x-role")
        if role is None:
            raise UnauthenticatedError("nobody")
        return Identity(actor="eve", roles=frozenset({Role(role)} if role else ()))


def routes_of(*routers: APIRouter) -> Iterator[APIRoute]:
    for router in routers:
        for route in router.routes:
            if isinstance(route, APIRoute):
                yield route


def role_of(dependant: Dependant) -> Role | None:
    """Return the role that a route asks for, wherever in its dependencies it does."""
    if isinstance(dependant.call, Requires):
        return dependant.call.role
    found = {role_of(each) for each in dependant.dependencies} - {None}
    assert len(found) <= 1, "two roles for one route"
    return next(iter(found), None)


API = {str(route.operation_id): route for route in routes_of(*ROUTERS)}
PAGES = {
    f"{method} {route.path}": route
    for route in routes_of(home, *_PAGES)
    for method in sorted(route.methods - {"HEAD"})
}


def method_of(route: APIRoute) -> str:
    return next(iter(sorted(route.methods - {"HEAD"})))


def address_of(route: APIRoute) -> str:
    return re.sub(r"{[^}]+}", "nothing", route.path)


@pytest.fixture
async def guarded(
    mongo_server: MongoServer, data: Database[dict[str, Any]]
) -> AsyncIterator[Managed]:
    async with manage(mongo_server.uri, data, authenticator=RoleHeader()) as managed:
        yield managed


def test_every_route_says_which_role_it_needs() -> None:
    assert {name for name, route in API.items() if role_of(route.dependant) is None} == set()
    assert {name for name, route in PAGES.items() if role_of(route.dependant) is None} == OPEN_PAGES


def test_what_changes_something_needs_more_than_a_viewer() -> None:
    changing = {
        name
        for name, route in API.items()
        if method_of(route) not in SAFE_METHODS and role_of(route.dependant) is Role.VIEWER
    }
    pages = {
        name
        for name, route in PAGES.items()
        if method_of(route) not in SAFE_METHODS and role_of(route.dependant) is Role.VIEWER
    }

    assert changing == LOOKS_BY_POST
    assert pages == set()


async def test_nobody_gets_anything_without_an_identity(guarded: Managed) -> None:
    for name, route in API.items():
        answer = await guarded.api.request(method_of(route), address_of(route))
        assert answer.status_code == 401, (name, answer.text)
        assert answer.headers["www-authenticate"] == "Bearer"
    for name, route in PAGES.items():
        if name in OPEN_PAGES:
            continue
        path = f"{DASHBOARD_PATH}{address_of(route)}"
        answer = await guarded.http.request(method_of(route), path)
        assert answer.status_code == 303, (name, answer.text)
        assert answer.headers["location"].startswith(f"{DASHBOARD_PATH}/login"), name


async def test_a_role_opens_what_it_should_and_nothing_else(guarded: Managed) -> None:
    wrong = []
    for own in (None, *Role):
        identity = Identity(actor="eve", roles=frozenset({own} if own else ()))
        headers = {"X-Role": own.value if own else ""}
        for name, route in API.items():
            needed = role_of(route.dependant)
            assert needed is not None
            if name.startswith("stream") and identity.may(needed):
                continue  # would go on
            answer = await guarded.api.request(method_of(route), address_of(route), headers=headers)
            is_refused = answer.status_code == 403 and "lacks the role" in answer.text
            if is_refused is identity.may(needed):
                wrong.append((own, name, answer.status_code, answer.text))

    assert wrong == []
