"""Group commit: units of work that finish together share one transaction (protocol R15)."""

import asyncio
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass

from kikwiflow_worker.errors import (
    ClaimLostError,
    KikwiflowError,
    StoreUnavailableError,
)
from kikwiflow_worker.model.runtime import ProcessInstance
from kikwiflow_worker.model.unit_of_work import (
    CLAIM_GUARDS,
    Change,
    ChangeVariables,
    ClaimGuard,
    Detach,
    EndPath,
    OpenPath,
    RemoveArrivals,
)
from kikwiflow_worker.model.variables import VariableChange, net_changes
from kikwiflow_worker.store.mongo.commits import CommitParts, Commits, unit_name
from kikwiflow_worker.store.mongo.driver import Session
from kikwiflow_worker.store.mongo.follow_ups import Written
from kikwiflow_worker.store.mongo.grouping import group_units
from kikwiflow_worker.store.mongo.instances import InstanceWrites
from kikwiflow_worker.store.mongo.transactions import TransactionConflictError
from kikwiflow_worker.store.values import GroupedUnit, GroupResult, HandOn

_ATTEMPTS = 2
"""Of a group's transaction that others are in the way of, before the group is halved."""

_ATTEMPTS_ALONE = 8
"""Of one unit while others of its call wait for their results: about half a second. Its committer tries again."""

_AT_ONCE = 8
"""Units that are committed alone at the same time; more would only queue in the client."""


@dataclass(frozen=True, slots=True)
class _Member:
    """A unit of a group, with its position in the call."""

    position: int
    grouped: GroupedUnit
    hand_on: HandOn | None

    @property
    def own_guard(self) -> ClaimGuard:
        """The guard that decides about the claimed task."""
        return next(g for g in self.grouped.unit.guards if isinstance(g, CLAIM_GUARDS))


