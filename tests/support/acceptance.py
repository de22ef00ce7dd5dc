"""Definitions and instances for acceptance tests; the handlers are those of ``tests/support/plugin``."""

import json
import sys
from collections.abc import Sequence

from pymongo.database import Database

from kikwiflow_worker.client import Kikwiflow
from tests.support.definitions import Json, a_file, a_node, a_start, a_task, an_end
from tests.support.verifier import Expected, read_facts, violations
from tests.support.workers import PATIENCE_S, Site, wait_until


def a_job(node_id: str, handler: str, target: str = "END", **fields: object) -> Json:
    """Return a task that always gets a row of its own."""
    return a_task(node_id, target, executor=handler, commitBefore=True, **fields)


def a_chain(handlers: Sequence[str], *, end: Json | None = None) -> list[Json]:
    """Return tasks STEP_1, STEP_2 … one behind the other, then an end."""
    last = end or an_end()
    names = [f"STEP_{number}" for number in range(1, len(handlers) + 1)]
    targets = [*names[1:], str(last["id"])]
    jobs = [a_job(*each) for each in zip(names, handlers, targets, strict=True)]
    return [a_start(names[0]), *jobs, last]


def a_wait_for_people(node_id: str = "CONFIRM") -> list[Json]:
    """Return an external task before the end, at which an instance rests."""
    return [a_node(node_id, "EXTERNAL_TASK", "END"), an_end()]


def a_fan_out(branches: Sequence[tuple[str, str]], *, after: str) -> list[Json]:
    """Return a split into branches of one task each (node, handler), their join, and a task AFTER."""
    jobs = [a_job(node, handler, "JOIN") for node, handler in branches]
    split = a_node(
        "SPLIT", "PARALLEL_GATEWAY", *(node for node, _ in branches), targetJoinId="JOIN"
    )
    join = a_node("JOIN", "JOIN_GATEWAY", "AFTER")
    return [a_start("SPLIT"), split, *jobs, join, a_job("AFTER", after), an_end()]


async def deploy(client: Kikwiflow, key: str, *nodes: Json) -> None:
    """Deploy a definition of these nodes."""
    await client.deploy(json.dumps(a_file(*nodes, key=key)), name=key)


async def start(client: Kikwiflow, key: str, count: int = 1) -> list[str]:
    """Start instances; return their ids."""
    return [(await client.start(key, f"{key}-{number}")).id for number in range(count)]


def wait_for_ends(
    stored: Database[Json], instances: Sequence[str], *, within_s: float = PATIENCE_S
) -> None:
    """Wait until all these instances are in the history."""
    chosen = {"_id": {"$in": list(instances)}}

    def ended() -> int:
        return stored.process_history.count_documents(chosen)

    wait_until(
        lambda: ended() == len(instances),
        lambda: (
            f"{len(instances)} instances end; {ended()} have, the others rest at {_rest(stored)}"
        ),
        within_s=within_s,
    )


def verify(site: Site, stored: Database[Json], started: dict[str, Expected]) -> None:
    """Fail with every violation that the verifier finds."""
    found = violations(site.effects(), read_facts(stored), started)
    assert not found, "\n".join(found)


def figure(text: str) -> None:
    """Show a measured figure; pytest prints it with ``-s`` or ``-rP``."""
    sys.stdout.write(f"\n{text}\n")


def _rest(stored: Database[Json]) -> list[str]:
    fields = (
        "taskDefinitionId",
        "status",
        "workerId",
        "claimableAt",
        "crashCount",
        "attempts",
        "error",
    )
    rows = stored.executable_tasks.find().limit(5)
    return [str({name: row[name] for name in fields if name in row}) for row in rows]
