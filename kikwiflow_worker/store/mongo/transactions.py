"""Runs a piece of work in one transaction until the database gives a definite answer (protocol R6)."""

import random
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from pymongo.errors import PyMongoError
from pymongo.read_preferences import ReadPreference

from kikwiflow_worker.clock import Clock
from kikwiflow_worker.store.mongo.driver import (
    MAJORITY,
    SNAPSHOT_READ,
    Client,
    Collection,
    Session,
    settled,
)
from kikwiflow_worker.store.mongo.errors import (
    TRANSIENT_TRANSACTION,
    UNKNOWN_COMMIT,
    is_conflict,
    translated,
)

T = TypeVar("T")

_FIRST_PAUSE_S = 0.005
_LONGEST_PAUSE_S = 0.5
_GIVE_UP_AFTER_S = 60.0
"""Of attempts that were definitely not committed; the caller may start over."""


class TransactionObserver(Protocol):
    """Is told about attempts and conflicts, for metrics."""

    def transaction_attempted(self) -> None:
        """A transaction begins."""
        ...

    def transaction_conflicted(self) -> None:
        """A transaction was aborted by the database and is repeated."""
        ...


class TransactionConflictError(Exception):
    """Other transactions were in the way each time. Nothing was written."""


class Transactions:
    """Runs transactions with snapshot reads and majority writes.

    Args:
        any_collection: A collection with majority reads, to wait for the majority with.

    Attributes:
        enabled: False on a standalone server, which has none: the work is then run once, without a session.
    """

    def __init__(
        self,
        client: Client,
        any_collection: Collection,
        clock: Clock,
        jitter: random.Random,
        observer: TransactionObserver,
    ) -> None:
        self._client = client
        self._any_collection = any_collection
        self._clock = clock
        self._jitter = jitter
        self._observer = observer
        self.enabled = True

    async def run(
        self,
        doing: str,
        work: Callable[[Session], Awaitable[T]],
        *,
        most_attempts: int | None = None,
    ) -> T:
        """Run ``work`` in a transaction and commit it.

        ``work`` is repeated when the database aborts the transaction, so it may only touch the database and must decide
        anew each time. What it raises itself aborts the transaction and is raised on, as soon as the majority knows what
        ``work`` saw: reads that follow see it too (protocol R14).

        Args:
            most_attempts: How many conflicts with other transactions are enough; None goes on.

        Raises:
            StoreUnavailableError: No attempt was committed within a minute. Nothing was written.
            TransactionConflictError: ``most_attempts`` attempts met other transactions.
        """
        if not self.enabled:
            with translated(doing):
                return await work(None)
        started = self._clock.monotonic()
        pause = _FIRST_PAUSE_S
        conflicts = 0
        session = await settled(self._client.start_session(causal_consistency=True))
        with translated(doing):
            async with session:
                while True:
                    self._observer.transaction_attempted()
                    try:
                        return await self._attempt(session, work)
                    except PyMongoError as error:
                        waited = self._clock.monotonic() - started
                        if (
                            not error.has_error_label(TRANSIENT_TRANSACTION)
                            or waited > _GIVE_UP_AFTER_S
                        ):
                            raise
                        self._observer.transaction_conflicted()
                        conflicts += is_conflict(error)
                        if conflicts == most_attempts:
                            raise TransactionConflictError from error
                    await self._clock.sleep(pause * (0.5 + self._jitter.random()))
                    pause = min(pause * 2, _LONGEST_PAUSE_S)

    async def _attempt(self, session: Session, work: Callable[[Session], Awaitable[T]]) -> T:
        await settled(
            session.start_transaction(
                read_concern=SNAPSHOT_READ,
                write_concern=MAJORITY,
                read_preference=ReadPreference.PRIMARY,
            )
        )
        try:
            result = await work(session)
        except PyMongoError:
            await self._abort(session)
            raise
        except BaseException as refusal:
            await self._abort(session)
            if isinstance(refusal, Exception):
                await self._await_majority(session)
            raise
        await self._commit(session)
        return result

    async def _abort(self, session: Session) -> None:
        """Abort; if that does not reach the database, its own time limit aborts the transaction."""
        if session.in_transaction:
            try:
                await settled(session.abort_transaction())
            except PyMongoError:
                return

    async def _await_majority(self, session: Session) -> None:
        """Read what the majority knows after the aborted transaction's snapshot, which may have been ahead of it."""
        await settled(self._any_collection.find_one({}, {"_id": 1}, session=session))

    async def _commit(self, session: Session) -> None:
        """Send the commit until the answer is definite: an open commit can neither be seen nor be undone."""
        pause = _FIRST_PAUSE_S
        while True:
            try:
                await settled(session.commit_transaction())
                return
            except PyMongoError as error:
                if not error.has_error_label(UNKNOWN_COMMIT):
                    raise
            await self._clock.sleep(pause * (0.5 + self._jitter.random()))
            pause = min(pause * 2, _LONGEST_PAUSE_S)
