"""Workers and callers that do everything that may happen to a process, in random order."""

import random
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

from kikwiflow_worker.engine.draft import StepFailedError, Surroundings
from kikwiflow_worker.engine.effects import (
    Answered,
    AskAnswer,
    AskCorrelationKeys,
    AskDueDate,
    CallHandler,
    DefinitionFound,
    Deliver,
    Delivered,
    DueDateGiven,
    Effect,
    Failure,
    FailureKind,
    FindDefinition,
    HandlerReturned,
    KeysGiven,
    NobodyWaits,
    Raised,
    Reply,
)
from kikwiflow_worker.engine.messages import Delivery, Receiver, end_wait
from kikwiflow_worker.engine.running import run_task
from kikwiflow_worker.engine.segments import Segment, start_instance
from kikwiflow_worker.handler import CorrelationItem
from kikwiflow_worker.model.definition import ProcessDefinition
from kikwiflow_worker.model.events import EventLevel
from kikwiflow_worker.model.runtime import (
    ClaimedTask,
    ExecutableTask,
    ExternalTask,
    ExternalTaskType,
    ProcessInstance,
    TaskStatus,
    TaskType,
)
from kikwiflow_worker.model.unit_of_work import (
    CompleteExternalTask,
    EndHost,
    InsertInstance,
    MatchKey,
    RecordMessage,
    RemoveTask,
    SettleMessage,
    UnitOfWork,
)
from kikwiflow_worker.model.variables import IncrementVariable, SetVariable
from tests.support.engine import NOON, Run, an_instance, claimed, fails, run_with, surroundings
from tests.support.process_builder import ProcessBuilder
from tests.support.toy_store import ClaimLost, ToyStore, owner_of

WORKERS = 3
KINDS = (FailureKind.TECHNICAL, FailureKind.FATAL, FailureKind.RETRY_LATER, FailureKind.BUSINESS)
MOST_STEPS = 20_000

Passed = tuple[str, str, str]
"""A node, the instance that passed it, and what it was passed under: an idempotency key."""


@dataclass(frozen=True, slots=True)
class Step:
    """A run that is not committed yet.

    Attributes:
        passed: What its own instance passed inline.
        thrown: What was passed by delivering messages.
    """

    instance_id: str
    unit: UnitOfWork
    passed: tuple[Passed, ...]
    thrown: tuple[Passed, ...]

    @property
    def task_id(self) -> str | None:
        """The task or wait that it ends or goes on with."""
        for guard in self.unit.guards[:1]:
            return owner_of(guard) or getattr(guard, "task_id", None)
        return None


@dataclass(slots=True)
class _Notes:
    passed: list[Passed] = field(default_factory=list)
    thrown: list[Passed] = field(default_factory=list)


