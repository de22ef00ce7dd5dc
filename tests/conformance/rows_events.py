"""Section 5.1 and what section 7 says about events: which of them a commit stores, in which order."""

from kikwiflow_worker.model.events import EventType
from tests.conformance import fixtures as f
from tests.conformance.looks import ENDED, Events, LastEvent, Then
from tests.conformance.row import Difference, Row
from tests.conformance.rows_flow import tiny
from tests.conformance.setup import Answers, Fails, Fixture, Throws
from tests.conformance.steps import (
    CancelChildren,
    Complete,
    Correlate,
    Execute,
    Heal,
    RetryIncident,
    SetVariables,
    Start,
    UnsetVariables,
)
from tests.support.definitions import a_start, an_end
from tests.support.findings import a_join, a_split

FINISHED = EventType.PROCESS_INSTANCE_FINISHED
FINISHED_LAST = Difference(
    "the same events, and PROCESS_INSTANCE_FINISHED comes last of the commit",
    "whether a path is the instance's last is decided by what is stored, after what the step itself has to tell (protocol R11)",
)
BEGUN = ("FLOW_NODE_FINISHED START SUCCESS", "PROCESS_INSTANCE_STARTED")
OVER = ("FLOW_NODE_FINISHED END SUCCESS", "PROCESS_INSTANCE_FINISHED COMPLETED")
FAILED = "FLOW_NODE_FINISHED WEIGH ERROR"


def _row(
    row_id: str,
    case: str,
    reference: str,
    fixtures: tuple[Fixture, ...],
    *steps: object,
    **more: object,
) -> Row:
    return Row(
        id=row_id,
        case=case,
        reference=reference,
        fixtures=fixtures,
        steps=steps,  # type: ignore[arg-type]
        mongodb_only=True,
        **more,  # type: ignore[arg-type]
    )


