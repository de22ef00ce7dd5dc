"""The people of the load: they complete external tasks, send messages, and put incidents right, as long as the load runs.

How they treat an external task is decided by its node: ``once``; ``twice`` by the same person; by two ``rivals`` at
once; ``by 0.3``: at any moment up to twice that many seconds, in a race with a timer or a message; ``message`` and
``kept``: its message is sent; ``thrown``: nothing, another branch sends it.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import TypeVar

from pymongo.errors import PyMongoError

from kikwiflow_worker.client import Kikwiflow
from kikwiflow_worker.errors import ConflictError, NotFoundError, StoreError
from kikwiflow_worker.model.runtime import ExternalTask, ExternalTaskType
from tests.chaos.load_ledger import Ledger

PAUSE_S = 0.3
"""Between two looks at what waits."""

REFUSALS = 1000
"""How often a call is repeated while the database refuses it or is away: longer than any fault lasts."""

_PAGE = 500
_AT_ONCE = 16

T = TypeVar("T")


class Patience:
    """Repeats calls until the database answers them, and remembers whether it had to."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    async def insist(self, call: Callable[[], Awaitable[T]]) -> tuple[T, int]:
        """Return the answer, and how many calls it took: all but the last may have had an effect as well."""
        for tries in range(1, REFUSALS):
            try:
                return await call(), tries
            except (StoreError, PyMongoError):
                await asyncio.sleep(self._rng.uniform(0.05, 0.5))
        return await call(), REFUSALS


class People:
    """Does what external tasks wait for, each once.

    Args:
        waits: How people treat the external tasks of each node.
    """

    def __init__(
        self,
        client: Kikwiflow,
        ledger: Ledger,
        patience: Patience,
        seed: int,
        waits: Mapping[str, str],
    ) -> None:
        self._client = client
        self._ledger = ledger
        self._patience = patience
        self._seed = seed
        self._waits = waits
        self._seen: set[str] = set()
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def work(self, until: asyncio.Event) -> None:
        """Look for what waits, and do it, until told to stop."""
        async with asyncio.TaskGroup() as errands:
            while not until.is_set():
                waiting = await self._look()
                for task in waiting:
                    errands.create_task(self._treat(task))
                await self._retry_incidents()
                await asyncio.sleep(PAUSE_S)

    async def send(self, key: str, node: str, ref: str, *, keep_s: float | None = None) -> None:
        """Send the message for a key, under an id of its own; with ``keep_s`` before anybody waits for it."""
        message = f"for {key}"
        keep = timedelta(seconds=keep_s) if keep_s is not None else None
        self._ledger.note("send", message=message, node=node, ref=ref, kept=keep is not None)

        async def correlate() -> str:
            try:
                found = await self._client.correlate(
                    key, {f"msg {key}": message}, message_id=message, keep_for=keep
                )
            except NotFoundError:
                return "missing"
            except ConflictError:
                return "suspended"
            return found.outcome.value

        answer, tries = await self._patience.insist(correlate)
        while answer == "suspended":
            await asyncio.sleep(PAUSE_S)
            answer, more = await self._patience.insist(correlate)
            tries += more
        self._ledger.note("sent", message=message, node=node, answer=answer, tries=tries)

    async def _look(self) -> list[ExternalTask]:
        """Return the external tasks that nobody has looked at yet."""
        found: list[ExternalTask] = []
        cursor: str | None = None
        still: set[str] = set()
        while True:
            at = cursor
            page, _ = await self._patience.insist(
                lambda at=at: self._client.list_external_tasks(limit=_PAGE, cursor=at)  # type: ignore[misc]
            )
            still |= {task.id for task in page.items}
            found += [task for task in page.items if task.id not in self._seen]
            cursor = page.next_cursor
            if cursor is None:
                break
        self._seen = still
        return found

    async def _treat(self, task: ExternalTask) -> None:
        how, _, moment = self._waits.get(task.node_id, "once").partition(" ")
        rng = random.Random(f"{self._seed} {task.id}")
        if how == "by":
            await asyncio.sleep(rng.uniform(0, 2 * float(moment)))
        async with self._slots:
            match task.type:
                case ExternalTaskType.TASK:
                    await self._complete(task, how)
                case ExternalTaskType.GROUP:
                    pass
                case _ if how in {"kept", "thrown"}:
                    pass
                case ExternalTaskType.BOUNDARY_CATCH if rng.random() < 0.4:
                    pass
                case _ if task.correlation_key is not None:
                    await self.send(task.correlation_key, task.node_id, task.instance_id)

    async def _complete(self, task: ExternalTask, how: str) -> None:
        match how:
            case "twice":
                await self._complete_as(task, "ana")
                await self._complete_as(task, "ana again")
            case "rivals":
                async with asyncio.TaskGroup() as rivals:
                    rivals.create_task(self._complete_as(task, "ana"))
                    rivals.create_task(self._complete_as(task, "ben"))
            case _:
                await self._complete_as(task, "ana")

    async def _complete_as(self, task: ExternalTask, person: str) -> None:
        asked = {"task": task.id, "instance": task.instance_id, "node": task.node_id, "by": person}
        self._ledger.note("complete", **asked)

        async def complete() -> str:
            try:
                await self._client.complete(
                    task.id, {f"by {task.node_id}": person}, completed_by=person
                )
            except NotFoundError:
                return "missing"
            except ConflictError as conflict:
                return "suspended" if "suspended" in str(conflict) else "taken"
            return "done"

        answer, tries = await self._patience.insist(complete)
        while answer == "suspended":
            await asyncio.sleep(PAUSE_S)
            answer, more = await self._patience.insist(complete)
            tries += more
        self._ledger.note("completed", **asked, answer=answer, tries=tries)

    async def _retry_incidents(self) -> None:
        """Put right what a fault left to people: a task whose worker died three times beside it."""
        page, _ = await self._patience.insist(lambda: self._client.list_incidents(limit=100))
        for incident in page.items:
            self._ledger.note(
                "incident",
                incident=incident.id,
                type=incident.type.value,
                instance=incident.instance_id,
                node=incident.node_id,
                message=incident.message[:200],
            )

            async def retry(incident_id: str = incident.id) -> None:
                try:
                    await self._client.retry_incident(incident_id, resolved_by="operator")
                except (NotFoundError, ConflictError):
                    return

            await self._patience.insist(retry)
