"""Sections 7.3.1 to 7.3.9: tasks, gateways, joins, variables, retries and error handlers."""

from tests.conformance import fixtures as f
from tests.conformance.looks import ENDED, Deploy, Then
from tests.conformance.row import Difference, Row
from tests.conformance.setup import Answers, Fails, Fixture, Sets, Throws
from tests.conformance.steps import (
    Complete,
    Execute,
    Heal,
    RetryIncident,
    SetVariables,
    Start,
    UnsetVariables,
)

CONFIRM = ("CONFIRM EXTERNAL_TASK CREATED",)

RUNNING = (
    Row(
        id="7.3.1-1",
        case="a task without a boundary",
        reference="its handler runs in the call that starts the instance, which is COMPLETED when the call returns",
        fixtures=(f.EXECUTABLE,),
        handlers={"weigh_parcel": Sets({"grams": 87.5})},
        steps=(Start(), Then(status=ENDED, ran=("weigh_parcel",), variables={"grams": 87.5})),
    ),
    Row(
        id="7.3.1-2",
        case="an instance that never rests",
        reference="it is never stored as a running one",
        fixtures=(f.EXECUTABLE,),
        steps=(Start(), Then(status=ENDED, ran=("weigh_parcel",))),
        differs=Difference(
            "it is not among the running ones either; it is in the history",
            "the caller can ask later how it ended",
        ),
    ),
    Row(
        id="7.3.2-1",
        case="an external task is reached",
        reference="the instance is active, with exactly one external task",
        fixtures=(f.EXTERNAL,),
        steps=(Start(), Then(waits=CONFIRM)),
    ),
    Row(
        id="7.3.2-2",
        case="the external task is completed with a variable",
        reference="COMPLETED, no external task",
        fixtures=(f.EXTERNAL,),
        steps=(
            Start(),
            Complete("CONFIRM", {"received": True}),
            Then(status=ENDED, variables={"received": True}),
        ),
    ),
    Row(
        id="7.3.3-1",
        case="the answer provider gives the first answer",
        reference="only the first handler ran, COMPLETED",
        fixtures=(f.GATEWAY,),
        handlers={"carrier_choice": Answers("ROAD")},
        steps=(Start(), Then(status=ENDED, ran=("weigh_parcel", "book_road"))),
    ),
    Row(
        id="7.3.3-2",
        case="the answer provider gives the second answer",
        reference="only the second handler ran, COMPLETED",
        fixtures=(f.GATEWAY,),
        handlers={"carrier_choice": Answers("AIR")},
        steps=(Start(), Then(status=ENDED, ran=("weigh_parcel", "book_air"))),
    ),
    Row(
        id="7.3.4-1",
        case="start with a commit after the first task",
        reference="the first handler ran, the second did not; one PENDING row of the second task",
        fixtures=(f.COMMIT_AFTER,),
        steps=(Start(), Then(tasks=("LABEL STANDARD PENDING",), ran=("weigh_parcel",))),
    ),
    Row(
        id="7.3.4-2",
        case="the row after the commit is executed",
        reference="its handler ran, COMPLETED",
        fixtures=(f.COMMIT_AFTER,),
        steps=(
            Start(),
            Execute("LABEL"),
            Then(status=ENDED, ran=("weigh_parcel", "print_label")),
        ),
    ),
    Row(
        id="7.3.5-1",
        case="variables are set from outside",
        reference="the instance that is returned has them",
        fixtures=(f.EXTERNAL,),
        steps=(
            Start(),
            SetVariables({"approved": True}, gives={"approved": True}),
            Then(waits=CONFIRM, variables={"approved": True}),
        ),
    ),
    Row(
        id="7.3.5-2",
        case="a variable is removed from outside",
        reference="the instance that is returned lacks it",
        fixtures=(f.EXTERNAL,),
        steps=(
            Start({"temporary": True}),
            Then(waits=CONFIRM, variables={"temporary": True}),
            UnsetVariables("temporary", gives={}),
            Then(waits=CONFIRM, variables={}),
        ),
    ),
    Row(
        id="7.3.5-3",
        case="one of two variables is removed",
        reference="the other is as it was",
        fixtures=(f.EXTERNAL,),
        steps=(
            Start({"temporary": True, "customer": "C-1"}),
            UnsetVariables("temporary", gives={"customer": "C-1"}),
            Then(waits=CONFIRM, variables={"customer": "C-1"}),
        ),
    ),
)


