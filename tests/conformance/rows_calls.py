"""Section 7.3.18: call activities."""

from tests.conformance import fixtures as f
from tests.conformance.looks import CANCELLED, ENDED, Absent, Deploy, Then
from tests.conformance.row import Difference, Row
from tests.conformance.rows_hosts import CALLING, CANCELLED_BY_A_TASK, DEADLINE, PACK
from tests.conformance.steps import CancelChildren, Claim, Execute, Run, Start

COORDINATOR = "CALL CALL_ACTIVITY_COORDINATOR"
DUE = f"{COORDINATOR} PENDING"
THREE = {"items": ["doc-1", "doc-2", "doc-3"]}
ONE = {"items": ["doc-1"]}
PACKED = ("pack_item",)

RECORDS_STAY = Difference(
    "the same, and the starter's row stays as STARTED until its child has ended",
    "it records which child was started, so that a repeated starter starts no second one (protocol R12)",
)


def awaiting(pending: int, left: int = 0) -> str:
    """Return the row of a coordinator that waits."""
    return f"{COORDINATOR} AWAITING_BRANCHES pending={pending}" + (f" left={left}" if left else "")


def starter(index: int, status: str = "PENDING", *, element: bool = True) -> str:
    """Return the row of a starter."""
    return f"CALL CALL_ACTIVITY_STARTER {status} index={index}" + (
        f" element=doc-{index + 1}" if element else ""
    )


SINGLE = (
    Row(
        id="7.3.18-1",
        case="a call activity is reached",
        reference="one PENDING starter with index 0, and a coordinator that waits for it; the child's handler has not run",
        fixtures=(f.CALL_SINGLE, f.CHILD),
        steps=(Start(), Then(tasks=(awaiting(1), starter(0, element=False)))),
    ),
    Row(
        id="7.3.18-2",
        case="the starter is executed",
        reference="the child is there, of its definition, with its parent and tenant; no starter left; the coordinator waits",
        fixtures=(f.CALL_SINGLE, f.CHILD),
        steps=(
            Start(tenant="tenant-x"),
            Execute("CALL", index=0),
            Then(tasks=CALLING),
            Then(of="main/0", tasks=(PACK,)),
        ),
        differs=RECORDS_STAY,
    ),
    Row(
        id="7.3.18-3",
        case="the child ends",
        reference="the coordinator is PENDING with nothing pending; executing it: the next handler runs, COMPLETED",
        fixtures=(f.CALL_SINGLE, f.CHILD),
        steps=(
            Start(),
            Execute("CALL", index=0),
            Execute("PACK", of="main/0"),
            Then(of="main/0", status=ENDED, ran=PACKED),
            Then(tasks=(DUE,), ran=PACKED),
            Execute("CALL"),
            Then(status=ENDED, ran=(*PACKED, "close_shipment")),
        ),
    ),
)

MULTI = (
    Row(
        id="7.3.18-4",
        case="a call activity over a list of three",
        reference="three starters with branches of their own, in the order of the list; the coordinator waits for three",
        fixtures=(f.CALL_EACH, f.CHILD),
        steps=(Start(THREE), Then(tasks=(awaiting(3), starter(0), starter(1), starter(2)))),
    ),
    Row(
        id="7.3.18-5",
        case="two children end, one after the other",
        reference="the coordinator waits for one, then is PENDING; executing it: COMPLETED, the child's handler ran twice",
        fixtures=(f.CALL_EACH, f.CHILD),
        steps=(
            Start({"items": ["doc-1", "doc-2"]}),
            Execute("CALL", index=0),
            Execute("CALL", index=1),
            Execute("PACK", of="main/0"),
            Then(tasks=(awaiting(1), starter(1, "STARTED")), ran=PACKED),
            Execute("PACK", of="main/1"),
            Then(tasks=(DUE,), ran=PACKED * 2),
            Execute("CALL"),
            Then(status=ENDED, ran=(*PACKED * 2, "close_shipment")),
        ),
        differs=RECORDS_STAY,
    ),
    Row(
        id="7.3.18-6",
        case="a child of a list",
        reference="it has its element and the parent's variables",
        fixtures=(f.CALL_EACH, f.CHILD),
        steps=(
            Start({**ONE, "request": "REQ-99"}),
            Execute("CALL", index=0),
            Then(
                of="main/0",
                tasks=(PACK,),
                variables={**ONE, "item": "doc-1", "request": "REQ-99"},
                business_key="P-main#0",
            ),
        ),
    ),
    Row(
        id="7.3.18-7",
        case="the list is empty",
        reference="no starter; the coordinator is PENDING with nothing pending; executing it: COMPLETED",
        fixtures=(f.CALL_EACH, f.CHILD),
        steps=(
            Start({"items": []}),
            Then(tasks=(DUE,)),
            Execute("CALL"),
            Then(status=ENDED, ran=("close_shipment",)),
        ),
    ),
)

