"""Many small races on the real server: two contenders, two connections, one decision.

Every other race starts both contenders at the same instant. The others let each prepare its write in peace and start both
writes at the same instant, or one of them a few round trips later, so that each side wins now and then. Nothing sleeps.
"""

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeAlias

from pymongo.database import Database

from kikwiflow_worker.errors import KikwiflowError
from kikwiflow_worker.model.runtime import ClaimedTask, IncidentStatus, TaskType
from kikwiflow_worker.operations.execution import Outcome, OutcomeKind
from tests.support.definitions import a_file, a_start, an_end
from tests.support.race_sides import Meeting, Side
from tests.support.stores import Json, new_id

BATCH = 60
PAIRS_AT_ONCE = 4
HEAD_STARTS = (0, 1, 3, 8, 20)
"""How many round trips later the second of two writes is sent."""

MANY = 1000
"""From so many races on, both sides must have won at least once."""

LOST = frozenset({OutcomeKind.CLAIM_LOST, OutcomeKind.DISCARDED})
"""What a worker hears whose task, or whose task's host, somebody else has ended."""

Losing: TypeAlias = type[KikwiflowError] | frozenset[OutcomeKind]


Call: TypeAlias = Callable[[Side], Awaitable[object]]


class Arena:
    """Prepares races in batches, runs them, and looks at what they leave in the database.

    Attributes:
        wins: How often the left and the right contender won.
    """

    def __init__(self, name: str, left: Side, right: Side, data: Database[Json]) -> None:
        self.name = name
        self.sides = (left, right)
        self.data = data
        self.wins = [0, 0]
        self._raced = 0

    async def deploy(self, *nodes: Mapping[str, object], key: str = "race") -> None:
        """Deploy a process that starts at the first node."""
        file = a_file(a_start(str(nodes[0]["id"])), *map(dict, nodes), an_end(), key=key)
        await self.sides[0].client.deploy(json.dumps(file))

    async def start(self, count: int, key: str = "race", **variables: object) -> list[str]:
        """Start instances, each with a key of its own in variable ``key``."""
        starts = (
            self.sides[number % 2].start(key, {"key": new_id(), **variables})
            for number in range(count)
        )
        return list(await asyncio.gather(*starts))

    async def batches(self, races: int, **variables: object) -> AsyncIterator[list[str]]:
        """Yield ids of new instances until there were ``races``; finish each batch and look that nothing is left."""
        for first in range(0, races, BATCH):
            ids = await self.start(min(BATCH, races - first), **variables)
            yield ids
            self.assert_sound()
            await self.drain()
            self.assert_all_ended(ids)
            self.clear()
        if races >= MANY:
            assert min(self.wins) > 0, f"{self.name}: one side always won: {self.wins}"

    def tasks(self, node_id: str, **fields: object) -> dict[str, str]:
        """Return the executable task of each instance at a node."""
        return self._rows("executable_tasks", node_id, fields)

    def waits(self, node_id: str, **fields: object) -> dict[str, str]:
        """Return the external task of each instance at a node."""
        return self._rows("external_tasks", node_id, fields)

    def _rows(self, collection: str, node_id: str, fields: Json) -> dict[str, str]:
        found = self.data[collection].find({"taskDefinitionId": node_id, **fields})
        return {row["processInstanceId"]: row["_id"] for row in found}

    async def claimed(self, node_id: str, **fields: object) -> dict[str, ClaimedTask]:
        """Claim the executable task of each instance at a node."""
        rows = self.tasks(node_id, **fields)
        claims = await asyncio.gather(*(self.sides[0].claim(task_id) for task_id in rows.values()))
        return dict(zip(rows, claims, strict=True))

    def keys(self) -> dict[str, str]:
        """Return the correlation key of each instance."""
        found = self.data.process_instances.find()
        return {row["_id"]: row["variables"]["key"]["value"] for row in found}

    def open_incidents(self) -> dict[str, str]:
        """Return the open incident of each instance that has one."""
        found = self.data.incidents.find({"status": IncidentStatus.OPEN.value})
        return {row["processInstanceId"]: row["_id"] for row in found}

    def children(self) -> list[Json]:
        """Return the running instances that a call activity started."""
        return list(self.data.process_instances.find({"parentInstanceId": {"$exists": True}}))

    def completed_by(self, task_id: str) -> str:
        """Return who completed an external task, or correlated the last key of a group."""
        record = self.data.completed_external_tasks.find_one({"_id": task_id})
        assert record is not None
        return str(record["completedBy"])

    async def receivers(self, keys: Mapping[str, str]) -> dict[str, str]:
        """Start a receiver for each instance's key; return its id."""
        starts = (self.sides[0].start("receiver", {"key": key}) for key in keys.values())
        return dict(zip(keys, await asyncio.gather(*starts), strict=True))

    async def claimed_keepers(self) -> dict[str, ClaimedTask]:
        """Claim the tasks that try kept messages again, by the message's id."""
        found = self.data.executable_tasks.find({"type": TaskType.KEPT_MESSAGE.value})
        rows = {row["taskDefinitionId"]: row["_id"] for row in found}
        claims = await asyncio.gather(*(self.sides[0].claim(task_id) for task_id in rows.values()))
        return dict(zip(rows, claims, strict=True))

    async def race(self, pairs: Iterable[tuple[Call, Call]]) -> list[tuple[Any, Any]]:
        """Run pairs of contenders, a few pairs at a time; return results and errors, left and right."""
        lanes = asyncio.Semaphore(PAIRS_AT_ONCE)

        async def run(number: int, pair: tuple[Call, Call]) -> tuple[Any, Any]:
            async with lanes:
                return await self._contend(number, pair)

        numbered = enumerate(pairs, start=self._raced)
        results = await asyncio.gather(*(run(number, pair) for number, pair in numbered))
        self._raced += len(results)
        return list(results)

    async def race_completions(
        self, ids: Iterable[str], act: Callable[[Side, str], Awaitable[Any]]
    ) -> list[tuple[Any, Any]]:
        """Let ``act`` on each instance contend with the completion of its external task at TASK."""
        tasks = self.waits("TASK")
        return await self.race(
            (
                lambda side, i=i: act(side, i),
                lambda side, task=tasks[i]: side.client.complete(task),
            )
            for i in ids
        )

    async def race_steps(
        self,
        ids: Iterable[str],
        tasks: Mapping[str, ClaimedTask],
        act: Callable[[Side, str], Awaitable[Any]],
    ) -> list[tuple[Any, Any]]:
        """Let ``act`` on each instance contend with a worker's step of its claimed task."""
        return await self.race(
            (
                lambda side, i=i: act(side, i),
                lambda side, task=tasks[i]: side.run(task),
            )
            for i in ids
        )

    async def fail_steps(
        self, ids: Iterable[str], tasks: Mapping[str, ClaimedTask]
    ) -> dict[str, str]:
        """Let the claimed step of each instance fail for good, and the next attempt succeed; return the incidents."""
        for instance_id, task in tasks.items():
            assert (await self.sides[0].run(task)).kind is OutcomeKind.INCIDENT_OPENED
            await self.sides[0].client.set_variables(instance_id, {"broken": False})
        opened = self.open_incidents()
        assert opened.keys() == set(ids)
        return opened

    async def _contend(self, number: int, pair: tuple[Call, Call]) -> tuple[Any, Any]:
        start, writes = Meeting(), Meeting()
        prepare_in_peace = number % 2 == 1
        first, head_start = number // 2 % 2, HEAD_STARTS[number // 4 % len(HEAD_STARTS)]

        async def contend(who: int) -> Any:
            side, trips = self.sides[who], 0 if who == first else head_start
            await start.meet(who)
            if prepare_in_peace:
                side = side.meeting(writes, who, trips=trips)
            else:
                await side.travel(trips)
            try:
                return await pair[who](side)
            except KikwiflowError as error:
                return error
            finally:
                writes.arrive(who)

        async with asyncio.TaskGroup() as group:
            contenders = {who: group.create_task(contend(who)) for who in (first, 1 - first)}
        return contenders[0].result(), contenders[1].result()

    def one_won(self, results: tuple[Any, Any], losing: tuple[Losing, Losing]) -> int:
        """Look that exactly one contender won and the other lost as documented; return which one won."""
        lost = [_is_loss(result, how) for result, how in zip(results, losing, strict=True)]
        assert sorted(lost) == [False, True], f"{self.name}: {results}"
        winner = lost.index(False)
        assert not isinstance(results[winner], Exception), f"{self.name}: {results}"
        if isinstance(results[winner], Outcome):
            assert results[winner].kind is OutcomeKind.COMPLETED, f"{self.name}: {results}"
        self.wins[winner] += 1
        return winner

    def places(self) -> dict[str, str]:
        """Return for each instance the nodes at which its rows are, as one text."""
        found: dict[str, list[str]] = defaultdict(list)
        for row in self._all_rows():
            if row["processInstanceId"]:
                found[row["processInstanceId"]].append(row["taskDefinitionId"])
        return {instance_id: " ".join(sorted(nodes)) for instance_id, nodes in found.items()}

    def assert_sound(self) -> None:
        """Look that no row belongs to something that is gone, that nothing is locked, and that there is no incident."""
        running = {row["_id"] for row in self.data.process_instances.find({}, {"_id": 1})}
        rows = self._all_rows()
        ids = {row["_id"] for row in rows}
        for row in rows:
            assert row["status"] not in {"LOCKED", "ARRIVED"}, row
            if row.get("type") in {TaskType.CANCEL_CHILDREN, TaskType.KEPT_MESSAGE}:
                continue
            assert row["processInstanceId"] in running, row
            for field in ("attachedToRefId", "coordinatorTaskId", "joinTaskId"):
                assert row.get(field) is None or row[field] in ids, row
        assert self.open_incidents() == {}

    async def run_due(self) -> int:
        """Run what is due until nothing is, with two loops on each side; return how many tasks that were."""
        return sum(await asyncio.gather(*(side.run_due() for side in self.sides * 2)))

    async def drain(self) -> None:
        """Run and complete everything until nothing is due and nobody is asked."""
        while True:
            runs = await self.run_due()
            people = {"type": {"$exists": False}}
            waiting = [row["_id"] for row in self.data.external_tasks.find(people, {"_id": 1})]
            await asyncio.gather(
                *(self.sides[n % 2].client.complete(task_id) for n, task_id in enumerate(waiting))
            )
            if not runs and not waiting:
                return

    def assert_all_ended(self, ids: Iterable[str]) -> None:
        """Look that nothing but history is left: each instance once, children included."""
        assert self._all_rows() == []
        assert list(self.data.process_instances.find()) == []
        assert self.open_incidents() == {}
        history = {row["_id"]: row for row in self.data.process_history.find()}
        started = {key for key, row in history.items() if "parentInstanceId" not in row}
        assert started == set(ids)

    def statuses(self) -> dict[str, str]:
        """Return how each ended instance ended."""
        return {row["_id"]: row["status"] for row in self.data.process_history.find()}

    def clear(self) -> None:
        """Empty the database, definitions excepted."""
        for name in self.data.list_collection_names():
            if name not in {"meta", "process_definitions"}:
                self.data[name].delete_many({})

    def _all_rows(self) -> list[Json]:
        return [*self.data.executable_tasks.find(), *self.data.external_tasks.find()]


def _is_loss(result: Any, how: Losing) -> bool:
    if isinstance(how, frozenset):
        return isinstance(result, Outcome) and result.kind in how
    return isinstance(result, how)
