"""The management application over the real database, without a socket, and processes in every state to look at.

    async def test_something(managed: Managed) -> None:
        parcel = await managed.a_waiting_parcel()
        response = await managed.api.get(f"/process-instances/{parcel.id}")

A test module takes the fixture by ``from tests.support.management import managed``; its database is shared by the tests of a
run and emptied after each (``tests.support.stores.data``).
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from pymongo import AsyncMongoClient
from pymongo.database import Database

from kikwiflow_worker.client import Kikwiflow
from kikwiflow_worker.clock import SystemClock
from kikwiflow_worker.handler import ExecutionContext, task_handler
from kikwiflow_worker.management.app import BASE_PATH, create_app
from kikwiflow_worker.management.authentication import OpenAuthenticator
from kikwiflow_worker.management.backend import Authenticator, Backend
from kikwiflow_worker.management.identity import Role
from kikwiflow_worker.model.events import EventLevel
from kikwiflow_worker.model.runtime import ExternalTask, Incident, ProcessInstance
from kikwiflow_worker.operations.execution import execute_task
from kikwiflow_worker.operations.services import Services
from kikwiflow_worker.operations.tokens import TokenDesk
from kikwiflow_worker.store.mongo.outbox import OutboxOptions
from kikwiflow_worker.store.mongo.store import MongoStore, StoreOptions
from kikwiflow_worker.store.views import ExternalTaskQuery, IncidentQuery
from tests.support.definitions import Json, a_file, a_node, a_start, a_task, an_end
from tests.support.mongo import MongoServer
from tests.support.stores import new_id

WORKER = "bench.1"
LOCK = timedelta(seconds=60)
PARCEL = "parcel"
PARCEL_NODES = (
    a_start("WEIGH"),
    a_task("WEIGH", "APPROVE", commitBefore=True, retryPolicy={"maxRetries": 1}, layout={"x": 120, "y": 40}),
    a_node("APPROVE", "EXTERNAL_TASK", "LATER", name="Approve the parcel", boundaryEventIds=["RECALL"]),
    a_node(
        "RECALL",
        "BOUNDARY_INTERRUPTIVE_CATCH_EVENT",
        "END",
        attachedToRef="APPROVE",
        providerType="VARIABLE",
        providerVariable="recallKey",
    ),
    a_node("LATER", "TIMER_TASK", "END", providerType="STATIC", staticValue="PT1H"),
    an_end(),
)  # fmt: skip
"""Weigh (handler ``weigh_parcel``), approve (external task, can be recalled by the key in ``recallKey``), an hour's wait."""


@task_handler("weigh_parcel")
def weigh_parcel(context: ExecutionContext) -> dict[str, object]:
    """Weigh, unless the variable ``broken`` says that the scales are."""
    if context.get("broken"):
        raise RuntimeError("the scales are broken")
    return {"grams": 1200}