class GroupCommits:
    """Commits groups of units."""

    def __init__(self, alone: Commits, parts: CommitParts, instances: InstanceWrites) -> None:
        self._alone = alone
        self._parts = parts
        self._instances = instances

    async def commit(
        self, units: Sequence[GroupedUnit], *, hand_on: HandOn | None
    ) -> tuple[GroupResult, ...]:
        """Commit units in as few transactions as may be; see ``RuntimeStore.commit_group``."""
        members = [
            _Member(position, grouped, hand_on if grouped.may_hand_on else None)
            for position, grouped in enumerate(units)
        ]
        groups = group_units([grouped.unit for grouped in units])
        shared = [[members[position] for position in group] for group in groups if len(group) > 1]
        alone = [members[group[0]] for group in groups if len(group) == 1]
        results: dict[int, GroupResult] = {}
        for group in shared:
            results |= await self._settle(group)
        patience = _ATTEMPTS_ALONE if len(units) > 1 else None
        for first in range(0, len(alone), _AT_ONCE):
            batch = alone[first : first + _AT_ONCE]
            settled = await asyncio.gather(*(self._settle_alone(one, patience) for one in batch))
            results |= {one.position: result for one, result in zip(batch, settled, strict=True)}
        return tuple(results[position] for position in range(len(units)))

    async def _settle_alone(self, member: _Member, most_attempts: int | None) -> GroupResult:
        unit = member.grouped.unit
        try:
            return await self._alone.commit(
                unit, hand_on=member.hand_on, most_attempts=most_attempts
            )
        except KikwiflowError as error:
            return error
        except TransactionConflictError:
            return StoreUnavailableError(
                f"other transactions hold what {unit_name(unit)} changes; it can be committed again"
            )

    async def _settle(self, group: list[_Member]) -> dict[int, GroupResult]:
        """Commit a group together; who may be to blame for a failure is found by halving, and committed last."""
        results: dict[int, GroupResult] = {}
        suspects: list[_Member] = []
        parts = deque([group])
        while parts:
            part = parts.popleft()
            if len(part) == 1:
                suspects += part
                continue
            try:
                results |= await self._share(part)
            except StoreUnavailableError as error:
                results |= {member.position: error for member in part}
            except (KikwiflowError, TransactionConflictError):
                middle = len(part) // 2
                parts += (part[:middle], part[middle:])
        for member in suspects:
            results[member.position] = await self._settle_alone(member, _ATTEMPTS_ALONE)
        return results

    async def _share(self, group: list[_Member]) -> dict[int, GroupResult]:
        """Commit a group in one transaction, without the units whose claims are lost.

        That all claims hold is seen by the number of rows that the guards match. Only if it is too small, the rows are
        looked at first: in a transaction of its own, in each attempt anew.
        """
        try:
            return await self._attempt(group, look=False)
        except ClaimLostError:
            return await self._attempt(group, look=True)

    async def _attempt(self, group: list[_Member], *, look: bool) -> dict[int, GroupResult]:
        async def write(session: Session) -> tuple[list[_Member], list[Written]]:
            kept = await self._held(group, session) if look else group
            return kept, (await self._write(kept, session)) if kept else []

        doing = f"committing the outcomes of {len(group)} tasks"
        kept, written = await self._parts.transactions.run(doing, write, most_attempts=_ATTEMPTS)
        committed = await self._parts.follow_ups.follow(written)
        lost: dict[int, GroupResult] = {
            member.position: ClaimLostError(member.own_guard) for member in group
        }
        return lost | {member.position: one for member, one in zip(kept, committed, strict=True)}

    async def _held(self, group: list[_Member], session: Session) -> list[_Member]:
        claims = [member.own_guard.claim for member in group]
        held = await self._parts.guards.find_held(claims, session=session)
        return [member for member in group if member.own_guard.claim in held]

    async def _write(self, group: list[_Member], session: Session) -> list[Written]:
        now = self._parts.server_time.now()
        borne = [
            self._parts.handing_on.bear(member.grouped.unit.changes, member.hand_on)
            for member in group
        ]
        changes = [change for own, _ in borne for change in own]
        guards = [guard for member in group for guard in member.grouped.unit.guards]
        await self._parts.guards.write_many(guards, now=now, session=session)
        await self._parts.writes.insert(changes, session=session)
        ended = {one.id: one for one in await self._apply(changes, session)}
        return [
            Written(member.grouped.unit, _take_ended(own, ended), born)
            for member, (own, born) in zip(group, borne, strict=True)
        ]

    async def _apply(
        self, changes: Sequence[Change], session: Session
    ) -> tuple[ProcessInstance, ...]:
        """Write all changes that are no inserts, those of one kind together; return the instances that this ended."""
        await self._parts.writes.remove_arrivals(
            [c.join_task_id for c in changes if isinstance(c, RemoveArrivals)], session=session
        )
        await self._parts.writes.detach(
            [c for c in changes if isinstance(c, Detach)], session=session
        )
        ends = {c.instance_id: c.ended_at for c in changes if isinstance(c, EndPath)}
        opened = _opened(changes)
        updates = await self._instances.variable_updates(_variable_changes(changes), session)
        for instance_id in opened.keys() - ends.keys():
            updates.setdefault(instance_id, {})
            updates[instance_id].setdefault("$inc", {})["openPaths"] = opened[instance_id]
        await self._instances.change_many(updates, session=session)
        ending = {instance_id: opened[instance_id] for instance_id in ends}
        return await self._instances.end_paths(ending, ends, session=session)


def _take_ended(
    changes: Sequence[Change], ended: dict[str, ProcessInstance]
) -> tuple[ProcessInstance, ...]:
    """Return the instances that a unit ended; where two units of a group ended paths of one, the first has it."""
    ids = [change.instance_id for change in changes if isinstance(change, EndPath)]
    return tuple(ended.pop(instance_id) for instance_id in ids if instance_id in ended)


def _opened(changes: Sequence[Change]) -> dict[str, int]:
    """Return by how many paths each instance grows."""
    opened: defaultdict[str, int] = defaultdict(int)
    for change in changes:
        match change:
            case OpenPath(instance_id):
                opened[instance_id] += 1
            case EndPath(instance_id):
                opened[instance_id] -= 1
            case _:
                pass
    return opened


def _variable_changes(changes: Sequence[Change]) -> dict[str, tuple[VariableChange, ...]]:
    """Return the net changes of each instance whose variables change, in the order of the units."""
    merged: defaultdict[str, list[VariableChange]] = defaultdict(list)
    for change in changes:
        if isinstance(change, ChangeVariables):
            merged[change.instance_id].extend(change.changes)
    return {instance_id: net_changes(own) for instance_id, own in merged.items()}