def _refused(number: int, fixture: Fixture, path: str, case: str) -> Row:
    return Row(
        id=f"7.3.6-{number}",
        case=case,
        reference="the deploy is refused",
        fixtures=(fixture,),
        steps=(Deploy(path),),
    )


DEPLOYING = (
    _refused(
        1, f.GROUP_STATIC, "flowNodes.WAIT_ITEMS.providerType", "a group of keys with one fixed key"
    ),
    _refused(
        2,
        f.CATCHER_WITH_OTHER_EVENT,
        "flowNodes.WAIT_PAYMENT.boundaryEventIds[0]",
        "an event catcher with a boundary event that is no timer",
    ),
    _refused(
        3,
        f.CATCHER_WITHOUT_VARIABLE,
        "flowNodes.WAIT_PAYMENT.providerVariable",
        "an event catcher without its variable",
    ),
    _refused(
        4,
        f.CATCH_EVENT_ON_CATCHER,
        "flowNodes.WAIT_PAYMENT.boundaryEventIds[0]",
        "a boundary catch event at an event catcher",
    ),
    _refused(
        5,
        f.THROW_WITHOUT_BEAN,
        "flowNodes.TELL.providerBean",
        "an event thrower without its provider",
    ),
    Row(
        id="7.3.6-6",
        case="an event thrower whose provider nobody has",
        reference="the deploy is refused",
        fixtures=(f.THROW_UNKNOWN_BEAN,),
        steps=(Deploy("flowNodes.TELL.providerBean", handlers_are_known=True),),
        differs=Difference(
            "refused where the handlers are known, by `--check-handlers`; otherwise the task waits for a worker that has it",
            "handlers live in workers, which may be deployed after the definition",
        ),
    ),
)

JOINING = (
    Row(
        id="7.3.7-1",
        case="a split into two tasks, one without a commit before it",
        reference="no handler ran; three rows: both tasks PENDING on branches of their own, the join AWAITING_BRANCHES for exactly those two",
        fixtures=(f.PARALLEL,),
        steps=(
            Start(),
            Then(
                tasks=(
                    "LABEL STANDARD PENDING",
                    "NOTIFY STANDARD PENDING",
                    "JOIN JOIN_GATEWAY AWAITING_BRANCHES pending=2",
                )
            ),
        ),
    ),
    *(
        Row(
            id=f"7.3.7-{number}",
            case=f"the branches are executed, the {word} one first, then the join",
            reference="the join waits for the other branch, is PENDING after both, and goes on when it is executed: COMPLETED",
            fixtures=(f.PARALLEL,),
            steps=(
                Start(),
                Execute(first),
                Then(
                    tasks=(
                        f"{second} STANDARD PENDING",
                        "JOIN JOIN_GATEWAY AWAITING_BRANCHES pending=1",
                    ),
                    ran=(first_runs,),
                ),
                Execute(second),
                Then(
                    tasks=("JOIN JOIN_GATEWAY PENDING",),
                    ran=(first_runs, second_runs),
                ),
                Execute("JOIN"),
                Then(status=ENDED, ran=(first_runs, second_runs, "load_parcel")),
            ),
        )
        for number, word, first, second, first_runs, second_runs in (
            (2, "first", "LABEL", "NOTIFY", "print_label", "notify_receiver"),
            (3, "second", "NOTIFY", "LABEL", "notify_receiver", "print_label"),
        )
    ),
)

