"""What is done to worker processes."""

import signal
import subprocess
import time

from tests.chaos.faults import Action, Field, Record
from tests.chaos.fleet import GRACE_S, SKEW_S
from tests.chaos.schedule import Fault, Kind
from tests.support.workers import WorkerProcess

SECOND_SIGNAL_S = 5.0
"""Within this a worker is out after the second signal."""

_START_PATIENCE_S = 15.0
_EXIT_PATIENCE_S = GRACE_S + 12.0
"""Its own deadline is the grace, 5 s for cancelled handlers and 5 s for the last commits; then it ends by itself."""

_LOOK_S = 0.1


def kill(field: Field, fault: Fault, record: Record) -> None:
    """SIGKILL, and a restart under the same name at once."""
    victim = field.fleet.at(fault.target)
    field.fleet.asked(victim)
    record.pids.append(victim.pid)
    record.began = time.monotonic()
    victim.kill()
    record.hits = 1
    _wait_ready(field, field.fleet.replace(fault.target))


def freeze(field: Field, fault: Fault, record: Record) -> None:
    """SIGSTOP for longer than the lock, then SIGCONT."""
    fleet, victim = field.fleet, field.fleet.at(fault.target)
    if victim.process.poll() is not None:
        return
    fleet.frozen.add(victim.pid)
    record.pids.append(victim.pid)
    record.began = time.monotonic()
    victim.send(signal.SIGSTOP)
    record.hits = 1
    field.pause(fault.lasts_s)
    victim.send(signal.SIGCONT)
    field.pause(1.0)
    fleet.frozen.discard(victim.pid)


def drain(field: Field, fault: Fault, record: Record) -> None:
    """SIGTERM, and a replacement under the same name at once."""
    _drain(field, fault.target, record)


def ahead(field: Field, fault: Fault, record: Record) -> None:
    """Replace a worker by one whose clock is ahead."""
    _drain(field, fault.target, record, skew_s=SKEW_S)


def behind(field: Field, fault: Fault, record: Record) -> None:
    """Replace a worker by one whose clock is behind."""
    _drain(field, fault.target, record, skew_s=-SKEW_S)


def stop_twice(field: Field, fault: Fault, record: Record) -> None:
    """SIGTERM and soon a second one, which ends it within 5 s."""
    victim = field.fleet.at(fault.target)
    field.fleet.asked(victim)
    record.pids.append(victim.pid)
    victim.send(signal.SIGTERM)
    field.pause(fault.lasts_s)
    second_at = time.monotonic()
    victim.send(signal.SIGTERM)
    record.hits = 1
    code = _exit_code(victim)
    lasted = time.monotonic() - second_at
    record.note = f"out {lasted:.2f} s after the second signal, exit code {code}"
    if code not in {0, 75, -signal.SIGTERM} or lasted > SECOND_SIGNAL_S:
        record.broken = f"{victim.name}: {record.note}"
    _wait_ready(field, field.fleet.replace(fault.target))


def namesake(field: Field, fault: Fault, record: Record) -> None:
    """A second worker under the name of one that runs; killed after a while."""
    double = field.fleet.launch(field.fleet.at(fault.target).name)
    _wait_ready(field, double)
    record.hits = 1
    field.pause(fault.lasts_s)
    field.fleet.asked(double)
    record.pids.append(double.pid)
    double.kill()


def roll(field: Field, fault: Fault, record: Record) -> None:
    """Replace one worker after the other, one of them without some handlers; give them back to it later."""
    places = range(len(field.fleet.places))
    without = fault.target % len(places)
    for place in places:
        _drain(field, place, record, has_all=place != without)
    field.pause(fault.lasts_s)
    _drain(field, without, record)


WORKER_FAULTS: dict[Kind, Action] = {
    Kind.WORKER_KILLED: kill,
    Kind.WORKER_FROZEN: freeze,
    Kind.WORKER_DRAINED: drain,
    Kind.WORKER_STOPPED_TWICE: stop_twice,
    Kind.WORKER_AHEAD: ahead,
    Kind.WORKER_BEHIND: behind,
    Kind.NAMESAKE: namesake,
    Kind.ROLLING_RESTART: roll,
}


def _drain(
    field: Field, place: int, record: Record, *, skew_s: float = 0.0, has_all: bool = True
) -> None:
    leaving = field.fleet.at(place)
    field.fleet.asked(leaving)
    coming = field.fleet.replace(place, skew_s=skew_s, has_all=has_all)
    _wait_ready(field, coming)
    leaving.send(signal.SIGTERM)
    record.hits += 1
    code = _exit_code(leaving)
    if code not in {0, 75, -signal.SIGTERM}:
        record.broken = f"{leaving.name} (process {leaving.pid}) ended with {code} after SIGTERM"


def _exit_code(worker: WorkerProcess) -> int | None:
    """Return its exit code, waiting for it; None if it does not come, and then it is killed."""
    try:
        return worker.process.wait(_EXIT_PATIENCE_S)
    except subprocess.TimeoutExpired:
        worker.kill()
        return None


def _wait_ready(field: Field, worker: WorkerProcess) -> None:
    """Wait until it claims tasks, but not for ever: the database may be away."""
    until = time.monotonic() + _START_PATIENCE_S
    while worker.status("/readyz") != 200 and time.monotonic() < until:
        field.pause(_LOOK_S)
