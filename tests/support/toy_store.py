"""A store of two dicts that knows the protocol's rules for guards, arrivals and ends, and checks what must always hold."""

from collections import Counter
from dataclasses import replace

from kikwiflow_worker.model.runtime import (
    ExecutableTask,
    ExternalTask,
    ProcessInstance,
    TaskStatus,
)
from kikwiflow_worker.model.unit_of_work import (
    ArriveTask,
    Change,
    ChangeVariables,
    CompleteExternalTask,
    EndPath,
    FailTask,
    Guard,
    InsertExternalTask,
    InsertInstance,
    InsertTask,
    OpenIncident,
    RecordEnded,
    RemoveArrivals,
    RemoveTask,
    RescheduleTask,
    UnitOfWork,
)
from kikwiflow_worker.model.variables import Value, apply_change
from tests.support.engine import NOON


class ClaimLost(Exception):  # noqa: N818 - an ordinary outcome
    """A guard matched nothing; nothing was written."""


class ToyStore:
    """Tasks, external tasks and one instance; a commit happens as a whole or not at all.

    Attributes:
        ended: The instance after its end.
        fired: How often each join went on.
    """

    def __init__(self) -> None:
        self.tasks: dict[str, ExecutableTask] = {}
        self.waits: dict[str, ExternalTask] = {}
        self.instance: ProcessInstance | None = None
        self.ended: ProcessInstance | None = None
        self.fired: Counter[str] = Counter()
        self._born: set[str] = set()

    def commit(self, unit: UnitOfWork) -> None:
        """Write ``unit``, or raise ClaimLost."""
        for guard in unit.guards:
            self._check(guard)
        for guard in unit.guards:
            self._decide(guard)
        for change in unit.changes:
            self._write(change)

    def _write(self, change: Change) -> None:
        match change:
            case InsertInstance(instance):
                assert self.instance is None
                assert self.ended is None
                self.instance = instance
            case RecordEnded(instance):
                self._end(instance)
            case InsertTask(task):
                self._bear(task.id)
                self.tasks[task.id] = task
            case InsertExternalTask(wait):
                self._bear(wait.id)
                self.waits[wait.id] = wait
            case ChangeVariables(_, changes):
                assert self.instance is not None
                variables: dict[str, Value] = dict(self.instance.variables)
                for variable_change in changes:
                    apply_change(variables, variable_change)
                self.instance = replace(self.instance, variables=variables)
            case OpenIncident(incident):
                assert self.tasks[incident.task_id].status is TaskStatus.ERROR
            case RemoveArrivals(join_task_id):
                self.fired[join_task_id] += 1
                self._remove_arrivals(join_task_id)
            case EndPath():
                assert self.instance is not None
                self._end(self.instance)
            case _:
                raise AssertionError(f"{change} has no place in a segment")

    def _bear(self, new_id: str) -> None:
        assert new_id not in self._born, f"{new_id} is born twice"
        self._born.add(new_id)

    def _end(self, instance: ProcessInstance) -> None:
        """The last token is gone, so nothing is left of the others."""
        assert self.ended is None, "the instance ended twice"
        assert not self.tasks
        assert not self.waits
        self.ended, self.instance = instance, None

    def _check(self, guard: Guard) -> None:
        if isinstance(guard, CompleteExternalTask):
            if guard.task_id not in self.waits:
                raise ClaimLost
            return
        task, claim = self.tasks.get(guard.claim.task_id), guard.claim
        held = task and (task.worker_id, task.epoch) == (claim.worker_id, claim.epoch)
        if not task or not held or task.status is not TaskStatus.LOCKED:
            raise ClaimLost

    def _decide(self, guard: Guard) -> None:
        match guard:
            case CompleteExternalTask(task_id=task_id):
                del self.waits[task_id]
            case RemoveTask(claim):
                del self.tasks[claim.task_id]
            case ArriveTask(claim, branch):
                task = self._left(claim.task_id, status=TaskStatus.ARRIVED)
                assert task.branch == branch
            case RescheduleTask(claim=claim):
                self._left(
                    claim.task_id,
                    status=TaskStatus.PENDING,
                    claimable_at=guard.due_at,
                    attempts=guard.attempts,
                    retries_left=guard.retries_left,
                )
            case FailTask(claim=claim):
                self._left(claim.task_id, status=TaskStatus.ERROR, claimable_at=None)

    def _left(self, task_id: str, **fields: object) -> ExecutableTask:
        task = self.tasks[task_id]
        left = replace(task, worker_id=None, epoch=task.epoch + 1, **fields)  # type: ignore[arg-type]
        self.tasks[task_id] = left
        return left

    def claim(self, task_id: str, worker_id: str) -> ExecutableTask:
        """Give the task to a worker; of one that is LOCKED the lock has lapsed."""
        task = self.tasks[task_id]
        assert task.status in {TaskStatus.PENDING, TaskStatus.LOCKED}
        held = replace(task, status=TaskStatus.LOCKED, worker_id=worker_id, epoch=task.epoch + 1)
        self.tasks[task_id] = held
        return held

    def deliver(self, arrival: ExecutableTask, *, forget: bool) -> None:
        """Pull the arrival's branch from its join; ``forget`` removes the record, as whoever pulled may do."""
        assert arrival.branch is not None
        join = self.tasks.get(arrival.branch.join_task_id)
        waiting = join is not None and join.status is TaskStatus.AWAITING_BRANCHES
        if join and waiting and arrival.branch.id in join.pending_branch_ids:
            left = tuple(b for b in join.pending_branch_ids if b != arrival.branch.id)
            status = join.status if left else TaskStatus.PENDING
            self.tasks[join.id] = replace(join, pending_branch_ids=left, status=status)
        if forget:
            self.tasks.pop(arrival.id, None)

    def retry(self, task_id: str) -> None:
        """What an operator does about an incident."""
        self._left(task_id, status=TaskStatus.PENDING, retries_left=3, claimable_at=NOON)

    def _remove_arrivals(self, join_task_id: str) -> None:
        for task in list(self.tasks.values()):
            of_join = task.branch is not None and task.branch.join_task_id == join_task_id
            if of_join and task.status is TaskStatus.ARRIVED:
                del self.tasks[task.id]
