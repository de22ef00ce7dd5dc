"""Maps our values to documents and back: the only place that knows stored field names of records.

Fields without a value are left out, so that partial indexes and ``$exists`` mean what they say. Variable names, and the
keys of dicts inside values, are escaped so that no name can become an operator or a path (``value_codec``).
"""

from collections.abc import Mapping
from dataclasses import replace

from kikwiflow_worker.errors import EncryptionError
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
from kikwiflow_worker.model.texts import tenant_scoped
from kikwiflow_worker.model.variables import UnreadableVariables
from kikwiflow_worker.store.mongo.driver import Document
from kikwiflow_worker.store.mongo.sealing import (
    Sealing,
    find_text,
    open_sealed,
    open_text,
    seal_text,
)
from kikwiflow_worker.store.mongo.value_codec import (
    decode_value,
    decode_variables,
    encode_value,
    encode_variables,
    escape_key,
    unescape_key,
)


def encode_instance(instance: ProcessInstance, sealing: Sealing | None = None) -> Document:
    """Return the document of a running or ended instance."""
    return _present(
        {
            "_id": instance.id,
            "businessKey": instance.business_key,
            "businessValue": encode_value(instance.business_value),
            "status": instance.status.value,
            "processDefinitionId": instance.definition_id,
            "processDefinitionKey": instance.definition_key,
            "processDefinitionVersion": instance.definition_version,
            "tenantId": instance.tenant_id,
            "startedAt": instance.started_at,
            "endedAt": instance.ended_at,
            "origin": instance.origin,
            "startedBy": instance.started_by,
            "priority": instance.priority,
            "openPaths": instance.open_paths,
            "variables": encode_variables(instance.variables, instance.id, sealing),
            **_encode_parent(instance.parent),
            "inheritedRules": _escaped(instance.inherited_rules) or None,
        }
    )


def decode_instance(document: Document, sealing: Sealing | None = None) -> ProcessInstance:
    """Return the instance of a document."""
    business_value = document.get("businessValue")
    return ProcessInstance(
        id=document["_id"],
        business_key=document["businessKey"],
        business_value=business_value.to_decimal() if business_value is not None else None,
        status=InstanceStatus(document["status"]),
        definition_id=document["processDefinitionId"],
        definition_key=document["processDefinitionKey"],
        definition_version=document["processDefinitionVersion"],
        tenant_id=document.get("tenantId"),
        started_at=document["startedAt"],
        ended_at=document.get("endedAt"),
        origin=document.get("origin"),
        started_by=document.get("startedBy"),
        priority=document.get("priority", 5),
        open_paths=document["openPaths"],
        variables=decode_variables(document.get("variables", {}), document["_id"], sealing),
        parent=_decode_parent(document),
        inherited_rules=decode_rules(document),
    )


def decode_rules(document: Document) -> dict[str, str]:
    """Return what an instance has inherited of who may read its variables."""
    stored = document.get("inheritedRules", {})
    return {unescape_key(name): rule for name, rule in stored.items()}


def _escaped(rules: Mapping[str, str]) -> Document:
    return {escape_key(name): rule for name, rule in rules.items()}


def encode_task(task: ExecutableTask, sealing: Sealing | None = None) -> Document:
    """Return the document of an executable task."""
    return _present(
        {
            "_id": task.id,
            "type": task.type.value,
            "status": task.status.value,
            "taskDefinitionId": task.node_id,
            "processInstanceId": task.instance_id,
            "processDefinitionId": task.definition_id,
            "createdAt": task.created_at,
            "dueDate": task.due_at,
            "claimableAt": task.claimable_at,
            "workerId": task.worker_id,
            "lockExpiresAt": task.lock_expires_at,
            "epoch": task.epoch,
            "attempts": task.attempts,
            "retries": task.retries_left,
            "crashCount": task.crash_count,
            "error": seal_text(sealing, task.id, "error", task.error),
            "handlerName": task.handler_name,
            "priority": task.priority,
            "tenantId": task.tenant_id,
            "branchId": task.branch.id if task.branch else None,
            "joinTaskId": task.branch.join_task_id if task.branch else None,
            "pendingBranchIds": list(task.pending_branch_ids) or None,
            "occurrence": task.occurrence,
            "isSkipped": task.is_skipped or None,
            "topicNode": encode_topic_node(task.topic_node) if task.topic_node else None,
            "traceparent": task.traceparent,
            **_encode_attachment(task.attached_to),
            **(encode_loop(task.loop, task.id, sealing) if task.loop else {}),
        }
    )


