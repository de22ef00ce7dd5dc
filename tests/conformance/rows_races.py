"""Section 9.3, decisions: what runs twice, too late or half, with its siblings."""

from kikwiflow_worker.engine.draft import StepFailedError
from kikwiflow_worker.errors import ConflictError, NotFoundError
from tests.conformance import fixtures as f
from tests.conformance.looks import CANCELLED, ENDED, Absent, Then
from tests.conformance.row import Difference, Row
from tests.conformance.rows_calls import awaiting, starter
from tests.conformance.rows_catchers import (
    CARD,
    DEADLINE,
    LOAN,
    ONE_ITEM,
    TWO_ITEMS,
    group_row,
    key_row,
)
from tests.conformance.rows_flow import (
    JOIN,
    OTHER,
    RAN,
    TASK,
    WAIT,
    branch,
    catcher,
    tiny,
    wait,
)
from tests.conformance.rows_hosts import COLLECT, CONFIRM, PACK, recall
from tests.conformance.rows_timers import remind
from tests.conformance.setup import Fails, Fixture
from tests.conformance.steps import (
    Cancel,
    CancelChildren,
    Claim,
    Complete,
    Correlate,
    Delete,
    Execute,
    Heal,
    RetryIncident,
    Run,
    Start,
)
from tests.support.definitions import a_node, a_start, a_task, an_end
from tests.support.findings import a_host, an_event


def _row(
    name: str,
    case: str,
    want: str,
    fixtures: Fixture | tuple[Fixture, ...],
    *steps: object,
    **more: object,
) -> Row:
    return Row(
        id=f"9.3-{name}",
        case=case,
        reference=want,
        fixtures=fixtures if isinstance(fixtures, tuple) else (fixtures,),
        steps=steps,  # type: ignore[arg-type]
        **more,  # type: ignore[arg-type]
    )


