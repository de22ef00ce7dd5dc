"""The values that the frozen documents stand for, one for each kind of document."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import Any
from uuid import UUID

from kikwiflow_worker.model.bulk import (
    BulkAction,
    BulkCounts,
    BulkFilter,
    BulkJob,
    BulkReason,
    BulkStatus,
)
from kikwiflow_worker.model.definition import parse_definition
from kikwiflow_worker.model.external_work import ReportKind, ReportOutcome, WorkReport
from kikwiflow_worker.model.identity import Identity, Role
from kikwiflow_worker.model.messages import Message, MessageStatus
from kikwiflow_worker.model.nodes import MatchPolicy
from kikwiflow_worker.model.runtime import (
    Attachment,
    Branch,
    Claim,
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
)
from kikwiflow_worker.store.access import ApiToken, AuditEntry, LoginSession
from kikwiflow_worker.store.answers import Answer
from kikwiflow_worker.store.mongo.access import (
    decode_audit,
    decode_session,
    decode_token,
    encode_audit,
    encode_session,
    encode_token,
)
from kikwiflow_worker.store.mongo.answers import decode_answer
from kikwiflow_worker.store.mongo.bulk import decode_job, encode_job
from kikwiflow_worker.store.mongo.codec import (
    decode_external_task,
    decode_incident,
    decode_instance,
    decode_message,
    decode_task,
    encode_external_task,
    encode_incident,
    encode_instance,
    encode_message,
    encode_task,
)
from kikwiflow_worker.store.mongo.definitions import decode_definition
from kikwiflow_worker.store.mongo.queries import decode_completion, decode_worker, encode_worker
from kikwiflow_worker.store.mongo.relay_documents import decode_event
from kikwiflow_worker.store.mongo.sealing import Sealing
from kikwiflow_worker.store.mongo.work_reports import decode_report, encode_report
from kikwiflow_worker.store.relay import RelayStatus, StoredEvent
from kikwiflow_worker.store.views import CompletedExternalTask, WorkerRecord
from tests.support.sealed import RING

SOURCE = (
    '{"defaultStartPoint":"START","flowNodes":{"END":{"type":"DEFAULT_END_EVENT"},'
    '"START":{"outgoing":[{"targetNodeId":"END"}],"type":"DEFAULT_START_EVENT"}},"key":"order","name":"Order"}'
)

AT = datetime(2026, 5, 1, 12, 30, 15, 250_000, tzinfo=UTC)
LATER = datetime(2026, 5, 2, tzinfo=UTC)

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


SEALING = Sealing(RING)


@dataclass(frozen=True, slots=True)
class Kind:
    """A collection: how its values become documents, if a codec writes them, and come back."""

    encode: Callable[[Any], dict[str, Any]] | None
    decode: Callable[[dict[str, Any]], object]


KINDS: Mapping[str, Kind] = {
    "process_instances": Kind(encode_instance, decode_instance),
    "process_history": Kind(encode_instance, decode_instance),
    "executable_tasks": Kind(encode_task, decode_task),
    "external_tasks": Kind(encode_external_task, decode_external_task),
    "incidents": Kind(encode_incident, decode_incident),
    "messages": Kind(encode_message, decode_message),
    "external_work_reports": Kind(encode_report, decode_report),
    "bulk_jobs": Kind(encode_job, decode_job),
    "api_tokens": Kind(encode_token, decode_token),
    "web_sessions": Kind(encode_session, decode_session),
    "audit_log": Kind(encode_audit, decode_audit),
    "api_answers": Kind(None, decode_answer),
    "process_definitions": Kind(None, decode_definition),
    "completed_external_tasks": Kind(None, decode_completion),
    "workers": Kind(encode_worker, decode_worker),
    "outbox_events": Kind(None, lambda row: decode_event(row, None)),
    "incidents_sealed": Kind(None, partial(decode_incident, sealing=SEALING)),
    "executable_tasks_sealed": Kind(None, partial(decode_task, sealing=SEALING)),
    "outbox_events_sealed": Kind(None, partial(decode_event, sealing=SEALING)),
}

EVENT: dict[str, Any] = {
    "id": "event-1",
    "type": "PROCESS_INSTANCE_FINISHED",
    "timestamp": AT,
    "instance_id": "instance-1",
    "definition_id": "definition-1",
    "payload": {
        "id": "instance-1",
        "tenantId": "acme",
        "endedAt": AT,
        "durationMs": 250,
        "variables": {"amount": Decimal("120.50"), "customer.name": "Ana"},
    },
    "sequence": "1796065238.0000000020",
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


def a_job(action: BulkAction, **fields: Any) -> BulkJob:
    chosen = {
        "id": "job-1",
        "action": action,
        "filter": BulkFilter(),
        "created_at": AT,
        "created_by": "ana",
        "expires_at": LATER,
        "matched": 7,
        **fields,
    }
    return BulkJob(**chosen)


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


EXTERNAL_WORKER: dict[str, Any] = {
    "instance_name": "php.1",
    "host": "",
    "pid": 0,
    "version": "",
    "started_at": AT,
    "seen_at": LATER,
    "state": "running",
    "slots": 0,
    "running": 0,
    "handlers": ("pack", "render_invoice"),
}

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
    "external_work_reports": {
        kind.value.lower(): WorkReport(
            claim=Claim("task-1", "external/ana/render.1", 2),
            kind=kind,
            outcome=outcome,
            instance_id="instance-1",
            node_id="RENDER",
            tenant_id=tenant_id,
            reported_at=AT,
        )
        for kind, outcome, tenant_id in (
            (ReportKind.COMPLETED, ReportOutcome.COMPLETED, "acme"),
            (ReportKind.FAILED, ReportOutcome.RETRY_SCHEDULED, None),
            (ReportKind.BUSINESS_ERROR, ReportOutcome.INCIDENT_OPENED, None),
        )
    },
    "api_tokens": {
        "rotated": ApiToken(
            id="token-1",
            name="ana",
            roles=frozenset({Role.OPERATOR, Role.DEPLOYER}),
            tenant_id="acme",
            created_at=AT,
            expires_at=LATER,
            rotated_at=AT,
            previous_until=LATER,
            last_used_at=AT,
        ),
        "revoked": ApiToken(
            id="token-1",
            name="ana",
            roles=frozenset({Role.ADMIN}),
            tenant_id=None,
            created_at=AT,
            expires_at=LATER,
            revoked_at=LATER,
        ),
    },
    "web_sessions": {
        "of-a-token": LoginSession(
            identity=Identity(actor="ana", roles=frozenset({Role.VIEWER}), tenant_id="acme"),
            csrf_token="csrf-1",
            token_id="token-1",
            issued_at=AT,
            expires_at=LATER,
            ends_at=LATER,
        ),
        "of-a-jwt": LoginSession(
            identity=Identity(actor="ana", roles=frozenset({Role.ADMIN})),
            csrf_token="csrf-1",
            token_id=None,
            issued_at=AT,
            expires_at=LATER,
            ends_at=LATER,
        ),
    },
    "api_answers": {
        "answered": Answer(
            status=201, headers={"content-type": "application/json"}, body=b'{"id":"instance-1"}'
        ),
    },
    "audit_log": {
        "done": AuditEntry(
            id="entry-1",
            at=AT,
            actor="ana",
            tenant_id="acme",
            operation="cancelInstance",
            request_id="request-1",
            subjects={"instance_id": "instance-1"},
            result="DONE",
        ),
        "under-way": AuditEntry(
            id="entry-1",
            at=AT,
            actor="ana",
            tenant_id=None,
            operation="deployDefinition",
            request_id="request-1",
        ),
    },
    "bulk_jobs": {
        "previewed": a_job(
            BulkAction.RETRY_INCIDENTS,
            filter=BulkFilter(
                definition_key="order",
                instance_id="instance-1",
                node_id="NODE",
                incident_type=IncidentType.FAILED_JOB,
            ),
        ),
        "running": a_job(
            BulkAction.MIGRATE,
            filter=BulkFilter(definition_key="order", business_key="ORDER-1"),
            tenant_id="acme",
            target_version=3,
            is_capped=True,
            status=BulkStatus.RUNNING,
            confirmed_at=AT,
            confirmed_by="ana",
            counts=BulkCounts(done=2, skipped=1, failed=1),
            reasons=(BulkReason("instance-3", "it has ended"),),
            chunk=("instance-4",),
            cursor="behind-4",
        ),
        "done": a_job(BulkAction.CANCEL, status=BulkStatus.DONE, ended_at=LATER, is_read=True),
        "cancelled": a_job(
            BulkAction.SUSPEND, status=BulkStatus.CANCELLED, ended_at=LATER, cancelled_by="bob"
        ),
        "resume": a_job(BulkAction.RESUME),
    },
    "process_definitions": {
        "version": parse_definition(SOURCE).file.deployed(definition_id="definition-1", version=3),
    },
    "completed_external_tasks": {
        "by-somebody": CompletedExternalTask(
            task_id="wait-1",
            instance_id="instance-1",
            node_id="APPROVE",
            completed_at=AT,
            completed_by="ana",
        ),
        "by-nobody": CompletedExternalTask(
            task_id="wait-1",
            instance_id="instance-1",
            node_id="APPROVE",
            completed_at=AT,
            completed_by=None,
        ),
    },
    "outbox_events": {
        "pending": StoredEvent(**EVENT, status=RelayStatus.PENDING),
        "retrying": StoredEvent(
            **EVENT,
            status=RelayStatus.RETRYING,
            attempts=3,
            strikes=2,
            retry_at=LATER,
            failed_at=AT,
            last_error="OSError: the receiver answered 503",
        ),
        "relayed": StoredEvent(**EVENT, status=RelayStatus.RELAYED, relayed_at=LATER),
    },
    "incidents_sealed": {"failed-job": an_incident(IncidentType.FAILED_JOB)},
    "executable_tasks_sealed": {
        "failed": a_task(
            TaskType.STANDARD,
            **waiting(status=TaskStatus.ERROR, epoch=3, attempts=3, error="the scales are broken"),
        ),
    },
    "outbox_events_sealed": {
        "retrying": StoredEvent(
            **{
                **EVENT,
                "type": "INCIDENT_CREATED",
                "payload": {
                    "message": "ValueError: the scales are broken",
                    "variables": {"amount": Decimal("120.50")},
                },
            },
            status=RelayStatus.RETRYING,
            attempts=1,
            failed_at=AT,
            last_error="OSError: the receiver answered 503",
        ),
    },
    "workers": {
        "worker": WorkerRecord(
            id="w-1-ab12",
            instance_name="w-1",
            host="host-1",
            pid=7,
            version="0.1.0",
            started_at=AT,
            seen_at=LATER,
            state="running",
            slots=10,
            running=2,
            handlers=("answer_provider:size_of_order", "charge_card"),
        ),
        "lagging": WorkerRecord(
            id="w-2-cd34",
            instance_name="w-2",
            host="host-1",
            pid=8,
            version="0.1.0",
            started_at=AT,
            seen_at=LATER,
            state="draining",
            slots=10,
            running=2,
            handlers=("charge_card",),
            event_loop_lag_s=0.125,
        ),
        "external": WorkerRecord(
            **EXTERNAL_WORKER, id="external/token:php/php.1", is_external=True, busy_s=60.0
        ),
        "external-of-tenant": WorkerRecord(
            **EXTERNAL_WORKER,
            id="external/token:php/php.1",
            is_external=True,
            tenant_id="red/blue",
            busy_s=60.0,
        ),
    },
}
