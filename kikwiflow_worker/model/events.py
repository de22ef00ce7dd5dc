"""Outbox events: facts stored in the commit that caused them, for programs that follow along (core reference 5.1)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from kikwiflow_worker.model.runtime import (
    ExternalTask,
    Incident,
    ProcessInstance,
)
from kikwiflow_worker.model.variables import Value, readable

SYSTEM_ACTOR = "__KIKWIFLOW_SYSTEM__"
"""The actor of what the engine does by itself."""


EVENT_TEXTS = ("message", "errorMessage", "errorStackTrace")
"""Fields of payloads that a handler wrote, and that may quote values of variables."""


class EventLevel(StrEnum):
    """Which events are stored."""

    OFF = "off"
    LIFECYCLE = "lifecycle"
    FULL = "full"


class EventType(StrEnum):
    """What happened."""

    PROCESS_INSTANCE_STARTED = "PROCESS_INSTANCE_STARTED"
    PROCESS_INSTANCE_FINISHED = "PROCESS_INSTANCE_FINISHED"
    FLOW_NODE_FINISHED = "FLOW_NODE_FINISHED"
    GATEWAY_ANSWER_RESOLVED = "GATEWAY_ANSWER_RESOLVED"
    EXTERNAL_TASK_CLAIMED = "EXTERNAL_TASK_CLAIMED"
    EXTERNAL_TASK_UNCLAIMED = "EXTERNAL_TASK_UNCLAIMED"
    EXTERNAL_TASK_COMPLETED = "EXTERNAL_TASK_COMPLETED"
    RETRY_SCHEDULED = "RETRY_SCHEDULED"
    INCIDENT_CREATED = "INCIDENT_CREATED"
    INCIDENT_RESOLVED = "INCIDENT_RESOLVED"
    PROCESS_VARIABLE_CHANGED = "PROCESS_VARIABLE_CHANGED"
    TIMER_FIRED = "TIMER_FIRED"
    ORPHANED_CHILD_COMPLETION = "ORPHANED_CHILD_COMPLETION"


_LIFECYCLE = frozenset(
    {
        EventType.PROCESS_INSTANCE_STARTED,
        EventType.PROCESS_INSTANCE_FINISHED,
        EventType.EXTERNAL_TASK_CLAIMED,
        EventType.EXTERNAL_TASK_UNCLAIMED,
        EventType.EXTERNAL_TASK_COMPLETED,
        EventType.INCIDENT_CREATED,
        EventType.INCIDENT_RESOLVED,
    }
)


class NodeStatus(StrEnum):
    """How a flow node finished."""

    SUCCESS = "SUCCESS"
    INTERRUPTED = "INTERRUPTED"
    ERROR = "ERROR"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxEvent:
    """One fact.

    Attributes:
        payload: Its fields by their stored names; a missing one has no value.
        inherited_rules: Of the instance; what they mask is stored masked. Not stored themselves.
    """

    id: str
    type: EventType
    timestamp: datetime
    instance_id: str
    definition_id: str
    payload: Mapping[str, Value]
    inherited_rules: Mapping[str, str] = field(default_factory=dict)


def is_recorded(event: EventType, level: EventLevel) -> bool:
    """Return whether events of this type are stored at ``level``."""
    return level is EventLevel.FULL or (level is EventLevel.LIFECYCLE and event in _LIFECYCLE)


def started_payload(instance: ProcessInstance) -> dict[str, Value]:
    """Return the payload of PROCESS_INSTANCE_STARTED."""
    return {**_instance_payload(instance), "actorId": instance.started_by}


def finished_payload(instance: ProcessInstance) -> dict[str, Value]:
    """Return the payload of PROCESS_INSTANCE_FINISHED."""
    ended_at = instance.ended_at or instance.started_at
    lasted = ended_at - instance.started_at
    return {
        **_instance_payload(instance),
        "status": instance.status.value,
        "endedAt": ended_at,
        "durationMs": round(lasted.total_seconds() * 1000),
    }


def external_task_payload(task: ExternalTask, *, actor: str | None) -> dict[str, Value]:
    """Return what all events of external tasks hold."""
    return {
        "externalTaskId": task.id,
        "processDefinitionId": task.definition_id,
        "processInstanceId": task.instance_id,
        "tenantId": task.tenant_id,
        "taskDefinitionId": task.node_id,
        "assignee": task.assignee,
        "actorId": actor,
    }


def resolved_payload(incident: Incident, *, actor: str | None, at: datetime) -> dict[str, Value]:
    """Return the payload of INCIDENT_RESOLVED, which does not repeat the message."""
    payload = incident_payload(incident, actor=actor)
    del payload["message"]
    return {**payload, "resolvedAt": at}


def incident_payload(incident: Incident, *, actor: str | None) -> dict[str, Value]:
    """Return what the events of incidents hold."""
    return {
        "incidentId": incident.id,
        "type": incident.type.value,
        "message": incident.message,
        "processDefinitionId": incident.definition_id,
        "processInstanceId": incident.instance_id,
        "tenantId": incident.tenant_id,
        "executionId": incident.task_id,
        "taskDefinitionId": incident.node_id,
        "actorId": actor or SYSTEM_ACTOR,
    }


def _instance_payload(instance: ProcessInstance) -> dict[str, Value]:
    parent = instance.parent
    return {
        "id": instance.id,
        "businessKey": instance.business_key,
        "businessValue": instance.business_value,
        "processDefinitionId": instance.definition_id,
        "processDefinitionKey": instance.definition_key,
        "processDefinitionVersion": instance.definition_version,
        "variables": readable(instance.variables),
        "startedAt": instance.started_at,
        "tenantId": instance.tenant_id,
        "origin": instance.origin,
        "parentInstanceId": parent.instance_id if parent else None,
        "callerTaskId": parent.coordinator_task_id if parent else None,
        "callerBranchId": parent.branch_id if parent else None,
    }
