"""Every port that a request reaches is narrowed to its tenant, method by method."""

import inspect
import typing
from dataclasses import fields

import pytest

from kikwiflow_worker.operations.scoping import scoped
from kikwiflow_worker.operations.services import Services
from kikwiflow_worker.store.access import AuditLog, TokenStore
from kikwiflow_worker.store.tenant_care import TenantTokenStore
from kikwiflow_worker.store.tenant_reads import TenantAuditLog

HINTS = typing.get_type_hints(Services)
PORTS = {
    name: hint
    for name, hint in HINTS.items()
    if inspect.isclass(hint) and hint.__module__.startswith("kikwiflow_worker.store.")
}
OTHERS = {"new_id", "retry_defaults", "event_level", "tracing", "steps"}


class _Nothing:
    """Stands for a port that nobody calls."""


def methods_of(port: type) -> set[str]:
    return {
        name
        for name, value in vars(port).items()
        if inspect.isfunction(value) and not name.startswith("_")
    }


def narrowed() -> Services:
    given = {name: _Nothing() for name in PORTS}
    return scoped(Services(**given, new_id=str), "red")  # type: ignore[arg-type]


def test_every_field_of_the_services_is_a_port_or_known_to_be_none() -> None:
    assert {field.name for field in fields(Services)} - set(PORTS) == OTHERS


@pytest.mark.parametrize(
    ("port", "view"),
    [
        *((PORTS[name], type(getattr(narrowed(), name))) for name in PORTS),
        (AuditLog, TenantAuditLog),
        (TokenStore, TenantTokenStore),
    ],
    ids=lambda each: each.__name__,
)
def test_the_view_of_a_tenant_says_of_every_method_how_it_is_narrowed(
    port: type, view: type
) -> None:
    assert view is not _Nothing, "the port is not narrowed at all"
    assert methods_of(port) - methods_of(view) == set()
    assert methods_of(view) - methods_of(port) == set()
    assert not hasattr(view, "__getattr__")
    assert view.__getattribute__ is object.__getattribute__
    assert view.__mro__[1:] == (object,), "a method that is inherited is said nowhere"


def test_an_identity_without_a_tenant_gets_the_ports_as_they_are() -> None:
    given = {name: _Nothing() for name in PORTS}
    services = Services(**given, new_id=str)  # type: ignore[arg-type]

    assert scoped(services, None) is services
