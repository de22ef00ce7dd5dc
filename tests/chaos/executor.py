"""Carries a schedule out against the running workers and servers, and writes down what was done when."""

import json
import threading
import time
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from pymongo.errors import PyMongoError

from tests.chaos.cluster import Cluster, NotInTimeError
from tests.chaos.command_faults import COMMAND_FAULTS
from tests.chaos.faults import Action, Field, Record
from tests.chaos.fleet import Fleet
from tests.chaos.schedule import Fault, Kind, Track
from tests.chaos.server_faults import SERVER_FAULTS
from tests.chaos.worker_faults import WORKER_FAULTS

ACTIONS: dict[Kind, Action] = {**WORKER_FAULTS, **SERVER_FAULTS, **COMMAND_FAULTS}


class Executor:
    """Carries out the faults of each track in a thread of its own."""

    def __init__(self, cluster: Cluster, fleet: Fleet, log: Path) -> None:
        self._stop = threading.Event()
        self._field = Field(cluster, fleet, self._stop.wait)
        self._log = log
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self.records: list[Record] = []

    def start(self, faults: Iterable[Fault]) -> None:
        """Begin now; return at once."""
        planned = list(faults)
        begun = time.monotonic()
        for track in Track:
            mine = [fault for fault in planned if fault.track is track]
            thread = threading.Thread(
                target=self._run, args=(mine, begun), name=f"faults of {track}", daemon=True
            )
            thread.start()
            self._threads.append(thread)

    @property
    def is_through(self) -> bool:
        """Whether all faults have been carried out and repaired."""
        return not any(thread.is_alive() for thread in self._threads)

    def stop(self) -> None:
        """Carry out no further fault, and wait for those under way to be repaired."""
        self._stop.set()
        for thread in self._threads:
            thread.join(180)

    def _run(self, faults: list[Fault], begun: float) -> None:
        for fault in faults:
            self._stop.wait(max(0.0, begun + fault.at_s - time.monotonic()))
            if self._stop.is_set():
                return
            self._note(self._carry_out(fault))

    def _carry_out(self, fault: Fault) -> Record:
        record = Record(
            number=fault.number,
            kind=fault.kind,
            track=fault.track,
            planned_s=fault.at_s,
            began=time.monotonic(),
        )
        try:
            ACTIONS[fault.kind](self._field, fault, record)
        except NotInTimeError as error:
            record.broken = str(error)
        except PyMongoError as error:
            # A member that another track has just taken down: the fault came to nothing.
            record.note = f"not carried out: {type(error).__name__}"
        record.ended = time.monotonic()
        return record

    def _note(self, record: Record) -> None:
        with self._lock:
            self.records.append(record)
            with self._log.open("a") as log:
                log.write(json.dumps(asdict(record)) + "\n")