RETRYING = (
    Row(
        id="7.3.8-1",
        case="a handler fails and has an attempt left",
        reference="the row is PENDING with one attempt less, no incident; the history has the failed visit",
        fixtures=(f.RETRYABLE,),
        handlers={"weigh_parcel": Fails(1)},
        steps=(
            Start(),
            Then(tasks=("WEIGH STANDARD PENDING",), retries={"WEIGH": 2}),
            Execute("WEIGH", outcome="retry_scheduled"),
            Then(
                tasks=("WEIGH STANDARD PENDING attempts=1",),
                retries={"WEIGH": 1},
                ran=("weigh_parcel",),
            ),
        ),
    ),
    Row(
        id="7.3.8-2",
        case="it fails for good, and its incident is retried",
        reference="ERROR without attempts and one OPEN incident FAILED_JOB; after the retry PENDING with the policy's attempts, the incident RESOLVED; executing it: COMPLETED",
        fixtures=(f.RETRYABLE,),
        handlers={"weigh_parcel": Fails()},
        steps=(
            Start(),
            Execute("WEIGH", outcome="retry_scheduled"),
            Execute("WEIGH", outcome="incident_opened"),
            Then(
                tasks=("WEIGH STANDARD ERROR attempts=2",),
                retries={"WEIGH": 0},
                incidents=("WEIGH FAILED_JOB OPEN",),
                ran=("weigh_parcel",) * 2,
            ),
            Heal(),
            RetryIncident(),
            Then(
                tasks=("WEIGH STANDARD PENDING",),
                retries={"WEIGH": 2},
                incidents=("WEIGH FAILED_JOB RESOLVED",),
                ran=("weigh_parcel",) * 2,
            ),
            Execute("WEIGH"),
            Then(
                status=ENDED,
                incidents=("WEIGH FAILED_JOB RESOLVED",),
                ran=("weigh_parcel",) * 3,
            ),
        ),
    ),
    Row(
        id="7.3.9-1",
        case="a business error that a handler is made for",
        reference="the path goes on there: COMPLETED, no incident, no other handler called",
        fixtures=(f.ERROR_HANDLERS,),
        handlers={"declare_goods": Throws("PROHIBITED")},
        steps=(Start(), Execute("DECLARE"), Then(status=ENDED, ran=("declare_goods",))),
    ),
    Row(
        id="7.3.9-2",
        case="a business error that the handler for all codes takes, with a commit after it",
        reference="ACTIVE, no incident, one row of the next task; executing it: COMPLETED",
        fixtures=(f.ERROR_HANDLERS,),
        handlers={"declare_goods": Throws("UNKNOWN_CODE")},
        steps=(
            Start(),
            Execute("DECLARE"),
            Then(tasks=("TELL_SENDER STANDARD PENDING",), ran=("declare_goods",)),
            Execute("TELL_SENDER"),
            Then(status=ENDED, ran=("declare_goods", "tell_sender")),
        ),
    ),
    Row(
        id="7.3.9-3",
        case="a technical error at a node with error handlers",
        reference="an ordinary retry: one row, PENDING, one attempt less, no incident",
        fixtures=(f.ERROR_HANDLERS,),
        handlers={"declare_goods": Fails()},
        steps=(
            Start(),
            Execute("DECLARE", outcome="retry_scheduled"),
            Then(
                tasks=("DECLARE STANDARD PENDING attempts=1",),
                retries={"DECLARE": 1},
                ran=("declare_goods",),
            ),
        ),
    ),
    Row(
        id="7.3.9-4",
        case="a business error that no handler takes",
        reference="ERROR after one attempt, without attempts left; one OPEN incident UNHANDLED_BUSINESS_ERROR",
        fixtures=(f.ERROR_UNMATCHED,),
        handlers={"declare_abroad": Throws("EXPIRED")},
        steps=(
            Start(),
            Execute("DECLARE", outcome="incident_opened"),
            Then(
                tasks=("DECLARE STANDARD ERROR attempts=1",),
                retries={"DECLARE": 0},
                incidents=("DECLARE UNHANDLED_BUSINESS_ERROR OPEN",),
                ran=("declare_abroad",),
            ),
        ),
    ),
)

ROWS = (*RUNNING, *DEPLOYING, *JOINING, *RETRYING)
