"""Hints that work has become claimable, from a change stream on the tasks (design 5, S-55)."""

import random
from collections.abc import AsyncGenerator

from pymongo.errors import OperationFailure, PyMongoError

from kikwiflow_worker.clock import Clock
from kikwiflow_worker.model.runtime import TaskStatus
from kikwiflow_worker.store.mongo.collections import Collections
from kikwiflow_worker.store.mongo.driver import Document, settled

_IDLE_MS = 5_000
"""How long the server holds a request open while nothing happens; one command for each such span is the idle cost."""

_OF_SOCKET_TIMEOUT = 0.8
"""The most of the client's socket time-out that this may be: an answer as late as that breaks the stream."""

_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 30.0
_NO_CHANGE_STREAMS = {40573, 303}


class MongoWakeUps:
    """Watches the tasks of one database."""

    def __init__(self, collections: Collections, clock: Clock, jitter: random.Random) -> None:
        self._tasks = collections.tasks
        self._clock = clock
        self._jitter = jitter

    async def watch(self) -> AsyncGenerator[None, None]:
        """Yield when tasks became claimable; see ``WakeUps.watch``.

        A stream that breaks is opened anew from the present: the hint with which it begins stands for what came between.
        """
        pause = _FIRST_PAUSE_S
        while True:
            try:
                stream = await settled(
                    self._tasks.watch(claimable_changes(), max_await_time_ms=self._idle_ms())
                )
                async with stream:
                    yield
                    while stream.alive:
                        change = await stream.try_next()
                        pause = _FIRST_PAUSE_S
                        if change is not None:
                            yield
            except OperationFailure as error:
                if error.code in _NO_CHANGE_STREAMS:
                    return
            except PyMongoError:
                pass
            await self._clock.sleep(pause * (0.5 + self._jitter.random()))
            pause = min(pause * 2, _LONGEST_PAUSE_S)

    def _idle_ms(self) -> int:
        timeout_s = self._tasks.database.client.options.pool_options.socket_timeout
        return min(_IDLE_MS, int(timeout_s * 1000 * _OF_SOCKET_TIMEOUT)) if timeout_s else _IDLE_MS


def claimable_changes() -> list[Document]:
    """Return the pipeline that lets through, by their ids only, changes that make a task wait for a worker."""
    pending = TaskStatus.PENDING.value
    return [
        {
            "$match": {
                "$or": [
                    {"operationType": "insert", "fullDocument.status": pending},
                    {
                        "operationType": "update",
                        "updateDescription.updatedFields.status": pending,
                    },
                ]
            }
        },
        {"$project": {"_id": 1}},
    ]
