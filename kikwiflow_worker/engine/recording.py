"""Which events the steps of the engine leave behind (core reference 5.1)."""

from datetime import datetime

from kikwiflow_worker.engine.draft import Draft
from kikwiflow_worker.engine.effects import Failure
from kikwiflow_worker.engine.incidents import incident_of
from kikwiflow_worker.engine.retries import GiveUp, TryAgain
from kikwiflow_worker.model.events import (
    SYSTEM_ACTOR,
    EventType,
    NodeStatus,
    external_task_payload,
    incident_payload,
    started_payload,
)
from kikwiflow_worker.model.nodes import ExclusiveGateway, FlowNode, SequenceFlow
from kikwiflow_worker.model.runtime import ExecutableTask, ExternalTask, ProcessInstance
from kikwiflow_worker.model.variables import Value


def record_started(draft: Draft, instance: ProcessInstance) -> None:
    """The instance was created; its variables are those at the end of the first segment."""
    if draft.records(EventType.PROCESS_INSTANCE_STARTED):
        draft.record(EventType.PROCESS_INSTANCE_STARTED, started_payload(instance))


def record_finished(
    draft: Draft,
    node: FlowNode,
    started_at: datetime | None,
    status: NodeStatus = NodeStatus.SUCCESS,
    *,
    interrupted_by: str | None = None,
    failure: Failure | None = None,
) -> None:
    """A node was run, was interrupted, or failed."""
    if not draft.records(EventType.FLOW_NODE_FINISHED):
        return
    draft.record(
        EventType.FLOW_NODE_FINISHED,
        {
            "flowNodeDefinitionId": node.id,
            "flowNodeType": node.type,
            "flowNodeName": node.name,
            "flowNodeDescription": node.description,
            **_where(draft),
            "startedAt": started_at,
            "finishedAt": draft.now,
            "nodeExecutionStatus": status.value,
            "interruptedByNodeDefinitionId": interrupted_by,
            "errorType": failure.error_type if failure else None,
            "errorMessage": failure.message if failure else None,
            "errorStackTrace": failure.stack_trace if failure else None,
        },
    )


def record_answer(
    draft: Draft, gateway: ExclusiveGateway, answer: str | None, flow: SequenceFlow
) -> None:
    """A gateway chose a flow."""
    if not draft.records(EventType.GATEWAY_ANSWER_RESOLVED):
        return
    draft.record(
        EventType.GATEWAY_ANSWER_RESOLVED,
        {
            **_where(draft),
            "gatewayNodeId": gateway.id,
            "answerProviderType": gateway.provider_type.value if gateway.provider_type else None,
            "providerBean": gateway.provider_bean,
            "providerVariable": gateway.provider_variable,
            "resolvedAnswer": answer,
            "chosenFlowId": flow.id,
            "evaluatedAt": draft.now,
        },
    )


def record_completed(draft: Draft, task: ExternalTask, actor: str | None) -> None:
    """An external task was completed, or its key was correlated."""
    payload = external_task_payload(task, actor=actor)
    waited = {"createdAt": task.created_at, "completedAt": draft.now}
    draft.record(EventType.EXTERNAL_TASK_COMPLETED, {**payload, **waited})


def record_failure(
    draft: Draft, node: FlowNode, task: ExecutableTask, verdict: TryAgain | GiveUp, failure: Failure
) -> None:
    """A node failed; ``task`` is the row that is tried again or waits for a person."""
    record_finished(draft, node, draft.now, NodeStatus.ERROR, failure=failure)
    if isinstance(verdict, GiveUp):
        incident = incident_of(task, verdict.type, failure, now=draft.now)
        payload = incident_payload(incident, actor=None)
        draft.record(EventType.INCIDENT_CREATED, {**payload, "createdAt": draft.now})
        return
    draft.record(
        EventType.RETRY_SCHEDULED,
        {
            **_where(draft),
            "executableTaskId": task.id,
            "taskDefinitionId": task.node_id,
            "executionsSoFar": verdict.attempts,
            "retriesLeft": verdict.retries_left,
            "nextDueDate": verdict.due_at,
            "errorMessage": failure.message,
            "actorId": SYSTEM_ACTOR,
            "scheduledAt": draft.now,
        },
    )


def record_cycle(draft: Draft, timer: FlowNode, next_due_at: datetime | None) -> None:
    """A recurring timer has fired."""
    draft.record(
        EventType.TIMER_FIRED,
        {
            **_where(draft),
            "flowNodeDefinitionId": timer.id,
            "actorId": SYSTEM_ACTOR,
            "firedAt": draft.now,
            "nextDueDate": next_due_at,
        },
    )


def _where(draft: Draft) -> dict[str, Value]:
    return {
        "processInstanceId": draft.instance.id,
        "processDefinitionId": draft.definition.id,
        "processDefinitionKey": draft.definition.key,
        "tenantId": draft.instance.tenant_id,
    }
