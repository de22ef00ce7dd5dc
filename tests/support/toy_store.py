"""A store of dicts that knows the protocol's rules, and checks what must always hold."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

from kikwiflow_worker.model.messages import Message, MessageStatus
from kikwiflow_worker.model.runtime import (
    Attachment,
    Branch,
    ExecutableTask,
    ExternalTask,
    ExternalTaskStatus,
    ExternalTaskType,
    HostKind,
    InstanceStatus,
    ProcessInstance,
    TaskStatus,
    TaskType,
)
from kikwiflow_worker.model.unit_of_work import (
    AbandonChildren,
    ArriveTask,
    AwaitNextChild,
    Change,
    ChangeVariables,
    ClaimGuard,
    CompleteExternalTask,
    Detach,
    EndHost,
    EndPath,
    FailTask,
    Guard,
    InsertExternalTask,
    InsertInstance,
    InsertTask,
    MatchKey,
    OpenIncident,
    OpenPath,
    RecordEnded,
    RecordEvent,
    RecordMessage,
    RemoveArrivals,
    RemoveTask,
    RescheduleTask,
    SettleMessage,
    StartChild,
    UnitOfWork,
    guarded_task_id,
)
from kikwiflow_worker.model.variables import Value, apply_change
from tests.support.engine import NOON

Row = ExecutableTask | ExternalTask

_PASSED_BY_ROW = {
    TaskType.TIMER_TASK,
    TaskType.INTERRUPTIVE_TIMER,
    TaskType.NON_INTERRUPTIVE_TIMER,
}
_INSERTS = (
    InsertInstance
    | InsertTask
    | InsertExternalTask
    | RecordEnded
    | RecordEvent
    | RecordMessage
    | OpenIncident
)


class ClaimLost(Exception):  # noqa: N818 - an ordinary outcome
    """A guard matched nothing; nothing was written."""

    def __init__(self, guard: Guard) -> None:
        self.guard = guard
        super().__init__(str(guard))


class ToyStore:
    """Instances and their tasks; a commit happens as a whole or not at all.

    Attributes:
        ended: Instances that came to their end.
        messages: Kept messages, and those of them that were delivered.
        cancelled: The ids of those that were cancelled.
        passed: For each wait, timer and call activity: the instances and tasks that passed it.
        settled: The tasks that are done, by a commit of their own.
    """

    def __init__(self) -> None:
        self.tasks: dict[str, ExecutableTask] = {}
        self.waits: dict[str, ExternalTask] = {}
        self.instances: dict[str, ProcessInstance] = {}
        self.ended: dict[str, ProcessInstance] = {}
        self.messages: dict[str, Message] = {}
        self.cancelled: set[str] = set()
        self.passed: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
        self.settled: set[str] = set()
        self._born: set[str] = set()

    # --- commits

    def commit(self, unit: UnitOfWork) -> None:
        """Write ``unit``, or raise ClaimLost."""
        documents = [document for guard in unit.guards for document in _documents(guard)]
        assert len(documents) == len(set(documents)), f"decides twice about a row: {unit.guards}"
        for guard in unit.guards:
            if not self._holds(guard):
                raise ClaimLost(guard)
        self._check_conservation(unit)
        finished = [self._decide(guard) for guard in unit.guards]
        for insert in (change for change in unit.changes if isinstance(change, _INSERTS)):
            self._insert(insert)
        for change in unit.changes:
            if not isinstance(change, _INSERTS):
                self._write(change)
        for task in finished:
            if task and task.type in {TaskType.JOIN_GATEWAY, TaskType.CALL_ACTIVITY_COORDINATOR}:
                assert not list(self._of_join(task.id)), f"{task.node_id} went on before a branch"

    def _check_conservation(self, unit: UnitOfWork) -> None:
        """Only who decides about a row of an instance inserts others there (protocol R7)."""
        allowed = {c.instance.id for c in unit.changes if isinstance(c, InsertInstance)}
        rows = [self._row(guard) for guard in unit.guards if not isinstance(guard, SettleMessage)]
        allowed |= {row.instance_id for row in rows}
        for change in unit.changes:
            inserts = isinstance(change, InsertTask | InsertExternalTask)
            if inserts and change.task.instance_id:
                assert change.task.instance_id in allowed, f"{change.task} comes out of nothing"

    def _row(self, guard: Guard) -> Row:
        task_id = guarded_task_id(guard)
        return self.tasks.get(task_id) or self.waits[task_id]

    # --- guards

    def _holds(self, guard: Guard) -> bool:
        match guard:
            case CompleteExternalTask(task_id=task_id, pending_keys=keys):
                wait = self.waits.get(task_id)
                open_ = wait is not None and wait.status is ExternalTaskStatus.CREATED
                return open_ and (keys is None or wait is None or wait.pending_keys == keys)
            case MatchKey(task_id=task_id, group_id=group_id, pending_keys=keys):
                group, wait = self.waits.get(group_id), self.waits.get(task_id)
                narrows = group is not None and group.pending_keys == keys
                return narrows and wait is not None and wait.status is ExternalTaskStatus.CREATED
            case SettleMessage(message_id):
                return self.messages[message_id].status is MessageStatus.KEPT
            case EndHost(task_id, HostKind.EXTERNAL_TASK):
                return task_id in self.waits
            case EndHost(task_id):
                task = self.tasks.get(task_id)
                return task is not None and task.status is not TaskStatus.ARRIVED
            case _:
                task, claim = self.tasks.get(guard.claim.task_id), guard.claim
                mine = task and (task.worker_id, task.epoch) == (claim.worker_id, claim.epoch)
                return bool(task and mine and task.status is TaskStatus.LOCKED)

    def _decide(self, guard: Guard) -> ExecutableTask | None:
        """Write a guard; return the task that it finished, if it did."""
        match guard:
            case CompleteExternalTask(task_id=task_id):
                wait = self.waits.pop(task_id)
                self.settled.add(task_id)
                self.passed[wait.node_id].add((wait.instance_id, task_id))
            case MatchKey(task_id=task_id, group_id=group_id, key=key):
                wait, group = self.waits[task_id], self.waits[group_id]
                left = tuple(k for k in group.pending_keys if k != key)
                assert left, "the last key ends its group"
                self.waits[task_id] = replace(wait, status=ExternalTaskStatus.CORRELATED)
                self.waits[group_id] = replace(group, pending_keys=left)
            case SettleMessage(message_id):
                message = self.messages[message_id]
                self.messages[message_id] = replace(message, status=MessageStatus.DELIVERED)
            case EndHost(task_id):
                self.tasks.pop(task_id, None)
                self.waits.pop(task_id, None)
            case RemoveTask(claim):
                return self._finished(self.tasks.pop(claim.task_id))
            case ArriveTask(claim, branch):
                task = self._left(claim.task_id, status=TaskStatus.ARRIVED, attached_to=None)
                assert task.branch == branch
                return self._finished(task)
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
            case StartChild(claim):
                self.settled.add(claim.task_id)
                self._left(claim.task_id, status=TaskStatus.STARTED)
            case AwaitNextChild(claim=claim, branch_id=branch_id, loop=loop):
                self._left(
                    claim.task_id,
                    status=TaskStatus.AWAITING_BRANCHES,
                    pending_branch_ids=(branch_id,),
                    loop=loop,
                )
        return None

    def _finished(self, task: ExecutableTask) -> ExecutableTask:
        self.settled.add(task.id)
        coordinates = task.type is TaskType.CALL_ACTIVITY_COORDINATOR and task.loop is not None
        if task.type in _PASSED_BY_ROW or coordinates:
            self.passed[task.node_id].add((task.instance_id, task.id))
        return task

    def _left(self, task_id: str, **fields: object) -> ExecutableTask:
        task = self.tasks[task_id]
        left = replace(task, worker_id=None, epoch=task.epoch + 1, **fields)  # type: ignore[arg-type]
        self.tasks[task_id] = left
        return left

    # --- changes

    def _insert(self, change: Change) -> None:
        match change:
            case InsertInstance(instance):
                self._bear(instance.id)
                self.instances[instance.id] = instance
            case RecordEnded(instance):
                self._bear(instance.id)
                self.ended[instance.id] = instance
            case InsertTask(task):
                self._bear(task.id)
                self.tasks[task.id] = task
                self._check_host(task.attached_to)
            case InsertExternalTask(wait):
                self._bear(wait.id)
                self.waits[wait.id] = wait
            case RecordMessage(message):
                self._bear(message.id)
                self.messages[message.id] = message
            case RecordEvent(event):
                self._bear(event.id)
            case OpenIncident(incident):
                assert self.tasks[incident.task_id].status is TaskStatus.ERROR

    def _check_host(self, attached: Attachment | None) -> None:
        """The rows of events come after their host, except for waits, which come in any order."""
        if attached and attached.host_kind is HostKind.EXECUTABLE_TASK:
            assert attached.host_id in self.tasks, f"an event without its host {attached}"

    def _write(self, change: Change) -> None:
        match change:
            case ChangeVariables(instance_id, changes):
                instance = self.instances[instance_id]
                variables: dict[str, Value] = dict(instance.variables)
                for variable_change in changes:
                    apply_change(variables, variable_change)
                self.instances[instance_id] = replace(instance, variables=variables)
            case RemoveArrivals(join_task_id):
                for task in list(self._of_join(join_task_id)):
                    if isinstance(task, ExecutableTask) and task.status is TaskStatus.ARRIVED:
                        del self.tasks[task.id]
            case Detach(host_id, except_task_id):
                self._detach(host_id, except_task_id)
            case AbandonChildren():
                self._abandon(change)
            case OpenPath(instance_id):
                self._change_paths(instance_id, 1)
            case EndPath(instance_id):
                self._change_paths(instance_id, -1)
            case _:
                raise AssertionError(f"{change} has no place in a segment")

    def _bear(self, new_id: str) -> None:
        assert new_id not in self._born, f"{new_id} is born twice"
        self._born.add(new_id)

    def _of_join(self, join_task_id: str) -> Iterator[Row]:
        for row in (*self.tasks.values(), *self.waits.values()):
            canceller = isinstance(row, ExecutableTask) and row.type is TaskType.CANCEL_CHILDREN
            if row.branch and row.branch.join_task_id == join_task_id and not canceller:
                yield row

    def _detach(self, host_id: str, except_task_id: str | None) -> None:
        for row in (*self.tasks.values(), *self.waits.values()):
            attached = row.attached_to is not None and row.attached_to.host_id == host_id
            of_group = isinstance(row, ExternalTask) and row.group_id == host_id
            if (attached or of_group) and row.id != except_task_id:
                self.tasks.pop(row.id, None)
                self.waits.pop(row.id, None)

    def _abandon(self, change: AbandonChildren) -> None:
        for row in list(self._of_join(change.coordinator_task_id)):
            del self.tasks[row.id]
        canceller = ExecutableTask(
            id=f"cancel children of {change.coordinator_task_id}",
            type=TaskType.CANCEL_CHILDREN,
            node_id="",
            instance_id="",
            definition_id=change.definition_id,
            created_at=change.abandoned_at,
            branch=Branch("children", change.coordinator_task_id),
        )
        self._bear(canceller.id)
        self.tasks[canceller.id] = canceller

    def _change_paths(self, instance_id: str, by: int) -> None:
        instance = self.instances[instance_id]
        left = replace(instance, open_paths=instance.open_paths + by)
        self.instances[instance_id] = left
        if left.open_paths == 0:
            self._end(left)

    def _end(self, instance: ProcessInstance) -> None:
        """The last path has ended, so nothing is left of the instance."""
        rows = [*self.tasks.values(), *self.waits.values()]
        assert not [row for row in rows if row.instance_id == instance.id]
        del self.instances[instance.id]
        self.ended[instance.id] = replace(instance, status=InstanceStatus.COMPLETED)
        if instance.parent is not None:
            starter = self.tasks.get(instance.parent.starter_task_id)
            if starter is not None and starter.status is TaskStatus.STARTED:
                self._left(starter.id, status=TaskStatus.ARRIVED)

    # --- what workers and operators do without a segment

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
        join = self.tasks.get(arrival.branch.join_task_id or "")
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

    def receiver(self, key: str, taken: frozenset[str]) -> ExternalTask | None:
        """Return who has waited longest for a key."""
        for wait in self.waits.values():
            is_open = wait.status is ExternalTaskStatus.CREATED and wait.id not in taken
            if is_open and wait.correlation_key == key:
                return wait
        return None

    def cancel_children(self, canceller: ExecutableTask) -> None:
        """Cancel the children of a call activity that has ended before them, and theirs."""
        assert canceller.branch is not None
        for child in self.children(canceller.branch.join_task_id):
            self._cancel(child)
        self.tasks.pop(canceller.id, None)

    def children(self, coordinator_task_id: str | None) -> list[ProcessInstance]:
        """Return the running children of a call activity."""
        return [
            instance
            for instance in self.instances.values()
            if instance.parent and instance.parent.coordinator_task_id == coordinator_task_id
        ]

    def _cancel(self, instance: ProcessInstance) -> None:
        self.cancelled.add(instance.id)
        del self.instances[instance.id]
        for row in (*self.tasks.values(), *self.waits.values()):
            if row.instance_id == instance.id:
                self.tasks.pop(row.id, None)
                self.waits.pop(row.id, None)
        for child in list(self.instances.values()):
            if child.parent is not None and child.parent.instance_id == instance.id:
                self._cancel(child)

    def open_waits(self) -> list[ExternalTask]:
        """Return what somebody outside may end: groups by their keys."""
        return [
            wait
            for wait in self.waits.values()
            if wait.status is ExternalTaskStatus.CREATED and wait.type is not ExternalTaskType.GROUP
        ]


def _documents(guard: Guard) -> list[str]:
    """Return the ids of the rows that a guard changes."""
    if isinstance(guard, MatchKey):
        return [guard.task_id, guard.group_id]
    return [guarded_task_id(guard)]


def owner_of(guard: Guard) -> str | None:
    """Return the claimed task that a guard decides about, if it does."""
    return guard.claim.task_id if isinstance(guard, ClaimGuard) else None
