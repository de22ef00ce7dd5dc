"""What a small load costs a worker with everything switched on: commands, documents and transactions, never seconds."""

from dataclasses import dataclass

from pymongo.database import Database

from kikwiflow_worker.client import Kikwiflow
from tests.support.acceptance import a_chain, deploy, figure, start, wait_for_ends
from tests.support.workers import Json, Workers

INSTANCES = 60
STEPS = 5
ALL_STEPS = INSTANCES * STEPS

COMMANDS = ("find", "findAndModify", "insert", "update", "delete", "getMore")


@dataclass(frozen=True, slots=True)
class Work:
    """What the server did: since its start, or since another look."""

    commands: int
    commits: int
    inserted: int
    updated: int
    deleted: int

    @classmethod
    def so_far(cls, stored: Database[Json]) -> "Work":
        status = stored.client.admin.command("serverStatus")
        done, documents = status["metrics"]["commands"], status["metrics"]["document"]
        return cls(
            commands=sum(done[name]["total"] for name in COMMANDS),
            commits=status["transactions"]["totalStarted"],
            inserted=documents["inserted"],
            updated=documents["updated"],
            deleted=documents["deleted"],
        )

    def since(self, earlier: "Work") -> "Work":
        return Work(
            commands=self.commands - earlier.commands,
            commits=self.commits - earlier.commits,
            inserted=self.inserted - earlier.inserted,
            updated=self.updated - earlier.updated,
            deleted=self.deleted - earlier.deleted,
        )


async def test_what_a_step_costs_where_many_end_together(
    workers: Workers, client: Kikwiflow, stored: Database[Json]
) -> None:
    await deploy(client, "chain", *a_chain(["at_once"] * STEPS))
    # What is due before the worker begins is claimed in batches, and ends in groups.
    instances = await start(client, "chain", INSTANCES)
    before = Work.so_far(stored)

    workers.start("worker", concurrency=INSTANCES, lock_seconds=10)
    wait_for_ends(stored, instances)
    done = Work.so_far(stored).since(before)

    figure(f"{ALL_STEPS} steps: {done}")
    # A step on its own takes a claim, a read, three writes and a commit. Who waits for the end looks often, too.
    assert done.commands <= 2 * ALL_STEPS
    assert done.commits <= ALL_STEPS / 4
    # A row for each further step and a record for each end; the worker adds what it says about itself, and its indexes.
    assert ALL_STEPS <= done.inserted <= ALL_STEPS + 20
    assert ALL_STEPS + INSTANCES <= done.deleted <= ALL_STEPS + INSTANCES + 20
    # The variable that each step but the last stores, and the claims of what was not handed on.
    assert done.updated <= 1.5 * ALL_STEPS