FAILING = {"weigh_parcel": Fails()}
REMINDED = "EVENT NON_INTERRUPTIVE_TIMER PENDING due={}:00:00 occurrence={}"
HOST_IN_BRANCH = branch(
    wait(target="JOIN", boundaryEventIds=["EVENT"]),
    an_event("BOUNDARY_NON_INTERRUPTIVE_TIMER"),
)
LATE_IN_BRANCH = branch(
    wait(target="JOIN", boundaryEventIds=["EVENT"]),
    {**an_event("BOUNDARY_INTERRUPTIVE_TIMER"), "outgoing": [{"targetNodeId": "JOIN"}]},
)
SIDE_WAIT = tiny(
    a_start("WAIT"),
    wait(boundaryEventIds=["EVENT"]),
    {**an_event("BOUNDARY_NON_INTERRUPTIVE_TIMER"), "outgoing": [{"targetNodeId": "SIDE"}]},
    wait("SIDE"),
    an_end(),
)
SIDE_WAIT_IN_BRANCH = branch(
    wait(target="JOIN", boundaryEventIds=["EVENT"]),
    {**an_event("BOUNDARY_NON_INTERRUPTIVE_TIMER"), "outgoing": [{"targetNodeId": "SIDE"}]},
    wait("SIDE", "STOP"),
    an_end("STOP"),
)
TASK_WITH_REMINDER = tiny(
    a_start("HOST"),
    a_host("EXECUTABLE_TASK", "EVENT"),
    an_event("BOUNDARY_NON_INTERRUPTIVE_TIMER"),
    an_end(),
)
SIDE = "SIDE EXTERNAL_TASK CREATED"
TIMERS = (
    _row(
        "8a", "a reminder in a branch fires and its path ends", "the branch of its host is untouched",
        HOST_IN_BRANCH,
        Start(), Execute("EVENT"),
        Then(tasks=(REMINDED.format(2, 2), JOIN.format(2)), waits=(WAIT, OTHER)),
        Complete("OTHER"), Then(tasks=(REMINDED.format(2, 2), JOIN.format(1)), waits=(WAIT,)),
        Complete("WAIT"), Execute("JOIN"), Then(status=ENDED),
    ),
    _row(
        "8b", "a reminder's path waits for an external task, and the host is completed", "the instance ends when both paths have",
        SIDE_WAIT,
        Start(), Execute("EVENT"),
        Then(tasks=(REMINDED.format(2, 2),), waits=(WAIT, "SIDE EXTERNAL_TASK CREATED")),
        Complete("WAIT"), Then(waits=("SIDE EXTERNAL_TASK CREATED",)),
        Complete("SIDE"), Then(status=ENDED),
    ),
    _row(
        "8c", "a deadline in a branch passes", "the branch arrives, once",
        LATE_IN_BRANCH,
        Start(), Execute("EVENT"), Then(tasks=(JOIN.format(1),), waits=(OTHER,)),
        Complete("OTHER"), Execute("JOIN"), Then(status=ENDED),
    ),
    _row(
        "8d", "a reminder in a branch fires, its path waits, and all branches end", "the join goes on; the instance ends when the reminder's path has",
        SIDE_WAIT_IN_BRANCH,
        Start(), Execute("EVENT"), Complete("WAIT"), Complete("OTHER"),
        Then(tasks=("JOIN JOIN_GATEWAY PENDING",), waits=(SIDE,)), Execute("JOIN"), Then(waits=(SIDE,)),
        Complete("SIDE"), Then(status=ENDED),
    ),
    _row(
        "8e", "the path of a reminder in a branch ends after its host's branch", "the branch arrives once, the other is still waited for",
        SIDE_WAIT_IN_BRANCH,
        Start(), Execute("EVENT"), Complete("WAIT"), Complete("SIDE"),
        Then(tasks=(JOIN.format(1),), waits=(OTHER,)), Complete("OTHER"), Execute("JOIN"), Then(status=ENDED),
    ),
    _row(
        "8f", "a task with a handler, a reminder and no commit before it is reached, and runs", "task and reminder wait as rows; the reminder goes with the task",
        TASK_WITH_REMINDER,
        Start(), Then(tasks=("HOST STANDARD PENDING", REMINDED.format(1, 1))), Execute("HOST"), Then(status=ENDED, ran=RAN),
    ),
    _row(
        "8g", "its handler fails for good, and the reminder fires", "the reminder goes on while the task waits for a person",
        TASK_WITH_REMINDER,
        Start(), Execute("HOST", outcome="incident_opened"), Execute("EVENT"),
        Then(
            tasks=("HOST STANDARD ERROR attempts=1", REMINDED.format(2, 2)), incidents=("HOST FAILED_JOB OPEN",), ran=RAN,
        ),
        Heal(), RetryIncident(), Execute("HOST"),
        Then(status=ENDED, incidents=("HOST FAILED_JOB RESOLVED",), ran=RAN * 2),
        handlers=FAILING, max_retries=1,
    ),
    _row(
        "9a", "a reminder is claimed, its host is completed, then it runs", "nothing happens",
        f.REMINDERS,
        Start(), Claim("REMIND"), Complete("COLLECT"), Run("REMIND", outcome="claim_lost"), Then(waits=(CONFIRM,)),
        mongodb_only=True,
    ),
    _row(
        "9b", "a reminder is claimed, the instance ends by the deadline of its host, then it runs", "nothing happens",
        f.TIMER_EVENTS,
        Start(), Claim("REMIND"), Execute("DEADLINE"), Run("REMIND", outcome="claim_lost"), Then(status=ENDED),
        mongodb_only=True,
    ),
    _row(
        "10a", "a deadline is claimed, its host is completed, then it runs", "nothing happens",
        f.RECALL_OR_DEADLINE,
        Start(), Claim("DEADLINE"), Complete("COLLECT"), Run("DEADLINE", outcome="claim_lost"), Then(waits=(CONFIRM,)),
        mongodb_only=True,
    ),
    _row(
        "10b", "a deadline is claimed, the message of its host comes, then it runs", "nothing happens",
        f.REFUND,
        Start(), Claim("DEADLINE"), Correlate("recall-and-refund"), Run("DEADLINE", outcome="claim_lost"),
        Then(tasks=("REFUND_RECALLED STANDARD PENDING",)),
        mongodb_only=True,
    ),
    _row(
        "10c", "a timer task is claimed, its deadline passes, then it runs", "nothing happens",
        f.TIMER_EVENTS,
        Start(), Claim("WAIT"), Execute("DEADLINE"), Run("WAIT", outcome="claim_lost"), Then(status=ENDED),
        mongodb_only=True,
    ),
    _row(
        "10d", "a coordinator is claimed, its deadline passes, then it runs", "nothing happens",
        (f.CALL_EACH_DEADLINE, f.CHILD),
        Start({"items": []}), Claim("CALL"), Execute("DEADLINE"), Run("CALL", outcome="claim_lost"), Then(status=ENDED),
        mongodb_only=True,
    ),
    _row(
        "10e", "a host is completed after its deadline has passed", "refused",
        f.REFUND,
        Start(), Then(tasks=(DEADLINE,), waits=(COLLECT, recall("recall-and-refund"))),
        Execute("DEADLINE"), Complete("COLLECT", refused=NotFoundError),
        Then(tasks=("REFUND_LATE STANDARD PENDING",)),
    ),
)  # fmt: skip

