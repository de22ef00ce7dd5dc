"""How the values of each collection become documents, and come back."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

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
from tests.support.sealed import RING

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
