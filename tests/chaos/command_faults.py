"""What is done to single commands: by the primary's own fault injection, or by the proxy before it."""

import time
from collections.abc import Callable, Sequence

from tests.chaos.cluster import Json, Member
from tests.chaos.faults import Action, Field, Record
from tests.chaos.schedule import Fault, Kind

_PATIENCE_S = 2.0
"""How long to wait for commands to hit: when none come, somebody else has taken the database away."""

_LOOK_S = 0.02
_WRITE_CONFLICT = 112
_SHUTDOWN_IN_PROGRESS = 91
_INTERRUPTED_AT_SHUTDOWN = 11600


def _reply_lost(command: str) -> Action:
    """Return the fault that lets a command be carried out and then breaks the connection off."""

    def lose(field: Field, fault: Fault, record: Record) -> None:
        network, primary = field.cluster.network, field.cluster.wait_primary()
        network.lose_replies_to(primary.index, command, fault.times)
        _wait(field, lambda: network.still_to_lose(primary.index) == 0)
        record.hits = fault.times - network.still_to_lose(primary.index)
        network.lose_replies_to(primary.index, command, 0)

    return lose


def _fails(commands: Sequence[str], **how: object) -> Action:
    """Return the fault that lets the primary fail commands."""

    def fail(field: Field, fault: Fault, record: Record) -> None:
        primary = field.cluster.wait_primary()
        data = {"failCommands": list(commands), **how}
        order: Json = {
            "configureFailPoint": "failCommand",
            "mode": {"times": fault.times},
            "data": data,
        }
        primary.admin.command(order)
        _wait(field, lambda: _entered(primary) >= fault.times)
        off = primary.admin.command({"configureFailPoint": "failCommand", "mode": "off"})
        record.hits = off["count"]

    return fail


def _entered(member: Member) -> int:
    """Return how many commands the fail point has hit since it was set."""
    name = "failpoint.failCommand"
    return int(member.admin.command({"getParameter": 1, name: 1})[name]["timesEntered"])


def _write_concern_error(code: int) -> Json:
    return {"code": code, "errmsg": "injected by the chaos run"}


_WRITES_IN_TRANSACTIONS = ("insert", "delete")
_ALL = ("find", "aggregate", "insert", "update", "delete", "findAndModify", "commitTransaction")

COMMAND_FAULTS: dict[Kind, Action] = {
    Kind.COMMIT_REPLY_LOST: _reply_lost("commitTransaction"),
    Kind.CLAIM_REPLY_LOST: _reply_lost("findAndModify"),
    Kind.UPDATE_REPLY_LOST: _reply_lost("update"),
    Kind.COMMIT_CONNECTION_CLOSED: _fails(["commitTransaction"], closeConnection=True),
    Kind.COMMIT_NOT_CONFIRMED: _fails(
        ["commitTransaction"], writeConcernError=_write_concern_error(_SHUTDOWN_IN_PROGRESS)
    ),
    Kind.WRITE_CONFLICT: _fails(
        _WRITES_IN_TRANSACTIONS,
        errorCode=_WRITE_CONFLICT,
        errorLabels=["TransientTransactionError"],
    ),
    Kind.INTERRUPTED: _fails(_ALL, errorCode=_INTERRUPTED_AT_SHUTDOWN),
    Kind.CLAIM_NOT_CONFIRMED: _fails(
        ["findAndModify"], writeConcernError=_write_concern_error(_SHUTDOWN_IN_PROGRESS)
    ),
    Kind.UPDATE_NOT_CONFIRMED: _fails(
        ["update"], writeConcernError=_write_concern_error(_SHUTDOWN_IN_PROGRESS)
    ),
}


def _wait(field: Field, is_over: Callable[[], bool]) -> None:
    until = time.monotonic() + _PATIENCE_S
    while not is_over() and time.monotonic() < until:
        field.pause(_LOOK_S)