STARTED = (
    "CALL CALL_ACTIVITY_COORDINATOR AWAITING_BRANCHES pending=1",
    "CALL CALL_ACTIVITY_STARTER STARTED index=0",
)
AFTER_TASK = tiny(
    a_start("FIRST"),
    a_task("FIRST", "TASK", commitBefore=True, commitAfter=True),
    a_task("TASK", "END"),
    an_end(),
)
TWICE = (
    _row(
        "11a", "a claimed task runs twice", "one successor",
        AFTER_TASK,
        Start(), Execute("FIRST"), Run("FIRST", outcome="claim_lost"), Then(tasks=(TASK,), ran=RAN * 2),
        mongodb_only=True,
    ),
    _row(
        "11b", "a claimed task in a branch runs twice", "the branch arrives once",
        f.PARALLEL,
        Start(), Execute("LABEL"), Run("LABEL", outcome="claim_lost"),
        Then(tasks=("NOTIFY STANDARD PENDING", JOIN.format(1)), ran=("print_label",) * 2),
        mongodb_only=True,
    ),
    _row(
        "11c", "a claimed join runs twice", "one successor",
        branch(wait(target="JOIN"), key="twice"),
        Start(), Complete("WAIT"), Complete("OTHER"), Execute("JOIN"), Run("JOIN", outcome="claim_lost"), Then(status=ENDED),
        mongodb_only=True,
    ),
    _row(
        "11d", "a claimed timer task runs twice", "one successor",
        f.TIMER,
        Start(), Execute("WAIT"), Run("WAIT", outcome="claim_lost"), Then(waits=(CONFIRM,)),
        mongodb_only=True,
    ),
    _row(
        "11e", "a claimed reminder runs twice", "one next cycle",
        f.REMINDERS,
        Start(), Execute("REMIND"), Run("REMIND", outcome="claim_lost"), Then(tasks=(remind(2),), waits=(COLLECT,)),
        mongodb_only=True,
    ),
    _row(
        "11f", "a claimed sequential coordinator runs twice", "one next starter",
        (f.CALL_IN_TURN, f.CHILD),
        Start({"items": ["doc-1", "doc-2"]}), Execute("CALL", index=0), Execute("PACK", of="main/0"),
        Execute("CALL"), Run("CALL", outcome="claim_lost"), Then(tasks=(awaiting(1), starter(1)), ran=("pack_item",)),
        mongodb_only=True,
    ),
    _row(
        "11g", "an external task is completed twice", "one successor",
        f.RECALL,
        Start(), Then(waits=(COLLECT, recall("recall-parcel"))), Complete("COLLECT"),
        Complete("COLLECT", refused=ConflictError), Then(waits=(CONFIRM,)),
    ),
    _row(
        "12", "a claimed starter runs twice", "one child",
        (f.CALL_SINGLE, f.CHILD),
        Start(), Execute("CALL", index=0), Run("CALL", outcome="claim_lost"),
        Then(tasks=STARTED), Then(of="main/0", tasks=(PACK,)), Absent("main/1"),
        mongodb_only=True,
    ),
    _row(
        "13a", "a starter is claimed, the deadline of its coordinator passes, then it runs", "no child",
        (f.CALL_EACH_DEADLINE, f.CHILD),
        Start({"items": ["doc-1"]}), Claim("CALL", index=0), Execute("DEADLINE"), Run("CALL", outcome="claim_lost"),
        Absent("main/0"), Then(status=ENDED),
        mongodb_only=True,
    ),
    _row(
        "13b", "a starter is claimed, its instance is cancelled, then it runs", "no child",
        (f.CALL_SINGLE, f.CHILD),
        Start(), Claim("CALL", index=0), Cancel(), Run("CALL", outcome="claim_lost"),
        Absent("main/0"), Then(status=CANCELLED),
        mongodb_only=True,
    ),
)  # fmt: skip

