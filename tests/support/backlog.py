"""A database full of work: rows of every kind in every state, many of each, and a few that somebody looks for."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import cycle, islice
from typing import Any

from bson import encode
from bson.raw_bson import RawBSONDocument
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.write_concern import WriteConcern

from kikwiflow_worker.model.messages import Message, MessageStatus, keeper_of
from kikwiflow_worker.model.runtime import (
    Branch,
    ExternalTaskStatus,
    ExternalTaskType,
    IncidentStatus,
    InstanceStatus,
    Parent,
    TaskStatus,
    TaskType,
    TopicNode,
)
from kikwiflow_worker.store.mongo.codec import (
    encode_external_task,
    encode_incident,
    encode_instance,
    encode_message,
    encode_task,
)
from kikwiflow_worker.store.mongo.driver import CODEC_OPTIONS
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
"""Rows of each kind that somebody looks for; they lie behind all the others."""

_BATCH = 20_000
_JUST_NOW = datetime.now(UTC) - timedelta(hours=1)


def _tasks() -> list[Json]:
    """Return one task of each kind that a backlog is made of."""
    due = {"priority": 5, "handler_name": "pack"}
    of_tenants = [a_task(**due, tenant_id=f"tenant-{n}") for n in range(5)]
    kinds = [
        a_task(**due),
        a_task(**{**due, "priority": 9}),
        *of_tenants,
        a_task(handler_name="missing"),
        a_task(handler_name="missing", tenant_id="tenant-1"),
        a_task(handler_name="also_missing", attempts=2),
        a_task(type=TaskType.TIMER_TASK, due_at=FAR_AWAY, claimable_at=FAR_AWAY),
        a_task(handler_name="pack", due_at=FAR_AWAY, claimable_at=FAR_AWAY, tenant_id="tenant-2"),
        a_task(status=TaskStatus.ERROR, claimable_at=None, handler_name="pack"),
        a_task(status=TaskStatus.AWAITING_BRANCHES, claimable_at=None, pending_branch_ids=("b",)),
        a_task(status=TaskStatus.STARTED, claimable_at=None, branch=Branch("b", "a-coordinator")),
        a_task(status=TaskStatus.ARRIVED, claimable_at=FAR_AWAY, branch=Branch("b", "a-join")),
        a_task(claimable_at=None, handler_name="pack"),
        a_task(
            status=TaskStatus.LOCKED,
            worker_id="somebody",
            lock_expires_at=FAR_AWAY,
            claimable_at=FAR_AWAY,
            handler_name="pack",
        ),
    ]
    rows = [encode_task(task) for task in kinds]
    rows[-2]["isParked"] = True
    return rows


def _instances() -> list[Json]:
    parent = Parent(
        instance_id="a-parent",
        coordinator_task_id="a-coordinator",
        branch_id="b",
        starter_task_id="s",
        depth=1,
        outputs=(),
    )
    kinds = [
        an_instance(variables={"n": n}, business_value=Decimal(n), tenant_id=tenant)
        for n, tenant in enumerate((None, None, "tenant-1", "tenant-2"))
    ]
    return [encode_instance(each) for each in (*kinds, replace(kinds[0], parent=parent))]


def _messages() -> list[Json]:
    found = []
    for status in (MessageStatus.KEPT, MessageStatus.DELIVERED):
        message = Message(
            id="m",
            key="a-key",
            tenant_id=None,
            variables={},
            status=status,
            created_at=LONG_AGO,
            kept_until=FAR_AWAY,
            expires_at=FAR_AWAY,
        )
        found.append(encode_message(message))
    return found


def fill(data: Database[Any], count: int) -> None:
    """Store ``count`` tasks, and a fifth as many of everything else, unordered and as raw documents."""
    incident = an_incident(a_task(), status=IncidentStatus.RESOLVED)
    ended = [
        {**row, "status": InstanceStatus.COMPLETED.value, "expiresAt": FAR_AWAY}
        for row in _instances()
    ]
    waits = [
        an_external_task(tenant_id=tenant, assignee=assignee)
        for tenant in (None, "tenant-1")
        for assignee in (None, "ann")
    ]
    keyed = an_external_task(type=ExternalTaskType.CATCHER, correlation_key="a-key")
    matched = replace(keyed, status=ExternalTaskStatus.CORRELATED, group_id="a-group")
    externals = [encode_external_task(each) for each in (*waits, keyed, matched)]
    completion = {
        "processInstanceId": "x",
        "taskDefinitionId": "APPROVE",
        "completedAt": LONG_AGO,
        "expiresAt": FAR_AWAY,
    }
    _insert(data.executable_tasks, _tasks(), count)
    _insert(data.process_instances, _instances(), count // 5)
    _insert(data.process_history, ended, count // 5)
    _insert(data.external_tasks, externals, count // 5)
    _insert(data.incidents, [encode_incident(incident)], count // 5)
    _insert(data.messages, _messages(), count // 5)
    _insert(data.completed_external_tasks, [completion], count // 5)
    _insert(data.start_keys, [{"expiresAt": FAR_AWAY}], count // 5)
    _insert(data.outbox_events, [{"processInstanceId": "x", "relayStatus": "PENDING"}], count // 5)


def add_the_few(data: Database[Any]) -> None:
    """Store what somebody looks for, newer and further back in every order than all else."""
    fresh = {"created_at": _JUST_NOW, "claimable_at": _JUST_NOW}
    tasks, instances, externals = [], [], []
    for n in range(FEW):
        at = {**fresh, "id": f"few-{n}"}
        tasks += [
            a_task(**{**at, "id": f"rare-{n}", "node_id": "RARE", "handler_name": "rare"}),
            # Of the handler that most of the backlog is of.
            a_task(
                **{**at, "id": f"at-a-node-{n}", "handler_name": "pack"},
                topic_node=TopicNode("parcel", "PACK"),
            ),
            a_task(**{**at, "id": f"mine-{n}", "instance_id": "an-instance"}),
            a_task(
                **{**at, "id": f"retrying-{n}", "attempts": 1, "claimable_at": FAR_AWAY},
                handler_name="retried",
            ),
            a_task(
                **{**at, "id": f"locked-{n}", "claimable_at": FAR_AWAY},
                status=TaskStatus.LOCKED,
                worker_id="worker-1",
                lock_expires_at=FAR_AWAY,
                epoch=1,
            ),
        ]
        instances.append(
            an_instance(
                id=f"few-{n}",
                started_at=LONG_AGO - timedelta(days=1),
                status=InstanceStatus.SUSPENDED,
                definition_key="rare",
                business_key="rare",
                tenant_id="rare",
            )
        )
        externals.append(
            an_external_task(
                id=f"few-{n}",
                created_at=_JUST_NOW,
                node_id="RARE",
                tenant_id="rare",
                assignee="rare",
                correlation_key="rare",
                instance_id="an-instance",
            )
        )
    data.executable_tasks.insert_many([encode_task(task) for task in tasks])
    data.process_instances.insert_many([encode_instance(each) for each in instances])
    data.process_history.insert_many(
        [{**encode_instance(each), "status": "CANCELLED"} for each in instances]
    )
    data.external_tasks.insert_many([encode_external_task(each) for each in externals])
    task = a_task(id="mine-0", instance_id="an-instance")
    data.incidents.insert_many(
        [encode_incident(an_incident(task, id=f"few-{n}")) for n in range(FEW)]
    )
    message = Message(
        id="few",
        key="rare",
        tenant_id=None,
        variables={},
        status=MessageStatus.KEPT,
        created_at=_JUST_NOW,
        kept_until=FAR_AWAY,
        expires_at=FAR_AWAY,
    )
    data.messages.insert_one(encode_message(message))
    keeper = keeper_of(message, task_id="keeper")
    data.executable_tasks.insert_one(encode_task(replace(keeper, claimable_at=FAR_AWAY)))


def _insert(collection: Collection[Any], kinds: Sequence[Json], count: int) -> None:
    """Insert ``count`` documents of all ``kinds``, each with an id and instants of its own."""
    quick = collection.with_options(
        codec_options=CODEC_OPTIONS.with_options(document_class=RawBSONDocument),
        write_concern=WriteConcern(w=1),
    )
    documents = _documents(kinds, count)
    while batch := list(islice(documents, _BATCH)):
        quick.insert_many(batch, ordered=False)


def _documents(kinds: Sequence[Json], count: int) -> Iterator[RawBSONDocument]:
    for number, kind in zip(range(count), cycle(kinds), strict=False):
        at = LONG_AGO + timedelta(milliseconds=number)
        own: Json = {"_id": f"{number:07d}"}
        for name in ("createdAt", "startedAt"):
            if name in kind:
                own[name] = at
        if kind.get("claimableAt") == LONG_AGO:
            own["claimableAt"] = at
        if "processInstanceId" in kind:
            own["processInstanceId"] = f"instance-{number % 100_000}"
        yield RawBSONDocument(encode({**kind, **own}, codec_options=CODEC_OPTIONS))