def decode_task(document: Document, sealing: Sealing | None = None) -> ExecutableTask:
    """Return the executable task of a document; for an error that cannot be read there is the reason.

    Raises:
        EncryptionError: Its place in a collection is sealed and cannot be opened; ``decode_row`` leaves that out.
    """
    return ExecutableTask(
        id=document["_id"],
        type=TaskType(document["type"]),
        status=TaskStatus(document["status"]),
        node_id=document["taskDefinitionId"],
        instance_id=document["processInstanceId"],
        definition_id=document["processDefinitionId"],
        created_at=document["createdAt"],
        due_at=document.get("dueDate"),
        claimable_at=document.get("claimableAt"),
        worker_id=document.get("workerId"),
        lock_expires_at=document.get("lockExpiresAt"),
        epoch=document.get("epoch", 0),
        attempts=document.get("attempts", 0),
        retries_left=document.get("retries", 0),
        crash_count=document.get("crashCount", 0),
        error=find_text(sealing, document["_id"], "error", document),
        handler_name=document.get("handlerName"),
        priority=document.get("priority", 5),
        tenant_id=document.get("tenantId"),
        branch=_branch(document),
        pending_branch_ids=tuple(document.get("pendingBranchIds", ())),
        attached_to=_decode_attachment(document),
        occurrence=document.get("occurrence"),
        loop=_decode_loop(document, sealing),
        is_skipped=document.get("isSkipped", False),
        topic_node=decode_topic_node(document["topicNode"]) if "topicNode" in document else None,
        traceparent=document.get("traceparent"),
    )


def encode_topic_node(node: TopicNode) -> Document:
    """Return what is stored of a node that has a topic: one value, so that one range of an index has its tasks."""
    return {"processDefinitionKey": node.definition_key, "nodeId": node.node_id}


def decode_topic_node(document: Document) -> TopicNode:
    """Return the node of what is stored of it."""
    return TopicNode(document["processDefinitionKey"], document["nodeId"])


def decode_row(document: Document, sealing: Sealing | None = None) -> ExecutableTask:
    """Return the executable task of a document, to look at; without its place in a collection if that cannot be read."""
    try:
        return decode_task(document, sealing)
    except EncryptionError:
        known = {name: value for name, value in document.items() if name != "loopIndex"}
        return decode_task(known, sealing)


def decode_claimed(
    row: Document, instances: Mapping[str, ProcessInstance], sealing: Sealing | None
) -> tuple[ExecutableTask, ProcessInstance | None]:
    """Return a claimed task with its instance, found by its id.

    If the task's place in a collection cannot be decrypted, the variables cannot be read either: its step then fails
    with the reason, and goes no further with less than there is.
    """
    instance = instances.get(row["processInstanceId"])
    try:
        return decode_task(row, sealing), instance
    except EncryptionError as error:
        variables = UnreadableVariables((), {}, error)
        unread = replace(instance, variables=variables) if instance else None
        return decode_row(row, sealing), unread


def encode_external_task(task: ExternalTask) -> Document:
    """Return the document of an external task."""
    return _present(
        {
            "_id": task.id,
            "status": task.status.value,
            "type": None if task.type is ExternalTaskType.TASK else task.type.value,
            "name": task.name,
            "description": task.description,
            "taskDefinitionId": task.node_id,
            "processInstanceId": task.instance_id,
            "processDefinitionId": task.definition_id,
            "createdAt": task.created_at,
            "assignee": task.assignee,
            "tenantId": task.tenant_id,
            "branchId": task.branch.id if task.branch else None,
            "joinTaskId": task.branch.join_task_id if task.branch else None,
            "correlationKey": task.correlation_key,
            "displayName": task.display_name,
            "matchPolicy": task.match_policy.value if task.match_policy else None,
            "pendingCorrelationKeys": list(task.pending_keys) or None,
            "totalCorrelationKeys": task.total_keys,
            "coordinatorTaskId": task.group_id,
            "traceparent": task.traceparent,
            **_encode_attachment(task.attached_to),
        }
    )


def decode_external_task(document: Document) -> ExternalTask:
    """Return the external task of a document."""
    return ExternalTask(
        id=document["_id"],
        name=document.get("name"),
        description=document.get("description"),
        node_id=document["taskDefinitionId"],
        instance_id=document["processInstanceId"],
        definition_id=document["processDefinitionId"],
        created_at=document["createdAt"],
        assignee=document.get("assignee"),
        tenant_id=document.get("tenantId"),
        branch=_branch(document),
        type=ExternalTaskType(document.get("type") or ExternalTaskType.TASK),
        status=ExternalTaskStatus(document["status"]),
        correlation_key=document.get("correlationKey"),
        display_name=document.get("displayName"),
        match_policy=MatchPolicy(document["matchPolicy"]) if document.get("matchPolicy") else None,
        pending_keys=tuple(document.get("pendingCorrelationKeys", ())),
        total_keys=document.get("totalCorrelationKeys"),
        group_id=document.get("coordinatorTaskId"),
        attached_to=_decode_attachment(document),
        traceparent=document.get("traceparent"),
    )


