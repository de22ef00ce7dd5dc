"""What is done to the members of the replica set and to the network before them."""

import time
from collections.abc import Callable

from pymongo.errors import AutoReconnect, OperationFailure, PyMongoError

from tests.chaos.cluster import Cluster, Member, wait_for
from tests.chaos.faults import Action, Field, Record
from tests.chaos.proxy import Mode
from tests.chaos.schedule import Fault, Kind

_STEP_DOWN_S = 5
_CATCH_UP_S = 2
_STEP_DOWN_ATTEMPTS = 3
_SLOW_S = 0.05
_WHOLE_PATIENCE_S = 120.0


def step_down(field: Field, fault: Fault, record: Record) -> None:
    """Let the primary hand over; it refuses as long as no other has caught up."""
    command = {"replSetStepDown": _STEP_DOWN_S, "secondaryCatchUpPeriodSecs": _CATCH_UP_S}
    for _ in range(_STEP_DOWN_ATTEMPTS):
        primary = field.cluster.wait_primary()
        record.began = time.monotonic()
        try:
            primary.admin.command(command)
        except AutoReconnect:
            record.note = "the connection was closed"
        except OperationFailure as error:
            record.note = str(error.details.get("codeName") if error.details else error)
            continue
        record.hits = 1
        record.away_from = record.began
        break
    make_whole(field.cluster)


def kill_primary(field: Field, fault: Fault, record: Record) -> None:
    """SIGKILL; restarted a little later, perhaps before another was elected."""
    _take_down(field, fault, record, Member.kill)


def stop_primary(field: Field, fault: Fault, record: Record) -> None:
    """SIGTERM, as in an upgrade."""
    _take_down(field, fault, record, Member.stop)


def freeze_primary(field: Field, fault: Fault, record: Record) -> None:
    """SIGSTOP for longer than an election; it wakes up and believes that it is primary."""
    primary = field.cluster.wait_primary()
    record.began = record.away_from = time.monotonic()
    primary.freeze()
    record.hits = 1
    field.pause(fault.lasts_s)
    primary.thaw()
    record.same_again = time.monotonic()
    make_whole(field.cluster)


def kill_secondary(field: Field, fault: Fault, record: Record) -> None:
    """SIGKILL; the majority is then two of two."""
    primary = field.cluster.wait_primary()
    others = [member for member in field.cluster.members if member is not primary]
    victim = others[fault.target % len(others)]
    victim.kill()
    record.hits = 1
    field.pause(fault.lasts_s)
    victim.start()
    make_whole(field.cluster)


def kill_all(field: Field, fault: Fault, record: Record) -> None:
    """SIGKILL for all members at once."""
    record.began = record.away_from = time.monotonic()
    for member in field.cluster.members:
        member.kill()
    record.hits = len(field.cluster.members)
    field.pause(fault.lasts_s)
    make_whole(field.cluster)


def reset_connections(field: Field, fault: Fault, record: Record) -> None:
    """Break off every connection to the primary, once."""
    primary = field.cluster.wait_primary()
    field.cluster.network.reset(primary.index)
    record.hits = 1


def _network(mode: Mode) -> Action:
    """Return the fault that damages the network before the primary; the members are cut off from it too."""

    def damage(field: Field, fault: Fault, record: Record) -> None:
        primary = field.cluster.wait_primary()
        record.began = time.monotonic()
        field.cluster.network.set_mode(primary.index, mode, delay_s=_SLOW_S)
        record.hits = 1
        field.pause(fault.lasts_s)
        field.cluster.network.set_mode(primary.index, Mode.PASS)
        make_whole(field.cluster)

    return damage


SERVER_FAULTS: dict[Kind, Action] = {
    Kind.PRIMARY_STEPS_DOWN: step_down,
    Kind.PRIMARY_KILLED: kill_primary,
    Kind.PRIMARY_STOPPED: stop_primary,
    Kind.PRIMARY_FROZEN: freeze_primary,
    Kind.SECONDARY_KILLED: kill_secondary,
    Kind.ALL_DOWN: kill_all,
    Kind.NETWORK_REFUSES: _network(Mode.REFUSE),
    Kind.NETWORK_HOLDS: _network(Mode.HOLD),
    Kind.NETWORK_ONE_WAY: _network(Mode.LOSE_REPLIES),
    Kind.NETWORK_SLOW: _network(Mode.SLOW),
    Kind.NETWORK_RESETS: reset_connections,
}


def make_whole(cluster: Cluster) -> None:
    """Undo all damage, start what is down, and wait until one is primary and the others follow."""
    for member in cluster.members:
        cluster.network.set_mode(member.index, Mode.PASS)
        member.thaw()
        if not member.is_up:
            member.start()
    wait_for(cluster.is_whole, "the members are whole again", within_s=_WHOLE_PATIENCE_S)


def clear_fail_points(cluster: Cluster) -> None:
    """Let no member fail a command any more."""
    for member in cluster.members:
        try:
            member.admin.command({"configureFailPoint": "failCommand", "mode": "off"})
        except PyMongoError as error:
            raise RuntimeError(
                f"member {member.index} does not answer after all was healed"
            ) from error


def _take_down(field: Field, fault: Fault, record: Record, how: Callable[[Member], None]) -> None:
    primary = field.cluster.wait_primary()
    record.began = record.away_from = time.monotonic()
    how(primary)
    record.hits = 1
    field.pause(fault.lasts_s)
    make_whole(field.cluster)
