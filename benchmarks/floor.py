"""The bare script: the same documents claimed, read and written as fast as PyMongo can.

It knows no process, no handler, no failure and no second worker; it batches as well as it can: one look for candidates, one
claim, one read of their rows, one of their instances, one transaction for all. Run as a process of its own::

    python -m benchmarks.floor URI DATABASE SERVER_PID --warm-up-s 1 --window-s 3
"""

import argparse
import asyncio
import json
import random
import sys
import time
from datetime import timedelta
from typing import Any
from uuid import uuid4

from pymongo import AsyncMongoClient
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from benchmarks.report import has_uvloop
from benchmarks.site import now
from benchmarks.workers import cpu_s

Json = dict[str, Any]

BATCH = 64
PIPELINES = 2
_LOCK = timedelta(seconds=30)
_MAJORITY = WriteConcern(w="majority")
_DUE: Json = {
    "handlerName": {"$in": [None, "no_op"]},
    "claimableAt": {"$type": "date"},
    "status": {"$in": ["PENDING", "LOCKED"]},
    "$expr": {"$lte": ["$claimableAt", "$$NOW"]},
}
_UNLOCKED = {"workerId", "lockExpiresAt", "claimToken"}


class Floor:
    """Claims steps in batches and commits the next step of each.

    Attributes:
        steps: How many were committed.
    """

    def __init__(self, client: AsyncMongoClient[Json], database: str) -> None:
        stored = client[database].with_options(write_concern=_MAJORITY)
        self._client = client
        self._tasks = stored.executable_tasks
        self._instances = stored.process_instances
        self.steps = 0
        self._committed = asyncio.Event()

    async def run(self) -> None:
        """Run one pipeline until it is cancelled."""
        while True:
            rows = await self.claim(BATCH)
            if not rows:
                await asyncio.sleep(0.001)
                continue
            ids = [row["processInstanceId"] for row in rows]
            await self._instances.find({"_id": {"$in": ids}}).to_list(None)
            self.steps += await self._commit(rows)
            self._committed.set()

    async def next_commit(self) -> None:
        """Wait until another batch is committed."""
        self._committed.clear()
        await self._committed.wait()

    async def claim(self, count: int) -> list[Json]:
        """Claim up to ``count`` due rows and return them."""
        tasks = self._tasks
        look = tasks.find(_DUE, {"_id": 1}).sort("claimableAt", 1).limit(4 * count)
        candidates = [row["_id"] for row in await look.to_list(None)]
        chosen = random.sample(candidates, min(count, len(candidates)))
        token = uuid4().hex
        ends = {"$add": ["$$NOW", int(_LOCK.total_seconds() * 1000)]}
        locked = {
            "status": "LOCKED",
            "workerId": "bare",
            "claimToken": token,
            "lockExpiresAt": ends,
            "claimableAt": ends,
            "epoch": {"$add": ["$epoch", 1]},
        }
        claimed = await tasks.update_many({"_id": {"$in": chosen}, **_DUE}, [{"$set": locked}])
        if claimed.modified_count == 0:
            return []
        mine = {"_id": {"$in": chosen}, "claimToken": token, "status": "LOCKED"}
        return await tasks.find(mine).to_list(None)

    async def _commit(self, rows: list[Json]) -> int:
        """Delete what was claimed and insert what follows, in one transaction."""
        following = [_next(row) for row in rows]
        mine = {
            "_id": {"$in": [row["_id"] for row in rows]},
            "claimToken": rows[0]["claimToken"],
            "status": "LOCKED",
        }
        async with (
            self._client.start_session(causal_consistency=False) as session,
            await session.start_transaction(ReadConcern("snapshot"), _MAJORITY),
        ):
            deleted = await self._tasks.delete_many(mine, session=session)
            if deleted.deleted_count != len(rows):
                await session.abort_transaction()
                return 0
            await self._tasks.insert_many(following, session=session)
        return len(rows)


def _next(row: Json) -> Json:
    """Return the row of the next step of the ring."""
    kept = {name: value for name, value in row.items() if name not in _UNLOCKED}
    number = int(row["taskDefinitionId"].rpartition("_")[2])
    at = now()
    return {
        **kept,
        "_id": str(uuid4()),
        "status": "PENDING",
        "taskDefinitionId": f"STEP_{(number + 1) % 10}",
        "createdAt": at,
        "claimableAt": at,
        "epoch": 0,
    }


async def _run(
    uri: str, database: str, server_pid: int, *, warm_up_s: float, window_s: float
) -> Json:
    async with AsyncMongoClient[Json](uri) as client:
        floor = Floor(client, database)
        async with asyncio.TaskGroup() as group:
            pipelines = [group.create_task(floor.run()) for _ in range(PIPELINES)]
            await floor.next_commit()
            await asyncio.sleep(warm_up_s)
            steps, began, used = floor.steps, time.monotonic(), time.process_time()
            server = cpu_s(server_pid)
            await asyncio.sleep(window_s)
            await floor.next_commit()
            counted = floor.steps - steps
            seconds, client_s = time.monotonic() - began, time.process_time() - used
            server_s = cpu_s(server_pid) - server
            for pipeline in pipelines:
                pipeline.cancel()
    return {"count": counted, "seconds": seconds, "client_s": client_s, "server_s": server_s}


def main() -> None:
    """Measure, and print the result as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("uri")
    parser.add_argument("database")
    parser.add_argument("server_pid", type=int)
    parser.add_argument("--warm-up-s", type=float, required=True)
    parser.add_argument("--window-s", type=float, required=True)
    given = parser.parse_args()
    work = _run(
        given.uri,
        given.database,
        given.server_pid,
        warm_up_s=given.warm_up_s,
        window_s=given.window_s,
    )
    if has_uvloop():
        import uvloop  # noqa: PLC0415 - optional

        result = uvloop.run(work)
    else:
        result = asyncio.run(work)
    json.dump(result, sys.stdout)


if __name__ == "__main__":
    main()