def encode_incident(incident: Incident, sealing: Sealing | None = None) -> Document:
    """Return the document of an incident."""
    return _present(
        {
            "_id": incident.id,
            "type": incident.type.value,
            "status": incident.status.value,
            "message": seal_text(sealing, incident.id, "message", incident.message),
            "stackTrace": seal_text(sealing, incident.id, "stackTrace", incident.stack_trace),
            "processInstanceId": incident.instance_id,
            "processDefinitionId": incident.definition_id,
            "executionId": incident.task_id,
            "taskDefinitionId": incident.node_id,
            "createdAt": incident.created_at,
            "tenantId": incident.tenant_id,
            "resolvedAt": incident.resolved_at,
            "resolvedBy": incident.resolved_by,
        }
    )


def decode_incident(document: Document, sealing: Sealing | None = None) -> Incident:
    """Return the incident of a document; for a text that cannot be read there is the reason."""
    own_id = document["_id"]
    return Incident(
        id=own_id,
        type=IncidentType(document["type"]),
        status=IncidentStatus(document["status"]),
        message=open_text(sealing, own_id, "message", document["message"]),
        stack_trace=open_text(sealing, own_id, "stackTrace", document.get("stackTrace", "")),
        instance_id=document["processInstanceId"],
        definition_id=document["processDefinitionId"],
        task_id=document["executionId"],
        node_id=document["taskDefinitionId"],
        created_at=document["createdAt"],
        tenant_id=document.get("tenantId"),
        resolved_at=document.get("resolvedAt"),
        resolved_by=document.get("resolvedBy"),
    )


def _branch(document: Document) -> Branch | None:
    branch_id = document.get("branchId")
    return Branch(branch_id, document.get("joinTaskId")) if branch_id else None


def encode_message(message: Message, sealing: Sealing | None = None) -> Document:
    """Return the document of a message."""
    own_id = tenant_scoped(message.id, message.tenant_id)
    return _present(
        {
            "_id": own_id,
            "messageId": message.id,
            "correlationKey": message.key,
            "tenantId": message.tenant_id,
            "variables": encode_variables(message.variables, own_id, sealing),
            "status": message.status.value,
            "createdAt": message.created_at,
            "keptUntil": message.kept_until,
            "expiresAt": message.expires_at,
        }
    )


def decode_message(document: Document, sealing: Sealing | None = None) -> Message:
    """Return the message of a document."""
    return Message(
        id=document["messageId"],
        key=document["correlationKey"],
        tenant_id=document.get("tenantId"),
        variables=decode_variables(document["variables"], document["_id"], sealing),
        status=MessageStatus(document["status"]),
        created_at=document["createdAt"],
        kept_until=document["keptUntil"],
        expires_at=document["expiresAt"],
    )


LOOP_FIELDS = ("loopElement", "pendingLoopElements")


def encode_loop(loop: Loop, owner: str, sealing: Sealing | None) -> Document:
    """Return the fields of a call activity's place in its collection; each list of elements is sealed as one."""
    values = (loop.element, loop.pending)
    lists = {
        field: [encode_value(element) for element in elements]
        for field, elements in zip(LOOP_FIELDS, values, strict=True)
    }
    if sealing:
        lists = {field: sealing.seal(owner, field, stored) for field, stored in lists.items()}
    return {"loopIndex": loop.index, **lists}


def _decode_loop(document: Document, sealing: Sealing | None) -> Loop | None:
    if "loopIndex" not in document:
        return None
    element, pending = (
        tuple(
            decode_value(item)
            for item in open_sealed(sealing, document["_id"], field, document[field])
        )
        for field in LOOP_FIELDS
    )
    return Loop(document["loopIndex"], element=element, pending=pending)


def _encode_attachment(attached: Attachment | None) -> Document:
    if attached is None:
        return {}
    return {
        "attachedToRefId": attached.host_id,
        "attachedToRefDefinitionId": attached.host_node_id,
        "attachedToRefType": attached.host_kind.value,
    }


def _decode_attachment(document: Document) -> Attachment | None:
    host_id = document.get("attachedToRefId")
    if host_id is None:
        return None
    # The Java engine leaves the kind out for a host among the executable tasks.
    kind = HostKind(document.get("attachedToRefType", HostKind.EXECUTABLE_TASK))
    return Attachment(host_id, document.get("attachedToRefDefinitionId", ""), kind)


def _encode_parent(parent: Parent | None) -> Document:
    if parent is None:
        return {}
    return {
        "parentInstanceId": parent.instance_id,
        "callerTaskId": parent.coordinator_task_id,
        "callerBranchId": parent.branch_id,
        "starterTaskId": parent.starter_task_id,
        "callDepth": parent.depth,
        **({"outputs": [list(pair) for pair in parent.outputs]} if parent.outputs else {}),
    }


def _decode_parent(document: Document) -> Parent | None:
    instance_id = document.get("parentInstanceId")
    if instance_id is None:
        return None
    return Parent(
        instance_id=instance_id,
        coordinator_task_id=document["callerTaskId"],
        branch_id=document["callerBranchId"],
        starter_task_id=document["starterTaskId"],
        depth=document["callDepth"],
        outputs=tuple((own, theirs) for own, theirs in document.get("outputs", ())),
    )


def _present(document: Document) -> Document:
    return {field: value for field, value in document.items() if value is not None}