ORDERS = (
    _row(
        "5.1-1", "a process that runs from start to end in one go",
        "the nodes in their order, a gateway's answer after it, then FINISHED, then STARTED",
        (f.GATEWAY,),
        Start(),
        Events(
            lines=(
                "FLOW_NODE_FINISHED START SUCCESS",
                "FLOW_NODE_FINISHED WEIGH SUCCESS",
                "FLOW_NODE_FINISHED CHOOSE SUCCESS",
                "GATEWAY_ANSWER_RESOLVED CHOOSE AIR",
                "FLOW_NODE_FINISHED BOOK_AIR SUCCESS",
                *OVER,
                "PROCESS_INSTANCE_STARTED",
            )
        ),
        handlers={"carrier_choice": Answers("AIR")},
    ),
    _row(
        "5.1-2", "an external task is completed, and the path ends",
        "start event and STARTED; end event, FINISHED, EXTERNAL_TASK_COMPLETED",
        (f.EXTERNAL,),
        Start(), Complete("CONFIRM"),
        Events(
            lines=(
                *BEGUN,
                "FLOW_NODE_FINISHED END SUCCESS",
                "EXTERNAL_TASK_COMPLETED CONFIRM",
                "PROCESS_INSTANCE_FINISHED COMPLETED",
            )
        ),
        differs=FINISHED_LAST,
    ),
    _row(
        "5.1-3", "a deadline passes, and its path ends",
        "timer, end event, FINISHED, host INTERRUPTED by the timer",
        (f.WAIT_PAYMENT_DEADLINE,),
        Start({"order": 1}), Execute("DEADLINE"),
        Events(
            lines=(
                *BEGUN,
                "FLOW_NODE_FINISHED DEADLINE SUCCESS",
                "FLOW_NODE_FINISHED END_LATE SUCCESS",
                "FLOW_NODE_FINISHED WAIT_PAYMENT INTERRUPTED DEADLINE",
                "PROCESS_INSTANCE_FINISHED COMPLETED",
            )
        ),
        differs=FINISHED_LAST,
    ),
    _row(
        "5.1-4", "a message ends its host, and its path ends",
        "end event, FINISHED, EXTERNAL_TASK_COMPLETED, host INTERRUPTED by the message",
        (f.RECALL,),
        Start(), Correlate("recall-parcel"),
        Events(
            lines=(
                *BEGUN,
                "FLOW_NODE_FINISHED END_RECALLED SUCCESS",
                "EXTERNAL_TASK_COMPLETED RECALL",
                "FLOW_NODE_FINISHED COLLECT INTERRUPTED RECALL",
                "PROCESS_INSTANCE_FINISHED COMPLETED",
            )
        ),
        differs=FINISHED_LAST,
    ),
    _row(
        "5.1-5", "a split of two tasks, and the join",
        "start event, split, STARTED; each task; join, task, end event, FINISHED",
        (f.PARALLEL,),
        Start(), Execute("LABEL"), Execute("NOTIFY"), Execute("JOIN"),
        Events(
            lines=(
                "FLOW_NODE_FINISHED START SUCCESS",
                "FLOW_NODE_FINISHED SPLIT SUCCESS",
                "PROCESS_INSTANCE_STARTED",
                "FLOW_NODE_FINISHED LABEL SUCCESS",
                "FLOW_NODE_FINISHED NOTIFY SUCCESS",
                "FLOW_NODE_FINISHED JOIN SUCCESS",
                "FLOW_NODE_FINISHED LOAD SUCCESS",
                *OVER,
            )
        ),
    ),
    _row(
        "5.1-6", "a task fails for good and its incident is retried",
        "ERROR and RETRY_SCHEDULED; ERROR and INCIDENT_CREATED; INCIDENT_RESOLVED; SUCCESS",
        (f.RETRYABLE,),
        Start(), Execute("WEIGH", outcome="retry_scheduled"), Execute("WEIGH", outcome="incident_opened"),
        Heal(), RetryIncident(), Execute("WEIGH"),
        Events(
            lines=(
                *BEGUN,
                FAILED,
                "RETRY_SCHEDULED WEIGH",
                FAILED,
                "INCIDENT_CREATED WEIGH",
                "INCIDENT_RESOLVED WEIGH",
                "FLOW_NODE_FINISHED WEIGH SUCCESS",
                *OVER,
            )
        ),
        handlers={"weigh_parcel": Fails()},
    ),
    _row(
        "5.1-7", "an error handler takes a business error",
        "the task is INTERRUPTED; handler and end event follow",
        (f.ERROR_HANDLERS,),
        Start(), Execute("DECLARE"),
        Events(
            lines=(
                *BEGUN,
                "FLOW_NODE_FINISHED DECLARE INTERRUPTED",
                "FLOW_NODE_FINISHED FORBIDDEN SUCCESS",
                "FLOW_NODE_FINISHED END_FORBIDDEN SUCCESS",
                "PROCESS_INSTANCE_FINISHED COMPLETED",
            )
        ),
        handlers={"declare_goods": Throws("PROHIBITED")},
    ),
    _row(
        "5.1-8", "a reminder fires twice, and no more",
        "TIMER_FIRED for each cycle, without a next due date at the end",
        (f.REMINDERS_BOUNDED,),
        Start(), Execute("REMIND"), Execute("REMIND"),
        Events(
            lines=(
                *BEGUN,
                "FLOW_NODE_FINISHED REMIND SUCCESS",
                "TIMER_FIRED REMIND",
                "FLOW_NODE_FINISHED REMIND SUCCESS",
                "TIMER_FIRED REMIND",
            )
        ),
        LastEvent(type=EventType.TIMER_FIRED, fields={"nextDueDate": None}),
    ),
    _row(
        "5.1-9", "variables are set and removed from outside, and by a completion",
        "PROCESS_VARIABLE_CHANGED for each that is set or removed, none for the completion",
        (f.EXTERNAL,),
        Start(), SetVariables({"weight": 1}, gives={"weight": 1}), UnsetVariables("weight", gives={}),
        LastEvent(type=EventType.PROCESS_VARIABLE_CHANGED, fields={"name": "weight", "removed": True}),
        Complete("CONFIRM", {"received": True}),
        Events(
            lines=(
                *BEGUN,
                "PROCESS_VARIABLE_CHANGED weight",
                "PROCESS_VARIABLE_CHANGED weight",
                "FLOW_NODE_FINISHED END SUCCESS",
                "EXTERNAL_TASK_COMPLETED CONFIRM",
                "PROCESS_INSTANCE_FINISHED COMPLETED",
            )
        ),
        differs=FINISHED_LAST,
    ),
    _row(
        "5.1-10", "the keys of a group come",
        "EXTERNAL_TASK_COMPLETED for the group, none for its keys",
        (f.WAIT_ALL,),
        Start({"items": ["a", "b"]}), Correlate("item-a-ready"), Correlate("item-b-ready"),
        Events(
            lines=(
                *BEGUN,
                "FLOW_NODE_FINISHED END SUCCESS",
                "EXTERNAL_TASK_COMPLETED WAIT_ITEMS",
                "PROCESS_INSTANCE_FINISHED COMPLETED",
            )
        ),
        differs=FINISHED_LAST,
    ),
    _row(
        "5.1-11", "a split whose branches have all arrived at once",
        "split, join and what follows, in their order",
        (tiny(a_start("SPLIT"), a_split("JOIN", "JOIN"), a_join(), an_end()),),
        Start(),
        Events(
            lines=(
                "FLOW_NODE_FINISHED START SUCCESS",
                "FLOW_NODE_FINISHED SPLIT SUCCESS",
                "FLOW_NODE_FINISHED JOIN SUCCESS",
                *OVER,
                "PROCESS_INSTANCE_STARTED",
            )
        ),
    ),
)  # fmt: skip

