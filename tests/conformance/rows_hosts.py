"""Section 7.3.17: messages and deadlines at their hosts."""

from kikwiflow_worker.errors import NotFoundError
from tests.conformance import fixtures as f
from tests.conformance.looks import CANCELLED, ENDED, Deploy, Then
from tests.conformance.row import Difference, Row
from tests.conformance.steps import CancelChildren, Complete, Correlate, Execute, Start

A, B = "tenant-a", "tenant-b"
COLLECT = "COLLECT EXTERNAL_TASK CREATED"
CONFIRM = "CONFIRM EXTERNAL_TASK CREATED"
DEADLINE = "DEADLINE INTERRUPTIVE_TIMER PENDING due=1 day, 0:00:00"
WHEN = "recall-or-late"

CANCELLED_BY_A_TASK = Difference(
    "the same after one more executable task, CANCEL_CHILDREN, which any worker runs at once",
    "a call activity may have thousands of children; one transaction could not end them all",
)


def recall(key: str) -> str:
    """Return the row by which a boundary catch event waits."""
    return f"RECALL BOUNDARY_INTERRUPTIVE_CATCH_EVENT CREATED {key}"


RECALLED = recall("recall-parcel")
MESSAGES = (
    Row(
        id="7.3.17-1",
        case="the message at an external task comes",
        reference="COMPLETED on the message's path; the host and what follows it are not there",
        fixtures=(f.RECALL,),
        steps=(
            Start(tenant=A),
            Then(waits=(COLLECT, RECALLED)),
            Correlate("recall-parcel", tenant=A),
            Then(status=ENDED),
        ),
    ),
    Row(
        id="7.3.17-2",
        case="the message comes twice",
        reference="the second is not found",
        fixtures=(f.RECALL,),
        steps=(
            Start(tenant=A),
            Correlate("recall-parcel", tenant=A),
            Correlate("recall-parcel", tenant=A, refused=NotFoundError),
        ),
    ),
    Row(
        id="7.3.17-3",
        case="a message with another key comes",
        reference="not found",
        fixtures=(f.RECALL,),
        steps=(
            Start(tenant=A),
            Correlate("recall-other", tenant=A, refused=NotFoundError),
            Then(waits=(COLLECT, RECALLED)),
        ),
    ),
    Row(
        id="7.3.17-4",
        case="the host is completed",
        reference="ACTIVE at the next node; the message is not found any more",
        fixtures=(f.RECALL,),
        steps=(
            Start(tenant=A),
            Complete("COLLECT"),
            Then(waits=(CONFIRM,)),
            Correlate("recall-parcel", tenant=A, refused=NotFoundError),
        ),
    ),
    Row(
        id="7.3.17-5",
        case="a boundary catch event at an executable task",
        reference="the deploy is refused",
        fixtures=(f.CATCH_EVENT_ON_TASK,),
        steps=(Deploy("flowNodes.LABEL.boundaryEventIds[0]"),),
    ),
    Row(
        id="7.3.17-6",
        case="instances of two tenants wait for the same message",
        reference="each tenant's message ends its own instance only",
        fixtures=(f.RECALL,),
        steps=(
            Start(name="a", tenant=A),
            Start(name="b", tenant=B),
            Correlate("recall-parcel", tenant=A),
            Then(of="a", status=ENDED),
            Then(of="b", waits=(COLLECT, RECALLED)),
            Correlate("recall-parcel", tenant=B),
            Then(of="b", status=ENDED),
        ),
    ),
)

