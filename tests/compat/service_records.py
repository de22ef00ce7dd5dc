"""The values of what stands around running instances: people, programs, events, workers, jobs."""

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

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
from kikwiflow_worker.model.runtime import (
    Claim,
    IncidentType,
    TopicNode,
)
from kikwiflow_worker.store.access import ApiToken, AuditEntry, LoginSession
from kikwiflow_worker.store.answers import Answer
from kikwiflow_worker.store.relay import RelayStatus, StoredEvent
from kikwiflow_worker.store.views import CompletedExternalTask, WorkerRecord

AT = datetime(2026, 5, 1, 12, 30, 15, 250_000, tzinfo=UTC)
LATER = datetime(2026, 5, 2, tzinfo=UTC)

SOURCE = (
    '{"defaultStartPoint":"START","flowNodes":{"END":{"type":"DEFAULT_END_EVENT"},'
    '"START":{"outgoing":[{"targetNodeId":"END"}],"type":"DEFAULT_START_EVENT"}},"key":"order","name":"Order"}'
)
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


SERVICE_RECORDS: Mapping[str, Mapping[str, object]] = {
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
        "external-by-node": WorkerRecord(
            **{**EXTERNAL_WORKER, "handlers": ()},
            id="external/token:php/php.1",
            is_external=True,
            nodes=(TopicNode("invoice", "RENDER"),),
            busy_s=60.0,
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