GROUP = {
    "catchType": "GROUP",
    "providerType": "VARIABLE",
    "providerVariable": "items",
    "keyPrefix": "item-",
    "keySuffix": "-ready",
}
KEYS = {"items": ["CARD_123", "LOAN_456"]}
THROWER = tiny(
    a_start("FIRST"), a_task("FIRST", "TELL", executor="print_label"),
    a_node("TELL", "EVENT_THROWER", "TASK", commitBefore=True, providerType="STATIC", staticKey="news"),
    a_task("TASK", "END"), an_end(), key="thrower",
)  # fmt: skip
RECEIVER = tiny(a_start("CATCHER"), catcher(target="WAIT"), wait(), an_end())
FAILING_RECEIVER = tiny(a_start("CATCHER"), catcher(target="TASK"), a_task("TASK", "END"), an_end())
NEWS = "CATCHER EVENT_CATCHER_STANDALONE CREATED news"
TOLD = ("print_label", "weigh_parcel")


def _group(policy: str) -> Fixture:
    node = a_node("WAIT_ITEMS", "EVENT_CATCHER", "TASK", matchPolicy=policy, **GROUP)
    return tiny(a_start("WAIT_ITEMS"), node, a_task("TASK", "END"), an_end())


MESSAGES = (
    _row(
        "14a", "the last key of a group comes, and the handler after it fails", "the key can be delivered again",
        _group("ALL"),
        Start(KEYS), Correlate(CARD), Correlate(LOAN, refused=StepFailedError),
        Then(waits=ONE_ITEM, ran=RAN), Heal(), Correlate(LOAN), Then(status=ENDED, ran=RAN * 2),
        handlers=FAILING,
    ),
    _row(
        "14b", "the first key of a group comes where any is enough, and the handler after it fails", "the key can be delivered again",
        _group("ANY"),
        Start(KEYS), Correlate(CARD, refused=StepFailedError),
        Then(waits=(group_row("WAIT_ITEMS", 2), key_row("WAIT_ITEMS", CARD), key_row("WAIT_ITEMS", LOAN)), ran=RAN),
        Heal(), Correlate(CARD), Then(status=ENDED, ran=RAN * 2), Correlate(LOAN, refused=NotFoundError),
        handlers=FAILING,
    ),
    _row(
        "14c", "the key of a catcher comes, and the handler after it fails", "the key can be delivered again",
        FAILING_RECEIVER,
        Start(), Correlate("news", {"grams": 5}, refused=StepFailedError), Then(waits=(NEWS,), ran=RAN, variables={}),
        Heal(), Correlate("news"), Then(status=ENDED, ran=RAN * 2),
        handlers=FAILING,
    ),
    _row(
        "14d", "an external task is completed, and the handler after it fails", "it can be completed again",
        tiny(a_start("WAIT"), wait(target="TASK"), a_task("TASK", "END"), an_end()),
        Start(), Complete("WAIT", {"grams": 5}, refused=StepFailedError), Then(waits=(WAIT,), ran=RAN, variables={}),
        Heal(), Complete("WAIT"), Then(status=ENDED, ran=RAN * 2),
        handlers=FAILING,
    ),
    _row(
        "14e", "a key of a group is completed by the id of its row", "refused",
        f.WAIT_ALL_THEN,
        Start(KEYS), Complete("WAIT_ITEMS", key=LOAN, refused=ConflictError),  Then(tasks=(DEADLINE,), waits=TWO_ITEMS),
    ),
    _row(
        "15a", "a thrower has thrown, the task after it fails, and is retried", "the message is not thrown again",
        (THROWER, RECEIVER),
        Start(name="receiver", key="tiny"), Start(), Execute("TELL"),
        Then(tasks=("TASK STANDARD PENDING attempts=1",), ran=TOLD), Then(of="receiver", waits=(WAIT,), ran=TOLD),
        Start(name="second", key="tiny"), Heal(), Execute("TASK"),
        Then(status=ENDED, ran=(*TOLD, "weigh_parcel")),
        Then(of="second", waits=(NEWS,), ran=(*TOLD, "weigh_parcel")),
        handlers=FAILING,
    ),
    _row(
        "15b", "the receiver's own handler fails", "the thrower is done; the failure stays with the receiver",
        (THROWER, FAILING_RECEIVER),
        Start(name="receiver", key="tiny"), Start(), Execute("TELL"),
        Then(tasks=("TASK STANDARD PENDING attempts=1",), ran=(*TOLD, "weigh_parcel")),
        Then(of="receiver", tasks=("TASK STANDARD PENDING attempts=1",), ran=(*TOLD, "weigh_parcel")),
        handlers=FAILING,
    ),
    _row(
        "15c", "nobody waits when a worker runs the thrower, then somebody does", "the throw is retried as any failed task",
        (THROWER, RECEIVER),
        Start(), Execute("TELL", outcome="retry_scheduled"),
        Then(tasks=("TELL EVENT_THROW PENDING attempts=1",), ran=("print_label",)),
        Start(name="receiver", key="tiny"), Execute("TELL"), Then(status=ENDED, ran=TOLD),
        Then(of="receiver", waits=(WAIT,), ran=TOLD),
    ),
    _row(
        "16", "the task of a tenant is completed by the system", "allowed",
        f.EXTERNAL,
        Start(tenant="tenant-a"), Complete("CONFIRM", by="__KIKWIFLOW_SYSTEM__"), Then(status=ENDED),
    ),
)  # fmt: skip

