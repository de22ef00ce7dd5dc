"""A database as a busy team has it, to look for things in: many instances and open tasks of many definitions and tenants.

All of it is written as raw documents. Beside the many there are ``FEW`` rows of each kind that somebody looks for; in every
order they lie behind all others.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any
from uuid import uuid4

from bson import encode
from bson.raw_bson import RawBSONDocument
from bson.timestamp import Timestamp
from pymongo import MongoClient
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.write_concern import WriteConcern

from kikwiflow_worker.clock import SystemClock
from kikwiflow_worker.model.runtime import (
    Attachment,
    HostKind,
    IncidentStatus,
    InstanceStatus,
    Parent,
    TaskType,
)
from kikwiflow_worker.store.mongo.codec import (
    encode_external_task,
    encode_incident,
    encode_instance,
    encode_task,
)
from kikwiflow_worker.store.mongo.driver import CODEC_OPTIONS
from kikwiflow_worker.store.mongo.store import MongoStore
from kikwiflow_worker.store.relay import RelayStatus, slice_of
from tests.support.stores import (
    FAR_AWAY,
    LONG_AGO,
    a_task,
    an_external_task,
    an_incident,
    an_instance,
)

Json = dict[str, Any]

FEW = 3
KEYS = 10
VERSIONS = 4
NODES = 12
TENANTS = 5
RARE = "rare"
"""The name that the few have, whatever is named: key, version, node, tenant, person, handler, variable."""

RARE_VERSION = f"{RARE}-1"
_BATCH = 10_000
_FIRST = LONG_AGO - timedelta(days=30)
_LAST = LONG_AGO + timedelta(days=300)


@dataclass(frozen=True, slots=True)
class Size:
    """How many rows of each kind there are."""

    instances: int
    open_tasks: int


@contextmanager
def filled_database(uri: str, size: Size) -> Iterator[Database[Json]]:
    """Give a prepared database full of rows, and drop it afterwards."""
    name = f"kikwi_test_{uuid4().hex[:12]}"

    async def prepare() -> None:
        store = MongoStore.open(uri, name, clock=SystemClock())
        await store.prepare()
        await store.close()

    asyncio.run(prepare())
    with MongoClient[Json](uri) as client:
        database = client.get_database(name, codec_options=CODEC_OPTIONS)
        fill(database, size)
        yield database
        client.drop_database(name)


def fill(data: Database[Any], size: Size) -> None:
    """Store the many and the few."""
    _insert(data.process_definitions, map(_definition, range(KEYS * VERSIONS)))
    data.process_definitions.insert_one({**_definition(0), "_id": RARE_VERSION, "key": RARE})
    _insert(
        data.process_instances,
        _many(encode_instance(_instance(0), None), _own_instance, size.instances),
    )
    _insert(
        data.process_history,
        _many(encode_instance(_ended(), None), _own_ended, size.instances // 4),
    )
    _insert(
        data.executable_tasks,
        _many(encode_task(a_task(handler_name="pack"), None), _own_task, size.open_tasks),
    )
    _insert(
        data.external_tasks,
        _many(encode_external_task(an_external_task()), _own_external, size.open_tasks),
    )
    _insert(
        data.incidents,
        _many(encode_incident(an_incident(a_task())), _own_incident, size.open_tasks // 5),
    )
    _insert(data.outbox_events, _many({}, _own_event, size.open_tasks))
    _add_the_few(data)  # fmt: skip


def add_long_timeline(data: Database[Any], instance_id: str, length: int) -> None:
    """Store many events of one instance, ``long-00000000`` and so on."""

    def own(number: int) -> Json:
        place = {"_id": f"long-{number:08d}", "processInstanceId": instance_id}
        return {**_own_event(number), **place, "sequence": Timestamp(number + 1, 1)}

    _insert(data.outbox_events, _many({}, own, length))


def version_of(number: int) -> str:
    """Return the id of a version of which there are many instances."""
    return f"key-{number % KEYS}-{number // KEYS % VERSIONS}"


def _definition(number: int) -> Json:
    return {
        "_id": version_of(number),
        "key": f"key-{number % KEYS}",
        "version": number // KEYS % VERSIONS + 1,
        "source": "",
        "deployedAt": LONG_AGO,
    }


def _instance(number: int) -> Any:
    return an_instance(variables={"n": number, "city": "Bremen"})


def _ended() -> Any:
    return an_instance(status=InstanceStatus.COMPLETED, ended_at=LONG_AGO)


def _tenant(number: int) -> Json:
    return {"tenantId": f"tenant-{number % TENANTS}"} if number % 2 else {}


def _own_instance(number: int) -> Json:
    status = InstanceStatus.SUSPENDED if number % 50 == 0 else InstanceStatus.ACTIVE
    return {
        "businessKey": f"order-{number}",
        "processDefinitionId": version_of(number),
        "processDefinitionKey": f"key-{number % KEYS}",
        "status": status.value,
        "startedAt": LONG_AGO + timedelta(seconds=number),
        "variables": {"n": {"name": "n", "value": number}, "city": {"name": "city", "value": "Bremen"}},
        **_tenant(number),
    }  # fmt: skip


def _own_ended(number: int) -> Json:
    at = datetime.now(UTC) - timedelta(seconds=number)
    return {**_own_instance(number), "status": "COMPLETED", "startedAt": at, "endedAt": at}


def _place(number: int) -> Json:
    return {
        "processDefinitionId": version_of(number),
        "taskDefinitionId": f"node-{number // 7 % NODES}",
        "processInstanceId": f"{number:08d}",
        "createdAt": LONG_AGO + timedelta(seconds=number),
        **_tenant(number),
    }


def _own_task(number: int) -> Json:
    own = _place(number)
    later = FAR_AWAY + timedelta(seconds=number)
    match number % 5:
        case 0:
            timer = {"type": "TIMER_TASK", "dueDate": later, "claimableAt": later}
            return {**own, **timer, "handlerName": None}
        case 1:
            return {**own, "attempts": 2, "dueDate": later, "claimableAt": later}
        case 2:
            return {**own, "status": "ERROR", "claimableAt": None, "attempts": 3}
        case 3:
            host = {"attachedToRefId": f"{number:08d}", "attachedToRefType": "EXTERNAL_TASK"}
            timer = {"type": "INTERRUPTIVE_TIMER", "dueDate": later, "claimableAt": later}
            return {**own, **host, **timer, "handlerName": None}
        case _:
            return {**own, "claimableAt": own["createdAt"], "handlerName": f"handler-{number % 3}"}


def _own_external(number: int) -> Json:
    assignee = {"assignee": f"person-{number % 100}"} if number % 3 else {}
    return {**_place(number), **assignee}


def _own_incident(number: int) -> Json:
    status = IncidentStatus.OPEN if number % 2 else IncidentStatus.RESOLVED
    return {**_place(number), "status": status.value}


def _own_event(number: int) -> Json:
    place = _place(number)
    return {
        "eventType": "FLOW_NODE_FINISHED",
        "processInstanceId": place["processInstanceId"],
        "processDefinitionId": place["processDefinitionId"],
        "timestamp": place["createdAt"],
        "position": 0,
        **_relaying(number, place["processInstanceId"]),
        "expiresAt": FAR_AWAY,
        "payload": {
            "flowNodeDefinitionId": place["taskDefinitionId"],
            "startedAt": place["createdAt"],
            "finishedAt": place["createdAt"] + timedelta(seconds=2),
            "nodeExecutionStatus": "SUCCESS",
            "tenantId": place.get("tenantId"),
        },
    }


def _relaying(number: int, instance_id: str) -> Json:
    """Return where an event stands: a tenth each is dead, held, retried later and to be sent; the others were sent."""
    statuses = dict(
        enumerate((RelayStatus.DEAD, RelayStatus.PENDING, RelayStatus.HELD, RelayStatus.RETRYING))
    )
    status = statuses.get(number % 10, RelayStatus.RELAYED)
    stalled = status not in {RelayStatus.PENDING, RelayStatus.RELAYED}
    return {
        "relayStatus": status.value,
        "slice": slice_of(instance_id),
        "sequence": Timestamp(1_700_000_000 + number, 1),
        "attempts": 10 if stalled else None,
        "retryAt": FAR_AWAY if status is RelayStatus.RETRYING else None,
        "stalled": stalled or None,
    }


def _add_the_few(data: Database[Any]) -> None:
    parent = Parent(
        instance_id=RARE, coordinator_task_id="c", branch_id="b", starter_task_id="s", depth=1
    )
    for number in range(FEW):
        at = {"id": f"{RARE}-{number}", "definition_id": RARE_VERSION, "tenant_id": RARE}
        instance = an_instance(
            **at,
            definition_key=RARE,
            business_key=RARE,
            started_at=_FIRST,
            variables={RARE: True},
            parent=parent,
        )
        data.process_instances.insert_one(encode_instance(instance, None))
        ended = {"status": "CANCELLED", "endedAt": _FIRST}
        data.process_history.insert_one({**encode_instance(instance, None), **ended})
        place = {**at, "node_id": RARE, "instance_id": instance.id, "created_at": _LAST}
        task = a_task(**place, handler_name=RARE, attempts=1)
        data.executable_tasks.insert_one(encode_task(task, None))
        host = Attachment(f"{RARE}-{number}", RARE, HostKind.EXTERNAL_TASK)
        timer = a_task(
            **{**place, "id": f"{RARE}-timer-{number}"},
            type=TaskType.INTERRUPTIVE_TIMER,
            due_at=FAR_AWAY + timedelta(days=400),
            attached_to=host,
        )
        data.executable_tasks.insert_one(encode_task(timer, None))
        external = an_external_task(**place, assignee=RARE, correlation_key=RARE)
        data.external_tasks.insert_one(encode_external_task(external))
        incident = an_incident(task, **{**at, "created_at": _FIRST})
        data.incidents.insert_one(encode_incident(incident))


def _many(kind: Json, own: Callable[[int], Json], count: int) -> Iterator[Json]:
    for number in range(count):
        row = {**kind, "_id": f"{number:08d}", **own(number)}
        yield {name: value for name, value in row.items() if value is not None}


def _insert(collection: Collection[Any], documents: Iterable[Json]) -> None:
    quick = collection.with_options(
        codec_options=CODEC_OPTIONS.with_options(document_class=RawBSONDocument),
        write_concern=WriteConcern(w=1),
    )
    raw = (RawBSONDocument(encode(each, codec_options=CODEC_OPTIONS)) for each in documents)
    while batch := list(islice(raw, _BATCH)):
        quick.insert_many(batch, ordered=False)
