"""Whether the demonstration came out right: read from the database, the logs and the bank, not from memory."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from scenario import Case
from workers import LogSummary

from kikwiflow_handlers.bank import Transfer
from kikwiflow_worker.client import Kikwiflow
from kikwiflow_worker.model.runtime import InstanceStatus, ProcessInstance
from kikwiflow_worker.store.views import IncidentQuery, InstanceQuery

_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Check:
    """One claim, and what speaks against it; nothing does if it holds."""

    claim: str
    problems: tuple[str, ...]

    @property
    def holds(self) -> bool:
        return not self.problems


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """What is left in the database."""

    instances: list[ProcessInstance]
    unfinished: list[str]
    incidents: int


async def read_end(kikwiflow: Kikwiflow) -> Ended:
    """Read all ended instances, and whatever should not be there any more."""
    ended: list[ProcessInstance] = []
    cursor = None
    while True:
        query = InstanceQuery(ended=True)
        page = await kikwiflow.list_instances(query, limit=500, cursor=cursor)
        ended += page.items
        cursor = page.next_cursor
        if cursor is None:
            break
    running = await kikwiflow.list_instances(limit=500)
    tasks = await kikwiflow.list_tasks(limit=500)
    waits = await kikwiflow.list_external_tasks(limit=500)
    incidents = await kikwiflow.list_incidents(IncidentQuery(status=None), limit=500)
    return Ended(
        instances=ended,
        unfinished=[f"{each.business_key} still runs" for each in running.items]
        + [f"task {each.id} at {each.node_id} is {each.status}" for each in tasks.items]
        + [f"external task {each.id} at {each.node_id} is open" for each in waits.items],
        incidents=len(incidents.items),
    )


def check(
    cases: Sequence[Case],
    ended: Ended,
    transfers: Sequence[Transfer],
    orphans: frozenset[str],
    logs: LogSummary,
) -> list[Check]:
    """Return all claims of the demonstration."""
    by_key = {instance.business_key: instance for instance in ended.instances}
    counts = Counter(instance.business_key for instance in ended.instances)
    paid = Counter(transfer.reference for transfer in transfers)
    amounts = {transfer.reference: transfer.amount for transfer in transfers}
    due = {case.business_key: case.pays for case in cases if case.pays is not None}
    return [
        Check(
            f"all {len(cases)} instances ended, and nothing is left behind",
            (
                *(
                    f"{case.business_key} did not end"
                    for case in cases
                    if case.business_key not in by_key
                ),
                *ended.unfinished,
            ),
        ),
        Check(
            "no instance exists twice, although every tenth start was sent twice",
            tuple(f"{key} exists {number} times" for key, number in counts.items() if number > 1),
        ),
        Check(
            "every variable has the value that was calculated beforehand",
            tuple(
                problem
                for case in cases
                if case.business_key in by_key
                for problem in _differences(case, by_key[case.business_key])
            ),
        ),
        Check(
            f"the bank moved money {len(due)} times, once for each payment",
            tuple(
                f"{key}: {paid[key]} transfers of {amounts.get(key)}, due is {due.get(key)}"
                for key in sorted(due.keys() | paid.keys())
                if paid[key] != (key in due) or amounts.get(key) != due.get(key)
            ),
        ),
        Check(
            f"all {len(orphans)} tasks of the killed worker were taken over",
            tuple(f"task {task_id} was not" for task_id in sorted(orphans - logs.rescued)),
        ),
        Check(
            "no incident was opened",
            (f"{ended.incidents} were",) if ended.incidents else (),
        ),
    ]


def _differences(case: Case, instance: ProcessInstance) -> list[str]:
    found = [
        f"{case.business_key}: {name} is {instance.variables.get(name)!r}, not {value!r}"
        for name, value in case.expected.items()
        if instance.variables.get(name) != value
    ]
    if instance.status is not InstanceStatus.COMPLETED:
        found.append(f"{case.business_key}: status is {instance.status}")
    return found


def shown(problems: Sequence[str]) -> list[str]:
    """Return the first problems, and how many more there are."""
    rest = len(problems) - _SHOWN
    return [*problems[:_SHOWN], *([f"... and {rest} more"] if rest > 0 else [])]
