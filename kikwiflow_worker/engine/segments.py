"""Segments: everything that runs in memory between two commits, and how one begins with a new instance.

A segment is a generator that yields effects, is sent replies, and returns the unit of work to commit.
``engine.running`` holds those that begin with a claimed task, ``engine.messages`` those that begin from outside.
"""

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import TypeAlias

from kikwiflow_worker.engine.asking import PathState
from kikwiflow_worker.engine.draft import Draft, Surroundings
from kikwiflow_worker.engine.effects import Effect, Failure, Reply
from kikwiflow_worker.engine.recording import record_started
from kikwiflow_worker.engine.walk import walk
from kikwiflow_worker.model.definition import ProcessDefinition
from kikwiflow_worker.model.runtime import InstanceStatus, ProcessInstance
from kikwiflow_worker.model.unit_of_work import (
    Change,
    Guard,
    InsertInstance,
    RecordEnded,
    UnitOfWork,
)
from kikwiflow_worker.model.variables import Variables


@dataclass(frozen=True, slots=True)
class SegmentResult:
    """What a segment came to.

    Attributes:
        unit: What to commit.
        variables: The instance's variables at the segment's end, transient ones included.
        failure: Why the head task did not succeed, if it did not.
    """

    unit: UnitOfWork
    variables: Variables
    failure: Failure | None = None


Segment: TypeAlias = Generator[Effect, Reply, SegmentResult]


def start_instance(
    definition: ProcessDefinition,
    instance: ProcessInstance,
    surroundings: Surroundings,
    *,
    caller_drives: bool = True,
) -> Segment:
    """Run a new instance from its start event until it rests or ends.

    Args:
        caller_drives: Whether a failure goes to the caller; otherwise the instance is there with its retry or incident.

    Raises:
        StepFailedError: A node failed and a caller drives the segment; nothing is to be written.
        ExecutionError: The definition cannot be run; nothing is to be written.
    """
    draft = Draft(
        definition, instance, surroundings, origin=instance.id, caller_drives=caller_drives
    )
    state = yield from walk(draft, definition.start_node_id, None, after=instance.id)
    after = replace(instance, variables=draft.variables.stored)
    steps = tuple(draft.changes)
    record_started(draft, after)
    started = tuple(draft.changes[len(steps) :])
    if state is PathState.RESTED:
        return result_of(draft, (), (InsertInstance(after), *steps, *started))
    ended = replace(after, status=InstanceStatus.COMPLETED, ended_at=draft.now, open_paths=0)
    return result_of(draft, (), (*steps, RecordEnded(ended), *started))


def result_of(
    draft: Draft, guards: tuple[Guard, ...], changes: tuple[Change, ...]
) -> SegmentResult:
    """Return the result of a draft: its own guards first, then those of others that it decided about."""
    unit = UnitOfWork((*guards, *draft.guards), changes)
    return SegmentResult(unit, draft.variables.visible())