TWO_EVENTS = (
    Row(
        id="7.3.17-7",
        case="a host with a message and a deadline: the deadline passes",
        reference="COMPLETED; the message is not found any more",
        fixtures=(f.RECALL_OR_DEADLINE,),
        steps=(
            Start(tenant=A),
            Then(tasks=(DEADLINE,), waits=(COLLECT, recall(WHEN))),
            Execute("DEADLINE"),
            Then(status=ENDED),
            Correlate(WHEN, tenant=A, refused=NotFoundError),
        ),
    ),
    Row(
        id="7.3.17-8",
        case="the message comes",
        reference="COMPLETED; the deadline is gone",
        fixtures=(f.RECALL_OR_DEADLINE,),
        steps=(Start(tenant=A), Correlate(WHEN, tenant=A), Then(status=ENDED)),
    ),
    Row(
        id="7.3.17-9",
        case="the host is completed",
        reference="ACTIVE at the next node; deadline and message are gone",
        fixtures=(f.RECALL_OR_DEADLINE,),
        steps=(
            Start(tenant=A),
            Complete("COLLECT"),
            Then(waits=(CONFIRM,)),
            Correlate(WHEN, tenant=A, refused=NotFoundError),
        ),
    ),
    Row(
        id="7.3.17-10",
        case="a handler without a boundary follows the message",
        reference="ACTIVE, the handler has not run, a row waits for it; executing it: once, COMPLETED",
        fixtures=(f.REFUND,),
        steps=(
            Start(tenant=A),
            Correlate("recall-and-refund", tenant=A),
            Then(tasks=("REFUND_RECALLED STANDARD PENDING",)),
            Execute("REFUND_RECALLED"),
            Then(status=ENDED, ran=("refund",)),
        ),
    ),
    Row(
        id="7.3.17-11",
        case="a handler without a boundary follows the deadline",
        reference="ACTIVE, the handler has not run, a row waits for it; executing it: once, COMPLETED",
        fixtures=(f.REFUND,),
        steps=(
            Start(tenant=A),
            Execute("DEADLINE"),
            Then(tasks=("REFUND_LATE STANDARD PENDING",)),
            Execute("REFUND_LATE"),
            Then(status=ENDED, ran=("refund",)),
        ),
    ),
)

AWAITED = "JOIN JOIN_GATEWAY AWAITING_BRANCHES pending={}"
KEY = "recall-beside-call"
CALLING = (
    "CALL CALL_ACTIVITY_COORDINATOR AWAITING_BRANCHES pending=1",
    "CALL CALL_ACTIVITY_STARTER STARTED index=0",
)
PACK = "PACK STANDARD PENDING"

BESIDE = (
    Row(
        id="7.3.17-12",
        case="in two branches a call activity and a host: the deadline of the call passes first",
        reference="the child is gone, the other branch untouched; after its message the join goes on: COMPLETED, its handler called once",
        fixtures=(f.CALL_AND_RECALL, f.CHILD),
        steps=(
            Start(tenant=A),
            Execute("CALL", index=0),
            Then(of="main/0", tasks=(PACK,)),
            Execute("DEADLINE"),
            Then(
                tasks=(AWAITED.format(1),),
                waits=(COLLECT, recall(KEY)),
            ),
            CancelChildren(),
            Then(of="main/0", status=CANCELLED),
            Then(tasks=(AWAITED.format(1),), waits=(COLLECT, recall(KEY))),
            Correlate(KEY, tenant=A),
            Then(tasks=("JOIN JOIN_GATEWAY PENDING",)),
            Execute("JOIN"),
            Then(status=ENDED, ran=("load_parcel",)),
        ),
        differs=CANCELLED_BY_A_TASK,
    ),
    Row(
        id="7.3.17-13",
        case="the message of the other branch comes first",
        reference="the child goes on; after the deadline of the call it is gone; the join goes on: COMPLETED, its handler called once",
        fixtures=(f.CALL_AND_RECALL, f.CHILD),
        steps=(
            Start(tenant=A),
            Execute("CALL", index=0),
            Correlate(KEY, tenant=A),
            Then(tasks=(AWAITED.format(1), *CALLING, DEADLINE)),
            Then(of="main/0", tasks=(PACK,)),
            Execute("DEADLINE"),
            CancelChildren(),
            Then(of="main/0", status=CANCELLED),
            Then(tasks=("JOIN JOIN_GATEWAY PENDING",)),
            Execute("JOIN"),
            Then(status=ENDED, ran=("load_parcel",)),
        ),
        differs=CANCELLED_BY_A_TASK,
    ),
)

ROWS = (*MESSAGES, *TWO_EVENTS, *BESIDE)
