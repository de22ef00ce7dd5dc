"""The worker of the documentation, which needs nothing but the standard library, against a server on a socket."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import pytest

from kikwiflow_worker.management.app import BASE_PATH
from kikwiflow_worker.management.server import ManagementServer
from tests.management.test_external_workers import INVOICE, stands_at, start
from tests.support.docs import ROOT, blocks_of
from tests.support.management import Managed

pytestmark = pytest.mark.mongo

PAGE = ROOT / "docs" / "howto" / "external-workers.md"


@pytest.fixture
async def example(managed: Managed) -> AsyncIterator[dict[str, Any]]:
    """Return what the page's code defines, for a server on a free port."""
    server = ManagementServer(managed.app, "127.0.0.1:0")
    serving = asyncio.create_task(server.serve())
    (block,) = [block for block in blocks_of(PAGE) if block.language == "python"]
    names: dict[str, Any] = {}
    exec(block.compiled(), names)  # type: ignore[call-overload]
    names["API"] = f"http://127.0.0.1:{server.port}{BASE_PATH}/external-work"

    yield names

    server.stop()
    await serving


async def test_the_example_does_what_is_due(managed: Managed, example: dict[str, Any]) -> None:
    await managed.deploy(*INVOICE, key="invoice")
    done, failed = await start(managed, amount=120), await start(managed, amount=0)
    keys: list[str] = []

    def render(variables: Mapping[str, Any], idempotency_key: str) -> dict[str, object]:
        keys.append(idempotency_key)
        return {"pages": 240 // variables["amount"]}

    work: Callable[..., bool] = example["work"]
    node = {"processDefinitionKey": "invoice", "nodeId": "RENDER"}
    found = [
        await asyncio.to_thread(work, "render.1", render, wait_seconds=0, **wanted)
        for wanted in ({"topics": ["render_invoice"]}, {"nodes": [node]}, {"nodes": [node]})
    ]

    assert found == [True, True, False]
    assert len(set(keys)) == 2
    assert stands_at(managed, done) == {"APPROVE"}
    assert (await managed.kikwiflow.get_instance(done)).variables["pages"] == 2
    (row,) = managed.data.executable_tasks.find({"processInstanceId": failed, "attempts": 1})
    assert row["error"].startswith("ZeroDivisionError")


async def test_the_example_drops_what_it_has_lost(
    managed: Managed, example: dict[str, Any]
) -> None:
    await managed.deploy(*INVOICE, key="invoice")
    await start(managed)

    def render(*_: object) -> dict[str, object]:
        managed.data.executable_tasks.update_one({"status": "LOCKED"}, {"$inc": {"epoch": 1}})
        return {}

    work: Callable[..., bool] = example["work"]

    topics = ["render_invoice"]
    assert await asyncio.to_thread(work, "render.1", render, topics=topics, wait_seconds=0)
    assert managed.data.external_work_reports.count_documents({}) == 0