DEADLINES = (
    Row(
        id="7.3.18-8",
        case="the deadline passes with one of two children started",
        reference="COMPLETED without starters; the child is gone with its rows, as CANCELLED in the history",
        fixtures=(f.CALL_EACH_DEADLINE, f.CHILD),
        steps=(
            Start({"items": ["doc-1", "doc-2"]}),
            Then(tasks=(awaiting(2), starter(0), starter(1), DEADLINE)),
            Execute("CALL", index=0),
            Execute("DEADLINE"),
            Then(status=ENDED),
            Then(of="main/0", tasks=(PACK,)),
            CancelChildren(),
            Then(of="main/0", status=CANCELLED),
            Then(status=ENDED),
            Absent("main/1"),
        ),
        differs=CANCELLED_BY_A_TASK,
    ),
    Row(
        id="7.3.18-9",
        case="a task of the child was claimed before the deadline passed, and runs after it",
        reference="ProcessInstanceNotFoundException",
        fixtures=(f.CALL_EACH_DEADLINE, f.CHILD),
        steps=(
            Start(ONE),
            Execute("CALL", index=0),
            Claim("PACK", of="main/0"),
            Execute("DEADLINE"),
            CancelChildren(),
            Run("PACK", outcome="claim_lost"),
            Then(of="main/0", status=CANCELLED, ran=PACKED),
        ),
        differs=Difference(
            "the worker finds its claim lost and writes nothing",
            "a lost claim is an ordinary outcome, no error of anybody (design I1)",
        ),
        mongodb_only=True,
    ),
    Row(
        id="7.3.18-10",
        case="the deadline passes with a child that has called a child itself",
        reference="COMPLETED; both are gone with their rows, as CANCELLED in the history",
        fixtures=(f.CALL_NESTED_DEADLINE, f.MIDDLE, f.CHILD),
        steps=(
            Start(),
            Execute("CALL", index=0),
            Execute("CALL_INNER", of="main/0", index=0),
            Then(of="main/0/0", tasks=(PACK,)),
            Execute("DEADLINE"),
            Then(status=ENDED),
            CancelChildren(),
            Then(of="main/0", status=CANCELLED),
            Then(of="main/0/0", tasks=(PACK,)),
            CancelChildren(),
            Then(of="main/0/0", status=CANCELLED),
            Then(of="main/0", status=CANCELLED),
        ),
        differs=CANCELLED_BY_A_TASK,
    ),
    Row(
        id="7.3.18-11",
        case="the child's definition is not deployed, and one attempt is allowed",
        reference="one incident of the starter; the coordinator still waits",
        fixtures=(f.CALL_SINGLE,),
        max_retries=0,
        steps=(
            Start(),
            Execute("CALL", index=0, outcome="incident_opened"),
            Then(
                tasks=(awaiting(1), f"{starter(0, 'ERROR', element=False)} attempts=1"),
                incidents=("CALL FAILED_JOB OPEN",),
            ),
        ),
    ),
)

IN_TURN = (
    Row(
        id="7.3.18-12",
        case="a call activity over a list of three, in sequence",
        reference="one starter for the first element; the coordinator waits for one and has two left",
        fixtures=(f.CALL_IN_TURN, f.CHILD),
        steps=(Start(THREE), Then(tasks=(awaiting(1, left=2), starter(0)))),
    ),
    Row(
        id="7.3.18-13",
        case="the first child ends",
        reference="the coordinator is PENDING; executing it: one starter for the second element, one left",
        fixtures=(f.CALL_IN_TURN, f.CHILD),
        steps=(
            Start(THREE),
            Execute("CALL", index=0),
            Execute("PACK", of="main/0"),
            Then(tasks=(f"{DUE} left=2",), ran=PACKED),
            Execute("CALL"),
            Then(tasks=(awaiting(1, left=1), starter(1)), ran=PACKED),
        ),
    ),
    Row(
        id="7.3.18-14",
        case="all three children, to the end",
        reference="each child's business key is the parent's with `#` and its index; the next handler runs after the third: COMPLETED",
        fixtures=(f.CALL_IN_TURN, f.CHILD),
        steps=(
            Start(THREE),
            *(
                step
                for index in range(3)
                for step in (
                    Execute("CALL", index=index),
                    Then(
                        of=f"main/{index}",
                        tasks=(PACK,),
                        business_key=f"P-main#{index}",
                        ran=PACKED * index,
                    ),
                    Execute("PACK", of=f"main/{index}"),
                    Execute("CALL"),
                )
            ),
            Then(status=ENDED, ran=(*PACKED * 3, "close_shipment")),
        ),
    ),
    Row(
        id="7.3.18-15",
        case="the list is empty, in sequence",
        reference="no starter; the coordinator is PENDING; executing it: COMPLETED",
        fixtures=(f.CALL_IN_TURN, f.CHILD),
        steps=(
            Start({"items": []}),
            Then(tasks=(DUE,)),
            Execute("CALL"),
            Then(status=ENDED, ran=("close_shipment",)),
        ),
    ),
    Row(
        id="7.3.18-16",
        case="the iteration mode is left out",
        reference="all starters at once, nothing left",
        fixtures=(f.CALL_EACH, f.CHILD),
        steps=(Start(THREE), Then(tasks=(awaiting(3), starter(0), starter(1), starter(2)))),
    ),
    Row(
        id="7.3.18-17",
        case="the deadline of a sequence passes",
        reference="COMPLETED without starters; the started child is gone with its rows",
        fixtures=(f.CALL_IN_TURN_DEADLINE, f.CHILD),
        steps=(
            Start(THREE),
            Execute("CALL", index=0),
            Execute("DEADLINE"),
            Then(status=ENDED),
            CancelChildren(),
            Then(of="main/0", status=CANCELLED),
            Absent("main/1"),
        ),
        differs=CANCELLED_BY_A_TASK,
    ),
)

DEPLOYING = tuple(
    Row(
        id=f"7.3.18-{number}",
        case=case,
        reference="the deploy is refused",
        fixtures=(fixture,),
        steps=(Deploy(path),),
    )
    for number, case, fixture, path in (
        (18, "an element variable without a list", f.CALL_ELEMENT_ONLY, "flowNodes.CALL.elementVariable"),
        (19, "a call activity that names no process", f.CALL_NOTHING, "flowNodes.CALL.calledElement"),
        (20, "a boundary catch event at a call activity", f.CALL_WITH_CATCH_EVENT, "flowNodes.CALL.boundaryEventIds[0]"),
    )
)  # fmt: skip

ROWS = (*SINGLE, *MULTI, *DEADLINES, *IN_TURN, *DEPLOYING)
