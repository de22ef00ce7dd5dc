"""The demonstration itself: starts workers and instances, plays the people, kills a worker, watches."""

import asyncio
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from checks import check, read_end
from report import Figures, print_checks, print_closer_look, print_figures, print_outcomes
from scenario import CALLED, KEYS, PROCESSES, Case, plan
from screen import Progress, Row, Screen
from workers import WorkerFailedError, WorkerProcess, command_line, stop, summarize

from kikwiflow_handlers.bank import Bank
from kikwiflow_worker.client import Kikwiflow
from kikwiflow_worker.model.runtime import ExternalTask, TaskStatus
from kikwiflow_worker.store.views import TaskQuery

_LIMIT_S = 110.0
_LOOK_S = 0.4
_PERSON_THINKS = timedelta(seconds=1)
_PEOPLE = ("ana", "bruno", "carla")
_VICTIM = "demo-1"
_KILL_AT = 0.5
_KILL_HOLDING = 4


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line says."""

    instances: int
    per_second: float
    directory: Path
    keep: bool = False


class Demo:
    """The demonstration, once its database runs."""

    def __init__(
        self, options: Options, kikwiflow: Kikwiflow, screen: Screen, progress: Progress
    ) -> None:
        self._options = options
        self._kikwiflow = kikwiflow
        self._screen = screen
        self._progress = progress
        self._cases = plan(options.instances)
        self._case_of: dict[str, Case] = {}
        self._is_over = asyncio.Event()
        self._orphans: frozenset[str] = frozenset()
        self._killed_at = datetime.max.replace(tzinfo=UTC)
        self._answers = 0
        self._messages = 0
        self._repeated_starts = 0
        self._work_seconds = 0.0

    async def run(self) -> None:
        """Start workers and instances, kill a worker, and wait until everything has ended.

        Raises:
            WorkerFailedError: A worker did not start.
        """
        await self._deploy()
        self._start_workers()
        await asyncio.gather(*(worker.wait_until_ready() for worker in self._progress.workers))
        self._screen.note("both workers are ready", "green")
        began = self._screen.seconds
        try:
            async with asyncio.timeout(_LIMIT_S), asyncio.TaskGroup() as group:
                for part in (self._start_instances, self._be_people, self._kill_one, self._watch):
                    group.create_task(part())
        except TimeoutError:
            self._screen.note(f"not finished after {_LIMIT_S:.0f} s", "bold red")
        self._work_seconds = self._screen.seconds - began
        await asyncio.to_thread(stop, self._progress.workers)
        self._screen.note("the workers are stopped with SIGTERM")

    async def conclude(self) -> bool:
        """Print what happened; return whether all of it is right. The workers must have stopped."""
        console, workers = self._screen.console, self._progress.workers
        ended = await read_end(self._kikwiflow)
        logs = summarize(workers)
        transfers = Bank(self._options.directory / "bank").transfers()
        checks = check(self._cases, ended, transfers, self._orphans, logs)
        figures = Figures(
            seconds=self._screen.seconds,
            work_seconds=self._work_seconds,
            peak_per_s=self._progress.peak_per_s,
            people_answers=self._answers,
            messages=self._messages,
            repeated_starts=self._repeated_starts,
            orphans=len(self._orphans),
            incidents=ended.incidents,
        )
        names = {key: row.name for key, row in self._progress.rows.items()}
        print_outcomes(console, names, self._cases, ended)
        print_figures(console, figures, logs, transfers)
        print_checks(console, checks)
        print_closer_look(console, self._options.directory, workers)
        return all(each.holds for each in checks)

    async def _deploy(self) -> None:
        for key in CALLED:
            await self._kikwiflow.deploy(PROCESSES / f"{key}.kikwi")
        for key in KEYS:
            deployed = (await self._kikwiflow.deploy(PROCESSES / f"{key}.kikwi")).definition
            total = sum(case.definition_key == deployed.key for case in self._cases)
            self._progress.rows[deployed.key] = Row(deployed.name or deployed.key, total)
        self._screen.note(f"{len(KEYS) + len(CALLED)} process definitions are deployed")

    def _start_workers(self) -> None:
        directory = self._options.directory
        for name in (_VICTIM, "demo-2"):
            worker = WorkerProcess.start(name, directory, bank=directory / "bank")
            self._progress.workers.append(worker)
            self._screen.note(
                f"$ {command_line(name, directory)} ...  (pid {worker.process.pid})", "cyan"
            )

    async def _start_instances(self) -> None:
        """Send the starts at an even pace; every tenth one twice, as after a lost reply."""
        began = time.monotonic()
        for number, case in enumerate(self._cases):
            await asyncio.sleep(began + number / self._options.per_second - time.monotonic())
            await self._start(case)
            if number % 10 == 9:
                await self._start(case)
                self._repeated_starts += 1
        self._screen.note(f"all {len(self._cases)} instances are started")

    async def _start(self, case: Case) -> None:
        instance = await self._kikwiflow.start(
            case.definition_key,
            case.business_key,
            variables=case.variables,
            idempotency_key=case.business_key,
            started_by="demo",
        )
        if instance.id not in self._case_of:
            self._case_of[instance.id] = case
            self._progress.rows[case.definition_key].started += 1

    async def _be_people(self) -> None:
        """Complete external tasks as people would: look at the list, claim one, think, complete it; send messages."""
        while not self._is_over.is_set():
            page = await self._kikwiflow.list_external_tasks(limit=500)
            now = self._kikwiflow.services.runtime.now()
            for task in page.items:
                if now - task.created_at >= _PERSON_THINKS:
                    await self._answer(task)
            await asyncio.sleep(_LOOK_S / 2)

    async def _answer(self, task: ExternalTask) -> None:
        case = self._case_of.get(task.instance_id)
        if case is None or case.answer is None:
            return
        if task.correlation_key is not None:
            await self._kikwiflow.correlate(task.correlation_key, case.answer)
            self._messages += 1
            return
        person = _PEOPLE[self._answers % len(_PEOPLE)]
        await self._kikwiflow.claim(task.id, assignee=person)
        await self._kikwiflow.complete(task.id, case.answer, completed_by=person)
        self._answers += 1

    async def _kill_one(self) -> None:
        """Kill a worker in the middle of its work, and note which tasks it leaves locked."""
        victim = next(each for each in self._progress.workers if each.name == _VICTIM)
        half = len(self._cases) * _KILL_AT
        while not self._is_over.is_set():
            holding = len(await self._locked_by(victim))
            is_late = len(self._case_of) == len(self._cases)
            if len(self._case_of) >= half and holding >= (1 if is_late else _KILL_HOLDING):
                break
            await asyncio.sleep(0.05)
        self._killed_at = self._kikwiflow.services.runtime.now()
        victim.kill()
        # What the dead worker had sent may still be carried out; after that nobody but a rescuer touches its tasks.
        await asyncio.sleep(0.3)
        self._orphans = frozenset(await self._locked_by(victim))
        self._screen.note(
            f"$ kill -9 {victim.process.pid}   {victim.name} dies and leaves {len(self._orphans)} tasks locked",
            "bold red",
        )

    async def _locked_by(self, worker: WorkerProcess) -> list[str]:
        page = await self._kikwiflow.list_tasks(TaskQuery(status=TaskStatus.LOCKED), limit=500)
        return [
            task.id for task in page.items if (task.worker_id or "").startswith(f"{worker.name}.")
        ]

    async def _watch(self) -> None:
        """Refresh the figures until everything has ended, or an incident shows that it never will.

        Raises:
            WorkerFailedError: No worker is left.
        """
        progress, rescue_is_told = self._progress, False
        while progress.done < len(self._cases) and not progress.open_incidents:
            await asyncio.sleep(_LOOK_S)
            await self._refresh()
            self._screen.update()
            if self._orphans and not rescue_is_told and not await self._still_orphaned():
                rescue_is_told = True
                self._screen.note("its locks have lapsed: demo-2 has taken the tasks over", "green")
                await self._tell_of_arrivals()
            if not any(worker.is_alive for worker in progress.workers):
                logs = ", ".join(str(worker.log) for worker in progress.workers)
                raise WorkerFailedError(f"no worker is left; their logs are {logs}")
        self._is_over.set()
        if progress.open_incidents:
            self._screen.note("an incident is open: a person would have to look", "bold red")
        else:
            self._screen.note("everything has ended", "bold green")

    async def _tell_of_arrivals(self) -> None:
        """Say so if the worker died in the moment between the end of a branch and telling its join."""
        page = await self._kikwiflow.list_tasks(TaskQuery(status=TaskStatus.ARRIVED), limit=500)
        if page.items and page.items[0].created_at < self._killed_at:
            self._screen.note(
                "a branch ended in the moment of the kill; its join is told after a safety interval",
                "yellow",
            )

    async def _still_orphaned(self) -> bool:
        victim = next(each for each in self._progress.workers if each.name == _VICTIM)
        return not self._orphans.isdisjoint(await self._locked_by(victim))

    async def _refresh(self) -> None:
        waiting = await self._kikwiflow.list_external_tasks(limit=500)
        cases = [self._case_of.get(task.instance_id) for task in waiting.items]
        for key, row in self._progress.rows.items():
            counts = await self._kikwiflow.reads.count_by_status(definition_key=key)
            row.done = counts["COMPLETED"]
            row.waiting = sum(case is not None and case.definition_key == key for case in cases)
        incidents = await self._kikwiflow.list_incidents()
        await asyncio.gather(*(worker.look() for worker in self._progress.workers))
        self._progress.open_incidents = len(incidents.items)
        self._progress.measure(time.monotonic())
