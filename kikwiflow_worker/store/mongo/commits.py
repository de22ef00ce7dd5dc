"""Commits units of work in a transaction each."""

from dataclasses import dataclass

from kikwiflow_worker.model.runtime import ProcessInstance
from kikwiflow_worker.model.unit_of_work import Committed, UnitOfWork, guarded_task_id
from kikwiflow_worker.store.mongo.driver import Session
from kikwiflow_worker.store.mongo.follow_ups import FollowUps, Written
from kikwiflow_worker.store.mongo.guards import Guards
from kikwiflow_worker.store.mongo.handing_on import Born, HandingOn
from kikwiflow_worker.store.mongo.server_time import ServerTime
from kikwiflow_worker.store.mongo.transactions import Transactions
from kikwiflow_worker.store.mongo.writes import Writes
from kikwiflow_worker.store.values import HandOn


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitParts:
    """What commits are made of."""

    guards: Guards
    writes: Writes
    transactions: Transactions
    server_time: ServerTime
    handing_on: HandingOn
    follow_ups: FollowUps


class Commits:
    """Writes a unit in one transaction (design 7)."""

    def __init__(self, parts: CommitParts) -> None:
        self._parts = parts

    async def commit(
        self,
        unit: UnitOfWork,
        *,
        hand_on: HandOn | None = None,
        most_attempts: int | None = None,
    ) -> Committed:
        """Commit ``unit``; see ``RuntimeStore.commit``.

        Raises:
            TransactionConflictError: ``most_attempts`` attempts met other transactions.
        """
        parts = self._parts

        async def write(session: Session) -> tuple[tuple[ProcessInstance, ...], Born | None]:
            now = parts.server_time.now()
            changes, born = parts.handing_on.bear(unit.changes, hand_on)
            for guard in unit.guards:
                await parts.guards.write(guard, now=now, session=session)
            await parts.writes.insert(changes, session=session)
            return await parts.writes.apply(changes, session=session), born

        ended, born = await parts.transactions.run(
            f"committing {unit_name(unit)}", write, most_attempts=most_attempts
        )
        (committed,) = await parts.follow_ups.follow([Written(unit, ended, born)])
        return committed


def unit_name(unit: UnitOfWork) -> str:
    """Return words that name the unit in messages."""
    if not unit.guards:
        return "a change without a task"
    return f"the outcome of task {guarded_task_id(unit.guards[0])}"
