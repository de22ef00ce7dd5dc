"""Workers and callers that do everything that may happen to an instance, in random order."""

import random
from collections import defaultdict
from collections.abc import Callable
from datetime import timedelta

from kikwiflow_worker.engine.draft import StepFailedError, Surroundings
from kikwiflow_worker.engine.effects import (
    Answered,
    AskAnswer,
    AskDueDate,
    CallHandler,
    DueDateGiven,
    Effect,
    FailureKind,
    HandlerReturned,
    Reply,
)
from kikwiflow_worker.engine.messages import Delivery, Receiver, end_wait
from kikwiflow_worker.engine.running import run_task
from kikwiflow_worker.engine.segments import Segment, start_instance
from kikwiflow_worker.model.runtime import ExecutableTask, TaskStatus, TaskType
from kikwiflow_worker.model.unit_of_work import UnitOfWork
from kikwiflow_worker.model.variables import IncrementVariable, SetVariable
from tests.support.engine import NOON, Run, an_instance, claimed, fails, run_with, surroundings
from tests.support.random_process import ProcessBuilder
from tests.support.toy_store import ClaimLost, ToyStore

WORKERS = 3
KINDS = (FailureKind.TECHNICAL, FailureKind.FATAL, FailureKind.BUSINESS, FailureKind.RETRY_LATER)


class Scheduler:
    """Three workers and their callers, each with some of the handlers.

    Handlers fail, claims are lost before and after the run, commits and deliveries are repeated.

    Attributes:
        keys: What each handler, wait and timer was passed under: the idempotency keys of the visits that succeeded
            and were committed.
    """

    def __init__(self, process: ProcessBuilder, seed: int) -> None:
        self.store = ToyStore()
        self.keys: defaultdict[str, set[str]] = defaultdict(set)
        self._process = process
        self._random = random.Random(seed)
        self._failures_left = self._random.choice([0, 0, 3, 12])
        self._clumsiness = self._random.choice([0.0, 0.1, 0.4])
        self._now = NOON
        self._passed: list[tuple[str, str]] = []
        self._stale: list[UnitOfWork] = []
        needed = sorted({*process.handlers, *process.providers})
        self._owners = {
            name: self._random.sample(range(WORKERS), self._random.randint(1, WORKERS))
            for name in needed
        }

    def start(self) -> None:
        """Start the instance; a start that fails has stored nothing and is repeated."""
        definition = self._process.definition
        instance = an_instance(definition, **self._process.variables)
        here = self._surroundings()
        while True:
            try:
                run = self._run(lambda: start_instance(definition, instance, here), here)
            except StepFailedError:
                continue
            self._commit(run.unit)
            return

    def work_until_it_rests(self) -> None:
        """Do all that can be done without anybody outside."""
        for _ in range(5_000):
            doable = self._doable()
            if not doable:
                return
            self._step(self._random.choice(doable))
        raise AssertionError("the process never rests")

    def work_until_it_ends(self) -> None:
        """Do all that can be done, in any order."""
        for _ in range(5_000):
            doable, waits = self._doable(), self.store.waits
            if not doable and not waits:
                return
            if waits and (not doable or self._random.random() < 0.3):
                self.complete_a_wait()
            else:
                self._step(self._random.choice(doable))
        raise AssertionError("the process never ends")

    def complete_a_wait(self) -> None:
        """Complete any external task; one whose path fails stays open."""
        wait = self._random.choice(list(self.store.waits.values()))
        instance, definition = self.store.instance, self._process.definition
        here = self._surroundings()
        assert instance is not None

        def segment() -> Segment:
            receiver = Receiver(definition=definition, instance=instance, task=wait)
            return end_wait(receiver, Delivery(variables={"seen": True}), here)

        try:
            run = self._run(segment, here)
        except StepFailedError:
            return
        self._passed.append((wait.node_id, wait.id))
        self._commit(run.unit)

    def _doable(self) -> list[ExecutableTask]:
        tasks = self.store.tasks.values()
        return [task for task in tasks if task.status is not TaskStatus.AWAITING_BRANCHES]

    def _step(self, task: ExecutableTask) -> None:
        match task.status:
            case TaskStatus.ARRIVED:
                self.store.deliver(task, forget=not self._clumsy())
            case TaskStatus.ERROR:
                self.store.retry(task.id)
            case _:
                self._work(task)
        if self._stale and self._clumsy():
            self._refused(self._stale.pop())

    def _work(self, task: ExecutableTask) -> None:
        self._now = max(self._now, task.claimable_at or NOON)
        worker = self._random.choice(self._owners.get(task.handler_name or "", range(WORKERS)))
        name = f"worker-{worker}"
        held = claimed(self.store.claim(task.id, name), name)
        instance, definition = self.store.instance, self._process.definition
        here = self._surroundings(worker)
        assert instance is not None
        run = self._run(lambda: run_task(definition, held, instance, here), here)
        if task.type is TaskType.TIMER_TASK:
            self._passed.append((task.node_id, task.id))
        if self._clumsy():
            # Its worker is cut off here: somebody else runs the task again, then this commit comes too late.
            self.store.claim(task.id, "another")
            self._stale.append(run.unit)
            for node, key in self._passed:
                self.keys[node].add(key)
        else:
            self._commit(run.unit)

    def _commit(self, unit: UnitOfWork) -> None:
        self.store.commit(unit)
        for name, key in self._passed:
            self.keys[name].add(key)
        if unit.guards and self._clumsy():
            self._refused(unit)

    def _refused(self, unit: UnitOfWork) -> None:
        try:
            self.store.commit(unit)
        except ClaimLost:
            return
        raise AssertionError(f"a second outcome was accepted: {unit.guards}")

    def _run(self, segment: Callable[[], Segment], here: Surroundings) -> Run:
        """Run a segment; run it again with the same replies and find the same."""
        replies: list[Reply] = []
        self._passed = []

        def answer(effect: Effect) -> Reply:
            assert effect.capability in here.capabilities
            replies.append(self._answer(effect))
            return replies[-1]

        run = run_with(segment(), answer)
        recorded = iter(replies)
        assert run_with(segment(), lambda _: next(recorded)) == run
        return run

    def _answer(self, effect: Effect) -> Reply:
        if self._failures_left and self._random.random() < 0.3:
            self._failures_left -= 1
            return fails(kind=self._random.choice(KINDS), delay=timedelta(seconds=5))
        name = effect.capability.name
        match effect:
            case AskAnswer():
                return Answered(self._process.answers[name])
            case AskDueDate():
                return DueDateGiven(timedelta(hours=2))
            case CallHandler():
                self._passed.append((name, effect.view.idempotency_key))
                return self._handled(name)

    def _handled(self, name: str) -> Reply:
        action, variable = self._process.handlers[name]
        change = SetVariable(variable, 0) if action == "reset" else IncrementVariable(variable, 1)
        return HandlerReturned((change,), {"token": "secret"})

    def _surroundings(self, worker: int | None = None) -> Surroundings:
        """Return what a worker has; a caller may have all of it or nothing."""
        who = self._random.randrange(WORKERS + 1) if worker is None else worker
        names = [name for name, owners in self._owners.items() if who in owners]
        return surroundings(*names, now=self._now)

    def _clumsy(self) -> bool:
        return self._random.random() < self._clumsiness
