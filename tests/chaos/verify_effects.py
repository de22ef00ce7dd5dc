"""What the handlers did, read from their effects log."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from sys import intern


@dataclass(slots=True)
class Calls:
    """The calls under one idempotency key.

    Attributes:
        first_start: When the first one began, in seconds of the host's monotonic clock.
        first_end: When the first one ended well; infinite while none has.
        ended: The calls that ended well.
        failed: How many failed on purpose.
    """

    node: str
    starts: int = 0
    first_start: float = inf
    first_end: float = inf
    ended: list[str] = field(default_factory=list)
    failed: int = 0


Steps = dict[str, Calls]
"""The calls of one instance, by idempotency key."""


@dataclass(slots=True)
class Effects:
    """The whole log, by instance.

    Attributes:
        unfit: Keys that were given to two different steps, in words.
    """

    by_instance: dict[str, Steps] = field(default_factory=dict)
    unfit: list[str] = field(default_factory=list)
    calls: int = 0
    repeats: int = 0


def read_effects(paths: Iterable[Path]) -> Effects:
    """Read effects logs; a line that was never finished is left out."""
    effects = Effects()
    owners: dict[str, str] = {}
    for path in paths:
        with path.open("rb") as file:
            for line in file:
                if line.endswith(b"\n"):
                    _note(effects, owners, json.loads(line))
    for steps in effects.by_instance.values():
        for calls in steps.values():
            effects.calls += calls.starts
            effects.repeats += max(calls.starts - calls.failed - 1, 0)
    return effects


def _note(effects: Effects, owners: dict[str, str], line: dict[str, object]) -> None:
    key, instance, node = str(line["key"]), intern(str(line["instance"])), intern(str(line["node"]))
    steps = effects.by_instance.setdefault(instance, {})
    if owners.setdefault(key, instance) != instance:
        effects.unfit.append(
            f"key {key} of node {node} of instance {instance} was used by instance {owners[key]} before"
        )
    calls = steps.setdefault(key, Calls(node))
    if calls.node != node:
        effects.unfit.append(
            f"key {key} of node {node} of instance {instance} was used by node {calls.node} before"
        )
    at = float(str(line["at"]))
    match line["phase"]:
        case "start":
            calls.starts += 1
            calls.first_start = min(calls.first_start, at)
        case "end":
            calls.first_end = min(calls.first_end, at)
            calls.ended.append(str(line["call"]))
        case _:
            calls.failed += 1