class Scheduler:
    """Three workers and their callers, each with some of the handlers.

    Handlers fail, claims are lost before and after the run, commits come late and twice, deliveries are repeated.
    """

    def __init__(self, process: ProcessBuilder, seed: int) -> None:
        self.store = ToyStore()
        self._process = process
        self._random = random.Random(seed)
        self._failures_left = self._random.choice([0, 0, 3, 12])
        self._clumsiness = self._random.choice([0.0, 0.1, 0.4])
        self._events = self._random.choice(list(EventLevel))
        self._now = NOON
        self._inline: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
        self._late: list[Step] = []
        self._lost: list[Step] = []
        needed = sorted({*process.handlers, *process.providers})
        self._owners = {
            name: self._random.sample(range(WORKERS), self._random.randint(1, WORKERS))
            for name in needed
        }

    # --- what came of it

    def seen(self) -> Counter[str]:
        """Return how often each node was passed by instances that were not cancelled."""
        found: Counter[str] = Counter()
        for passes in (self.store.passed, self._inline):
            for name, keys in passes.items():
                found[name] += sum(
                    instance_id not in self.store.cancelled for instance_id, _ in keys
                )
        return found

    def ended(self) -> Counter[str]:
        """Return how many instances of each definition have ended."""
        return Counter(instance.definition_key for instance in self.store.ended.values())

    def stray_keys(self) -> list[Passed]:
        """Return what was done in vain: under a key that its node has never been passed under since."""
        return [
            (name, instance_id, key)
            for step in self._lost
            if step.task_id in self.store.settled and step.instance_id not in self.store.cancelled
            for name, instance_id, key in step.passed
            if instance_id not in self.store.cancelled
            and (instance_id, key) not in self._inline[name]
        ]

    # --- what happens

    def start(self) -> None:
        """Start the instance; a start that fails has stored nothing and is repeated."""
        definition = self._process.definition
        instance = an_instance(definition, **self._process.variables)

        def begin() -> Step:
            here = self._surroundings()
            return self._run(lambda: start_instance(definition, instance, here), here, instance)

        while True:
            try:
                step = begin()
            except StepFailedError:
                continue
            self._commit(step)
            return

    def work_until_it_rests(self) -> None:
        """Do all that can be done without anybody outside."""
        for _ in range(MOST_STEPS):
            if not self._do_something(self._doable()):
                return
        raise AssertionError("the process never rests")

    def work_until_it_ends(self) -> None:
        """Do all that can be done, in any order."""
        for _ in range(MOST_STEPS):
            doable, waits = self._doable(), self.completable()
            if waits and (not doable or self._random.random() < 0.3):
                self.complete_a_wait()
            elif not self._do_something(doable):
                return
        raise AssertionError("the process never ends")

    def completable(self) -> list[ExternalTask]:
        """Return the waits that somebody outside may end: all but those for a thrower's message."""
        waits = self.store.open_waits()
        return [wait for wait in waits if wait.correlation_key not in self._process.met]

    def complete_a_wait(self) -> None:
        """Complete or correlate any external task; one whose path fails stays open."""
        wait = self._random.choice(self.completable())
        here = self._surroundings()
        receiver = self._receiver(wait)
        delivery = Delivery(variables={"seen": True})
        try:
            step = self._run(lambda: end_wait(receiver, delivery, here), here, receiver.instance)
        except StepFailedError:
            return
        self._end_step(wait, step)

    def is_blocked(self, task: ExecutableTask) -> bool:
        """Return whether a task has nobody to give its message to."""
        key = None
        if task.type is TaskType.KEPT_MESSAGE:
            key = self.store.messages[task.node_id].key
        elif task.type is TaskType.EVENT_THROW and task.node_id not in self._process.keeping:
            arrived = task.status is TaskStatus.ARRIVED
            key = None if arrived else self._process.throwers[task.node_id]
        return key is not None and self.store.receiver(key, frozenset()) is None

    def _doable(self) -> list[ExecutableTask]:
        idle = {TaskStatus.AWAITING_BRANCHES, TaskStatus.STARTED}
        tasks = [task for task in self.store.tasks.values() if task.status not in idle]
        able = [task for task in tasks if not self.is_blocked(task)]
        return tasks if able and self._random.random() < 0.1 else able

    def _do_something(self, doable: list[ExecutableTask]) -> bool:
        if self._late and (not doable or self._random.random() < 0.3):
            self._commit_late(self._late.pop(self._random.randrange(len(self._late))))
        elif doable:
            self._do(self._random.choice(doable))
        else:
            return False
        return True

    def _do(self, task: ExecutableTask) -> None:
        if task.type is TaskType.CANCEL_CHILDREN:
            self.store.cancel_children(task)
            return
        match task.status:
            case TaskStatus.ARRIVED:
                self.store.deliver(task, forget=not self._clumsy())
            case TaskStatus.ERROR:
                self.store.retry(task.id)
            case _:
                self._work(task)

    def _work(self, task: ExecutableTask) -> None:
        self._now = max(self._now, task.claimable_at or NOON)
        worker = self._random.choice(self._owners.get(task.handler_name or "", range(WORKERS)))
        name = f"worker-{worker}"
        held = claimed(self.store.claim(task.id, name), name)
        if task.type is TaskType.KEPT_MESSAGE:
            self._deliver_kept(held, self._surroundings(worker))
            return
        instance, definition = self.store.instances[task.instance_id], self._definition(task)
        here = self._surroundings(worker)
        step = self._run(lambda: run_task(definition, held, instance, here), here, instance)
        self._end_step(task, step)

    def _deliver_kept(self, held: ClaimedTask, here: Surroundings) -> None:
        message = self.store.messages[held.task.node_id]
        wait = self.store.receiver(message.key, frozenset())
        if wait is None:
            return
        step = self._receive(wait, here)
        settled = (RemoveTask(held.claim), SettleMessage(message.id, message.tenant_id))
        unit = UnitOfWork((*settled, *step.unit.guards), step.unit.changes)
        thrown = (*step.passed, *step.thrown)
        self._end_step(wait, Step(step.instance_id, unit, (), thrown))

    def _end_step(self, row: ExecutableTask | ExternalTask, step: Step) -> None:
        undecided = (
            row.node_id in self._process.raced and row.type is not TaskType.CALL_ACTIVITY_STARTER
        )
        assert not (undecided and step.passed), "a handler ran before the race was decided"
        if self._clumsy():
            # Its lock may lapse before the commit comes, and somebody else runs the task.
            self._late.append(step)
        else:
            self._commit(step)

    # --- commits

    def _commit(self, step: Step) -> None:
        self.store.commit(step.unit)
        for name, instance_id, key in (*step.passed, *step.thrown):
            self._inline[name].add((instance_id, key))
        self._check_sequences(step.unit)
        if step.unit.guards and self._clumsy():
            self._refused(step.unit)

    def _commit_late(self, step: Step) -> None:
        try:
            self._commit(step)
        except ClaimLost as lost:
            self._lost.append(step)
            guard = lost.guard
        else:
            return
        assert not isinstance(guard, EndHost), "the host goes with its events"
        own = owner_of(step.unit.guards[0])
        if own is not None and isinstance(guard, CompleteExternalTask | MatchKey):
            assert self.store.tasks[own].status is TaskStatus.LOCKED

    def _refused(self, unit: UnitOfWork) -> None:
        try:
            self.store.commit(unit)
        except ClaimLost:
            return
        raise AssertionError(f"a second outcome was accepted: {unit.guards}")

    def _check_sequences(self, unit: UnitOfWork) -> None:
        """Of a sequence one child runs at a time."""
        for change in unit.changes:
            parent = change.instance.parent if isinstance(change, InsertInstance) else None
            if parent is None:
                continue
            coordinator = self.store.tasks[parent.coordinator_task_id]
            if coordinator.node_id in self._process.sequential:
                assert len(self.store.children(coordinator.id)) <= 1

    # --- runs

    def _run(
        self, segment: Callable[[], Segment], here: Surroundings, instance: ProcessInstance
    ) -> Step:
        """Run a segment; run it again with the same replies and find the same."""
        replies: list[Reply] = []
        notes = _Notes()

        def answer(effect: Effect) -> Reply:
            replies.append(self._answer(effect, here, instance, notes))
            return replies[-1]

        run: Run = run_with(segment(), answer)
        recorded = iter(replies)
        assert run_with(segment(), lambda _: next(recorded)) == run
        kept = [c.message for c in run.unit.changes if isinstance(c, RecordMessage)]
        notes.thrown += [(self._thrower_of(m.key), instance.id, m.id) for m in kept]
        return Step(instance.id, run.unit, tuple(notes.passed), tuple(notes.thrown))

    def _answer(
        self, effect: Effect, here: Surroundings, instance: ProcessInstance, notes: _Notes
    ) -> Reply:
        match effect:
            case Deliver():
                return self._deliver(effect, here, instance, notes)
            case FindDefinition(key):
                return DefinitionFound(None if self._fails() else self._process.definitions[key])
        name = effect.capability.name
        assert effect.capability in here.capabilities
        if self._fails():
            kinds = KINDS[:-1] if name in self._process.catching else KINDS
            return fails(kind=self._random.choice(kinds), delay=timedelta(seconds=5))
        match effect:
            case AskAnswer():
                return Answered(self._process.answers[name])
            case AskDueDate():
                return DueDateGiven(timedelta(hours=2))
            case AskCorrelationKeys():
                keys = self._process.keys[name]
                return KeysGiven(tuple(CorrelationItem(key, key) for key in keys))
            case CallHandler(view=view):
                notes.passed.append((name, view.instance_id, view.idempotency_key))
                return self._handled(name)

    def _deliver(
        self, effect: Deliver, here: Surroundings, instance: ProcessInstance, notes: _Notes
    ) -> Reply:
        wait = self.store.receiver(effect.key, effect.taken)
        if wait is None:
            return NobodyWaits()
        step = self._receive(wait, here)
        thrown = (self._thrower_of(effect.key), instance.id, wait.id)
        notes.thrown += [thrown, *step.passed, *step.thrown]
        return Delivered(wait.id, step.unit)

    def _receive(self, wait: ExternalTask, here: Surroundings) -> Step:
        receiver, delivery = self._receiver(wait), Delivery(variables={}, caller_drives=False)
        return self._run(lambda: end_wait(receiver, delivery, here), here, receiver.instance)

    def _thrower_of(self, key: str) -> str:
        (thrower,) = [node_id for node_id, own in self._process.throwers.items() if own == key]
        return thrower

    def _handled(self, name: str) -> Reply:
        action, variable = self._process.handlers[name]
        change = SetVariable(variable, 0) if action == "reset" else IncrementVariable(variable, 1)
        code = self._process.raised.get(name)
        if code is None:
            return HandlerReturned((change,), {"token": "secret"})
        failure = Failure(
            kind=FailureKind.BUSINESS, error_type="ProcessError", message="refused", code=code
        )
        return Raised(failure, (change,), {"token": "secret"})

    def _receiver(self, wait: ExternalTask) -> Receiver:
        group = None
        if wait.type is ExternalTaskType.GROUP_KEY:
            group = self.store.waits[wait.group_id or ""]
        return Receiver(
            definition=self._definition(wait),
            instance=self.store.instances[wait.instance_id],
            task=wait,
            group=group,
        )

    def _definition(self, row: ExecutableTask | ExternalTask) -> ProcessDefinition:
        return self._process.definitions[row.definition_id.partition(":")[0]]

    def _surroundings(self, worker: int | None = None) -> Surroundings:
        """Return what a worker has; a caller may have all of it or nothing."""
        who = self._random.randrange(WORKERS + 1) if worker is None else worker
        names = [name for name, owners in self._owners.items() if who in owners]
        return surroundings(*names, now=self._now, events=self._events)

    def _fails(self) -> bool:
        if self._failures_left and self._random.random() < 0.3:
            self._failures_left -= 1
            return True
        return False

    def _clumsy(self) -> bool:
        return self._random.random() < self._clumsiness
