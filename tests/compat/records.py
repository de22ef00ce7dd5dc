"""The values that the frozen documents stand for, one for each kind of document."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any
from uuid import UUID

from kikwiflow_worker.model.messages import Message, MessageStatus
from kikwiflow_worker.model.nodes import MatchPolicy
from kikwiflow_worker.model.runtime import (
    Attachment,
    Branch,
    ExecutableTask,
    ExternalTask,
    ExternalTaskStatus,
    ExternalTaskType,
    HostKind,
    Incident,
    IncidentStatus,
    IncidentType,
    InstanceStatus,
    Loop,
    Parent,
    ProcessInstance,
    TaskStatus,
    TaskType,
    TopicNode,
)
from tests.compat.service_records import AT, LATER, SERVICE_RECORDS

ON_TASK = Attachment("host-1", "WAIT", HostKind.EXECUTABLE_TASK)
ON_EXTERNAL_TASK = Attachment("host-2", "APPROVE", HostKind.EXTERNAL_TASK)
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
BRANCH = Branch("join-1:0", "join-1")
VARIABLES: dict[str, Any] = {
    "amount": Decimal("120.50"),
    "customer.name": "Ana",
    "$ref": "R-1",
    "100%": True,
    "nothing": None,
    "count": 9_007_199_254_740_993,
    "weight": 1.5,
    "at": AT,
    "id": UUID(int=7),
    "raw": b"\x00\xff",
    "lines": [{"sku.code": "A", "price": Decimal("1.10")}, {"": []}],
}


def an_instance(**fields: Any) -> ProcessInstance:
    chosen = {
        "id": "instance-1",
        "business_key": "ORDER-1",
        "definition_id": "definition-1",
        "definition_key": "order",
        "definition_version": 3,
        "started_at": AT,
        **fields,
    }
    return ProcessInstance(**chosen)


def a_task(task_type: TaskType, **fields: Any) -> ExecutableTask:
    chosen = {
        "id": "task-1",
        "type": task_type,
        "node_id": "NODE",
        "instance_id": "instance-1",
        "definition_id": "definition-1",
        "created_at": AT,
        "claimable_at": AT,
        "retries_left": 3,
        **fields,
    }
    return ExecutableTask(**chosen)


def a_wait(task_type: ExternalTaskType, **fields: Any) -> ExternalTask:
    chosen = {
        "id": "wait-1",
        "type": task_type,
        "node_id": "NODE",
        "instance_id": "instance-1",
        "definition_id": "definition-1",
        "created_at": AT,
        **fields,
    }
    return ExternalTask(**chosen)


def an_incident(incident_type: IncidentType, **fields: Any) -> Incident:
    chosen = {
        "id": "incident-1",
        "type": incident_type,
        "message": "ValueError: the scales are broken",
        "stack_trace": "Traceback",
        "instance_id": "instance-1",
        "definition_id": "definition-1",
        "task_id": "task-1",
        "node_id": "NODE",
        "created_at": AT,
        **fields,
    }
    return Incident(**chosen)


def a_message(status: MessageStatus, **fields: Any) -> Message:
    chosen = {
        "id": "message-1",
        "key": "payment:1",
        "status": status,
        "created_at": AT,
        "kept_until": LATER,
        "expires_at": LATER,
        **fields,
    }
    return Message(**chosen)


def waiting(**fields: Any) -> dict[str, Any]:
    """Return the fields of a row that no worker may claim."""
    return {"claimable_at": None, "retries_left": 0, **fields}


RECORDS: Mapping[str, Mapping[str, object]] = {
    "process_instances": {
        "least": an_instance(),
        "everything": an_instance(
            business_value=Decimal("99.90"),
            tenant_id="acme",
            origin="WEB",
            started_by="ana",
            priority=9,
            open_paths=2,
            variables=VARIABLES,
        ),
        "suspended": an_instance(status=InstanceStatus.SUSPENDED),
        "cancelling": an_instance(status=InstanceStatus.CANCELLING),
        "child": an_instance(
            origin="CALL_ACTIVITY",
            parent=Parent(
                instance_id="instance-0",
                coordinator_task_id="task-0",
                branch_id="task-0:0",
                starter_task_id="starter-0",
                depth=2,
            ),
        ),
        "child-with-rules": an_instance(
            origin="CALL_ACTIVITY",
            parent=Parent(
                instance_id="instance-0",
                coordinator_task_id="task-0",
                branch_id="task-0:0",
                starter_task_id="starter-0",
                depth=1,
            ),
            inherited_rules={"ssn": "read=operator; write=operator", "card.no": "masked; write="},
        ),
        "child-with-outputs": an_instance(
            origin="CALL_ACTIVITY",
            parent=Parent(
                instance_id="instance-0",
                coordinator_task_id="task-0",
                branch_id="task-0:0",
                starter_task_id="starter-0",
                depth=1,
                outputs=(("total", "total"), ("decision", "approval")),
            ),
        ),
    },
    "process_history": {
        "completed": an_instance(
            status=InstanceStatus.COMPLETED, ended_at=LATER, open_paths=0, variables=VARIABLES
        ),
        "cancelled": an_instance(status=InstanceStatus.CANCELLED, ended_at=LATER),
    },
    "executable_tasks": {
        "standard": a_task(TaskType.STANDARD, handler_name="charge_card", tenant_id="acme"),
        "of-a-topic": a_task(
            TaskType.STANDARD,
            handler_name="render_invoice",
            topic_node=TopicNode("invoice", "RENDER"),
        ),
        "locked": a_task(
            TaskType.STANDARD,
            status=TaskStatus.LOCKED,
            claimable_at=LATER,
            worker_id="host-1-ab12",
            lock_expires_at=LATER,
            epoch=4,
            crash_count=1,
            handler_name="charge_card",
        ),
        "retrying": a_task(
            TaskType.STANDARD,
            due_at=LATER,
            claimable_at=LATER,
            epoch=2,
            attempts=1,
            retries_left=2,
            error="the scales are busy",
            priority=9,
        ),
        "failed": a_task(
            TaskType.STANDARD,
            **waiting(status=TaskStatus.ERROR, epoch=3, attempts=3, error="the scales are broken"),
        ),
        "skipped": a_task(TaskType.STANDARD, epoch=4, is_skipped=True),
        "traced": a_task(TaskType.STANDARD, traceparent=TRACEPARENT),
        "on-a-branch": a_task(TaskType.STANDARD, branch=BRANCH),
        "on-a-private-path": a_task(TaskType.STANDARD, branch=Branch("path-1", None)),
        "arrived": a_task(TaskType.STANDARD, status=TaskStatus.ARRIVED, epoch=2, branch=BRANCH),
        "gateway": a_task(TaskType.EXCLUSIVE_GATEWAY, handler_name="answer_provider:size_of_order"),
        "timer-schedule": a_task(
            TaskType.TIMER_SCHEDULE, handler_name="due_date_provider:cooling_off"
        ),
        "key-resolution": a_task(
            TaskType.KEY_RESOLUTION, handler_name="correlation_keys_provider:keys_of_order"
        ),
        "timer": a_task(TaskType.TIMER_TASK, due_at=LATER, claimable_at=LATER),
        "deadline": a_task(
            TaskType.INTERRUPTIVE_TIMER,
            due_at=LATER,
            claimable_at=LATER,
            attached_to=ON_EXTERNAL_TASK,
        ),
        "reminder": a_task(
            TaskType.NON_INTERRUPTIVE_TIMER,
            due_at=LATER,
            claimable_at=LATER,
            attached_to=ON_TASK,
            occurrence=3,
        ),
        "thrower": a_task(TaskType.EVENT_THROW),
        "join": a_task(
            TaskType.JOIN_GATEWAY,
            **waiting(
                status=TaskStatus.AWAITING_BRANCHES, pending_branch_ids=("join-1:0", "join-1:1")
            ),
        ),
        "coordinator": a_task(
            TaskType.CALL_ACTIVITY_COORDINATOR,
            **waiting(
                status=TaskStatus.AWAITING_BRANCHES,
                pending_branch_ids=("task-1:0",),
                loop=Loop(0, pending=("b", None, {"sku.code": Decimal(2)})),
            ),
        ),
        "starter": a_task(
            TaskType.CALL_ACTIVITY_STARTER,
            branch=Branch("task-0:1", "task-0"),
            loop=Loop(1, element=(None,)),
        ),
        "started": a_task(
            TaskType.CALL_ACTIVITY_STARTER,
            branch=Branch("task-0:0", "task-0"),
            loop=Loop(0, element=({"sku": "A"},)),
            **waiting(status=TaskStatus.STARTED, epoch=2),
        ),
        "arrival": a_task(
            TaskType.ARRIVAL, status=TaskStatus.ARRIVED, retries_left=0, branch=BRANCH
        ),
        "cancel-instance": a_task(TaskType.CANCEL_INSTANCE, node_id="", retries_left=0),
        "cancel-children": a_task(
            TaskType.CANCEL_CHILDREN, node_id="", retries_left=0, branch=Branch("task-0", "task-0")
        ),
        "kept-message": a_task(
            TaskType.KEPT_MESSAGE, node_id="message-1", instance_id="", definition_id=""
        ),
        "bulk-job": a_task(
            TaskType.BULK_JOB, node_id="job-1", instance_id="", definition_id="", tenant_id="acme"
        ),
    },
    "external_tasks": {
        "task": a_wait(
            ExternalTaskType.TASK,
            name="Approve",
            description="Look at the order",
            assignee="ana",
            tenant_id="acme",
            branch=BRANCH,
        ),
        "catcher": a_wait(
            ExternalTaskType.CATCHER, correlation_key="payment:1", display_name="Payment of order 1"
        ),
        "group": a_wait(
            ExternalTaskType.GROUP,
            match_policy=MatchPolicy.ALL,
            pending_keys=("b",),
            total_keys=2,
        ),
        "group-key": a_wait(
            ExternalTaskType.GROUP_KEY,
            correlation_key="b",
            display_name="Item b",
            match_policy=MatchPolicy.ANY,
            group_id="wait-0",
        ),
        "group-key-matched": a_wait(
            ExternalTaskType.GROUP_KEY,
            status=ExternalTaskStatus.CORRELATED,
            correlation_key="a",
            match_policy=MatchPolicy.ALL,
            group_id="wait-0",
        ),
        "boundary-catch": a_wait(
            ExternalTaskType.BOUNDARY_CATCH,
            correlation_key="recall",
            display_name="Recall",
            attached_to=ON_TASK,
        ),
    },
    "incidents": {
        "failed-job": an_incident(IncidentType.FAILED_JOB, tenant_id="acme"),
        "business-error": an_incident(
            IncidentType.UNHANDLED_BUSINESS_ERROR,
            status=IncidentStatus.RESOLVED,
            resolved_at=LATER,
            resolved_by="ana",
        ),
        "too-large": an_incident(
            IncidentType.VARIABLES_TOO_LARGE, status=IncidentStatus.CLOSED, resolved_at=LATER
        ),
        "worker-lost": an_incident(IncidentType.WORKER_LOST, stack_trace=""),
    },
    "messages": {
        "kept": a_message(MessageStatus.KEPT, tenant_id="acme", variables=VARIABLES),
        "delivered": a_message(MessageStatus.DELIVERED, tenant_id=None, variables={}),
    },
    "incidents_sealed": {"failed-job": an_incident(IncidentType.FAILED_JOB)},
    "executable_tasks_sealed": {
        "failed": a_task(
            TaskType.STANDARD,
            **waiting(status=TaskStatus.ERROR, epoch=3, attempts=3, error="the scales are broken"),
        ),
    },
    **SERVICE_RECORDS,
}