INCIDENT = Difference(
    "the starter becomes an incident; retrying it starts another child",
    "a person decides whether the work of the child is to be done again",
)
CHILDREN = (
    _row(
        "21a", "a child is cancelled", "its parent is released, or fails",
        (f.CALL_SINGLE, f.CHILD),
        Start(), Execute("CALL", index=0), Cancel("main/0"),
        Then(of="main/0", status=CANCELLED),
        Then(
            tasks=(awaiting(1), starter(0, "ERROR", element=False)), incidents=("CALL FAILED_JOB OPEN",),
        ),
        RetryIncident(), Execute("CALL", index=0), Execute("PACK", of="main/0"), Execute("CALL"),
        Then(
            status=ENDED, incidents=("CALL FAILED_JOB RESOLVED",), ran=("pack_item", "close_shipment"),
        ),
        differs=INCIDENT,
    ),
    _row(
        "21c", "a child is deleted", "its parent is released, or fails",
        (f.CALL_SINGLE, f.CHILD),
        Start(), Execute("CALL", index=0), Delete("main/0"), Absent("main/0"),
        Then(
            tasks=(awaiting(1), starter(0, "ERROR", element=False)), incidents=("CALL FAILED_JOB OPEN",),
        ),
        differs=INCIDENT,
    ),
    _row(
        "21d", "a child of several is cancelled, the others end", "its parent is released, or fails",
        (f.CALL_EACH, f.CHILD),
        Start({"items": ["doc-1", "doc-2"]}), Execute("CALL", index=0), Execute("CALL", index=1),
        Cancel("main/0"), Execute("PACK", of="main/1"),
        Then(
            tasks=(awaiting(1), starter(0, "ERROR")), incidents=("CALL FAILED_JOB OPEN",), ran=("pack_item",),
        ),
        differs=INCIDENT,
    ),
    _row(
        "21b", "a parent is cancelled while its child runs", "the child is cancelled",
        (f.CALL_SINGLE, f.CHILD),
        Start(), Execute("CALL", index=0), Cancel(), Then(status=CANCELLED),
        CancelChildren(), Then(of="main/0", status=CANCELLED),
    ),
)  # fmt: skip

ROWS = (*TIMERS, *TWICE, *MESSAGES, *CHILDREN)
