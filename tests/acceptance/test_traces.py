"""One trace across two worker processes, read from the lines that they write."""

import json

from pymongo.database import Database

from kikwiflow_worker.client import Kikwiflow
from tests.support.acceptance import a_job, deploy, start, wait_for_ends
from tests.support.definitions import Json, a_node, a_start, an_end
from tests.support.workers import WorkerProcess, Workers, wait_until


def spans_of(worker: WorkerProcess) -> list[Json]:
    """Return the spans among the lines of a worker."""
    lines = worker.output.read_text().splitlines()
    return [json.loads(line) for line in lines if line.startswith('{"name": "process ')]


async def test_a_trace_goes_on_in_the_worker_that_runs_the_next_step(
    client: Kikwiflow, stored: Database[Json], workers: Workers
) -> None:
    first = workers.start("first", traces="lines").wait_ready()
    confirm = a_node("CONFIRM", "EXTERNAL_TASK", "B")
    steps = (a_job("A", "at_once", "CONFIRM"), confirm, a_job("B", "at_once"))
    await deploy(client, "job", a_start("A"), *steps, an_end())
    instances = await start(client, "job")
    wait_until(lambda: stored.external_tasks.count_documents({}), "the first step is done")
    assert first.stop() == 0
    (task,) = (await client.list_external_tasks()).items
    await client.complete(task.id)
    second = workers.start("second", traces="lines").wait_ready()
    wait_for_ends(stored, instances)
    assert second.stop() == 0

    (a,), (b,) = spans_of(first), spans_of(second)
    assert a["context"]["trace_id"] == b["context"]["trace_id"]
    assert [link["context"]["span_id"] for link in b["links"]] == [a["context"]["span_id"]]
    assert b["resource"]["attributes"]["service.instance.id"] == "second"
