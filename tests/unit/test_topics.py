"""External tasks that name a topic: what they are read as, and what is wrong with one."""

import json

import pytest

from kikwiflow_worker.engine.validation import validate
from kikwiflow_worker.model.definition import parse_definition
from kikwiflow_worker.model.nodes import TOPIC, ExecutableTaskNode, ExternalTaskNode
from kikwiflow_worker.model.runtime import TaskStatus, TaskType
from kikwiflow_worker.model.unit_of_work import Detach, RemoveTask
from tests.support.definitions import Json, a_file, a_node, a_start, an_end
from tests.support.engine import TASK_ID, a_claimed_task, a_definition, a_step, started, worked

NAME = "render_invoice"
EVERY_EVENT = {
    "LATE": {
        "type": "BOUNDARY_INTERRUPTIVE_TIMER",
        "providerType": "STATIC",
        "staticValue": "PT1H",
    },
    "RECALL": {
        "type": "BOUNDARY_INTERRUPTIVE_CATCH_EVENT",
        "providerType": "STATIC",
        "staticKey": "recall",
    },
    "FAILS": {"type": "BOUNDARY_ERROR_HANDLER"},
    "NUDGE": {
        "type": "BOUNDARY_NON_INTERRUPTIVE_TIMER",
        "schedulePolicy": {"type": "RATE_DURATION", "expression": "PT1H", "maxOccurrences": 1},
    },
}


def external(topic: object = NAME, target: str = "END", **fields: object) -> Json:
    properties = {} if topic is None else {TOPIC: topic}
    return a_node("TASK", "EXTERNAL_TASK", target, extensionProperties=properties, **fields)


def events() -> list[Json]:
    return [
        {"id": node_id, "attachedToRef": "TASK", "outgoing": [{"targetNodeId": "END"}], **fields}
        for node_id, fields in EVERY_EVENT.items()
    ]


def findings(*nodes: Json) -> list[str]:
    parsed = parse_definition(json.dumps(a_file(a_start(), *nodes, an_end())))
    return [str(problem) for problem in (*validate(parsed.file), *parsed.warnings)]


def test_it_is_read_as_an_executable_task_and_kept_as_it_was_written() -> None:
    policy = {"strategy": "LINEAR", "maxRetries": 5, "intervals": ["PT1S"]}
    file = a_file(a_start(), external(retryPolicy=policy), an_end())

    parsed = parse_definition(json.dumps(file))

    node = parsed.file.flow_nodes["TASK"]
    assert isinstance(node, ExecutableTaskNode)
    assert (node.handler_name, node.is_external) == (NAME, True)
    assert node.retry_policy is not None
    assert node.retry_policy.max_retries == 5
    assert parsed.warnings == ()
    assert json.loads(parsed.file.source)["flowNodes"]["TASK"]["type"] == "EXTERNAL_TASK"


def test_without_a_topic_it_is_for_people() -> None:
    file = a_file(a_start(), external(None), an_end())

    node = parse_definition(json.dumps(file)).file.flow_nodes["TASK"]

    assert isinstance(node, ExternalTaskNode)


def test_every_boundary_event_may_wait_beside_it() -> None:
    assert findings(external(boundaryEventIds=list(EVERY_EVENT)), *events()) == []


@pytest.mark.parametrize("event", ["LATE", "RECALL"])
def test_what_ends_a_host_may_not_wait_beside_a_handler_of_ours(event: str) -> None:
    task = a_node("TASK", "EXECUTABLE_TASK", "END", executor=NAME, boundaryEventIds=[event])
    own = [node for node in events() if node["id"] == event]

    assert any("cannot be attached to EXECUTABLE_TASK" in each for each in findings(task, *own))


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (external(" "), "' ' names no topic"),
        (external(5), "'5' names no topic"),
        (external("a:b"), "'a:b' contains a colon"),
        (
            a_node(
                "TASK", "EXECUTABLE_TASK", "END", executor="x", extensionProperties={TOPIC: NAME}
            ),
            "executor 'x' names the handler, so the topic has no effect",
        ),
        (
            a_node("TASK", "TIMER_TASK", "END", providerType="STATIC", staticValue="PT1H",
                   extensionProperties={TOPIC: NAME}),
            f"'{TOPIC}' has no effect on TIMER_TASK",
        ),
    ],
)  # fmt: skip
def test_a_topic_that_is_none_is_found(node: Json, message: str) -> None:
    assert [message in each for each in findings(node)] == [True]


def test_it_waits_with_its_events_for_whoever_has_the_topic() -> None:
    definition = a_definition(external(boundaryEventIds=["LATE"]), events()[0])

    run = started(definition)

    assert run.called == []
    task = next(row for row in run.rows.values() if row.node_id == "TASK")
    assert (task.type, task.status, task.handler_name) == (
        TaskType.STANDARD,
        TaskStatus.PENDING,
        NAME,
    )
    late = next(row for row in run.rows.values() if row.node_id == "LATE")
    assert late.attached_to is not None
    assert late.attached_to.host_id == task.id


def test_no_handler_behind_it_runs_before_the_race_with_its_deadline_is_decided() -> None:
    definition = a_definition(
        external(target="A", boundaryEventIds=["LATE"]), events()[0], a_step("A")
    )
    task = a_claimed_task(definition, "TASK")

    run = worked(definition, task, NAME, "a")

    assert run.called == [NAME]
    assert run.unit.guards == (RemoveTask(task.claim),)
    assert run.unit.changes[0] == Detach(TASK_ID)
    assert (run.row.node_id, run.row.status) == ("A", TaskStatus.PENDING)
