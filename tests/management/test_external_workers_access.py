"""What an external worker may see and do: its own fetches, in its own tenant, the variables that its role may read."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
from fastapi import Request
from pymongo.database import Database

from kikwiflow_worker.model.identity import Identity, Role
from kikwiflow_worker.model.runtime import IncidentType
from kikwiflow_worker.store.mongo.store import StoreOptions
from tests.management.test_external_workers import INVOICE, fetch, fetch_one, say, stands_at
from tests.support.management import Managed, manage
from tests.support.mongo import MongoServer
from tests.support.sealed import OLD_RING, RING

pytestmark = pytest.mark.mongo

RULES = {"kikwiflow.variables.pin": "roles=admin"}


@dataclass(slots=True)
class Whoever:
    """An authenticator that says who the test wants to be."""

    actor: str = "renderer"
    tenant_id: str | None = None

    async def identify(self, _: Request) -> Identity:
        roles = frozenset({Role.OPERATOR})
        return Identity(actor=self.actor, roles=roles, tenant_id=self.tenant_id)


@pytest.fixture
def whoever() -> Whoever:
    return Whoever()


@pytest.fixture
async def invoices(
    mongo_server: MongoServer, data: Database[dict[str, Any]], whoever: Whoever
) -> AsyncIterator[Managed]:
    """Return the application with invoices of two tenants and of none, whose ``pin`` only an admin reads."""
    async with manage(mongo_server.uri, data, authenticator=whoever) as managed:
        await managed.deploy(*INVOICE, key="invoice", extensionProperties=RULES)
        for tenant_id in ("acme", "globex", None):
            await managed.kikwiflow.start(
                "invoice", f"OF-{tenant_id}", variables={"pin": 7, "pages": 2}, tenant_id=tenant_id
            )
        yield managed


async def test_a_tenant_s_worker_fetches_and_reports_in_its_tenant_only(
    invoices: Managed, whoever: Whoever
) -> None:
    whoever.tenant_id = "acme"
    task = await fetch_one(invoices, maxTasks=10)
    assert (task["businessKey"], task["tenantId"]) == ("OF-acme", "acme")

    whoever.tenant_id = "globex"
    for what, more in (("complete", {}), ("failure", {"message": "no"}), ("unlock", {})):
        response = await say(invoices, task, what, **more)
        assert (response.status_code, response.json()["code"]) == (404, "NOT_FOUND"), what

    whoever.tenant_id = "acme"
    assert (await say(invoices, task, "extend-lock")).status_code == 200
    done = await say(invoices, task, "complete", variables={"pages": {"value": 3}})
    assert done.json()["outcome"] == "COMPLETED"
    assert (await say(invoices, task, "complete")).json() == done.json()
    assert stands_at(invoices, str(task["processInstanceId"])) == {"APPROVE"}


@pytest.mark.parametrize(
    ("what", "more", "outcome"),
    [
        ("failure", {"message": "no"}, "RETRY_SCHEDULED"),
        ("failure", {"message": "no", "retries": 0}, "INCIDENT_OPENED"),
        ("error", {"message": "no", "code": "E7"}, "COMPLETED"),
        ("error", {"message": "no"}, "INCIDENT_OPENED"),
    ],
)
async def test_a_tenant_s_worker_makes_every_report(
    invoices: Managed, whoever: Whoever, what: str, more: dict[str, Any], outcome: str
) -> None:
    whoever.tenant_id = "acme"

    response = await say(invoices, await fetch_one(invoices), what, **more)

    assert response.json().get("outcome") == outcome, response.text


async def test_a_worker_of_no_tenant_fetches_for_all(invoices: Managed) -> None:
    found = [task for _ in range(3) for task in await fetch(invoices, maxTasks=3)]

    assert {task["tenantId"] for task in found} == {"acme", "globex", None}


async def test_a_claim_belongs_to_the_actor_that_fetched(
    invoices: Managed, whoever: Whoever
) -> None:
    task = await fetch_one(invoices)
    whoever.actor = "somebody else"

    response = await say(invoices, task, "complete")

    assert (response.status_code, response.json()["code"]) == (409, "LOCK_LOST")


async def test_variables_of_other_roles_are_neither_given_nor_taken(invoices: Managed) -> None:
    task = await fetch_one(invoices)
    assert set(task["variables"]) == {"pages"}  # type: ignore[call-overload]

    for what, more in (("complete", {}), ("error", {"message": "no"})):
        refused = await say(invoices, task, what, variables={"pin": {"value": 8}}, **more)
        assert (refused.status_code, refused.json()["code"]) == (403, "FORBIDDEN")

    assert (await say(invoices, task, "complete")).status_code == 200


async def test_a_task_whose_variables_cannot_be_decrypted_is_left_to_a_person(
    mongo_server: MongoServer, data: Database[dict[str, Any]]
) -> None:
    data.meta.delete_many({"_id": {"$in": ["encryption", "reencryption"]}})
    async with manage(mongo_server.uri, data, options=StoreOptions(keys=RING)) as sealed:
        await sealed.deploy(*INVOICE, key="invoice")
        started = await sealed.kikwiflow.start("invoice", "INVOICE-1", variables={"pages": 2})
    async with manage(mongo_server.uri, data, options=StoreOptions(keys=OLD_RING)) as other:
        assert await fetch(other) == []
        incident = await other.incident_of(started)

    assert incident.type is IncidentType.FAILED_JOB
    assert "is encrypted with key" in incident.message