@dataclass(frozen=True, slots=True)
class Managed:
    """The application, and its database behind it.

    Attributes:
        http: A client of the whole application; ``api`` begins at the API's base path.
        kikwiflow: The same database without HTTP and without handlers.
        data: To look behind the store's back, synchronously.
    """

    app: FastAPI
    http: httpx.AsyncClient
    api: httpx.AsyncClient
    store: MongoStore
    kikwiflow: Kikwiflow
    data: Database[dict[str, Any]]

    @property
    def services(self) -> Services:
        """Those of the system, narrowed to nobody."""
        return self.kikwiflow.services

    async def deploy(self, *nodes: Json, key: str = PARCEL, **fields: object) -> str:
        """Deploy a definition, the parcel's by default; return its id."""
        source = json.dumps(a_file(*(nodes or PARCEL_NODES), key=key, **fields))
        return (await self.kikwiflow.deploy(source, name=key)).definition.id

    async def work(self, *, at_most: int = 100) -> int:
        """Do what is due as a worker with ``weigh_parcel`` would; return how many tasks that were."""
        runner = Kikwiflow(self.store, handlers=[weigh_parcel])
        done = 0
        try:
            while done < at_most:
                due = await self.store.queue.claim_due(
                    worker_id=WORKER,
                    lock=LOCK,
                    capabilities=runner.new_invoker().capabilities,
                    limit=1,
                )
                for claimed in due:
                    commit = self.store.runtime.commit
                    await execute_task(self.services, runner.new_invoker(), claimed, commit)
                    done += 1
                if not due:
                    break
        finally:
            runner.close()
        return done

    async def a_parcel(self, business_key: str = "PARCEL-1", **fields: Any) -> ProcessInstance:
        """Start a parcel, which rests before its first step; deploys the definition."""
        if not await self.kikwiflow.reads.list_definitions(key=PARCEL):
            await self.deploy()
        chosen = {"variables": {"recallKey": f"recall-{business_key}"}, **fields}
        return await self.kikwiflow.start(PARCEL, business_key, **chosen)

    async def a_waiting_parcel(
        self, business_key: str = "PARCEL-1", **fields: Any
    ) -> ProcessInstance:
        """Start a parcel and let it come to its external task APPROVE."""
        instance = await self.a_parcel(business_key, **fields)
        await self.work()
        return await self.kikwiflow.get_instance(instance.id)

    async def a_failed_parcel(self, business_key: str = "PARCEL-1", **fields: Any) -> Incident:
        """Start a parcel whose first step fails for good; return its incident."""
        instance = await self.a_parcel(
            business_key,
            variables={"broken": True, "recallKey": f"recall-{business_key}"},
            **fields,
        )
        await self.work()
        return await self.incident_of(instance)

    async def an_ended_parcel(
        self, business_key: str = "PARCEL-1", **fields: Any
    ) -> ProcessInstance:
        """Start a parcel and recall it, which ends it as COMPLETED."""
        instance = await self.a_waiting_parcel(business_key, **fields)
        await self.kikwiflow.correlate(f"recall-{business_key}", tenant_id=instance.tenant_id)
        return await self.kikwiflow.get_instance(instance.id)

    async def task_of(self, instance: ProcessInstance, node_id: str = "APPROVE") -> ExternalTask:
        """Return the external task at which an instance waits."""
        query = ExternalTaskQuery(instance_id=instance.id, node_id=node_id)
        (task,) = (await self.kikwiflow.list_external_tasks(query)).items
        return task

    async def incident_of(self, instance: ProcessInstance) -> Incident:
        """Return the only open incident of an instance."""
        query = IncidentQuery(instance_id=instance.id)
        (incident,) = (await self.kikwiflow.list_incidents(query)).items
        return incident


async def a_token(managed: Managed, name: str = "shop-frontend") -> str:
    """Give out a token of the tenant ``shop``; return its id."""
    desk = TokenDesk(
        access=managed.store.access,
        now=managed.services.runtime.now,
        new_id=new_id,
        by="cli:ann",
    )
    issued = await desk.create(
        name,
        roles=frozenset({Role.VIEWER, Role.OPERATOR}),
        tenant_id="shop",
        lifetime=timedelta(days=90),
    )
    return issued.token.id


@asynccontextmanager
async def manage(
    uri: str,
    data: Database[dict[str, Any]],
    *,
    authenticator: Authenticator | None = None,
    options: StoreOptions | None = None,
) -> AsyncIterator[Managed]:
    """Serve a prepared database without a socket; errors that nobody expects are raised here."""
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(uri)
    store = MongoStore.over(client, data.name, clock=SystemClock(), options=options)
    await store.ping()
    kikwiflow = Kikwiflow(store)
    backend = Backend(
        kikwiflow.services,
        kikwiflow.new_invoker,
        authenticator or OpenAuthenticator(),
        kikwiflow.access,
        store.answers,
    )
    app = create_app(backend)
    transport = httpx.ASGITransport(app)
    async with (
        httpx.AsyncClient(transport=transport, base_url="http://kikwiflow.test") as http,
        httpx.AsyncClient(transport=transport, base_url=f"http://kikwiflow.test{BASE_PATH}") as api,
    ):
        yield Managed(app, http, api, store, kikwiflow, data)
    kikwiflow.close()
    await client.close()


@pytest.fixture
async def managed(
    mongo_server: MongoServer, data: Database[dict[str, Any]]
) -> AsyncIterator[Managed]:
    """Return the application over the prepared database, open to everybody."""
    async with manage(mongo_server.uri, data) as opened:
        yield opened


@pytest.fixture
async def recorded(
    mongo_server: MongoServer, data: Database[dict[str, Any]]
) -> AsyncIterator[Managed]:
    """Return the application over the prepared database, with all events stored."""
    options = StoreOptions(outbox=OutboxOptions(EventLevel.FULL))
    async with manage(mongo_server.uri, data, options=options) as opened:
        yield opened
