"""Something to operate: two workers, the dashboard, and instances that need a person, until Ctrl-C."""

import asyncio
import signal
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.text import Text
from scenario import CALLED, KEYS, PROCESSES
from workers import Program, WorkerProcess, free_port, launch, stop

from kikwiflow_worker.client import Kikwiflow
from kikwiflow_worker.model.events import EventLevel
from kikwiflow_worker.model.runtime import ProcessInstance
from kikwiflow_worker.store.mongo.outbox import OutboxOptions
from kikwiflow_worker.store.mongo.store import StoreOptions

WORKERS = ("desk-1", "desk-2")
DASHBOARD_PORT = 8090
_SURROUNDINGS = {"KIKWIFLOW_EVENTS": EventLevel.FULL.value, "KIKWIFLOW_TRACES": "lines"}
"""Of all processes: the dashboard shows the path of an instance from its events, the logs hold its trace."""

_APPEAR_S = 30.0
_LOOK_S = 0.2


@dataclass(frozen=True, slots=True)
class Start:
    """An instance to start, and why it is interesting."""

    definition_key: str
    business_key: str
    variables: dict[str, object]


FAILED = Start(
    "order-fulfilment",
    "ORDER-7001",
    {
        "lines": [{"pieces": 2, "price": "six hundred"}],
        "isNewCustomer": True,
        "isExpress": True,
        "defects": 1,
    },
)
"""Its price is no number, so that its first step fails; with ``600.00`` a clerk has to look at it."""

OTHERS = (
    Start("expense-approval", "EXPENSE-7002", {"employee": "Dana", "amount": "120.00"}),
    Start("expense-approval", "EXPENSE-7003", {"employee": "Eli", "amount": "64.50"}),
    Start(
        "equipment-return",
        "RETURN-7004",
        {"employee": "Fay", "amount": "80.00", "articles": ["laptop"], "returnNumber": 7004},
    ),
)
"""They wait for a person, a message or a timer."""


@dataclass(frozen=True, slots=True)
class Desk:
    """What runs.

    Attributes:
        failed: The instance with an incident.
    """

    workers: Sequence[WorkerProcess]
    dashboard: Program
    failed: ProcessInstance


async def operate(
    uri: str, database: str, directory: Path, console: Console, programs: list[Program]
) -> None:
    """Keep everything running until SIGINT or SIGTERM, and say where.

    Args:
        uri: Of the database that ``directory`` holds.
        programs: What is started is added to it; whoever calls stops them.

    Raises:
        WorkerFailedError: A worker or the dashboard did not start.
    """
    is_over = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, is_over.set)
    try:
        opening = asyncio.ensure_future(_open(uri, database, directory, programs))
        ending = asyncio.ensure_future(is_over.wait())
        await asyncio.wait({opening, ending}, return_when=asyncio.FIRST_COMPLETED)
        if not opening.done():
            opening.cancel()
            return
        _print(console, opening.result(), directory)
        await ending
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
    console.print("\nstopping ...")
    await asyncio.to_thread(stop, programs)


async def _open(uri: str, database: str, directory: Path, programs: list[Program]) -> Desk:
    bank = directory / "bank"
    workers = [
        WorkerProcess.start(name, directory, bank=bank, more=_SURROUNDINGS) for name in WORKERS
    ]
    dashboard = _start_dashboard(directory)
    programs += [*workers, dashboard]
    await asyncio.gather(*(program.wait_until_ready() for program in (*workers, dashboard)))
    options = StoreOptions(outbox=OutboxOptions(level=EventLevel.FULL))
    async with Kikwiflow.connect(uri, database=database, options=options) as kikwiflow:
        for key in (*CALLED, *KEYS):
            await kikwiflow.deploy(PROCESSES / f"{key}.kikwi")
        started = [
            await kikwiflow.start(
                each.definition_key,
                each.business_key,
                variables=each.variables,
                started_by="demo",
            )
            for each in (FAILED, *OTHERS)
        ]
        await _until_something_is_to_do(kikwiflow)
    return Desk(workers, dashboard, started[0])


async def _until_something_is_to_do(kikwiflow: Kikwiflow) -> None:
    async with asyncio.timeout(_APPEAR_S):
        while True:
            incidents = await kikwiflow.list_incidents()
            waits = await kikwiflow.list_external_tasks()
            if incidents.items and len(waits.items) >= len(OTHERS):
                return
            await asyncio.sleep(_LOOK_S)


def _start_dashboard(directory: Path) -> Program:
    port, log = _dashboard_port(), directory / "dashboard.log"
    arguments = ["serve", "--address", f"127.0.0.1:{port}", "--embedded", f"{directory}/mongodb"]
    process = launch(arguments, log, bank=directory / "bank", more=_SURROUNDINGS)
    return Program("dashboard", process, port, log, probe="kikwiflow/api/v1/openapi.json")


def _dashboard_port() -> int:
    """Return the usual port, or a free one if somebody has it."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", DASHBOARD_PORT))
        except OSError:
            return free_port()
    return DASHBOARD_PORT


def _print(console: Console, desk: Desk, directory: Path) -> None:
    url = f"http://127.0.0.1:{desk.dashboard.port}"
    rows = (
        ("dashboard", f"{url}/"),
        ("HTTP API", f"{url}/kikwiflow/api/v1/openapi.json"),
        *(
            (f"metrics of {worker.name}", f"http://127.0.0.1:{worker.port}/metrics")
            for worker in desk.workers
        ),
        ("the failed instance", f"{FAILED.business_key}  {desk.failed.id}"),
        ("for other terminals", f"export KIKWIFLOW_EMBEDDED={directory.resolve()}/mongodb"),
        ("logs", " ".join(str(each.log) for each in (*desk.workers, desk.dashboard))),
        ("what to try", "docs/howto/operate.md"),
    )
    console.print(Text("Two workers and the dashboard are running", "bold"))
    width = max(len(label) for label, _ in rows)
    for label, text in rows:
        console.print(Text.assemble((f"  {label:<{width}}  ", "dim"), text), soft_wrap=True)
    console.print(Text("\nCtrl-C stops all of it.", "bold"))