TOLD = (
    _row(
        "7.3.8-1-event", "a handler fails and has an attempt left: the event",
        "FLOW_NODE_FINISHED with status ERROR, the definition's key and the error's message",
        (f.RETRYABLE,),
        Start(), Execute("WEIGH", outcome="retry_scheduled"),
        LastEvent(
            type=EventType.FLOW_NODE_FINISHED,
            fields={
                "flowNodeDefinitionId": "WEIGH",
                "nodeExecutionStatus": "ERROR",
                "processDefinitionKey": "own-retryable-task",
                "errorMessage": "no connection",
            },
        ),
        handlers={"weigh_parcel": Fails()},
    ),
    *(
        _row(
            f"7.3.18-{number}-event", f"{words}: the event of the child",
            "PROCESS_INSTANCE_FINISHED with CANCELLED, the child's id and its parent's",
            fixtures,
            Start(variables), *steps,
            LastEvent(type=FINISHED, of=child, fields={"status": "CANCELLED"}, ids={"id": child, "parentInstanceId": parent}),
        )
        for number, words, fixtures, variables, child, parent, steps in (
            (
                "8", "the deadline passes with one of two children started", (f.CALL_EACH_DEADLINE, f.CHILD),
                {"items": ["doc-1", "doc-2"]}, "main/0", "main",
                (Execute("CALL", index=0), Execute("DEADLINE"), CancelChildren()),
            ),
            (
                "10a", "the deadline passes with a child of a child", (f.CALL_NESTED_DEADLINE, f.MIDDLE, f.CHILD),
                {}, "main/0", "main",
                (
                    Execute("CALL", index=0), Execute("CALL_INNER", of="main/0", index=0), Execute("DEADLINE"),
                    CancelChildren(), CancelChildren(),
                ),
            ),
            (
                "10b", "the deadline passes with a child of a child, of the inner one", (f.CALL_NESTED_DEADLINE, f.MIDDLE, f.CHILD),
                {}, "main/0/0", "main/0",
                (
                    Execute("CALL", index=0), Execute("CALL_INNER", of="main/0", index=0), Execute("DEADLINE"),
                    CancelChildren(), CancelChildren(),
                ),
            ),
        )
    ),
    _row(
        "7.6-4", "an instance ends: the event and the history",
        "PROCESS_INSTANCE_FINISHED is found with the same id, business key, definition, status and variables",
        (f.EXECUTABLE,),
        Start({"customer": "C-1"}), Then(status=ENDED, ran=("weigh_parcel",), business_key="P-main"),
        LastEvent(
            type=FINISHED,
            fields={
                "businessKey": "P-main", "processDefinitionKey": "own-executable-task", "status": "COMPLETED",
                "variables": {"customer": "C-1"},
            },
            ids={"id": "main"},
        ),
    ),
)  # fmt: skip

ROWS = (*ORDERS, *TOLD)
